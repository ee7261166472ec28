package addressspace

import (
	_ "embed"
	"errors"
	"fmt"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

//go:generate go run ./internal/gen -o ns0_gen.bin

// namespace0 is the compiled namespace 0; see internal/gen for the format. It
// is read only: names and values alias it.
//
//go:embed ns0_gen.bin
var namespace0 []byte

// Flags of a compiled node.
const (
	ns0Display = 1 << iota
	ns0Description
	ns0InverseName
	ns0Definition
	ns0Value
	ns0Abstract
	ns0Symmetric
	ns0Dims
	ns0Sampling
)

// loadNamespace0 builds the nodes of namespace 0: one slab of nodes, one of
// references, names and values in place.
func (s *Space) loadNamespace0() error {
	var d uabinary.Decoder
	d.Reset(namespace0, &uabinary.Limits{MaxMessageSize: len(namespace0) + 1})
	if d.UInt32() != ns0Magic {
		return errors.New("not a compiled namespace")
	}
	count := int(d.UInt32())
	if d.Err() != nil || count > d.Remaining() {
		return errors.New("truncated")
	}
	nodes := make([]Node, count)
	dataTypes := make([]uint16, count)
	raw := make([]attributes, count)
	names := make([]uabinary.QualifiedName, count)
	now := uabinary.Now()
	for i := range nodes {
		n, a := &nodes[i], &raw[i]
		n.space = s
		n.id = uabinary.NumericID(0, d.UInt32())
		n.class = d.Byte()
		flags := d.UInt16()
		names[i].Name = d.StringBytes()
		n.browse.Store(&names[i])
		if flags&ns0Display != 0 {
			a.display = text(&d)
		}
		if flags&ns0Description != 0 {
			a.description = text(&d)
		}
		if flags&ns0InverseName != 0 {
			a.inverseName = text(&d)
		}
		a.isAbstract = flags&ns0Abstract != 0
		a.symmetric = flags&ns0Symmetric != 0
		a.valueRank = -1
		switch ua.NodeClass(n.class) {
		case ua.NodeClassObject, ua.NodeClassView:
			a.eventNotifier = d.Byte()
		case ua.NodeClassMethod:
			a.executable = true
		case ua.NodeClassVariable, ua.NodeClassVariableType:
			dataTypes[i] = d.UInt16()
			a.valueRank = d.Int32()
			a.accessLevel = d.UInt32()
			if flags&ns0Dims != 0 {
				a.hasDims = true
				a.dims = string(d.ByteString())
			}
			if flags&ns0Sampling != 0 {
				a.hasSampling = true
				a.minSampling = d.Double()
			}
		}
		if flags&ns0Definition != 0 {
			v := d.Variant()
			a.definition = &v
		}
		if flags&ns0Value != 0 {
			n.value.Store(&uabinary.DataValue{
				Mask:            ua.DataValueValue | ua.DataValueSourceTimestamp,
				Value:           d.Variant(),
				SourceTimestamp: now,
			})
		}
		if d.Err() != nil {
			return fmt.Errorf("node %d: %w", i, d.Err())
		}
	}
	if err := s.loadReferences(&d, nodes); err != nil {
		return err
	}
	t := (*s.tables.Load())[0]
	for i := range nodes {
		t.put(&nodes[i])
	}
	s.count.Add(int64(count))
	if err := s.findWellKnown(); err != nil {
		return err
	}
	for i := range nodes {
		n := &nodes[i]
		refs := n.References()
		for k := range refs {
			if r := &refs[k]; !r.Inverse {
				s.adopt(n, r.Type, r.Target)
			}
		}
	}
	for i := range nodes {
		if a := &raw[i]; nodes[i].class&uint8(ua.NodeClassVariable|ua.NodeClassVariableType) != 0 {
			a.dataType = &nodes[dataTypes[i]]
			a.builtin = s.builtinOf(a.dataType)
		}
		nodes[i].attrs.Store(s.shared(raw[i]))
	}
	if n := s.Lookup(uabinary.NumericID(0, idIsNamespaceSubset)); n != nil {
		n.value.Store(&uabinary.DataValue{
			Mask:            ua.DataValueValue | ua.DataValueSourceTimestamp,
			Value:           uabinary.Boolean(true), // internal/gen leaves instances out
			SourceTimestamp: now,
		})
	}
	return nil
}

const idIsNamespaceSubset = 15961

func text(d *uabinary.Decoder) *uabinary.LocalizedText {
	return &uabinary.LocalizedText{Text: d.StringBytes()}
}

// loadReferences reads the forward references, three indexes each, and gives
// each node its list in both directions, cut from one slab.
func (s *Space) loadReferences(d *uabinary.Decoder, nodes []Node) error {
	count := int(d.UInt32())
	if d.Err() != nil || count*6 != d.Remaining() {
		return errors.New("bad reference table")
	}
	rest := d.Rest()
	at := func(i int) (int, int, int) {
		b := rest[6*i:]
		return int(b[0]) | int(b[1])<<8, int(b[2]) | int(b[3])<<8, int(b[4]) | int(b[5])<<8
	}
	degree := make([]int, len(nodes))
	for i := range count {
		source, typ, target := at(i)
		if max(source, typ, target) >= len(nodes) {
			return errors.New("reference out of range")
		}
		degree[source]++
		degree[target]++
	}
	slab := make([]Reference, 2*count)
	lists := make([][]Reference, len(nodes))
	for i := range nodes {
		// Capped, so that appending to a list moves it out of the slab.
		lists[i] = slab[:0:degree[i]]
		slab = slab[degree[i]:]
	}
	for _, inverse := range []bool{false, true} {
		for i := range count {
			source, typ, target := at(i)
			if inverse {
				source, target = target, source
			}
			lists[source] = append(lists[source], Reference{Type: &nodes[typ], Target: &nodes[target], Inverse: inverse})
		}
	}
	for i := range nodes {
		nodes[i].refs.Store(&lists[i])
	}
	return nil
}

const ns0Magic = 0x304E5742 // "BWN0"

func (s *Space) findWellKnown() error {
	k := &s.known
	for _, w := range []struct {
		p  **Node
		id uint32
	}{
		{&k.references, 31}, {&k.hierarchical, 33}, {&k.aggregates, 44}, {&k.hasComponent, 47},
		{&k.hasProperty, 46}, {&k.organizes, 35}, {&k.hasTypeDefinition, 40}, {&k.hasSubtype, 45},
		{&k.hasModellingRule, 37}, {&k.hasEncoding, 38}, {&k.objects, 85}, {&k.folderType, 61},
		{&k.baseObjectType, 58}, {&k.baseDataVariableType, 63}, {&k.propertyType, 68},
		{&k.baseDataType, 24}, {&k.structure, 22}, {&k.enumeration, 29},
	} {
		if *w.p = s.Lookup(uabinary.NumericID(0, w.id)); *w.p == nil {
			return fmt.Errorf("i=%d is missing", w.id)
		}
	}
	for i := range k.builtin {
		if i >= 1 && i <= 25 {
			k.builtin[i] = s.Lookup(uabinary.NumericID(0, uint32(i)))
		}
	}
	return nil
}
