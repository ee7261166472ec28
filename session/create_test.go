package session

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

func TestCreateChecksTheRequest(t *testing.T) {
	st := newStore(t, secureOptions(t))
	for _, tc := range []struct {
		name   string
		ch     *fakeChannel
		change func(*ua.CreateSessionRequest)
		want   ua.StatusCode
	}{
		{"Part 4 5.7.2 plain", secureChannel(), func(*ua.CreateSessionRequest) {}, ua.StatusOK},
		{"Part 4 5.7.2 nonce of 31 bytes", secureChannel(), func(r *ua.CreateSessionRequest) { r.ClientNonce = r.ClientNonce[:31] }, ua.StatusBadNonceInvalid},
		{"Part 4 5.7.2 nonce of 128 bytes", secureChannel(), func(r *ua.CreateSessionRequest) { r.ClientNonce = make([]byte, 128) }, ua.StatusOK},
		{"Part 4 5.7.2 nonce of 129 bytes", secureChannel(), func(r *ua.CreateSessionRequest) { r.ClientNonce = make([]byte, 129) }, ua.StatusBadNonceInvalid},
		{"Part 4 5.7.2 no nonce under None", noneChannel(), func(r *ua.CreateSessionRequest) { r.ClientNonce = nil }, ua.StatusOK},
		{"Part 4 5.7.2 foreign certificate", secureChannel(), func(r *ua.CreateSessionRequest) { r.ClientCertificate = otherParty().cert }, ua.StatusBadCertificateInvalid},
		{"Part 4 5.7.2 no certificate", secureChannel(), func(r *ua.CreateSessionRequest) { r.ClientCertificate = nil }, ua.StatusBadCertificateInvalid},
		{"Part 4 5.7.2 certificate cut short", secureChannel(), func(r *ua.CreateSessionRequest) { r.ClientCertificate = r.ClientCertificate[:100] }, ua.StatusBadCertificateInvalid},
		{"Part 4 5.7.2 leaf with issuers", secureChannel(), func(r *ua.CreateSessionRequest) {
			r.ClientCertificate = append(bytes.Clone(r.ClientCertificate), otherParty().cert...)
		}, ua.StatusOK},
		{"Part 4 5.7.2 certificate ignored under None", noneChannel(), func(r *ua.CreateSessionRequest) { r.ClientCertificate = []byte("junk") }, ua.StatusOK},
		{"Part 4 5.7.2 ApplicationUri is another's", secureChannel(), func(r *ua.CreateSessionRequest) { r.ClientDescription.ApplicationURI = "urn:x" }, ua.StatusBadCertificateURIInvalid},
		{"Part 4 5.7.2 ApplicationUri is empty", secureChannel(), func(r *ua.CreateSessionRequest) { r.ClientDescription.ApplicationURI = "" }, ua.StatusBadCertificateURIInvalid},
		{"Part 4 5.7.2 no ClientDescription", secureChannel(), func(r *ua.CreateSessionRequest) { r.ClientDescription = nil }, ua.StatusBadCertificateURIInvalid},
		{"Part 4 5.7.2 no ClientDescription under None", noneChannel(), func(r *ua.CreateSessionRequest) { r.ClientDescription = nil }, ua.StatusOK},
		{"Part 4 5.7.2 serverUri ours", noneChannel(), func(r *ua.CreateSessionRequest) { r.ServerURI = serverURI }, ua.StatusOK},
		{"Part 4 5.7.2 serverUri another's", noneChannel(), func(r *ua.CreateSessionRequest) { r.ServerURI = "urn:x" }, ua.StatusBadServerURIInvalid},
		{"Part 4 5.7.2 endpointUrl unknown is no error", noneChannel(), func(r *ua.CreateSessionRequest) { r.EndpointURL = "opc.tcp://elsewhere" }, ua.StatusOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rq := createRequest(tc.ch)
			tc.change(rq)
			before := st.Len()
			rs, code := st.Create(context.Background(), tc.ch, rq)
			want(t, "CreateSession", code, tc.want)
			if code != ua.StatusOK && (rs != nil || st.Len() != before || tc.ch.attached.Load() != 0) {
				t.Error("a refused CreateSession left something behind")
			}
		})
	}
}

