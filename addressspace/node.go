package addressspace

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Node is one node of a [Space]. Its identity never changes; everything else is
// published atomically, so a Node may be held for as long as one likes. After
// its deletion [Node.Deleted] reports true.
type Node struct {
	space  *Space
	id     uabinary.NodeID
	browse atomic.Pointer[uabinary.QualifiedName]

	// attrs is immutable and shared between nodes that agree.
	attrs atomic.Pointer[attributes]
	refs  atomic.Pointer[[]Reference]
	value atomic.Pointer[uabinary.DataValue]
	// above is the supertype of a type, the type definition of an instance.
	above atomic.Pointer[Node]
	ext   atomic.Pointer[extension]

	mu      sync.Mutex // one change of value or attributes at a time
	class   uint8
	deleted atomic.Bool
}

// attributes are those attributes that nodes often share. The struct is
// comparable: equal ones without pointers of their own are stored once.
type attributes struct {
	dataType    *Node  // Variable, VariableType; nil reads as BaseDataType
	dims        string // ArrayDimensions, 4 bytes each; see hasDims
	minSampling float64

	display     *uabinary.LocalizedText // nil: the BrowseName's text
	description *uabinary.LocalizedText // nil: none
	inverseName *uabinary.LocalizedText // ReferenceType
	definition  *uabinary.Variant       // DataTypeDefinition

	valueRank   int32
	accessLevel uint32 // AccessLevelEx; the low byte is AccessLevel
	writeMask   uint32

	builtin       ua.TypeID // wire type of dataType, 0 when it is abstract
	eventNotifier uint8

	hasDims        bool
	isAbstract     bool
	symmetric      bool
	containsNoLoop bool
	historizing    bool
	executable     bool
	hasSampling    bool // MinimumSamplingInterval is there (it is optional)
}

// extension holds what only some nodes have.
type extension struct {
	onRead     atomic.Pointer[readCallback]
	onWrite    atomic.Pointer[func(*WriteCall) error]
	method     atomic.Pointer[MethodFunc]
	userAccess atomic.Pointer[func(*Caller) ua.AccessLevelType]
	userCall   atomic.Pointer[func(*Caller) bool]
	arguments  [2]atomic.Pointer[argumentList] // input, output: cached

	writing sync.Mutex // one client write with a callback at a time

	watchMu  sync.Mutex
	watchers atomic.Pointer[[]Watcher]
}

func (n *Node) extend() *extension {
	if e := n.ext.Load(); e != nil {
		return e
	}
	n.ext.CompareAndSwap(nil, new(extension))
	return n.ext.Load()
}

// ID returns the NodeId. Its bytes must not be changed.
func (n *Node) ID() uabinary.NodeID { return n.id }

// Space returns the space the node belongs or belonged to.
func (n *Node) Space() *Space { return n.space }

// Class returns the NodeClass.
func (n *Node) Class() ua.NodeClass { return ua.NodeClass(n.class) }

// BrowseName returns the BrowseName.
func (n *Node) BrowseName() uabinary.QualifiedName { return *n.browse.Load() }

// DisplayName returns the DisplayName.
func (n *Node) DisplayName() uabinary.LocalizedText {
	if d := n.attrs.Load().display; d != nil {
		return *d
	}
	return uabinary.LocalizedText{Text: n.browse.Load().Name}
}

// Description returns the Description; ok is false when the node has none.
func (n *Node) Description() (text uabinary.LocalizedText, ok bool) {
	if d := n.attrs.Load().description; d != nil {
		return *d, true
	}
	return uabinary.LocalizedText{}, false
}

// Deleted reports whether the node has been deleted.
func (n *Node) Deleted() bool { return n.deleted.Load() }

// References returns the node's references in both directions: an immutable
// snapshot that is not to be changed.
func (n *Node) References() []Reference {
	if r := n.refs.Load(); r != nil {
		return *r
	}
	return nil
}

// TypeDefinition returns the type of an Object or Variable, nil for other
// classes.
func (n *Node) TypeDefinition() *Node {
	if n.class == uint8(ua.NodeClassObject) || n.class == uint8(ua.NodeClassVariable) {
		return n.above.Load()
	}
	return nil
}

// Supertype returns the supertype of a type node, nil for other classes and
// for the roots of the type trees.
func (n *Node) Supertype() *Node {
	if n.isType() {
		return n.above.Load()
	}
	return nil
}

func (n *Node) isType() bool {
	return n.class&uint8(ua.NodeClassObjectType|ua.NodeClassVariableType|ua.NodeClassReferenceType|ua.NodeClassDataType) != 0
}

