package session

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

const (
	serverURI = "urn:test:server"
	clientURI = "urn:test:client with spaces"
)

// party is a certificate with its key; made once per test binary.
type party struct {
	key  *rsa.PrivateKey
	cert []byte
}

func newParty(uri, name string) func() *party {
	return sync.OnceValue(func() *party {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		tmpl := &x509.Certificate{
			SerialNumber: big.NewInt(1),
			Subject:      pkix.Name{CommonName: name},
			NotBefore:    time.Now().Add(-time.Hour),
			NotAfter:     time.Now().Add(time.Hour),
		}
		if uri != "" {
			tmpl.URIs = []*url.URL{{Scheme: "urn", Opaque: uri[4:]}}
		}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
		if err != nil {
			panic(err)
		}
		return &party{key, der}
	})
}

var (
	serverParty = newParty(serverURI, "server")
	clientParty = newParty(clientURI, "client")
	otherParty  = newParty("urn:test:other", "other")
	userParty   = newParty("", "alice")
)

// serverKey makes a Key on a gate of this test's own, so that it works inside
// synctest bubbles too.
func serverKey(t testing.TB) *security.Key {
	t.Helper()
	gate := security.NewCryptoGate(1)
	t.Cleanup(gate.Close)
	p := serverParty()
	k, err := security.NewKey([][]byte{p.cert}, p.key, p.key, gate)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// clientKey lets the test sign as a client.
func (p *party) sign(t testing.TB, policy *security.Policy, data ...[]byte) *ua.SignatureData {
	t.Helper()
	gate := security.NewCryptoGate(1)
	defer gate.Close()
	k, err := security.NewKey([][]byte{p.cert}, p.key, p.key, gate)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := policy.Sign(context.Background(), k, security.PrioritySession, bytes.Join(data, nil))
	if err != nil {
		t.Fatal(err)
	}
	return &ua.SignatureData{Algorithm: policy.SignatureURI(), Signature: sig}
}

// fakeChannel stands in for a SecureChannel: the Store sees nothing but the
// interface.
type fakeChannel struct {
	id     uint32
	policy *security.Policy
	mode   ua.MessageSecurityMode
	peer   *party
	remote netip.AddrPort
	done   chan struct{}

	attached atomic.Int32
	mu       sync.Mutex
	keep     time.Time
}

func (c *fakeChannel) KeepUntil(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep = t
}

var channelIDs atomic.Uint32

func (c *fakeChannel) ID() uint32                       { return c.id }
func (c *fakeChannel) SecurityPolicy() *security.Policy { return c.policy }
func (c *fakeChannel) SecurityMode() ua.MessageSecurityMode {
	return c.mode
}
func (c *fakeChannel) PeerCertificate() []byte {
	if c.peer == nil {
		return nil
	}
	return c.peer.cert
}
func (c *fakeChannel) RemoteAddr() netip.AddrPort { return c.remote }
func (c *fakeChannel) LocalAddr() netip.AddrPort {
	return netip.MustParseAddrPort("192.0.2.1:4840")
}
func (c *fakeChannel) EndpointURL() string                        { return "opc.tcp://server:4840" }
func (c *fakeChannel) Reply(uint32, []byte) error                 { return nil }
func (c *fakeChannel) MaxResponseSize() int                       { return 0 }
func (c *fakeChannel) Close(transport.CloseReason, ua.StatusCode) {}
func (c *fakeChannel) Done() <-chan struct{}                      { return c.done }
func (c *fakeChannel) SessionAttached()                           { c.attached.Add(1) }
func (c *fakeChannel) SessionDetached()                           { c.attached.Add(-1) }
func (c *fakeChannel) from(addr string) *fakeChannel {
	c.remote = netip.MustParseAddrPort(addr)
	return c
}
func (c *fakeChannel) closeIn(st *Store) { close(c.done); st.ChannelClosed(c) }

func newChannel(policy *security.Policy, mode ua.MessageSecurityMode, peer *party) *fakeChannel {
	if policy.IsNone() {
		peer = nil
	}
	return &fakeChannel{id: channelIDs.Add(1), policy: policy, mode: mode, peer: peer,
		remote: netip.MustParseAddrPort("192.0.2.7:50000"), done: make(chan struct{})}
}

func noneChannel() *fakeChannel {
	return newChannel(security.None, ua.MessageSecurityModeNone, nil)
}

func secureChannel() *fakeChannel {
	return newChannel(security.Basic256Sha256, ua.MessageSecurityModeSignAndEncrypt, clientParty())
}

// allowAll accepts every identity whose proof held.
type allowAll struct{ password string }

func (allowAll) TokenTypes() []ua.UserTokenType {
	return []ua.UserTokenType{ua.UserTokenTypeAnonymous, ua.UserTokenTypeUserName, ua.UserTokenTypeCertificate}
}

func (v allowAll) Authenticate(_ context.Context, a *Attempt) (*Identity, error) {
	id := &Identity{Kind: a.Kind, User: a.User}
	switch a.Kind {
	case ua.UserTokenTypeUserName:
		if v.password != "" && string(a.Password) != v.password {
			return nil, uastatus.New(ua.StatusBadUserAccessDenied, "test", nil)
		}
	case ua.UserTokenTypeCertificate:
		id.User, id.Certificate = a.Certificate.Subject.CommonName, a.Certificate.Raw
	}
	return id, nil
}

func trustAll(context.Context, Channel, []byte, *security.Policy) error { return nil }

// newStore starts a Store that the test ends.
func newStore(t testing.TB, o Options) *Store {
	t.Helper()
	if o.ApplicationURI == "" {
		o.ApplicationURI = serverURI
	}
	st := NewStore(o)
	t.Cleanup(st.Shutdown)
	return st
}

func secureOptions(t testing.TB) Options {
	return Options{Key: serverKey(t), Authenticator: allowAll{}, ValidateUserCertificate: trustAll}
}

func createRequest(ch *fakeChannel) *ua.CreateSessionRequest {
	return &ua.CreateSessionRequest{
		ClientDescription:       &ua.ApplicationDescription{ApplicationURI: clientURI, ApplicationName: ua.NewLocalizedText("test client")},
		EndpointURL:             "opc.tcp://server:4840",
		SessionName:             "a session",
		ClientNonce:             security.Nonce(32),
		ClientCertificate:       ch.PeerCertificate(),
		RequestedSessionTimeout: 60_000,
	}
}

// client is the client's side of one session.
type client struct {
	t     testing.TB
	st    *Store
	token uabinary.NodeID
	id    uabinary.NodeID
	nonce []byte
}

func create(t testing.TB, st *Store, ch *fakeChannel) *client {
	t.Helper()
	c, code := tryCreate(t, st, ch)
	if code != ua.StatusOK {
		t.Fatalf("CreateSession: %s", uastatus.Name(code))
	}
	return c
}

func tryCreate(t testing.TB, st *Store, ch *fakeChannel) (*client, ua.StatusCode) {
	t.Helper()
	rs, code := st.Create(context.Background(), ch, createRequest(ch))
	if code != ua.StatusOK {
		return nil, code
	}
	return &client{t: t, st: st, token: uabinary.NodeIDOf(rs.AuthenticationToken),
		id: uabinary.NodeIDOf(rs.SessionID), nonce: rs.ServerNonce}, code
}

// login builds the identity part of an ActivateSession for a nonce.
type login func(c *client, ch *fakeChannel, rq *ua.ActivateSessionRequest)

func anonymous(*client, *fakeChannel, *ua.ActivateSessionRequest) {}

func asUser(name, password string) login {
	return func(c *client, ch *fakeChannel, rq *ua.ActivateSessionRequest) {
		policy := tokenSecurity(ch)
		secret, err := policy.EncryptSecret(&serverParty().key.PublicKey, []byte(password), c.nonce)
		if err != nil {
			c.t.Fatal(err)
		}
		rq.UserIdentityToken = ua.NewExtensionObject(&ua.UserNameIdentityToken{
			PolicyID: "username-" + policy.Name, UserName: name, Password: secret,
			EncryptionAlgorithm: policy.EncryptionURI(),
		})
	}
}

func asCertificate(p *party) login {
	return func(c *client, ch *fakeChannel, rq *ua.ActivateSessionRequest) {
		policy := tokenSecurity(ch)
		rq.UserIdentityToken = ua.NewExtensionObject(&ua.X509IdentityToken{
			PolicyID: "certificate-" + policy.Name, CertificateData: p.cert,
		})
		rq.UserTokenSignature = p.sign(c.t, policy, serverParty().cert, c.nonce)
	}
}

// tokenSecurity is the policy that protects identity tokens on ch.
func tokenSecurity(ch *fakeChannel) *security.Policy {
	if ch.policy.IsNone() {
		return security.Basic256Sha256
	}
	return ch.policy
}

func (c *client) request(ch *fakeChannel, l login) *ua.ActivateSessionRequest {
	c.t.Helper()
	rq := &ua.ActivateSessionRequest{}
	if !ch.policy.IsNone() {
		rq.ClientSignature = ch.peer.sign(c.t, ch.policy, serverParty().cert, c.nonce)
	}
	l(c, ch, rq)
	return rq
}

func (c *client) send(ch *fakeChannel, rq *ua.ActivateSessionRequest) ua.StatusCode {
	rs, code := c.st.Activate(context.Background(), ch, c.token, rq)
	if code == ua.StatusOK {
		c.nonce = rs.ServerNonce
	}
	return code
}

func (c *client) activate(ch *fakeChannel, l login) ua.StatusCode {
	c.t.Helper()
	return c.send(ch, c.request(ch, l))
}

func (c *client) lookup(ch *fakeChannel) ua.StatusCode {
	_, code := c.st.Lookup(ch, c.token, time.Now())
	return code
}

func (c *client) session() *Session { return c.st.Find(c.id) }

func want(t testing.TB, what string, got, wanted ua.StatusCode) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s: got %s, want %s", what, uastatus.Name(got), uastatus.Name(wanted))
	}
}

// logBuffer collects log lines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level}))
}

// nothingLeft asserts that the Store holds nothing any more.
func nothingLeft(t testing.TB, st *Store) {
	t.Helper()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.live != 0 || len(st.channels) != 0 || len(st.owners) != 0 || len(st.heap) != 0 || st.activated.Load() != 0 || st.gone.n != 0 || st.provisional != 0 {
		t.Errorf("left behind: %d sessions, %d channels, %d owners, %d deadlines, %d activated, %d detached, %d provisional",
			st.live, len(st.channels), len(st.owners), len(st.heap), st.activated.Load(), st.gone.n, st.provisional)
	}
}
