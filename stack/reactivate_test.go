package stack_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/session"
)

// everybody takes whoever comes without identity for the user it names.
type everybody struct{ user atomic.Value }

func (e *everybody) Authenticate(context.Context, *session.Attempt) (*session.Identity, error) {
	return &session.Identity{Kind: ua.UserTokenTypeUserName, User: e.user.Load().(string)}, nil
}

func (*everybody) TokenTypes() []ua.UserTokenType {
	return []ua.UserTokenType{ua.UserTokenTypeAnonymous}
}

// strangerKey is a key with a certificate that nobody knows.
func strangerKey(t *testing.T) *security.Key {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	gate := security.NewCryptoGate(1)
	t.Cleanup(gate.Close)
	key, err := security.NewKey([][]byte{der}, private, private, gate)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// OPC 10000-4 §5.7.3.1: a session that lost its channel, here because its
// certificate was taken off the trust list for a while, is activated again on
// another one by who proves to be the same application and user. Over HTTPS the
// ClientSignature is the proof, because nothing else brings a certificate.
func TestReactivationOverHTTPS(t *testing.T) {
	who := &everybody{}
	who.user.Store("ann")
	o := strict(t)
	o.Endpoints = []string{"opc.https://127.0.0.1:0"}
	o.Security.AllowAnonymous, o.Authenticator = false, who
	srv := start(t, o)
	s := newSigner(t, srv)
	thumb := pki.Thumbprint(s.certificate)
	if code := codeOf(s.send(s.create())); code != ua.StatusBadSecurityChecksFailed {
		t.Fatalf("an unknown certificate: %v", code)
	}
	if _, err := srv.PKI().Trust(thumb); err != nil {
		t.Fatal(err)
	}
	created := s.send(s.create()).(*ua.CreateSessionResponse)
	s.token = created.AuthenticationToken
	first := s.activate(created)
	activated, ok := s.send(first).(*ua.ActivateSessionResponse)
	if !ok {
		t.Fatal("not activated")
	}
	alive := func() bool { return codeOf(s.send(readOf(s.peer, numeric(2259)))) == ua.StatusOK }
	if !alive() {
		t.Fatal("the session does not work")
	}
	if _, err := srv.PKI().Reject(thumb); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return !alive() })

	again := func(key *security.Key, nonce []byte) *ua.ActivateSessionRequest {
		own := s.key
		s.key = key
		defer func() { s.key = own }()
		return s.activate(&ua.CreateSessionResponse{ServerCertificate: created.ServerCertificate, ServerNonce: nonce})
	}
	refused := func(what string, rq *ua.ActivateSessionRequest, want ua.StatusCode) {
		t.Helper()
		if code := codeOf(s.send(rq)); code != want {
			t.Errorf("%s: %v, want %v", what, code, want)
		}
		if alive() {
			t.Fatalf("%s: the session is back", what)
		}
	}
	refused("not trusted any more", again(s.key, activated.ServerNonce), ua.StatusBadSecurityChecksFailed)
	if _, err := srv.PKI().Trust(thumb); err != nil {
		t.Fatal(err)
	}
	unsigned := activateOf(s.peer)
	refused("unsigned", unsigned, ua.StatusBadApplicationSignatureInvalid)
	refused("the key of another certificate", again(strangerKey(t), activated.ServerNonce), ua.StatusBadApplicationSignatureInvalid)
	first.RequestHeader = s.header()
	refused("a signature of before", first, ua.StatusBadApplicationSignatureInvalid)
	who.user.Store("ben")
	refused("another user", again(s.key, activated.ServerNonce), ua.StatusBadIdentityChangeNotSupported)
	who.user.Store("ann")

	moved := again(s.key, activated.ServerNonce)
	if code := codeOf(s.send(moved)); code != ua.StatusOK {
		t.Fatalf("activated again: %v", code)
	}
	if !alive() {
		t.Fatal("the session does not work")
	}
	if n := srv.Stats().Sessions; n != 1 {
		t.Errorf("%d sessions", n)
	}
	moved.RequestHeader = s.header()
	if code := codeOf(s.send(moved)); code != ua.StatusBadApplicationSignatureInvalid {
		t.Errorf("the same signature twice: %v", code)
	}
	if !alive() {
		t.Error("a refusal ended the session")
	}
}
