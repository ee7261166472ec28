package securechannel

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// Everything at once, for a while: clients that pipeline, send large messages,
// renew, abort, stop reading, reset and vanish; handlers that answer at once,
// later, much later, several times or never. Nothing may stay behind, nothing
// may hang (B14), and a well-behaved client loses nothing.
func TestStress(t *testing.T) {
	const length = 1500 * time.Millisecond
	p := newPKI(t, 1)
	cfg := p.serverConfig()
	cfg.Limits = transport.Limits{WriteQueueBytes: 1 << 20, WriteTimeout: 200 * time.Millisecond, AssemblyTimeout: 300 * time.Millisecond,
		HelloTimeout: 300 * time.Millisecond, MaxOutstandingPerConnection: 8, LingerTimeout: 100 * time.Millisecond}
	h := newHandler()
	var work sync.WaitGroup
	work.Add(1) // or it could be waited for while the first one comes
	stop := make(chan struct{})
	h.message = func(ch *Channel, m *Message) {
		reply := func(m *Message) { _ = ch.Reply(m.RequestID, m.Body) }
		switch m.RequestID % 7 {
		case 1:
			d := m.Queue()
			work.Go(func() { reply(d); d.Release() })
		case 2:
			d := m.Detach()
			work.Go(func() {
				select {
				case <-time.After(time.Millisecond):
				case <-ch.Done():
				}
				reply(d)
				d.Release()
			})
		case 3:
			d := m.Queue()
			work.Go(func() { // would block after all
				d := d.Detach()
				reply(d)
				d.Release()
			})
		case 4:
			id, b := m.RequestID, append([]byte(nil), m.Body...)
			m.Park()
			work.Go(func() { _ = ch.Reply(id, b) })
		default:
			reply(m)
		}
		if m.RequestID == 1<<30 {
			ch.Close(transport.Administrative, ua.StatusBadSecureChannelClosed)
		}
	}
	s := startServer(t, testOptions{cfg: cfg, handler: h, gate: transport.GateOptions{ConnectionsUnlimited: true, MaxConnections: 30}})
	variants := perfVariants
	connect := func(r *rand.Rand) (*Client, error) {
		conn, err := net.Dial("tcp", s.ln.Addr().String())
		if err != nil {
			return nil, err
		}
		v := variants[r.IntN(len(variants))]
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return Dial(ctx, conn, p.clientConfig(v.policy, v.mode))
	}
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() { // trouble
			r := rand.New(rand.NewPCG(g, 9))
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := connect(r)
				if err != nil {
					continue // full: a gate's right
				}
				reads := r.IntN(3) > 0
				var reading sync.WaitGroup
				if reads {
					reading.Go(func() {
						for {
							if _, _, err := c.Receive(); err != nil {
								return
							}
						}
					})
				}
				_ = c.conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
				for range r.IntN(30) {
					switch r.IntN(10) {
					case 0:
						_ = c.Send(r.Uint32N(1000), body(r.IntN(300_000)))
					case 1:
						_, _ = c.Write(c.Seal(RawChunk{Final: 'C', RequestID: r.Uint32N(3), Body: body(r.IntN(9000))}))
					case 2:
						_, _ = c.Write(c.Seal(RawChunk{Final: 'A', RequestID: r.Uint32N(3), Body: make([]byte, 8)}))
					case 3:
						_, _ = c.requestToken(context.Background(), requestTypeRenew)
					case 4:
						if r.IntN(10) == 0 {
							b := c.Seal(RawChunk{RequestID: 1, Body: body(500)})
							b[r.IntN(len(b))] ^= 1
							_, _ = c.Write(b)
						}
					case 5:
						if r.IntN(10) == 0 {
							_ = c.Send(1<<30, body(5))
						}
					default:
						_ = c.Send(r.Uint32N(1000), body(r.IntN(500)))
					}
				}
				switch r.IntN(3) {
				case 0:
					_ = c.Close()
				case 1:
					_ = c.conn.(*net.TCPConn).SetLinger(0)
					_ = c.conn.Close()
				case 2:
					_ = c.conn.(*net.TCPConn).CloseWrite()
					if !reads {
						time.Sleep(10 * time.Millisecond)
					}
					_ = c.conn.Close()
				}
				reading.Wait()
				c.Release()
			}
		})
	}
	good, err := connect(rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	for len(h.chans) == 0 {
		time.Sleep(time.Millisecond) // real sockets, no bubble
	}
	s.Each(func(ch *Channel) bool {
		if ch.ID() == good.ID() {
			ch.SessionAttached() // else it may be reclaimed
		}
		return true
	})
	deadline := time.Now().Add(length)
	for n := uint32(0); time.Now().Before(deadline); n++ {
		if err := good.Send(n, body(int(n%2000)+4)); err != nil {
			t.Fatal(err)
		}
		if id, b, err := good.Receive(); err != nil || id != n || len(b) != int(n%2000)+4 {
			t.Fatal("the healthy client:", id, len(b), err)
		}
		if n%100 == 99 {
			for range len(h.chans) {
				<-h.chans
			}
		}
	}
	close(stop)
	wg.Wait()
	_ = good.Close()
	good.Release()
	work.Done()
	work.Wait()
	_ = security.None
}
