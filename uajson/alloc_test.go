package uajson

import (
	"fmt"
	"testing"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// readRequest is a request to read n nodes, as a client writes it in a Form.
func readRequest(tb testing.TB, n int, form Form) (binary, text []byte) {
	tb.Helper()
	m := &ua.ReadRequest{
		RequestHeader: &ua.RequestHeader{
			AuthenticationToken: ua.NewByteStringNodeID(0, []byte("0123456789abcdef0123456789abcdef")),
			RequestHandle:       17,
			TimeoutHint:         10000,
		},
		TimestampsToReturn: ua.TimestampsToReturnBoth,
	}
	for i := range n {
		m.NodesToRead = append(m.NodesToRead, &ua.ReadValueID{
			NodeID: ua.NewStringNodeID(2, fmt.Sprintf("Line%d.Temperature", i)), AttributeID: ua.AttributeIDValue,
		})
	}
	return messagePair(tb, m, form)
}

// readResponse is its answer.
func readResponse(tb testing.TB, n int, form Form) (binary, text []byte) {
	tb.Helper()
	m := &ua.ReadResponse{ResponseHeader: &ua.ResponseHeader{RequestHandle: 17}}
	now := uabinary.DateTime(133_000_000_000_000_000).Time()
	for i := range n {
		m.Results = append(m.Results, &ua.DataValue{
			EncodingMask: ua.DataValueValue | ua.DataValueSourceTimestamp | ua.DataValueServerTimestamp,
			Value:        ua.MustVariant(float64(i) * 1.1), SourceTimestamp: now, ServerTimestamp: now,
		})
	}
	return messagePair(tb, m, form)
}

func messagePair(tb testing.TB, m any, form Form) (binary, text []byte) {
	tb.Helper()
	var e uabinary.Encoder
	uabinary.EncodeMessage(&e, m)
	text, err := AppendJSON(nil, e.B, form, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return e.B, text
}

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, form := range []Form{Compact, Verbose, Reversible} {
		for name, make := range map[string]func(testing.TB, int, Form) ([]byte, []byte){"ReadRequest": readRequest, "ReadResponse": readResponse} {
			binary, text := make(t, 100, form)
			dst := append([]byte(nil), append(text, text...)...)
			if n := testing.AllocsPerRun(50, func() {
				if _, _, err := AppendBinary(dst[:0], text, nil); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s %s: AppendBinary allocates %v times", name, form, n)
			}
			if n := testing.AllocsPerRun(50, func() {
				if _, err := AppendJSON(dst[:0], binary, form, nil); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s %s: AppendJSON allocates %v times", name, form, n)
			}
			if n := testing.AllocsPerRun(50, func() { RequestHandle(text) }); n != 0 {
				t.Errorf("%s %s: RequestHandle allocates %v times", name, form, n)
			}
		}
	}
}

func benchmarkBoth(b *testing.B, make func(testing.TB, int, Form) ([]byte, []byte)) {
	for _, n := range []int{1, 100} {
		binary, text := make(b, n, Compact)
		dst := append([]byte(nil), append(text, text...)...)
		b.Run(fmt.Sprintf("AppendBinary/%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := AppendBinary(dst[:0], text, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("AppendJSON/%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := AppendJSON(dst[:0], binary, Compact, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadRequest(b *testing.B)  { benchmarkBoth(b, readRequest) }
func BenchmarkReadResponse(b *testing.B) { benchmarkBoth(b, readResponse) }

func BenchmarkRequestHandle(b *testing.B) {
	_, text := readRequest(b, 100, Compact)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := RequestHandle(text); !ok {
			b.Fatal("none")
		}
	}
}
