package securechannel

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Part 6 §7.1.2.3 (Hello Message): a response over the client's limits is not
// sent, not even in part; the channel stays usable.
func TestReplyWithinPeerLimits(t *testing.T) {
	p := newPKI(t, 1)
	h := newHandler()
	h.message = func(ch *Channel, m *Message) {
		var n int
		_, _ = fmt.Sscan(string(m.Body), &n)
		if err := ch.Reply(m.RequestID, body(n)); err != nil {
			_ = ch.Reply(m.RequestID, []byte(uastatus.Name(uastatus.Code(err))))
		}
	}
	s := startServer(t, testOptions{cfg: p.serverConfig(), handler: h})
	for _, v := range perfVariants {
		for _, tc := range []struct {
			size, chunks int // what the client takes
		}{{10_000, 0}, {0, 3}, {100_000, 2}, {9000, 512}} {
			cfg := p.clientConfig(v.policy, v.mode)
			cfg.Limits = transport.Limits{ReceiveBufferSize: 8192, SendBufferSize: 8192, MaxMessageSize: tc.size, MaxChunkCount: tc.chunks}
			c := s.dial(t, cfg)
			ch := <-h.chans
			most := ch.MaxResponseSize()
			l := c.limits
			if want := min(l.MaxMessageSize, l.MaxChunkCount*c.layout.body); most != want {
				t.Fatalf("%v: MaxResponseSize %d, want %d", tc, most, want)
			}
			for _, n := range []int{most, most + 1, 10, most} {
				if err := c.Send(1, fmt.Append(nil, n)); err != nil {
					t.Fatal(err)
				}
				_, got, err := c.Receive()
				if err != nil {
					t.Fatal(tc, n, err)
				}
				if n > most {
					if string(got) != "BadResponseTooLarge" {
						t.Fatalf("%v: response of %d bytes: %.40q", tc, n, got)
					}
				} else if len(got) != n {
					t.Fatalf("%v: response of %d bytes came as %d", tc, n, len(got))
				}
			}
			_ = c.Close()
		}
	}
}

// A chunk's capacity: one byte more takes another chunk, and none is larger
// than negotiated, with every signature and padding.
func TestLayout(t *testing.T) {
	for _, policy := range append(allPolicies, security.None) {
		for mode := ua.MessageSecurityModeNone; mode <= ua.MessageSecurityModeSignAndEncrypt; mode++ {
			for size := 8192; size < 8260; size++ {
				l := newLayout(size, policy, mode)
				if n := l.chunk(l.body); n > size || n <= size-16 {
					t.Fatalf("%v/%d/%d: full chunk of %d", policy, mode, size, n)
				}
				if n := l.chunk(l.body + 1); n <= size {
					t.Fatalf("%v/%d/%d: body could be larger, %d", policy, mode, size, n)
				}
				if l.chunks(0) != 1 || l.chunks(l.body) != 1 || l.chunks(l.body+1) != 2 || l.chunks(2*l.body) != 2 {
					t.Fatalf("%v/%d/%d: chunks", policy, mode, size)
				}
			}
		}
	}
}

