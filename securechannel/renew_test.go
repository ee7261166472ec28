package securechannel

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// D1, D2, D4: renewals while eight callers have requests in flight: no message
// is lost, numbers go on, at most two tokens live.
func TestHostileD1D2D4RenewUnderTraffic(t *testing.T) {
	p := newPKI(t, 1)
	cfg := p.serverConfig()
	cfg.MinTokenLifetime = time.Second
	h := newHandler()
	var work sync.WaitGroup
	work.Add(1) // or it could be waited for while the first one comes
	h.message = func(ch *Channel, m *Message) {
		if m.RequestID%2 == 0 {
			_ = ch.Reply(m.RequestID, m.Body)
			return
		}
		d := m.Queue()
		work.Go(func() {
			_ = ch.Reply(d.RequestID, d.Body)
			d.Release()
		})
	}
	s := startServer(t, testOptions{cfg: cfg, handler: h})
	for _, v := range []variant{{security.None, ua.MessageSecurityModeNone}, {security.Basic256Sha256, ua.MessageSecurityModeSignAndEncrypt}} {
		cc := p.clientConfig(v.policy, v.mode)
		cc.Lifetime = 20 * time.Second
		c := s.dial(t, cc)
		if c.Lifetime() != 20*time.Second {
			t.Fatal("lifetime", c.Lifetime())
		}
		const callers, each = 8, 200
		var wg sync.WaitGroup
		for g := range uint32(callers) {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 7))
				for i := range uint32(each) {
					if err := c.Send(g<<16|i, body(r.IntN(3000))); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Go(func() {
			for range 6 {
				if err := c.Renew(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
		seen := map[uint32]bool{}
		for len(seen) < callers*each {
			id, _, err := c.Receive()
			if err != nil {
				t.Fatalf("after %d answers: %v", len(seen), err)
			}
			if seen[id] {
				t.Fatal("answered twice", id)
			}
			seen[id] = true
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done); _ = c.Send(99<<16, body(10)) }()
		for {
			id, _, err := c.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if id == 99<<16 {
				break
			}
		}
		<-done
		if c.send.id != 7 {
			t.Fatal("tokens issued", c.send.id)
		}
		_ = c.Close()
	}
	work.Done()
	work.Wait()
}

// Part 4 §5.6.2 (OpenSecureChannel): which token the server takes, and which
// secures its answers.
func TestTokenOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true})
		c := s.dial(t, ClientConfig{Lifetime: time.Minute})
		ch := <-s.h.chans
		roundTrip(t, c, body(10))
		first := c.send

		answer := func() uint32 { // the token of an answer that comes from elsewhere
			t.Helper()
			if err := ch.Reply(77, body(5)); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 29)
			if _, err := io.ReadFull(c.read, b); err != nil {
				t.Fatal(err)
			}
			if err := c.recvSeq.accept(le32(b[16:])); err != nil {
				t.Fatal(err)
			}
			return le32(b[12:])
		}
		renew := func() {
			t.Helper()
			r, err := c.requestToken(context.Background(), requestTypeRenew)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, _, err := c.receive(); err != nil {
				t.Fatal(err)
			}
			<-r.done
		}
		if id := answer(); id != first.id {
			t.Fatal("answer with", id)
		}
		time.Sleep(45 * time.Second)
		renew()
		second := c.send
		// The client has not used the new token: answers keep to the old one,
		// which is taken until it expires.
		if id := answer(); id != first.id {
			t.Fatal("answer with", id, "before the new token was used")
		}
		c.send = first
		roundTrip(t, c, body(10))
		// An answer after the old one has expired uses the new one.
		time.Sleep(16 * time.Second)
		if id := answer(); id != second.id {
			t.Fatal("answer with", id, "after the old token expired")
		}
		c.send = second
		roundTrip(t, c, body(10))
		// Once the new one was used the old one is gone.
		c.send = first
		c.writeAll(t, c.Seal(RawChunk{RequestID: 1, Body: body(10)}))
		expectERR(t, c, ua.StatusBadSecureChannelTokenUnknown)
		s.expectEnd(t, transport.SecurityError)

		// Renewed twice without use: at most two live, the oldest is gone.
		c = s.dial(t, ClientConfig{Lifetime: time.Minute})
		ch = <-s.h.chans
		first = c.send
		renew()
		between := c.send
		renew()
		newest := c.send
		if id := answer(); id != between.id {
			t.Fatal("answer with", id)
		}
		c.send = between
		roundTrip(t, c, body(10))
		c.send = newest
		roundTrip(t, c, body(10))
		c.send = first
		c.writeAll(t, c.Seal(RawChunk{RequestID: 1, Body: body(10)}))
		expectERR(t, c, ua.StatusBadSecureChannelTokenUnknown)
		s.expectEnd(t, transport.SecurityError)

		// Expired old token while a newer one exists.
		c = s.dial(t, ClientConfig{Lifetime: time.Minute})
		first = c.send
		time.Sleep(50 * time.Second)
		renew()
		time.Sleep(11 * time.Second)
		c.send = first
		c.writeAll(t, c.Seal(RawChunk{RequestID: 1, Body: body(10)}))
		expectERR(t, c, ua.StatusBadSecureChannelTokenUnknown)
		s.expectEnd(t, transport.SecurityError)
	})
}

