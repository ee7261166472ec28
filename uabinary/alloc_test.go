package uabinary

import (
	"testing"

	"github.com/gopcua/opcua/ua"
)

func readRequest(n int, id func(i int) *ua.NodeID) *ua.ReadRequest {
	r := &ua.ReadRequest{
		RequestHeader:      &ua.RequestHeader{AuthenticationToken: ua.NewByteStringNodeID(0, make([]byte, 32))},
		TimestampsToReturn: ua.TimestampsToReturnBoth,
	}
	for i := range n {
		r.NodesToRead = append(r.NodesToRead, &ua.ReadValueID{NodeID: id(i), AttributeID: ua.AttributeIDValue})
	}
	return r
}

func numericID(i int) *ua.NodeID { return ua.NewNumericNodeID(2, uint32(i)+70000) }

func TestAllocationsX(t *testing.T) {
	var e Encoder
	EncodeMessage(&e, readRequest(1000, numericID))
	if e.Err() != nil { t.Fatal(e.Err()) }
	t.Log(testing.AllocsPerRun(100, func() {
		var d Decoder
		d.Reset(e.B, nil)
		if _, err := DecodeMessage(&d); err != nil { t.Fatal(err) }
	}), len(e.B))
}
func BenchmarkX(b *testing.B) {
	var e Encoder
	EncodeMessage(&e, readRequest(1000, numericID))
	b.ReportAllocs()
	for b.Loop() {
		var d Decoder
		d.Reset(e.B, nil)
		DecodeMessage(&d)
	}
}