// A channel without security on a server whose endpoints all have it is for
// discovery, with small requests, or refused.
func TestDiscoveryOnly(t *testing.T) {
	p := newPKI(t, 1)
	cfg := p.serverConfig()
	cfg.Offers = []Offer{{security.Basic256Sha256, ua.MessageSecurityModeSign}}
	s := startServer(t, testOptions{cfg: cfg})
	c := s.dial(t, ClientConfig{Limits: transport.Limits{ReceiveBufferSize: 8192, SendBufferSize: 8192}})
	if ch := <-s.h.chans; !ch.DiscoveryOnly() || ch.PeerCertificate() != nil {
		t.Fatal("not discovery-only")
	}
	roundTrip(t, c, body(65535))
	_ = c.Send(1, body(65536))
	expectERR(t, c, ua.StatusBadTCPMessageTooLarge)
	<-s.ends
	for _, tc := range []struct {
		policy *security.Policy
		mode   ua.MessageSecurityMode
		code   ua.StatusCode
	}{
		{security.Basic256Sha256, ua.MessageSecurityModeSign, ua.StatusGood},
		{security.Basic256Sha256, ua.MessageSecurityModeSignAndEncrypt, ua.StatusBadSecurityModeRejected},
		{security.Basic256Sha256, ua.MessageSecurityModeNone, ua.StatusBadSecurityModeRejected},
		{security.Aes256Sha256RsaPss, ua.MessageSecurityModeSign, ua.StatusBadSecurityPolicyRejected},
		{security.None, ua.MessageSecurityModeSign, ua.StatusBadSecurityModeRejected},
		{&security.Policy{URI: "http://nobody/knows"}, ua.MessageSecurityModeNone, ua.StatusBadSecurityPolicyRejected},
	} {
		c, err := Dial(context.Background(), s.connect(t), p.clientConfig(tc.policy, tc.mode))
		if tc.code != ua.StatusGood {
			if !errors.Is(err, tc.code) {
				t.Fatalf("%v/%d: %v", tc.policy.URI, tc.mode, err)
			}
			<-s.ends
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if ch := <-s.h.chans; ch.DiscoveryOnly() {
			t.Fatal("secured and discovery-only")
		}
		_ = c.Close()
		<-s.ends
	}
	cfg.NoDiscovery = true
	s = startServer(t, testOptions{cfg: cfg})
	if _, err := Dial(context.Background(), s.connect(t), ClientConfig{}); !errors.Is(err, ua.StatusBadSecurityPolicyRejected) {
		t.Fatal(err)
	}
}

// Messages taken further: what is valid for how long, what counts, and when the
// batch's answers go out.
func TestMessageLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		taken := make(chan *Message, 10)
		h.message = func(ch *Channel, m *Message) {
			switch string(m.Body[:4]) {
			case "deta":
				taken <- m.Detach()
			case "queu":
				taken <- m.Queue()
			case "park":
				m.Park()
				if m.Body != nil {
					t.Error("body after Park")
				}
			case "depa":
				d := m.Detach()
				if ch.Outstanding() != 1 {
					t.Error("outstanding", ch.Outstanding())
				}
				d.Park()
			default:
				_ = ch.Reply(m.RequestID, m.Body)
			}
			m.Release() // nothing on one that is not detached
		}
		s := startServer(t, testOptions{memory: true, handler: h})
		c := s.dial(t, ClientConfig{Limits: transport.Limits{ReceiveBufferSize: 8192, SendBufferSize: 8192}})
		ch := <-h.chans
		outstanding := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := ch.Outstanding(); n != want {
				t.Fatal("outstanding", n, "want", want)
			}
		}
		seal := func(id uint32, text string) []byte { return c.Seal(RawChunk{RequestID: id, Body: []byte(text)}) }

		// One read brings both: the inline answer waits for the queued one.
		c.writeAll(t, append(seal(1, "queued"), seal(2, "inline")...))
		q := <-taken
		outstanding(1)
		if ch.out.Pending() == 0 {
			t.Fatal("the batch went out before its last request")
		}
		if err := ch.Reply(q.RequestID, q.Body); err != nil {
			t.Fatal(err)
		}
		q.Release()
		for _, want := range []uint32{2, 1} {
			if id, _, err := c.Receive(); err != nil || id != want {
				t.Fatal(id, err)
			}
		}
		outstanding(0)

		// A detached one holds nobody back; its body is its own.
		c.writeAll(t, append(seal(3, "detached"), seal(4, "inline")...))
		d := <-taken
		if id, _, err := c.Receive(); err != nil || id != 4 {
			t.Fatal(id, err)
		}
		roundTrip(t, c, body(8000)) // overwrites the read buffer
		if string(d.Body) != "detached" || d.Channel() != ch || d.Received.IsZero() {
			t.Fatalf("%q", d.Body)
		}
		outstanding(1)
		// Queued, then it turns out to block.
		c.writeAll(t, append(seal(5, "queued"), seal(6, "inline")...))
		q = <-taken
		q = q.Detach()
		if id, _, err := c.Receive(); err != nil || id != 6 {
			t.Fatal(id, err)
		}
		q.Release()
		d.Release()
		outstanding(0)

		// Parked ones do not count, and are answered without a message.
		c.writeAll(t, seal(7, "parked"), seal(8, "depart"))
		outstanding(0)
		for id := range uint32(2) {
			if err := ch.Reply(7+id, body(3)); err != nil {
				t.Fatal(err)
			}
			if got, _, err := c.Receive(); err != nil || got != 7+id {
				t.Fatal(got, err)
			}
		}

		// The assembly's buffer moves on with a detached message.
		long := append([]byte("deta"), body(50_000)...)
		if err := c.Send(9, long); err != nil {
			t.Fatal(err)
		}
		d = <-taken
		if string(d.Body) != string(long) {
			t.Fatal("long body differs")
		}
		if buffer.Debug && buffer.Outstanding() == 0 {
			t.Fatal("no buffer behind a detached message")
		}
		_ = c.Close()
		s.expectEnd(t, transport.CloseSecureChannel)
		if err := ch.Reply(9, body(3)); !errors.Is(err, ua.StatusBadSecureChannelClosed) {
			t.Fatal(err)
		}
		d.Release() // after the channel is gone
		select {
		case <-ch.Done():
		default:
			t.Fatal("Done is open")
		}
	})
}

// A channel stays while its client was told to come back, and while it is busy.
func TestKeepUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true, gate: transport.GateOptions{MaxConnections: 1}})
		c := s.dial(t, ClientConfig{})
		ch := <-s.h.chans
		ch.KeepUntil(time.Now().Add(10 * time.Second))
		time.Sleep(5 * time.Second)
		if _, err := Dial(context.Background(), s.connect(t), ClientConfig{}); !errors.Is(err, ua.StatusBadTCPServerTooBusy) {
			t.Fatal(err)
		}
		ch.SessionAttached()
		time.Sleep(6 * time.Second)
		if _, err := Dial(context.Background(), s.connect(t), ClientConfig{}); !errors.Is(err, ua.StatusBadTCPServerTooBusy) {
			t.Fatal(err)
		}
		ch.SessionAttached()
		ch.SessionDetached()
		ch.SessionDetached()
		time.Sleep(time.Second)
		c.writeAll(t, c.Seal(RawChunk{Final: 'C', RequestID: 1, Body: body(9)})) // busy
		synctest.Wait()
		if _, err := Dial(context.Background(), s.connect(t), ClientConfig{}); !errors.Is(err, ua.StatusBadTCPServerTooBusy) {
			t.Fatal(err)
		}
		c.writeAll(t, c.Seal(RawChunk{RequestID: 1, Body: body(9)}))
		if _, _, err := c.Receive(); err != nil {
			t.Fatal(err)
		}
		n := s.dial(t, ClientConfig{})
		s.expectEnd(t, transport.Reclaimed)
		_ = n.Close()
	})
}

// The end of the server tells every channel.
func TestServerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true})
		c := s.dial(t, ClientConfig{})
		n := 0
		s.Each(func(ch *Channel) bool { n++; return ch.ID() != c.ID() })
		if n != 1 {
			t.Fatal("channels", n)
		}
		s.cancel()
		expectERR(t, c, ua.StatusBadServerHalted)
		s.expectEnd(t, transport.Shutdown)
	})
}