// A token that is never renewed lives a quarter longer than it should, then the
// channel ends.
func TestTokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true})
		c := s.dial(t, ClientConfig{Lifetime: time.Minute})
		start := time.Now()
		time.Sleep(70 * time.Second)
		roundTrip(t, c, body(10))
		expectERR(t, c, ua.StatusBadSecureChannelTokenUnknown)
		s.expectEnd(t, transport.TokenExpired)
		if d := time.Since(start); d != 75*time.Second {
			t.Fatal("ended after", d)
		}
	})
}

func TestTokenLifetimeClamped(t *testing.T) {
	s := startServer(t, testOptions{})
	for _, tc := range []struct{ ask, want time.Duration }{
		{time.Millisecond, time.Minute}, {10 * time.Minute, 10 * time.Minute}, {1000 * time.Hour, time.Hour},
	} {
		c := s.dial(t, ClientConfig{Lifetime: tc.ask})
		if c.Lifetime() != tc.want {
			t.Errorf("asked for %v, got %v, want %v", tc.ask, c.Lifetime(), tc.want)
		}
		_ = c.Close()
	}
}

// While the response of a renewal waits for the private key, requests go on
// being read and answered; the answers come after it, in order.
func TestAnswersWhileRenewalIsSigned(t *testing.T) {
	p := newPKI(t, 1)
	s := startServer(t, testOptions{cfg: p.serverConfig()})
	c := s.dial(t, p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSignAndEncrypt))
	ch := <-s.h.chans
	ch.out.Lock()
	ch.hold = true // as respond does
	sequence := ch.sendSeq.next()
	ch.out.Unlock()
	for id := range uint32(3) {
		if err := c.Send(id, body(100)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		ch.out.Lock()
		n := len(ch.deferred)
		ch.out.Unlock()
		if n == 3 {
			break
		}
		time.Sleep(time.Millisecond) // real socket, no bubble
	}
	ch.out.Lock()
	b := ch.out.Grow(ch.layout.chunk(4))
	ch.layout.seal(b, kindMSG, chunkFinal, ch.id, ch.sendCur, sequence, 99, body(4))
	if err := ch.resume(); err != nil {
		t.Fatal(err)
	}
	ch.out.UnlockAndFlush()
	for _, want := range []uint32{99, 0, 1, 2} {
		if id, _, err := c.Receive(); err != nil || id != want {
			t.Fatal(id, err, "want", want)
		}
	}
	_ = c.Close()
}

// Near the wrap the number after an OpenSecureChannel is not foreseen: the
// socket is not read until it is decrypted.
func TestRenewAtSequenceWrap(t *testing.T) {
	p := newPKI(t, 1)
	h := newHandler()
	h.message = func(ch *Channel, m *Message) {
		if string(m.Body) == "wrap" {
			ch.recvSeq.last = 4294966280
		}
		_ = ch.Reply(m.RequestID, m.Body)
	}
	s := startServer(t, testOptions{cfg: p.serverConfig(), handler: h})
	c := s.dial(t, p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign))
	roundTrip(t, c, []byte("wrap"))
	c.SetSequenceNumber(4294966280)
	r, err := c.requestToken(context.Background(), requestTypeRenew) // restarts at 1
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint32(5) {
		if err := c.Send(id, body(100)); err != nil {
			t.Fatal(err)
		}
	}
	for want := range uint32(5) {
		if id, _, err := c.Receive(); err != nil || id != want {
			t.Fatal(id, err)
		}
	}
	<-r.done
	roundTrip(t, c, body(5))
	_ = c.Close()
}