// OPC 10000-4 §5.7.2 CreateSession: what the client gets.
func TestCreateResponse(t *testing.T) {
	for _, policy := range []*security.Policy{security.None, security.Basic256Sha256, security.Aes128Sha256RsaOaep, security.Aes256Sha256RsaPss} {
		t.Run(policy.Name, func(t *testing.T) {
			o := secureOptions(t)
			mode := ua.MessageSecurityModeSign
			if policy.IsNone() {
				mode = ua.MessageSecurityModeNone
			}
			endpoints := []*ua.EndpointDescription{
				{EndpointURL: "opc.tcp://x", SecurityMode: 77},
				{EndpointURL: "opc.tcp://y", SecurityMode: mode, SecurityPolicyURI: policy.URI, ServerCertificate: serverParty().cert},
			}
			var gotURL string
			o.Endpoints = func(_ Channel, url string) []*ua.EndpointDescription { gotURL = url; return endpoints }
			o.MaxRequestMessageSize = 4711
			st := newStore(t, o)
			ch := newChannel(policy, mode, clientParty())
			rq := createRequest(ch)
			rq.MaxResponseMessageSize = 800_000
			rs, code := st.Create(context.Background(), ch, rq)
			want(t, "CreateSession", code, ua.StatusOK)
			if len(rs.ServerNonce) != 32 {
				t.Errorf("server nonce of %d bytes", len(rs.ServerNonce))
			}
			if !bytes.Equal(rs.ServerCertificate, serverParty().cert) {
				t.Error("server certificate is missing")
			}
			if len(rs.ServerEndpoints) != 2 || gotURL != rq.EndpointURL {
				t.Errorf("endpoints %v for %q", rs.ServerEndpoints, gotURL)
			}
			if rs.MaxRequestMessageSize != 4711 || rs.RevisedSessionTimeout != 60_000 {
				t.Errorf("MaxRequestMessageSize %d, timeout %v", rs.MaxRequestMessageSize, rs.RevisedSessionTimeout)
			}
			if rs.ServerSignature.Algorithm != policy.SignatureURI() {
				t.Errorf("algorithm %q", rs.ServerSignature.Algorithm)
			}
			if policy.IsNone() {
				if len(rs.ServerSignature.Signature) != 0 {
					t.Error("signature under None")
				}
			} else {
				cert, _ := x509.ParseCertificate(rs.ServerCertificate)
				data := append(bytes.Clone(rq.ClientCertificate), rq.ClientNonce...)
				if err := policy.Verify(cert.PublicKey.(*rsa.PublicKey), data, rs.ServerSignature.Signature); err != nil {
					t.Error("server signature:", err)
				}
			}
			s := st.Find(uabinary.NodeIDOf(rs.SessionID))
			if s.MaxResponseMessageSize() != 800_000 || s.Name() != "a session" || s.Channel() != Channel(ch) || ch.attached.Load() != 0 {
				t.Error("session does not know what it was created with")
			}
		})
	}
}

// The signature covers the leaf alone when the client sends a chain.
func TestCreateSignsTheLeaf(t *testing.T) {
	st := newStore(t, secureOptions(t))
	ch := secureChannel()
	rq := createRequest(ch)
	rq.ClientCertificate = append(bytes.Clone(rq.ClientCertificate), otherParty().cert...)
	rs, code := st.Create(context.Background(), ch, rq)
	want(t, "CreateSession", code, ua.StatusOK)
	data := append(bytes.Clone(clientParty().cert), rq.ClientNonce...)
	if err := ch.policy.Verify(&serverParty().key.PublicKey, data, rs.ServerSignature.Signature); err != nil {
		t.Error(err)
	}
}

