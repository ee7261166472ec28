package securechannel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// A4: an OpenSecureChannel that is too large is refused by its header, before
// any cryptography, unread.
func TestHostileA4OversizeOpen(t *testing.T) {
	bothPaths(t, testOptions{}, func(t *testing.T, s *testServer) {
		conn := s.connect(t)
		_, _ = conn.Write((&uatcp.Hello{ReceiveBufferSize: 65535, SendBufferSize: 65535}).Append(nil))
		_, _ = conn.Write([]byte("OPNF\x00\x00\x10\x00"))
		b := make([]byte, 5000)
		if _, err := uatcp.ReadMessage(conn, b); err != nil {
			t.Fatal(err)
		}
		var e *uatcp.Error
		if _, err := uatcp.ReadMessage(conn, b); !errors.As(err, &e) || e.Code != ua.StatusBadTCPMessageTooLarge {
			t.Fatal(err)
		}
		_ = conn.Close()
		s.expectEnd(t, transport.ProtocolError)
	})
}

// B1, X27: silent sockets end at the Hello's deadline, half-open ones at the
// handshake's; neither keeps a real client out.
func TestHostileB1X27Deadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true})
		start := time.Now()
		silent := make([]net.Conn, 100)
		for i := range silent {
			silent[i] = s.connect(t)
		}
		opening := s.connect(t)
		_, _ = opening.Write((&uatcp.Hello{ReceiveBufferSize: 65535, SendBufferSize: 65535}).Append(nil))
		s.healthy(t)
		<-s.ends
		b := make([]byte, 5000)
		var e *uatcp.Error
		for _, c := range silent {
			if _, err := uatcp.ReadMessage(c, b); !errors.As(err, &e) || e.Code != ua.StatusBadTimeout {
				t.Fatal(err)
			}
			_ = c.Close()
			s.expectEnd(t, transport.HelloTimeout)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Fatal("hello deadline after", d)
		}
		_, _ = uatcp.ReadMessage(opening, b)
		time.Sleep(time.Minute)
		_, _ = opening.Write([]byte("OPNF\x00\x01\x00\x00x")) // progress renews nothing
		if _, err := uatcp.ReadMessage(opening, b); !errors.As(err, &e) || e.Code != ua.StatusBadTimeout {
			t.Fatal(err)
		}
		_ = opening.Close()
		// The partial chunk has its own, shorter deadline.
		s.expectEnd(t, transport.AssemblyTimeout)
		if d := time.Since(start); d != 100*time.Second {
			t.Fatal("after", d)
		}

		start = time.Now()
		idle := s.connect(t)
		_, _ = idle.Write((&uatcp.Hello{ReceiveBufferSize: 65535, SendBufferSize: 65535}).Append(nil))
		_, _ = uatcp.ReadMessage(idle, b)
		if _, err := uatcp.ReadMessage(idle, b); !errors.As(err, &e) || e.Code != ua.StatusBadTimeout {
			t.Fatal(err)
		}
		_ = idle.Close()
		s.expectEnd(t, transport.HandshakeTimeout)
		if d := time.Since(start); d != 2*time.Minute {
			t.Fatal("handshake deadline after", d)
		}
	})
}

// B3: all channels taken by clients that only open; after a second the oldest
// makes room. A channel with a session never does.
func TestHostileB3Reclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true, gate: transport.GateOptions{MaxConnections: 3}})
		var clients []*Client
		for i := range 3 {
			clients = append(clients, s.dial(t, ClientConfig{}))
			if ch := <-s.h.chans; i == 0 {
				ch.SessionAttached()
			}
			time.Sleep(10 * time.Millisecond)
		}
		_, err := Dial(context.Background(), s.connect(t), ClientConfig{})
		if !errors.Is(err, ua.StatusBadTCPServerTooBusy) {
			t.Fatal("before a second:", err)
		}
		time.Sleep(time.Second)
		fresh := s.dial(t, ClientConfig{})
		roundTrip(t, fresh, body(10))
		e := expectERR(t, clients[1], ua.StatusBadSecureChannelClosed)
		_ = e
		s.expectEnd(t, transport.Reclaimed)
		roundTrip(t, clients[0], body(10))
		roundTrip(t, clients[2], body(10))
		for _, c := range []*Client{fresh, clients[0], clients[2]} {
			_ = c.Close()
			s.expectEnd(t, transport.CloseSecureChannel)
		}
		if u := s.gate.Usage(); u.Reclaimed != 1 || u.Refused[transport.RefusedCapacity] != 1 {
			t.Fatalf("%+v", u)
		}
	})
}

