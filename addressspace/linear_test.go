package addressspace

import (
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// The cost of checking a large array of variable-size elements grows with its
// length, not with its square: a million null Variants in one Write must not
// hold a core for hours (hostile.md, the kind of A14).
func TestWriteOfAMillionVariantsIsLinear(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := s.Namespace("urn:linear").Variable("V", []any{1.5, "x"}, DataType(uabinary.NumericID(0, 24)), ValueRank(1), Writable())
	cost := func(n int) time.Duration {
		enc := append([]byte{0x80 | 24}, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
		enc = append(enc, make([]byte, n)...)
		var d uabinary.Decoder
		d.Reset(enc, nil)
		dv := uabinary.DataValue{Mask: ua.DataValueValue, Value: d.Variant()}
		if d.Err() != nil {
			t.Fatal(d.Err())
		}
		began := time.Now()
		s.Write(v.Node().ID(), uint32(ua.AttributeIDValue), nil, &dv, &Caller{})
		return time.Since(began)
	}
	cost(10_000)
	if small, large := cost(50_000), cost(800_000); large > 200*small+time.Second {
		t.Errorf("16 times the elements took %v instead of %v", large, small)
	}
}