// hostile.md I16: the revised timeout is between the limits, in milliseconds.
func TestI16RevisedTimeoutIsInMilliseconds(t *testing.T) {
	st := newStore(t, Options{})
	for _, tc := range []struct{ requested, revised float64 }{
		{60_000, 60_000}, {9_999, 10_000}, {0, 10_000}, {-1, 10_000}, {math.NaN(), 10_000},
		{3_600_001, 3_600_000}, {math.Inf(1), 3_600_000}, {math.Inf(-1), 10_000}, {math.MaxFloat64, 3_600_000}, {12_345.5, 12_345.5},
	} {
		ch := noneChannel()
		rq := createRequest(ch)
		rq.RequestedSessionTimeout = tc.requested
		rs, code := st.Create(context.Background(), ch, rq)
		want(t, "CreateSession", code, ua.StatusOK)
		if rs.RevisedSessionTimeout != tc.revised {
			t.Errorf("requested %v: revised %v, want %v", tc.requested, rs.RevisedSessionTimeout, tc.revised)
		}
	}
}

// A channel counts activated sessions only; until then it is spared for a while.
func TestChannelKnowsItsSessions(t *testing.T) {
	st := newStore(t, Options{})
	ch := noneChannel()
	c := create(t, st, ch)
	if spared := time.Until(ch.keep); ch.attached.Load() != 0 || spared <= 0 || spared > keepAfterCreate {
		t.Errorf("after CreateSession: %d attached, spared for %v", ch.attached.Load(), spared)
	}
	for range 2 {
		want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
		if ch.attached.Load() != 1 {
			t.Errorf("%d attached", ch.attached.Load())
		}
	}
	create(t, st, ch)
	want(t, "close", st.Close(ch, c.token, true), ua.StatusOK)
	if ch.attached.Load() != 0 {
		t.Errorf("%d attached after CloseSession", ch.attached.Load())
	}
}

func TestCreateNamesAnonymousSessions(t *testing.T) {
	st := newStore(t, Options{})
	ch := noneChannel()
	rq := createRequest(ch)
	rq.SessionName = ""
	rs, _ := st.Create(context.Background(), ch, rq)
	if s := st.Find(uabinary.NodeIDOf(rs.SessionID)); s.Name() == "" {
		t.Error("Part 4 5.7.2: the server assigns a name when the client gives none")
	}
}

// What a session keeps of a request is bounded, however large the request was.
func TestCreateKeepsLittle(t *testing.T) {
	st := newStore(t, Options{})
	ch := noneChannel()
	rq := createRequest(ch)
	long := strings.Repeat("ä", 1<<20)
	rq.SessionName, rq.EndpointURL = long, long
	rq.ClientDescription.ProductURI, rq.ClientDescription.ApplicationName.Text = long, long
	for range 1000 {
		rq.ClientDescription.DiscoveryURLs = append(rq.ClientDescription.DiscoveryURLs, long)
	}
	rs, code := st.Create(context.Background(), ch, rq)
	want(t, "CreateSession", code, ua.StatusOK)
	s := st.Find(uabinary.NodeIDOf(rs.SessionID))
	d := s.ClientDescription()
	kept := len(s.Name()) + len(s.EndpointURL()) + len(d.ProductURI) + len(d.ApplicationName.Text)
	for _, u := range d.DiscoveryURLs {
		kept += len(u)
	}
	if kept > 50_000 {
		t.Errorf("kept %d bytes", kept)
	}
	if !utf8.ValidString(s.Name()) {
		t.Error("name was cut inside a character")
	}
}

// hostile.md X11: strings that are not valid UTF-8 are kept as they are.
func TestX11InvalidUTF8IsOpaque(t *testing.T) {
	st := newStore(t, Options{})
	ch := noneChannel()
	rq := createRequest(ch)
	rq.SessionName = "a\xff\xc0\x80\xed\xa0\x80"
	rq.ClientDescription.ApplicationURI = strings.Repeat("\x80", maxURILength+100)
	rq.ClientDescription.ApplicationName.Text = strings.Repeat("\xf0\x9f", maxNameLength)
	rs, code := st.Create(context.Background(), ch, rq)
	want(t, "CreateSession", code, ua.StatusOK)
	s := st.Find(uabinary.NodeIDOf(rs.SessionID))
	if s.Name() != rq.SessionName {
		t.Errorf("name %q", s.Name())
	}
	if n := len(s.ClientDescription().ApplicationURI); n > maxURILength || n < maxURILength-4 {
		t.Errorf("URI of %d bytes", n)
	}
}