// X2: OpenSecureChannel (issue) on an open channel.
func TestHostileX2SecondIssue(t *testing.T) {
	p := newPKI(t, 1)
	s := startServer(t, testOptions{cfg: p.serverConfig()})
	for _, cfg := range []ClientConfig{{}, p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign)} {
		for _, channel := range []uint32{0, 1} { // none, its own
			c := s.dial(t, cfg)
			id := channel * c.ID()
			b, err := c.SealOpen(context.Background(), &id, OpenRequestBody(requestTypeIssue, c.cfg.Mode, make([]byte, 32), time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			c.writeAll(t, b)
			expectERR(t, c, ua.StatusBadRequestTypeInvalid)
			s.expectEnd(t, transport.ProtocolError)
		}
	}
	s.healthy(t)
}

// X2: renewals are bounded in rate.
func TestHostileX2RenewRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true})
		c := s.dial(t, ClientConfig{})
		for i := range 11 {
			id := c.ID()
			b, _ := c.SealOpen(context.Background(), &id, OpenRequestBody(requestTypeRenew, c.cfg.Mode, nil, time.Hour))
			c.writeAll(t, b)
			if i == 10 {
				break
			}
			c.renewing = &renewal{done: make(chan struct{})}
			if _, _, _, err := c.receive(); err != nil {
				t.Fatal(i, err)
			}
		}
		// One each quarter of the smallest lifetime, a minute of which is the default.
		if e := expectERR(t, c, ua.StatusBadTCPServerTooBusy); e.Reason != "RetryAfterMs=15000" {
			t.Errorf("reason %q", e.Reason)
		}
		s.expectEnd(t, transport.TooBusy)
	})
}

// C14: renewals that are not of this channel.
func TestHostileC14ForeignRenew(t *testing.T) {
	p := newPKI(t, 1)
	s := startServer(t, testOptions{cfg: p.serverConfig()})
	other := newKey(t, rsaKeys()[2], p.gate)
	for _, tc := range []struct {
		name   string
		change func(c *Client) (channel uint32)
		code   ua.StatusCode
	}{
		{"channel 0", func(c *Client) uint32 { return 0 }, ua.StatusBadTCPSecureChannelUnknown},
		{"foreign channel", func(c *Client) uint32 { return c.ID() + 77 }, ua.StatusBadTCPSecureChannelUnknown},
		{"other certificate", func(c *Client) uint32 { c.server.key = other; return c.ID() }, ua.StatusBadSecurityChecksFailed},
		{"other policy", func(c *Client) uint32 { c.server.policy = security.Aes256Sha256RsaPss; return c.ID() }, ua.StatusBadSecurityChecksFailed},
		{"no policy", func(c *Client) uint32 { c.server.policy = security.None; return c.ID() }, ua.StatusBadSecurityChecksFailed},
		{"other mode", func(c *Client) uint32 { c.cfg.Mode = ua.MessageSecurityModeSignAndEncrypt; return c.ID() }, ua.StatusBadSecurityChecksFailed},
		{"wrong server thumbprint", func(c *Client) uint32 { c.server.thumb[3]++; return c.ID() }, ua.StatusBadSecurityChecksFailed},
		{"short nonce", func(c *Client) uint32 { return c.ID() }, ua.StatusBadSecurityChecksFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := s.dial(t, p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign))
			roundTrip(t, c, body(10))
			id := tc.change(c)
			nonce := make([]byte, 32)
			if tc.name == "short nonce" {
				nonce = nonce[:31]
			}
			b, err := c.SealOpen(context.Background(), &id, OpenRequestBody(requestTypeRenew, c.cfg.Mode, nonce, time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			c.writeAll(t, b)
			expectERR(t, c, tc.code)
			<-s.ends
		})
	}
}

// A journal is a log that tests read while others write.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// X3: certificates larger than any chain, and refused ones.
func TestHostileX3Certificates(t *testing.T) {
	p := newPKI(t, 1)
	cfg := p.serverConfig()
	refused := uastatus.New(ua.StatusBadCertificateUntrusted, "validate", nil)
	var shownBy atomic.Pointer[netip.AddrPort]
	cfg.Validate = func(_ context.Context, ch *Channel, _ []byte, _ *security.Policy) (*x509Certificate, error) {
		remote := ch.RemoteAddr()
		shownBy.Store(&remote)
		return nil, refused
	}
	var log journal
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := startServer(t, testOptions{cfg: cfg})
	_, err := Dial(context.Background(), s.connect(t), p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign))
	if !errors.Is(err, ua.StatusBadSecurityChecksFailed) {
		t.Fatal(err)
	}
	s.expectEnd(t, transport.SecurityError)
	for _, part := range []string{"secure channel closed", "remote=" + shownBy.Load().String(), "code=BadCertificateUntrusted"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("%s is missing in %s", part, log.String())
		}
	}

	for _, size := range []uint32{maxCertificate + 1, 0x7FFFFFFF, 0xFFFFFFF0} {
		conn := s.connect(t)
		_, _ = conn.Write((&uatcp.Hello{ReceiveBufferSize: 65535, SendBufferSize: 65535}).Append(nil))
		b := []byte("OPNF\x00\x00\x00\x00\x00\x00\x00\x00")
		uri := security.Basic256Sha256.URI
		b = binary.LittleEndian.AppendUint32(b, uint32(len(uri)))
		b = append(b, uri...)
		b = binary.LittleEndian.AppendUint32(b, size)
		b = append(b, make([]byte, 40000)...)
		binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
		_, _ = conn.Write(b)
		buf := make([]byte, 5000)
		_, _ = uatcp.ReadMessage(conn, buf)
		var e *uatcp.Error
		if _, err := uatcp.ReadMessage(conn, buf); !errors.As(err, &e) || e.Code != ua.StatusBadSecurityChecksFailed {
			t.Fatal(size, err)
		}
		_ = conn.Close()
		<-s.ends
	}
}
