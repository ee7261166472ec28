// Command gen compiles namespace 0 from gopcua's NodeSet2 into the form that
// addressspace embeds. All numbers are little-endian, strings as in OPC UA Binary:
//
//	uint32 magic "BWN0", uint32 number of nodes
//	per node, by id: uint32 id, byte class, uint16 flags, string BrowseName,
//	  [string DisplayName] [string Description] [string InverseName]
//	  Object, View: byte EventNotifier
//	  Variable, VariableType: uint16 index of the DataType, int32 ValueRank,
//	    uint32 AccessLevel, [ByteString ArrayDimensions] [double MinimumSamplingInterval]
//	  [Variant DataTypeDefinition] [Variant Value]
//	uint32 number of references
//	per forward reference: uint16 source, uint16 type, uint16 target (indexes)
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"slices"

	"github.com/gopcua/opcua/schema"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace/internal/nodeset"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// pruned are roots of instances that stand for things the server does not do;
// a client that finds them would believe them. The types stay.
var pruned = map[uint32]string{
	2289:  "SamplingIntervalDiagnosticsArray: optional, not kept",
	11192: "HistoryServerCapabilities: no history",
	11713: "MaxNodesPerNodeManagement: no NodeManagement services",
	12165: "MaxNodesPerHistoryReadData: no history",
	12166: "MaxNodesPerHistoryReadEvents: no history",
	12167: "MaxNodesPerHistoryUpdateData: no history",
	12168: "MaxNodesPerHistoryUpdateEvents: no history",
	12637: "ServerConfiguration: no certificate management over OPC UA",
	12749: "SetSubscriptionDurable: no durable subscriptions",
	12885: "EstimatedReturnTime: optional, never known",
	12886: "RequestServerStateChange: not by clients",
	14443: "PublishSubscribe: no PubSub",
	15004: "UrisVersion: for sessionless calls, of which there are none",
	15606: "RoleSet: no roles",
	16134: "DefaultRolePermissions: no roles",
	16135: "DefaultUserRolePermissions: no roles",
	16136: "DefaultAccessRestrictions: none",
	17634: "LocalTime: optional, not kept",
	23470: "Aliases: no alias name lookup",
	24099: "MaxSelectClauseParameters: no event filters",
	24100: "MaxWhereClauseParameters: no event filters",
	24101: "ConformanceUnits: optional, not kept",
	24226: "Resources: no TSN or provisioning",
	32405: "DataSetClasses: no PubSub",
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("addressspace/internal/gen: ")
	out := flag.String("o", "ns0_gen.bin", "file to write")
	flag.Parse()
	b, err := compile()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, b, 0o644); err != nil {
		log.Fatal(err)
	}
}

type edge struct{ source, typ, target uint32 }

func compile() ([]byte, error) {
	doc, err := nodeset.Parse("Opc.Ua.NodeSet2.xml", schema.OpcUaNodeSet2)
	if err != nil {
		return nil, err
	}
	doc.Remap(nil)
	types := nodeset.NewTypeTable(nil)
	types.Add(doc)
	edges, err := forward(doc)
	if err != nil {
		return nil, err
	}
	gone := prune(doc, edges)
	nodes := slices.DeleteFunc(slices.Clone(doc.Nodes), func(n *nodeset.Node) bool { return gone[n.ID.Numeric] })
	slices.SortFunc(nodes, func(a, b *nodeset.Node) int { return int(a.ID.Numeric) - int(b.ID.Numeric) })
	index := make(map[uint32]uint16, len(nodes))
	for i, n := range nodes {
		index[n.ID.Numeric] = uint16(i)
	}
	b := append([]byte(nil), "BWN0"...)
	b = uabinary.AppendUint32(b, uint32(len(nodes)))
	for _, n := range nodes {
		if b, err = appendNode(b, doc, n, types, index); err != nil {
			return nil, err
		}
	}
	edges = slices.DeleteFunc(edges, func(e edge) bool { return gone[e.source] || gone[e.target] })
	// By source, so that a node's references are neighbours; a stable sort keeps
	// the order of the file within a node.
	slices.SortStableFunc(edges, func(a, b edge) int { return int(a.source) - int(b.source) })
	b = uabinary.AppendUint32(b, uint32(len(edges)))
	for _, e := range edges {
		for _, id := range []uint32{e.source, e.typ, e.target} {
			i, ok := index[id]
			if !ok {
				return nil, fmt.Errorf("reference to i=%d, which is missing", id)
			}
			b = uabinary.AppendUint16(b, i)
		}
	}
	return b, nil
}

