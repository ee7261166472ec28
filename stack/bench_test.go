package stack_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/stack"
)

// rawReads sends Reads of n nodes over a channel without security, depth at a
// time, with as little work on the client's side as possible.
type rawReads struct {
	conn     net.Conn
	in       *bufio.Reader
	batch    []byte
	size     int // of one request
	sequence uint32
}

const sequenceOffset = 16 // chunk header, channel id, token id

// newRawReads logs in and prepares the batch.
func newRawReads(b testing.TB, srv *stack.Server, ids []*ua.NodeID, depth int) *rawReads {
	b.Helper()
	c, p, step := login(b, srv)
	return newRawReadsOver(b, c, p, step, ids, depth)
}

func newRawReadsOver(b testing.TB, c *securechannel.Client, p *peer, step func(rq any) any, ids []*ua.NodeID, depth int) *rawReads {
	b.Helper()
	if rs, ok := step(readOf(p, ids...)).(*ua.ReadResponse); !ok || len(rs.Results) != len(ids) || rs.Results[0].Status != ua.StatusOK {
		b.Fatalf("Read failed: %+v", rs)
	}
	frame := c.Seal(securechannel.RawChunk{RequestID: 1, Body: p.encode(readOf(p, ids...))})
	conn := c.Conn()
	r := &rawReads{conn: conn, in: bufio.NewReaderSize(conn, 256<<10), size: len(frame), sequence: binary.LittleEndian.Uint32(frame[sequenceOffset:])}
	for range depth {
		r.batch = append(r.batch, frame...)
	}
	b.Cleanup(func() { _ = c.Close() })
	return r
}

// login opens a channel without security and an anonymous session; step makes
// one call.
func login(b testing.TB, srv *stack.Server) (c *securechannel.Client, p *peer, step func(rq any) any) {
	b.Helper()
	conn, err := net.Dial("tcp", srv.Addrs()[0].String())
	if err != nil {
		b.Fatal(err)
	}
	return loginOver(b, conn, endpoint(srv))
}

func loginOver(b testing.TB, conn net.Conn, url string) (c *securechannel.Client, p *peer, step func(rq any) any) {
	b.Helper()
	c, err := securechannel.Dial(context.Background(), conn, securechannel.ClientConfig{EndpointURL: url})
	if err != nil {
		b.Fatal(err)
	}
	p = &peer{T: &testing.T{}, c: c}
	step = func(rq any) any {
		if err := c.Send(c.NextRequestID(), p.encode(rq)); err != nil {
			b.Fatal(err)
		}
		_, body, err := c.Receive()
		if err != nil {
			b.Fatal(err)
		}
		return decode(b, body)
	}
	openSession(b, p, step)
	return c, p, step
}

// openSession makes an anonymous session.
func openSession(b testing.TB, p *peer, step func(rq any) any) {
	b.Helper()
	created, ok := step(createOf(p)).(*ua.CreateSessionResponse)
	if !ok {
		b.Fatal("CreateSession failed")
	}
	p.token = created.AuthenticationToken
	if _, ok := step(activateOf(p)).(*ua.ActivateSessionResponse); !ok {
		b.Fatal("ActivateSession failed")
	}
}

func (r *rawReads) round() error {
	for at := 0; at < len(r.batch); at += r.size {
		binary.LittleEndian.PutUint32(r.batch[at+sequenceOffset:], r.sequence)
		r.sequence++
	}
	if _, err := r.conn.Write(r.batch); err != nil {
		return err
	}
	for range len(r.batch) / r.size {
		h, err := r.in.Peek(8)
		if err != nil {
			return err
		}
		if string(h[:4]) != "MSGF" {
			return fmt.Errorf("answer %q", h)
		}
		if _, err := r.in.Discard(int(binary.LittleEndian.Uint32(h[4:]))); err != nil {
			return err
		}
	}
	return nil
}

func doubles(srv *stack.Server, n int) []*ua.NodeID {
	ns := srv.AddressSpace().Namespace("urn:bench")
	var ids []*ua.NodeID
	for i := range n {
		ids = append(ids, ns.Variable(fmt.Sprintf("v%d", i), float64(i), addressspace.NumericNodeID(uint32(1000+i))).Node().ID().UA())
	}
	return ids
}

// BenchmarkRead reports what a Read costs both sides together, over loopback.
func BenchmarkRead(b *testing.B) {
	for _, nodes := range []int{1, 100} {
		for _, depth := range []int{1, 8} {
			b.Run(fmt.Sprintf("nodes=%d/depth=%d", nodes, depth), func(b *testing.B) {
				srv := start(b, options())
				r := newRawReads(b, srv, doubles(srv, nodes), depth)
				b.ReportAllocs()
				for b.Loop() {
					if err := r.round(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*depth), "ns/request")
				_ = r.conn.Close()
			})
		}
	}
}

// A Read that is answered inline costs no allocation, from the socket and back.
func TestReadAllocatesNothing(t *testing.T) {
	if raceEnabled || buffer.Debug {
		t.Skip("exact counts need a plain build")
	}
	srv := start(t, options())
	ids := doubles(srv, 100)
	for _, nodes := range []int{1, 100} {
		r := newRawReads(t, srv, ids[:nodes], 8)
		step := func() {
			if err := r.round(); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			step()
		}
		if n := testing.AllocsPerRun(1000, step); n > 0 {
			t.Errorf("8 Reads of %d nodes: %v allocations", nodes, n)
		}
		_ = r.conn.Close()
	}
}

// BenchmarkConnect is a whole life: channel, session, one Read, the end.
func BenchmarkConnect(b *testing.B) {
	o := options()
	o.RateLimits.Disabled = true
	srv := start(b, o)
	ids := doubles(srv, 1)
	b.ReportAllocs()
	for b.Loop() {
		c, p, step := login(b, srv)
		step(readOf(p, ids...))
		step(&ua.CloseSessionRequest{RequestHeader: p.header(), DeleteSubscriptions: true})
		_ = c.Close()
	}
}
