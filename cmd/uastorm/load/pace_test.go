package load

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// Clients that connect at a rate begin one after the other.
func TestConnectRate(t *testing.T) {
	inBubble(t, SchemeTCP, nil, func(t *testing.T, s *site) {
		_, facts := s.run(t, &Plan{Phases: []Phase{{Name: "connect", Duration: time.Minute, UntilConnected: true, Connect: &Connect{Clients: 21, Rate: 10}}}})
		if f := facts[0]; f.Holding != 21 || f.Held < 2*time.Second || f.Held > 2200*time.Millisecond {
			t.Errorf("21 clients at 10/s: %+v", f)
		}
	})
}

// Scale multiplies all that is load, floods too, and nothing falls to none.
func TestScale(t *testing.T) {
	p := &Plan{Steady: Steady{Readers: 2, ReadRate: 10, Writers: 1, WriteRate: 4, Subscribers: 3},
		Phases: []Phase{{Name: "a", Duration: time.Second, Connect: &Connect{Clients: 10, Rate: 5}, Flood: &Flood{}}}}
	f := p.Phases[0].Flood
	for i, k := range f.kinds() {
		*k.n = i // the first stays none
	}
	p.Scale(3)
	for i, k := range f.kinds() {
		if *k.n != 3*i {
			t.Errorf("%d %s became %d", i, k.name, *k.n)
		}
	}
	c := p.Phases[0].Connect
	if s := &p.Steady; s.Readers != 6 || s.ReadRate != 30 || s.Writers != 3 || s.WriteRate != 12 || s.Subscribers != 9 || c.Clients != 30 || c.Rate != 15 {
		t.Errorf("%+v %+v", p.Steady, c)
	}
	p.Scale(0.001)
	if f.Chunks != 0 || f.Sessions != 1 || c.Clients != 1 || p.Duration() != time.Second {
		t.Errorf("%+v %+v", f, c)
	}
}

// A black hole takes what is written, and no answer comes.
type blackHole struct {
	net.Conn
	open *atomic.Bool
}

func (c blackHole) Write(b []byte) (int, error) {
	if c.open.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A server that does not answer any more does not keep the run from ending: soon
// when it was broken off, else about one timeout later. That holds for many
// sessions, and with requests that wait for an answer.
func TestEndIsBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		off  bool // broken off
		most time.Duration
	}{{"broken off", true, hurriedTime + lastWords}, {"done", false, 20*time.Second + hurriedTime + lastWords}} {
		t.Run(c.name, func(t *testing.T) {
			overAll(t, nil, func(t *testing.T, s *site) {
				var hole atomic.Bool
				connect := s.target.connect
				s.target.connect = func(ctx context.Context, from net.IP) (net.Conn, error) {
					nc, err := connect(ctx, from)
					if err != nil {
						return nil, err
					}
					return blackHole{nc, &hole}, nil
				}
				s.target.timeout, s.target.SessionTimeout = 20*time.Second, 30*time.Second
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := &Plan{Steady: Steady{Readers: 2, ReadRate: 10},
					Phases: []Phase{{Name: "held", Duration: 10 * time.Second, Connect: &Connect{Clients: 66}}}}
				begun := time.Now()
				_, _, err := s.runUntil(t, ctx, p, func(*Engine) {
					time.Sleep(9 * time.Second)
					hole.Store(true)
					time.Sleep(time.Second / 2)
					if c.off {
						cancel()
					}
				})
				if c.off != errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if took := time.Since(begun) - 10*time.Second; took > c.most {
					t.Errorf("the end took %v", took)
				}
			})
		})
	}
}