// forward lists every reference once, in its forward direction.
func forward(doc *nodeset.Document) ([]edge, error) {
	seen := make(map[edge]bool)
	var edges []edge
	for _, n := range doc.Nodes {
		if n.ID.Namespace != 0 || n.ID.Type != uabinary.IDNumeric {
			return nil, fmt.Errorf("line %d: %s is not numeric", n.Line, n.ID)
		}
		for i := range n.References {
			r := &n.References[i]
			e := edge{n.ID.Numeric, r.Type.Numeric, r.Target.Numeric}
			if r.Inverse {
				e.source, e.target = e.target, e.source
			}
			if !seen[e] {
				seen[e] = true
				edges = append(edges, e)
			}
		}
	}
	return edges, nil
}

// prune returns the ids of the pruned roots and of everything that only they
// hold.
func prune(doc *nodeset.Document, edges []edge) map[uint32]bool {
	holds := map[uint32]bool{35: true, 46: true, 47: true, 49: true} // Organizes, HasProperty, HasComponent, HasOrderedComponent
	isType := make(map[uint32]bool)
	for _, n := range doc.Nodes {
		isType[n.ID.Numeric] = n.Class&(ua.NodeClassObjectType|ua.NodeClassVariableType|ua.NodeClassDataType|ua.NodeClassReferenceType) != 0
	}
	gone := make(map[uint32]bool)
	for id := range pruned {
		gone[id] = true
	}
	for changed := true; changed; {
		changed = false
		held := make(map[uint32]bool)
		for _, e := range edges {
			if holds[e.typ] && !gone[e.source] {
				held[e.target] = true
			}
		}
		for _, e := range edges {
			if holds[e.typ] && gone[e.source] && !gone[e.target] && !held[e.target] && !isType[e.target] {
				gone[e.target] = true
				changed = true
			}
		}
	}
	return gone
}

// Flags of a compiled node, as addressspace reads them.
const (
	flagDisplay = 1 << iota
	flagDescription
	flagInverseName
	flagDefinition
	flagValue
	flagAbstract
	flagSymmetric
	flagDims
	flagSampling
)

func appendNode(b []byte, doc *nodeset.Document, n *nodeset.Node, types nodeset.Types, index map[uint32]uint16) ([]byte, error) {
	if n.BrowseName.Namespace != 0 || n.WriteMask != 0 || n.Historizing {
		return nil, fmt.Errorf("line %d: the compiled form has no room for this node", n.Line)
	}
	var flags uint16
	set := func(flag uint16, on bool) bool {
		if on {
			flags |= flag
		}
		return on
	}
	definition := types.(*nodeset.TypeTable).DefinitionValue(n.ID)
	variable := n.Class == ua.NodeClassVariable || n.Class == ua.NodeClassVariableType
	display := set(flagDisplay, string(n.DisplayName.Text) != string(n.BrowseName.Name))
	description := set(flagDescription, n.Description != nil)
	inverse := set(flagInverseName, n.InverseName != nil)
	set(flagDefinition, n.Class == ua.NodeClassDataType && definition != nil)
	set(flagAbstract, n.IsAbstract)
	set(flagSymmetric, n.Symmetric)
	value := set(flagValue, variable && n.Value != nil)
	dims := set(flagDims, variable && n.Dims != nil)
	sampling := set(flagSampling, variable && n.HasSampling)

	b = uabinary.AppendUint32(b, n.ID.Numeric)
	b = append(b, byte(n.Class))
	b = uabinary.AppendUint16(b, flags)
	b = uabinary.AppendStringBytes(b, n.BrowseName.Name)
	if display {
		b = uabinary.AppendStringBytes(b, n.DisplayName.Text)
	}
	if description {
		b = uabinary.AppendStringBytes(b, n.Description.Text)
	}
	if inverse {
		b = uabinary.AppendStringBytes(b, n.InverseName.Text)
	}
	switch {
	case n.Class == ua.NodeClassObject || n.Class == ua.NodeClassView:
		b = append(b, n.EventNotifier)
	case variable:
		i, ok := index[n.DataType.Numeric]
		if !ok {
			return nil, fmt.Errorf("line %d: DataType %s is missing", n.Line, n.DataType)
		}
		b = uabinary.AppendUint16(b, i)
		b = uabinary.AppendInt32(b, n.ValueRank)
		b = uabinary.AppendUint32(b, n.AccessLevel)
		if dims {
			var raw []byte
			for _, d := range n.Dims {
				raw = uabinary.AppendUint32(raw, d)
			}
			b = uabinary.AppendByteString(b, raw)
		}
		if sampling {
			b = uabinary.AppendDouble(b, n.Sampling)
		}
	}
	if flags&flagDefinition != 0 {
		b = append(b, definition...)
	}
	if value {
		var err error
		if b, err = doc.AppendValue(b, n.Value, types); err != nil {
			return nil, err
		}
	}
	return b, nil
}
