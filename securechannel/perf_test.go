package securechannel

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"testing"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

type variant struct {
	policy *security.Policy
	mode   ua.MessageSecurityMode
}

var perfVariants = []variant{
	{security.None, ua.MessageSecurityModeNone},
	{security.Basic256Sha256, ua.MessageSecurityModeSign},
	{security.Basic256Sha256, ua.MessageSecurityModeSignAndEncrypt},
}

// A single-chunk request costs no allocation from socket to Handler.Message
// and from Reply to socket; neither does the client's half.
func TestNoAllocationPerRequest(t *testing.T) {
	if raceEnabled || buffer.Debug {
		t.Skip("exact counts need a plain build")
	}
	p := newPKI(t, 1)
	detaching := newHandler()
	detaching.message = func(ch *Channel, m *Message) {
		d := m.Detach()
		_ = ch.Reply(d.RequestID, d.Body)
		d.Release()
	}
	for _, h := range []*testHandler{newHandler(), detaching} {
		s := startServer(t, testOptions{cfg: p.serverConfig(), handler: h})
		for _, v := range perfVariants {
			t.Run(fmt.Sprintf("%v/%d/detach=%v", v.policy, v.mode, h == detaching), func(t *testing.T) {
				c := s.dial(t, p.clientConfig(v.policy, v.mode))
				b := body(200)
				step := func() {
					if err := c.Send(1, b); err != nil {
						t.Fatal(err)
					}
					if _, _, err := c.Receive(); err != nil {
						t.Fatal(err)
					}
				}
				for range 100 {
					step()
				}
				if n := testing.AllocsPerRun(2000, step); n != 0 {
					t.Errorf("%v allocations per request", n)
				}
				_ = c.Close()
			})
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	p := newPKI(b, 1)
	s := startServer(b, testOptions{cfg: p.serverConfig()})
	for _, v := range perfVariants {
		for _, depth := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%v/%d/depth=%d", v.policy, v.mode, depth), func(b *testing.B) {
				c := s.dial(b, p.clientConfig(v.policy, v.mode))
				rq := body(100)
				b.ReportAllocs()
				for b.Loop() {
					c.mu.Lock()
					c.out = c.out[:0]
					for range depth {
						c.out = c.appendChunk(c.out, kindMSG, chunkFinal, c.sendSeq.next(), 1, rq)
					}
					_, err := c.conn.Write(c.out)
					c.mu.Unlock()
					if err != nil {
						b.Fatal(err)
					}
					for range depth {
						if _, _, err := c.Receive(); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*depth), "ns/request")
				_ = c.Close()
			})
		}
	}
}

func BenchmarkMessage1MiB(b *testing.B) {
	p := newPKI(b, 1)
	s := startServer(b, testOptions{cfg: p.serverConfig()})
	for _, v := range perfVariants {
		b.Run(fmt.Sprintf("%v/%d", v.policy, v.mode), func(b *testing.B) {
			c := s.dial(b, p.clientConfig(v.policy, v.mode))
			rq := body(1 << 20)
			b.SetBytes(2 << 20)
			b.ReportAllocs()
			for b.Loop() {
				roundTrip(b, c, rq)
			}
			_ = c.Close()
		})
	}
}

func BenchmarkConnect(b *testing.B) {
	s := startServer(b, testOptions{gate: transport.GateOptions{ConnectionsUnlimited: true, MaxConnections: -1}})
	b.ReportAllocs()
	for b.Loop() {
		c, err := Dial(context.Background(), s.connectOnce(b), ClientConfig{})
		if err != nil {
			b.Fatal(err)
		}
		_ = c.Close()
		c.Release()
		<-s.ends
	}
}

// BenchmarkIdle reports the memory of idle channels, the client's net.Conn
// included.
func BenchmarkIdle(b *testing.B) {
	p := newPKI(b, 1)
	for _, v := range []variant{perfVariants[0], perfVariants[2]} {
		b.Run(v.policy.Name, func(b *testing.B) {
			const n = 200
			s := startServer(b, testOptions{cfg: p.serverConfig(), gate: transport.GateOptions{ConnectionsUnlimited: true}})
			var before, after runtime.MemStats
			for b.Loop() {
				clients := make([]net.Conn, 0, n)
				channels := make([]*Channel, 0, n)
				runtime.GC()
				runtime.ReadMemStats(&before)
				for range n {
					conn := s.connectOnce(b)
					c, err := Dial(context.Background(), conn, p.clientConfig(v.policy, v.mode))
					if err != nil {
						b.Fatal(err)
					}
					roundTrip(b, c, body(100))
					c.Release()
					clients = append(clients, conn) // the client's own memory is not of interest
					channels = append(channels, <-s.h.chans)
				}
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "heapB/channel")
				b.ReportMetric(float64(int64(after.StackInuse)-int64(before.StackInuse))/n, "stackB/channel")
				for _, c := range clients {
					_ = c.Close()
				}
				runtime.KeepAlive(channels)
				for range n {
					<-s.h.reasons
				}
			}
		})
	}
}
