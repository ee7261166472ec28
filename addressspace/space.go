package addressspace

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace/internal/nodeset"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// NamespaceOPCUA is the URI of namespace 0.
const NamespaceOPCUA = "http://opcfoundation.org/UA/"

// Options configures a [Space]. The zero value works.
type Options struct {
	// ApplicationURI is the URI of namespace 1, the server's own namespace
	// (OPC 10000-5 §6.3.1). Empty: "urn:breakwater".
	ApplicationURI string

	// MaxBrowseNameLength bounds the bytes of a BrowseName that the API, an
	// import or a write may give a node. Zero: 512, the length OPC 10000-3
	// §8.3 allows. Negative: no bound.
	MaxBrowseNameLength int
}

// Space is an address space. Make one with [New].
type Space struct {
	maxBrowseName int

	// tables holds one node table per namespace index. The slice is replaced
	// when a namespace is added, the tables stay.
	tables atomic.Pointer[[]*table]
	// uris has the namespace URIs; each change publishes a new slice.
	uris atomic.Pointer[[]string]

	// mu serialises structural changes: nodes, references, namespaces.
	mu     sync.Mutex
	spaces map[string]*Namespace
	intern map[attributes]*attributes
	models map[string]nodeset.Model // imported information models by URI

	count atomic.Int64
	known wellKnown
}

// wellKnown holds the namespace 0 nodes the code itself asks for.
type wellKnown struct {
	references, hierarchical, aggregates, hasComponent, hasProperty, organizes *Node
	hasTypeDefinition, hasSubtype, hasModellingRule, hasEncoding               *Node
	objects, folderType, baseObjectType, baseDataVariableType, propertyType    *Node
	baseDataType, structure, enumeration                                       *Node

	// builtin has the DataType nodes of the built-in types by their number.
	builtin [32]*Node
}

// New returns a space that holds namespace 0 and an empty namespace 1.
func New(o Options) (*Space, error) {
	if o.ApplicationURI == "" {
		o.ApplicationURI = "urn:breakwater"
	}
	if o.MaxBrowseNameLength == 0 {
		o.MaxBrowseNameLength = 512
	}
	s := &Space{
		maxBrowseName: o.MaxBrowseNameLength,
		spaces:        make(map[string]*Namespace),
		intern:        make(map[attributes]*attributes),
		models:        map[string]nodeset.Model{NamespaceOPCUA: {URI: NamespaceOPCUA}},
	}
	s.tables.Store(&[]*table{})
	s.uris.Store(&[]string{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addNamespace(NamespaceOPCUA)
	if err := s.loadNamespace0(); err != nil {
		return nil, fmt.Errorf("addressspace: namespace 0: %w", err)
	}
	s.addNamespace(o.ApplicationURI)
	s.publishNamespaceArray()
	return s, nil
}

// Lookup returns the node with the given id, nil when there is none. It takes
// no lock and allocates nothing.
func (s *Space) Lookup(id uabinary.NodeID) *Node {
	tables := *s.tables.Load()
	if int(id.Namespace) >= len(tables) {
		return nil
	}
	t := tables[id.Namespace]
	if id.Type == uabinary.IDNumeric {
		return t.numeric(id.Numeric)
	}
	return t.keyed(id)
}

// Len returns the number of nodes.
func (s *Space) Len() int { return int(s.count.Load()) }

// NamespaceLen returns the number of nodes of one namespace, 0 for an unknown
// index.
func (s *Space) NamespaceLen(index uint16) int {
	tables := *s.tables.Load()
	if int(index) >= len(tables) {
		return 0
	}
	return int(tables[index].count.Load())
}

// NamespaceArray returns the namespace URIs by index, a copy.
func (s *Space) NamespaceArray() []string {
	return slices.Clone(s.namespaces())
}

func (s *Space) namespaces() []string { return *s.uris.Load() }

// AddNamespace returns the index of the namespace with the given URI and adds
// it to the NamespaceArray when it is not there. Indexes never change.
func (s *Space) AddNamespace(uri string) uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.namespaces())
	i := s.addNamespace(uri)
	if len(s.namespaces()) != n {
		s.publishNamespaceArray()
	}
	return i
}

// NamespaceIndex returns the index of a namespace that is there already.
func (s *Space) NamespaceIndex(uri string) (uint16, bool) {
	i := slices.Index(s.namespaces(), uri)
	return uint16(max(i, 0)), i >= 0
}

// addNamespace is AddNamespace under s.mu, without publishing the array.
func (s *Space) addNamespace(uri string) uint16 {
	uris := s.namespaces()
	if i := slices.Index(uris, uri); i >= 0 {
		return uint16(i)
	}
	if len(uris) > 0xFFFF {
		panic("addressspace: more than 65536 namespaces")
	}
	tables := append(slices.Clone(*s.tables.Load()), new(table))
	s.tables.Store(&tables)
	uris = append(slices.Clone(uris), uri)
	s.uris.Store(&uris)
	return uint16(len(tables) - 1)
}

// publishNamespaceArray stores the URIs as the value of Server.NamespaceArray
// (OPC 10000-5 §6.3.1 ServerType).
func (s *Space) publishNamespaceArray() {
	n := s.Lookup(uabinary.NumericID(0, idServerNamespaceArray))
	if n == nil {
		return
	}
	v, err := uabinary.NewVariant(slices.Clone(s.namespaces()))
	if err != nil {
		return
	}
	n.store(&uabinary.DataValue{
		Mask:            ua.DataValueValue | ua.DataValueSourceTimestamp,
		Value:           v,
		SourceTimestamp: uabinary.Now(),
	})
}

// All calls f for every node until f returns false. Nodes that are added or
// deleted meanwhile may or may not be seen.
func (s *Space) All(f func(*Node) bool) {
	for _, t := range *s.tables.Load() {
		if !t.all(f) {
			return
		}
	}
}
