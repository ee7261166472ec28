package securechannel

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
)

// overload.md §16: limits may change while the server runs. A connection that
// waits for one of its requests goes on as soon as it may have more of them.
func TestApplyOutstanding(t *testing.T) {
	h := newHandler()
	var work syncGroup
	h.message = func(ch *Channel, m *Message) {
		d := m.Detach()
		work.Go(func() {
			defer d.Release()
			time.Sleep(5 * time.Second)
			_ = ch.Reply(d.RequestID, d.Body)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true, handler: h, cfg: ServerConfig{Limits: transport.Limits{MaxOutstandingPerConnection: 2}}})
		c := s.dial(t, ClientConfig{})
		for id := range uint32(6) {
			if err := c.Send(id, []byte("slow")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // each in a read of its own
		}
		ch := <-h.chans
		for _, most := range []int{2, 4, 1, 0} { // 0 is the default, 64
			if err := s.Apply(Bounds{MaxOutstandingPerConnection: most}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			want := map[int]int{2: 2, 4: 4, 1: 4, 0: 6}[most] // those that run stay
			if n := ch.Outstanding(); n != want {
				t.Errorf("%d outstanding with %d allowed", n, most)
			}
		}
		for range 6 {
			if _, _, err := c.Receive(); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.Close()
		work.Wait()
	})
}

// Token lifetimes count from the next token on; what cannot work is refused and
// changes nothing.
func TestApplyTokenLifetimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true})
		open := func() time.Duration {
			c := s.dial(t, ClientConfig{Lifetime: 10 * time.Minute})
			defer c.Close()
			return c.Lifetime()
		}
		if got := open(); got != 10*time.Minute {
			t.Errorf("lifetime %v", got)
		}
		if err := s.Apply(Bounds{MinTokenLifetime: time.Minute, MaxTokenLifetime: 2 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		for _, b := range []Bounds{{MinTokenLifetime: time.Millisecond}, {MinTokenLifetime: time.Hour, MaxTokenLifetime: time.Minute}} {
			if s.Apply(b) == nil {
				t.Errorf("took %+v", b)
			}
		}
		if got := open(); got != 2*time.Minute {
			t.Errorf("lifetime %v, at most 2 min are in force", got)
		}
	})
}

// MaxCryptoWait may change, be switched off, and be tried out in shadow mode,
// which counts what it would refuse.
func TestApplyMaxCryptoWait(t *testing.T) {
	p := newPKI(t, 1)
	cfg := p.serverConfig()
	s := startServer(t, testOptions{cfg: cfg})
	release := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 { // 2 run, 2 wait
		wg.Go(func() { _ = p.gate.Do(context.Background(), security.PriorityRenew, func() { <-release }) })
	}
	for p.gate.Waiting()[0] < 2 {
		time.Sleep(time.Millisecond) // real threads, no bubble
	}
	other := security.NewCryptoGate(1)
	defer other.Close()
	cc := p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign)
	cc.Key = newKey(t, rsaKeys()[1], other)
	apply := func(b Bounds) {
		t.Helper()
		if err := s.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	apply(Bounds{MaxCryptoWait: time.Nanosecond})
	if _, err := Dial(context.Background(), s.connect(t), cc); !errors.Is(err, ua.StatusBadTCPServerTooBusy) {
		t.Error(err)
	}
	s.expectEnd(t, transport.TooBusy)
	apply(Bounds{MaxCryptoWait: time.Nanosecond, Shadow: true})
	opened := make(chan error, 2)
	dial := func() {
		c, err := Dial(context.Background(), s.connect(t), cc)
		if err == nil {
			t.Cleanup(func() { _ = c.Close(); c.Release() })
		}
		opened <- err
	}
	wg.Go(dial)
	for p.gate.Waiting()[2] < 1 { // it waits for the key instead of being refused
		time.Sleep(time.Millisecond)
	}
	if n := s.Shadowed(); n != 1 {
		t.Errorf("%d counted", n)
	}
	apply(Bounds{MaxCryptoWait: -1})
	wg.Go(dial)
	for p.gate.Waiting()[2] < 2 {
		time.Sleep(time.Millisecond)
	}
	if n := s.Shadowed(); n != 1 {
		t.Errorf("%d counted, the last one without any bound", n)
	}
	close(release)
	wg.Wait()
	for range 2 {
		if err := <-opened; err != nil {
			t.Error(err)
		}
	}
}
