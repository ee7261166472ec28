package addressspace

import (
	"fmt"
	"strings"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// Namespace adds nodes to one namespace of a space.
//
// A node is named by its path from the Objects folder: "Boiler.Temperature".
// Objects on the way that are missing are made. A backslash before a dot, or
// before a backslash, makes it part of a name. The path is also the string of
// the NodeId and its last part the BrowseName, unless options say otherwise.
//
// Methods called like the thing they make (Variable, Object, Method, …) panic
// when the node cannot be made, for programs whose names are fixed; their Add
// forms return the error.
type Namespace struct {
	space *Space
	uri   string
	index uint16
	// paths finds nodes whose id is not their path; under Space.mu.
	paths map[string]*Node
}

// Namespace returns the namespace with the given URI, adding it to the
// NamespaceArray when it is new.
func (s *Space) Namespace(uri string) *Namespace {
	index := s.AddNamespace(uri)
	s.mu.Lock()
	defer s.mu.Unlock()
	ns := s.spaces[uri]
	if ns == nil {
		ns = &Namespace{space: s, uri: uri, index: index, paths: make(map[string]*Node)}
		s.spaces[uri] = ns
	}
	return ns
}

// Index returns the namespace index.
func (ns *Namespace) Index() uint16 { return ns.index }

// URI returns the namespace URI.
func (ns *Namespace) URI() string { return ns.uri }

// NodeID returns the id that a node with the given path has by default.
func (ns *Namespace) NodeID(path string) uabinary.NodeID { return uabinary.StringID(ns.index, path) }

// Node returns the node with the given path, nil when there is none.
func (ns *Namespace) Node(path string) *Node {
	ns.space.mu.Lock()
	defer ns.space.mu.Unlock()
	return ns.find(path)
}

func (ns *Namespace) find(path string) *Node {
	if n := ns.paths[path]; n != nil && !n.Deleted() {
		return n
	}
	return ns.space.Lookup(uabinary.StringID(ns.index, path))
}

// Variable makes a Variable with an initial value; its DataType and ValueRank
// follow from the value. nil makes one without a value, for which [DataType]
// should be given. Clients may only read it unless an option says otherwise.
func (ns *Namespace) Variable(path string, initial any, options ...Option) *Variable {
	v, err := ns.AddVariable(path, initial, options...)
	if err != nil {
		panic(err)
	}
	return v
}

// AddVariable is [Namespace.Variable] that returns an error.
func (ns *Namespace) AddVariable(path string, initial any, options ...Option) (*Variable, error) {
	ns.space.mu.Lock()
	defer ns.space.mu.Unlock()
	return ns.addVariable(path, initial, options, new(Node))
}

// VariableSpec is one Variable for [Namespace.AddVariables].
type VariableSpec struct {
	Path    string
	Initial any
	Options []Option
}

// AddVariables makes many Variables at once, with less garbage and memory than
// one by one. It stops at the first that cannot be made; those before it stay
// and are returned with the error.
func (ns *Namespace) AddVariables(specs ...VariableSpec) ([]*Variable, error) {
	s := ns.space
	s.mu.Lock()
	defer s.mu.Unlock()
	defer (*s.tables.Load())[ns.index].settle()
	const slab = 256
	var nodes []Node
	handles := make([]Variable, len(specs))
	out := make([]*Variable, 0, len(specs))
	for i := range specs {
		if len(nodes) == 0 {
			nodes = make([]Node, min(slab, len(specs)-i))
		}
		v, err := ns.addVariable(specs[i].Path, specs[i].Initial, specs[i].Options, &nodes[0])
		if err != nil {
			return out, err
		}
		nodes = nodes[1:]
		handles[i] = *v
		out = append(out, &handles[i])
	}
	return out, nil
}

func (ns *Namespace) addVariable(path string, initial any, options []Option, n *Node) (*Variable, error) {
	spec := ns.spec(ua.NodeClassVariable, options)
	if err := spec.setValue(ns.space, initial); err != nil {
		return nil, fmt.Errorf("addressspace: variable %q: %w", path, err)
	}
	if err := ns.add(n, path, &spec); err != nil {
		return nil, err
	}
	return &Variable{node: n}, nil
}

// Object makes an Object of BaseObjectType or, with [TypeDefinition], of another
// type.
func (ns *Namespace) Object(path string, options ...Option) *Node {
	return must(ns.AddObject(path, options...))
}

// AddObject is [Namespace.Object] that returns an error.
func (ns *Namespace) AddObject(path string, options ...Option) (*Node, error) {
	return ns.addNode(ua.NodeClassObject, path, options)
}

// Folder makes an Object of FolderType.
func (ns *Namespace) Folder(path string, options ...Option) *Node {
	return must(ns.AddFolder(path, options...))
}

// AddFolder is [Namespace.Folder] that returns an error.
func (ns *Namespace) AddFolder(path string, options ...Option) (*Node, error) {
	folder := TypeDefinition(ns.space.known.folderType.id)
	return ns.addNode(ua.NodeClassObject, path, append([]Option{folder}, options...))
}

// View makes a View under the Views folder.
func (ns *Namespace) View(path string, options ...Option) *Node {
	views := Parent(uabinary.NumericID(0, 87))
	return must(ns.addNode(ua.NodeClassView, path, append([]Option{views}, options...)))
}

// Method makes a Method with code behind it; f may be nil and bound later
// ([Space.BindMethod]).
func (ns *Namespace) Method(path string, in, out []ua.Argument, f MethodFunc, options ...Option) *Node {
	return must(ns.AddMethod(path, in, out, f, options...))
}

// AddMethod is [Namespace.Method] that returns an error.
func (ns *Namespace) AddMethod(path string, in, out []ua.Argument, f MethodFunc, options ...Option) (*Node, error) {
	for i, args := range [][]ua.Argument{in, out} {
		if len(args) == 0 {
			continue
		}
		v, err := argumentsVariant(args)
		if err != nil {
			return nil, fmt.Errorf("addressspace: method %q: %w", path, err)
		}
		name := argumentNames[i]
		options = append(options[:len(options):len(options)], func(n *nodeSpec) {
			n.properties = append(n.properties, propertySpec{name: name, value: v, typ: 296})
		})
	}
	n, err := ns.addNode(ua.NodeClassMethod, path, options)
	if err == nil && f != nil {
		n.extend().method.Store(&f)
	}
	return n, err
}

// ObjectType makes an ObjectType; [Parent] names its supertype, without it it is
// BaseObjectType. Instance declarations are added under it with a longer path
// and [Mandatory] or [Optional].
func (ns *Namespace) ObjectType(path string, options ...Option) (*Node, error) {
	return ns.addType(ua.NodeClassObjectType, path, ns.space.known.baseObjectType, options)
}

// VariableType makes a VariableType; the default supertype is BaseDataVariableType.
func (ns *Namespace) VariableType(path string, options ...Option) (*Node, error) {
	return ns.addType(ua.NodeClassVariableType, path, ns.space.known.baseDataVariableType, options)
}

// DataType makes a DataType; the default supertype is Structure.
func (ns *Namespace) DataType(path string, options ...Option) (*Node, error) {
	return ns.addType(ua.NodeClassDataType, path, ns.space.known.structure, options)
}

// ReferenceType makes a ReferenceType; the default supertype is Organizes.
func (ns *Namespace) ReferenceType(path string, options ...Option) (*Node, error) {
	return ns.addType(ua.NodeClassReferenceType, path, ns.space.known.organizes, options)
}

func (ns *Namespace) addType(class ua.NodeClass, path string, super *Node, options []Option) (*Node, error) {
	return ns.addNode(class, path, append([]Option{Parent(super.id)}, options...))
}

// Delete removes the nodes with the given paths (see [Space.Delete]) and returns
// how many nodes have gone.
func (ns *Namespace) Delete(paths ...string) int {
	var ids []uabinary.NodeID
	for _, p := range paths {
		if n := ns.Node(p); n != nil {
			ids = append(ids, n.id)
		}
	}
	count := ns.space.Delete(ids...)
	ns.space.mu.Lock()
	defer ns.space.mu.Unlock()
	for p, n := range ns.paths {
		if n.Deleted() {
			delete(ns.paths, p)
		}
	}
	return count
}

func must(n *Node, err error) *Node {
	if err != nil {
		panic(err)
	}
	return n
}

func (ns *Namespace) addNode(class ua.NodeClass, path string, options []Option) (*Node, error) {
	ns.space.mu.Lock()
	defer ns.space.mu.Unlock()
	spec := ns.spec(class, options)
	n := new(Node)
	if err := ns.add(n, path, &spec); err != nil {
		return nil, err
	}
	return n, nil
}

func (ns *Namespace) spec(class ua.NodeClass, options []Option) nodeSpec {
	spec := nodeSpec{class: class, rank: -1, access: uint32(AccessRead)}
	spec.id.Namespace = ns.index
	for _, o := range options {
		o(&spec)
	}
	return spec
}

// setValue takes the initial value and what follows from it.
func (n *nodeSpec) setValue(s *Space, initial any) error {
	if initial == nil {
		if !n.hasRank {
			n.rank = -1
			if n.dataType == nil {
				n.rank = -2
			}
			if n.dims != nil {
				n.rank = int32(len(n.dims))
			}
		}
		return nil
	}
	dv := uabinary.DataValue{Mask: ua.DataValueValue | ua.DataValueSourceTimestamp}
	switch x := initial.(type) {
	case uabinary.DataValue:
		dv = x
	case *ua.DataValue:
		var err error
		if dv, err = uabinary.DataValueOf(x); err != nil {
			return err
		}
	default:
		v, err := toVariant(initial)
		if err != nil {
			return err
		}
		dv.Value = v
	}
	if dv.Mask&ua.DataValueSourceTimestamp == 0 || dv.SourceTimestamp == 0 {
		dv.Mask |= ua.DataValueSourceTimestamp
		dv.SourceTimestamp = uabinary.Now()
	}
	n.value = &dv
	if !n.hasRank {
		n.rank = -1
		if dims := dv.Value.Dims(); len(dims) > 0 {
			n.rank = int32(len(dims))
		} else if dv.Value.IsArray() {
			n.rank = 1
		}
	}
	if n.rank > 0 && n.dims == nil {
		n.dims = make([]uint32, n.rank)
	}
	if n.dataType == nil && !dv.Value.IsNull() {
		id := uabinary.NumericID(0, uint32(dv.Value.Type()))
		if _, ok := initial.(time.Duration); ok {
			id.Numeric = idDuration
		}
		if dv.Value.Type() == ua.TypeIDExtensionObject {
			id = structureTypeOf(s, dv.Value)
		}
		n.dataType = &id
	}
	return nil
}

// structureTypeOf finds the DataType of a structure or of the elements of an
// array of one kind of structure.
func structureTypeOf(s *Space, v uabinary.Variant) uabinary.NodeID {
	if v.IsArray() {
		if v.Len() <= 0 {
			return s.known.structure.id
		}
		v = v.Element(0)
	}
	if x, ok := v.ExtensionObject(); ok {
		if t := s.dataTypeOf(x.TypeID.NodeID); t != nil {
			return t.id
		}
	}
	return s.known.structure.id
}

// add makes the node with a path and everything its spec asks for.
func (ns *Namespace) add(n *Node, path string, spec *nodeSpec) error {
	fail := func(code ua.StatusCode, format string, args ...any) error {
		return uastatus.New(code, "addressspace.Add", fmt.Errorf("%q: %s", path, fmt.Sprintf(format, args...)))
	}
	parentPath, name := splitPath(path)
	if !spec.hasName {
		spec.name = uabinary.QualifiedName{Namespace: ns.index, Name: []byte(name)}
	}
	if !spec.hasID {
		spec.id = uabinary.StringID(ns.index, path)
	}
	switch {
	case spec.parentID != nil && (spec.parent == nil):
		if spec.parent = ns.space.Lookup(*spec.parentID); spec.parent == nil {
			return fail(ua.StatusBadParentNodeIDInvalid, "no parent %s", spec.parentID)
		}
	case spec.parent == nil && parentPath == "":
		spec.parent = ns.space.known.objects
	case spec.parent == nil:
		parent, err := ns.ensure(parentPath)
		if err != nil {
			return err
		}
		spec.parent = parent
	}
	if err := ns.space.create(n, spec, fail); err != nil {
		return err
	}
	if spec.hasID {
		ns.paths[path] = n
	}
	return nil
}

// ensure returns the node with a path, making the objects that are missing.
func (ns *Namespace) ensure(path string) (*Node, error) {
	var missing []string
	var n *Node
	for p := path; p != ""; p, _ = splitPath(p) {
		if n = ns.find(p); n != nil {
			break
		}
		missing = append(missing, p)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		spec := ns.spec(ua.NodeClassObject, nil)
		spec.parent = n // nil: the Objects folder
		made := new(Node)
		if err := ns.add(made, missing[i], &spec); err != nil {
			return nil, err
		}
		n = made
	}
	return n, nil
}

// splitPath cuts the last name off a path and takes its backslashes away.
func splitPath(path string) (parent, name string) {
	cut := -1
	for i := 0; i < len(path); i++ {
		switch path[i] {
		case '\\':
			i++
		case '.':
			cut = i
		}
	}
	name = path[cut+1:]
	if cut >= 0 {
		parent = path[:cut]
	}
	if strings.Contains(name, `\`) {
		var b strings.Builder
		for i := 0; i < len(name); i++ {
			if name[i] == '\\' && i+1 < len(name) {
				i++
			}
			b.WriteByte(name[i])
		}
		name = b.String()
	}
	return parent, name
}

// Clear deletes every node of the namespace and forgets the model that was
// imported into it; the namespace keeps its index. It returns the number of
// nodes deleted.
func (ns *Namespace) Clear() int {
	var ids []uabinary.NodeID
	(*ns.space.tables.Load())[ns.index].all(func(n *Node) bool {
		ids = append(ids, n.id)
		return true
	})
	count := ns.space.Delete(ids...)
	ns.space.mu.Lock()
	defer ns.space.mu.Unlock()
	clear(ns.paths)
	delete(ns.space.models, ns.uri)
	return count
}