func (n *Node) isVariable() bool { return n.class == uint8(ua.NodeClassVariable) }

// Value returns the current stored value of a Variable or VariableType, nil
// when it has none. The value is immutable; the same pointer means that nothing
// has changed. A node with a read callback ([Node.Dynamic]) is to be read with
// [Space.ReadValue].
func (n *Node) Value() *uabinary.DataValue { return n.value.Load() }

// Dynamic reports whether reading the value calls a callback.
func (n *Node) Dynamic() bool {
	e := n.ext.Load()
	return e != nil && e.onRead.Load() != nil
}

// DataType returns the DataType node of a Variable or VariableType.
func (n *Node) DataType() *Node {
	if t := n.attrs.Load().dataType; t != nil {
		return t
	}
	return n.space.known.baseDataType
}

// ValueRank returns the ValueRank (OPC 10000-3 §5.6.2): -3 ScalarOrOneDimension,
// -2 Any, -1 Scalar, 0 OneOrMoreDimensions, else the number of dimensions.
func (n *Node) ValueRank() int32 { return n.attrs.Load().valueRank }

// ArrayDimensions returns the ArrayDimensions attribute, nil when there is none.
func (n *Node) ArrayDimensions() []uint32 {
	a := n.attrs.Load()
	if !a.hasDims {
		return nil
	}
	dims := make([]uint32, 0, len(a.dims)/4)
	for i := 0; i+4 <= len(a.dims); i += 4 {
		dims = append(dims, binary.LittleEndian.Uint32([]byte(a.dims[i:i+4])))
	}
	return dims
}

// AccessLevel returns the AccessLevel of a Variable.
func (n *Node) AccessLevel() ua.AccessLevelType {
	return ua.AccessLevelType(n.attrs.Load().accessLevel)
}

// UserAccessLevel returns what remains of the AccessLevel for a caller.
func (n *Node) UserAccessLevel(c *Caller) ua.AccessLevelType {
	level := n.AccessLevel()
	if e := n.ext.Load(); e != nil {
		if f := e.userAccess.Load(); f != nil {
			if c == nil {
				c = &noCaller
			}
			level &= (*f)(c)
		}
	}
	return level
}

// noCaller stands for the server itself asking.
var noCaller = Caller{Admin: true}

// MinimumSamplingInterval returns the fastest useful sampling interval in
// milliseconds: 0 continuous, -1 unknown (OPC 10000-3 §5.6.2).
func (n *Node) MinimumSamplingInterval() float64 {
	if a := n.attrs.Load(); a.hasSampling {
		return a.minSampling
	}
	return -1
}

// Historizing reports whether history is collected.
func (n *Node) Historizing() bool { return n.attrs.Load().historizing }

// EventNotifier returns the EventNotifier bits of an Object or View.
func (n *Node) EventNotifier() byte { return n.attrs.Load().eventNotifier }

// IsAbstract reports whether a type is abstract.
func (n *Node) IsAbstract() bool { return n.attrs.Load().isAbstract }

// Child returns the first node that a forward hierarchical reference with the
// given BrowseName leads to, nil when there is none.
func (n *Node) Child(name uabinary.QualifiedName) *Node {
	for i, refs := 0, n.References(); i < len(refs); i++ {
		r := &refs[i]
		if r.Inverse || r.Target == nil {
			continue
		}
		b := r.Target.browse.Load()
		if b.Namespace == name.Namespace && bytes.Equal(b.Name, name.Name) &&
			SubtypeOf(r.Type, n.space.known.hierarchical) {
			return r.Target
		}
	}
	return nil
}

// Property returns the property of namespace 0 with the given name, nil when
// there is none.
func (n *Node) Property(name string) *Node {
	for i, refs := 0, n.References(); i < len(refs); i++ {
		r := &refs[i]
		if r.Inverse || r.Target == nil || r.Type != n.space.known.hasProperty {
			continue
		}
		if b := r.Target.browse.Load(); b.Namespace == 0 && string(b.Name) == name {
			return r.Target
		}
	}
	return nil
}

// Parent returns the source of the first inverse hierarchical reference, nil
// when there is none.
func (n *Node) Parent() *Node {
	for i, refs := 0, n.References(); i < len(refs); i++ {
		if r := &refs[i]; r.Inverse && r.Target != nil && SubtypeOf(r.Type, n.space.known.hierarchical) {
			return r.Target
		}
	}
	return nil
}

// change replaces the shared attributes by a changed copy. The caller holds n.mu
// or owns n.
func (n *Node) change(f func(*attributes)) {
	a := *n.attrs.Load()
	f(&a)
	n.attrs.Store(&a)
}