// hostile.md C1, overload.md §8: the gate is asked after validation and before
// any private-key work, and what it answers is what the client gets.
func TestGateComesBeforeCryptography(t *testing.T) {
	o := secureOptions(t)
	asked, released, open := 0, 0, true
	o.Gate = func(context.Context, Channel) (func(), ua.StatusCode) {
		asked++
		if !open {
			return nil, uastatus.BadServerTooBusy
		}
		return func() { released++ }, ua.StatusOK
	}
	st := newStore(t, o)
	ch := secureChannel()
	bad := createRequest(ch)
	bad.ClientNonce = nil
	_, code := st.Create(context.Background(), ch, bad)
	want(t, "invalid request", code, ua.StatusBadNonceInvalid)
	if asked != 0 {
		t.Error("the gate was asked for an invalid request")
	}
	c := create(t, st, ch)
	want(t, "ActivateSession", c.activate(ch, asUser("bob", "x")), ua.StatusOK)
	if asked != 2 || released != 2 {
		t.Errorf("asked %d, released %d", asked, released)
	}
	open = false
	key := o.Key.Gate()
	key.Close() // no private-key operation can succeed from here on
	_, code = st.Create(context.Background(), ch, createRequest(ch))
	want(t, "refused CreateSession", code, uastatus.BadServerTooBusy)
	want(t, "refused ActivateSession", c.activate(ch, asUser("bob", "x")), uastatus.BadServerTooBusy)
	open = true
	_, code = st.Create(context.Background(), ch, createRequest(ch))
	if code == ua.StatusOK || released != asked-2 {
		t.Errorf("after the crypto gate closed: %s, asked %d, released %d", uastatus.Name(code), asked, released)
	}
	if st.Len() != 1 {
		t.Errorf("%d sessions, want the one that works", st.Len())
	}
}

func TestConcurrencyGate(t *testing.T) {
	gate := ConcurrencyGate(2)
	ctx := context.Background()
	r1, c1 := gate(ctx, nil)
	_, c2 := gate(ctx, nil)
	_, c3 := gate(ctx, nil)
	want(t, "first", c1, ua.StatusOK)
	want(t, "second", c2, ua.StatusOK)
	want(t, "third", c3, uastatus.BadServerTooBusy)
	r1()
	r1() // releasing twice frees one place
	_, c4 := gate(ctx, nil)
	_, c5 := gate(ctx, nil)
	want(t, "after release", c4, ua.StatusOK)
	want(t, "and no more", c5, uastatus.BadServerTooBusy)
}

func TestCreateAfterShutdown(t *testing.T) {
	st := NewStore(Options{})
	ch := noneChannel()
	create(t, st, ch)
	st.Shutdown()
	nothingLeft(t, st)
	_, code := tryCreate(t, st, ch)
	want(t, "CreateSession", code, ua.StatusBadServerHalted)
}

func TestCreateOnAChannelThatWent(t *testing.T) {
	st := newStore(t, Options{})
	ch := noneChannel()
	ch.closeIn(st)
	_, code := tryCreate(t, st, ch)
	want(t, "CreateSession", code, ua.StatusBadSecureChannelClosed)
	nothingLeft(t, st)
}

func TestDefaults(t *testing.T) {
	o := Options{}.resolved()
	if o.MaxSessions != 1000 || o.MinTimeout != 10*time.Second || o.MaxTimeout != time.Hour ||
		o.ActivationTimeout != 30*time.Second || o.MaxInactivePerChannel != 10 || o.MaxConcurrentEstablishment < 128 {
		t.Errorf("%+v", o)
	}
}
