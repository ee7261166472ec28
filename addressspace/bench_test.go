package addressspace

import (
	"fmt"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		newSpace(b)
	}
}

func benchSpace(b testing.TB, n int) (*Space, *Namespace, []*Variable) {
	s := newSpace(b)
	ns := s.Namespace("urn:bench")
	specs := make([]VariableSpec, n)
	for i := range specs {
		specs[i] = VariableSpec{Path: fmt.Sprintf("V.V%d", i), Initial: float64(i), Options: []Option{NumericNodeID(uint32(i + 1)), Writable()}}
	}
	vars, err := ns.AddVariables(specs...)
	if err != nil {
		b.Fatal(err)
	}
	return s, ns, vars
}

func BenchmarkLookupNumeric(b *testing.B) {
	s, ns, _ := benchSpace(b, 100_000)
	ids := make([]uabinary.NodeID, 4096)
	for i := range ids {
		ids[i] = uabinary.NumericID(ns.Index(), uint32(i*7919%100_000)+1)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if s.Lookup(ids[i&4095]) == nil {
			b.Fatal("missing")
		}
		i++
	}
}

func BenchmarkLookupString(b *testing.B) {
	s := newSpace(b)
	ns := s.Namespace("urn:bench")
	var specs []VariableSpec
	for i := range 100_000 {
		specs = append(specs, VariableSpec{Path: fmt.Sprintf("Plant.Variable%d", i), Initial: 1.5})
	}
	if _, err := ns.AddVariables(specs...); err != nil {
		b.Fatal(err)
	}
	ids := make([]uabinary.NodeID, 4096)
	for i := range ids {
		ids[i] = uabinary.StringID(ns.Index(), specs[i*7919%100_000].Path)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if s.Lookup(ids[i&4095]) == nil {
			b.Fatal("missing")
		}
		i++
	}
}

func BenchmarkAppendRead(b *testing.B) {
	s, ns, _ := benchSpace(b, 1000)
	rd := Read{ID: uabinary.NumericID(ns.Index(), 77), Attribute: uint32(ua.AttributeIDValue), Timestamps: ua.TimestampsToReturnBoth, Now: uabinary.Now(), Caller: &Caller{}}
	buf := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		buf = s.AppendRead(buf[:0], &rd)
	}
}

func BenchmarkAppendReadDisplayName(b *testing.B) {
	s, ns, _ := benchSpace(b, 1000)
	rd := Read{ID: uabinary.NumericID(ns.Index(), 77), Attribute: uint32(ua.AttributeIDDisplayName), Now: uabinary.Now()}
	buf := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		buf = s.AppendRead(buf[:0], &rd)
	}
}

func BenchmarkSet(b *testing.B) {
	_, _, vars := benchSpace(b, 1)
	b.ReportAllocs()
	x := 0.0
	for b.Loop() {
		x++
		if err := vars[0].Set(x); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	s, ns, _ := benchSpace(b, 1)
	id := uabinary.NumericID(ns.Index(), 1)
	dv := uabinary.DataValue{Mask: ua.DataValueValue, Value: uabinary.Double(4)}
	c := &Caller{}
	b.ReportAllocs()
	for b.Loop() {
		if code := s.Write(id, uint32(ua.AttributeIDValue), nil, &dv, c); code != ua.StatusOK {
			b.Fatal(code)
		}
	}
}

func BenchmarkReferences(b *testing.B) {
	s, ns, _ := benchSpace(b, 1000)
	n := ns.Node("V")
	b.ReportAllocs()
	for b.Loop() {
		count := 0
		refs := n.References()
		for i := range refs {
			if !refs[i].Inverse && SubtypeOf(refs[i].Type, s.known.hierarchical) {
				count++
			}
		}
		if count != 1000 {
			b.Fatal(count)
		}
	}
}

func BenchmarkAddVariables(b *testing.B) {
	s := newSpace(b)
	k := 0
	b.ReportAllocs()
	for b.Loop() {
		k++
		ns := s.Namespace("urn:bench")
		specs := make([]VariableSpec, 1000)
		for i := range specs {
			specs[i] = VariableSpec{Path: fmt.Sprintf("V%d.V%d", k, i), Initial: float64(i)}
		}
		if _, err := ns.AddVariables(specs...); err != nil {
			b.Fatal(err)
		}
	}
}
