package service

import (
	"fmt"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// benchmark runs one request over and over, without session lookup or channel.
func benchmark(b *testing.B, h *harness, rq any) {
	body := h.encode(rq)
	sess, code := h.set.Sessions.Lookup(h.ch, uabinary.NodeIDOf(h.token), time.Now())
	if code != ua.StatusOK {
		b.Fatal(code)
	}
	r := new(Request)
	now := uabinary.Now()
	b.ReportAllocs()
	for b.Loop() {
		r.Channel, r.Session, r.Caller, r.Now = h.ch, sess, sess.Caller(), now
		r.Body.Reset(body, nil)
		r.Entry = h.table.Lookup(r.Body.TypeID())
		r.Header = r.Body.RequestHeader()
		r.Begin(0)
		if code := r.Entry.Handle(h.set, r); code != ua.StatusOK {
			b.Fatal(code)
		}
		r.Reset()
	}
}

func BenchmarkRead(b *testing.B) {
	h := newHarness(b, Limits{})
	var ids []uabinary.NodeID
	for i := range 1000 {
		ids = append(ids, h.ns.Variable(fmt.Sprintf("v%d", i), float64(i), addressspace.NumericNodeID(uint32(1000+i))).Node().ID())
	}
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchmark(b, h, readOf(h, ids[:n]...))
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/node")
		})
	}
}

func BenchmarkBrowse(b *testing.B) {
	h := newHarness(b, Limits{})
	folder := wide(h, 100)
	b.Run("100 references", func(b *testing.B) { benchmark(b, h, browseOf(h, 0, children(folder))) })
	b.Run("Server", func(b *testing.B) { benchmark(b, h, browseOf(h, 0, children(uabinary.NumericID(0, id.Server)))) })
}