// overload.md §8a: with a long queue before the private key a new channel is
// refused with a hint, while renewals go on.
func TestOpenRefusedWhenCryptoIsBusy(t *testing.T) {
	p := newPKI(t, 1)
	cfg := p.serverConfig()
	cfg.MaxCryptoWait = time.Nanosecond
	s := startServer(t, testOptions{cfg: cfg})
	c := s.dial(t, p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign))
	release := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 { // 2 run, 2 wait
		wg.Go(func() { _ = p.gate.Do(context.Background(), security.PriorityRenew, func() { <-release }) })
	}
	for p.gate.Waiting()[0] < 2 {
		time.Sleep(time.Millisecond) // real threads, no bubble
	}
	// The client's own key is on the same gate: make its message by hand.
	other := security.NewCryptoGate(1)
	defer other.Close()
	cc := p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign)
	cc.Key = newKey(t, rsaKeys()[1], other)
	_, err := Dial(context.Background(), s.connect(t), cc)
	if !errors.Is(err, ua.StatusBadTCPServerTooBusy) {
		t.Fatal(err)
	}
	s.expectEnd(t, transport.TooBusy)
	close(release)
	wg.Wait()
	roundTrip(t, c, body(10))
	_ = c.Close()
}

// A connection that closes while its OpenSecureChannel waits for the private
// key leaves the queue at once.
func TestCloseWhileOpeningWaits(t *testing.T) {
	p := newPKI(t, 1)
	s := startServer(t, testOptions{cfg: p.serverConfig()})
	release := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { _ = p.gate.Do(context.Background(), security.PriorityRenew, func() { <-release }) })
	}
	for p.gate.Running() < 2 {
		time.Sleep(time.Millisecond) // real threads, no bubble
	}
	other := security.NewCryptoGate(1)
	defer other.Close()
	cc := p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign)
	cc.Key = newKey(t, rsaKeys()[1], other)
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for p.gate.Waiting()[security.PriorityIssue] == 0 {
			time.Sleep(time.Millisecond) // real threads, no bubble
		}
		cancel()
	})
	if _, err := Dial(ctx, s.connect(t), cc); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.expectEnd(t, transport.PeerClosed)
	if w := p.gate.Waiting(); w != [security.PriorityClasses]int{} {
		t.Fatal("still waiting", w)
	}
	close(release)
	wg.Wait()
	if s.h.opened.Load() != 0 {
		t.Fatal("opened")
	}
}

func TestSequence(t *testing.T) {
	for _, tc := range []struct {
		name    string
		legacy  bool
		last, n uint32
		ok      bool
	}{
		{"Part 6 §6.7.2.4 next", true, 5, 6, true},
		{"replay", true, 5, 5, false},
		{"back", true, 5, 4, false},
		{"gap", true, 5, 7, false},
		{"no wrap at 4294966271", true, 4294966271, 1, false},
		{"wrap after 4294966271", true, 4294966272, 1, true},
		{"wrap to 0", true, 4294966272, 0, true},
		{"wrap to 1023", true, 4294967295, 1023, true},
		{"wrap to 1024", true, 4294967295, 1024, false},
		{"to the very end", true, 4294967294, 4294967295, true},
		{"whole range: no early wrap", false, 4294966272, 1, false},
		{"whole range: wrap to 0", false, 4294967295, 0, true},
		{"whole range: not to 1", false, 4294967295, 1, false},
	} {
		s := sequence{legacy: tc.legacy, begun: true, last: tc.last}
		err := s.accept(tc.n)
		if (err == nil) != tc.ok {
			t.Errorf("%s: %d after %d: %v", tc.name, tc.n, tc.last, err)
		}
		if err != nil && uastatus.Code(err) != ua.StatusBadSequenceNumberInvalid {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	for _, tc := range []struct {
		legacy   bool
		first, n uint32
		ok       bool
	}{{true, 5000, 5001, true}, {true, 0, 1, true}, {false, 0, 1, true}, {false, 1, 2, false}} {
		s := sequence{legacy: tc.legacy}
		if err := s.accept(tc.first); (err == nil) != tc.ok {
			t.Errorf("legacy %v: first number %d: %v", tc.legacy, tc.first, err)
		}
	}
	a, b := sequence{legacy: true}, sequence{legacy: true}
	a.last, a.begun = 4294966200, true
	b.last, b.begun = a.last, true
	for range 2000 { // what is sent is accepted, over the wrap
		if err := b.accept(a.next()); err != nil {
			t.Fatal(err)
		}
	}
	if a.last > 2000 {
		t.Fatal("has not wrapped", a.last)
	}
}
