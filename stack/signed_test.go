package stack_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"net/netip"
	"sync"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/stack"
)

// A signer is an HTTPS client that signs under a policy.
type signer struct {
	*peer
	srv         *stack.Server
	key         *security.Key
	certificate []byte
	send        func(rq any) any
}

const basic256Sha256 = "http://opcfoundation.org/UA/SecurityPolicy#Basic256Sha256"

func newSigner(t *testing.T, srv *stack.Server) *signer {
	t.Helper()
	der, private := clientKey()
	gate := security.NewCryptoGate(1)
	t.Cleanup(gate.Close)
	key, err := security.NewKey([][]byte{der}, private, private, gate)
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{peer: &peer{T: t}, srv: srv, key: key, certificate: der}
	c := browser(t)
	s.send = func(rq any) any {
		t.Helper()
		msg, rs := post(t, c, srv, s.encode(rq), "OPCUA-SecurityPolicy", basic256Sha256)
		if msg == nil {
			t.Fatalf("%T: %s", rq, rs.Status)
		}
		return msg
	}
	return s
}

func (s *signer) create() *ua.CreateSessionRequest {
	rq := createOf(s.peer)
	rq.ClientDescription.ApplicationURI = "urn:test:client"
	rq.ClientCertificate, rq.ClientNonce = s.certificate, make([]byte, 32)
	_, _ = rand.Read(rq.ClientNonce)
	return rq
}

// activate signs the server's certificate and nonce.
func (s *signer) activate(created *ua.CreateSessionResponse) *ua.ActivateSessionRequest {
	s.Helper()
	sig, err := security.Basic256Sha256.Sign(context.Background(), s.key, security.PrioritySession, append(append([]byte(nil), created.ServerCertificate...), created.ServerNonce...))
	if err != nil {
		s.Fatal(err)
	}
	rq := activateOf(s.peer)
	rq.ClientSignature = &ua.SignatureData{Algorithm: security.Basic256Sha256.SignatureURI(), Signature: sig}
	return rq
}

func codeOf(rs any) ua.StatusCode {
	return rs.(interface{ Header() *ua.ResponseHeader }).Header().ServiceResult
}

// OPC 10000-6 §7.4.1: the policy decides how CreateSession and ActivateSession
// are signed; CreateSession brings the client's certificate, which must be
// trusted, and the mode is Sign.
func TestSignedSessionOverHTTPS(t *testing.T) {
	facts := &factsClassifier{}
	o := strict(t)
	o.Endpoints = []string{"opc.https://127.0.0.1:0"}
	o.Classifier = facts
	srv := start(t, o)
	s := newSigner(t, srv)

	if code := codeOf(s.send(s.create())); code != ua.StatusBadSecurityChecksFailed {
		t.Fatalf("an unknown certificate: %v", code)
	}
	if _, err := srv.PKI().Trust(pki.Thumbprint(s.certificate)); err != nil {
		t.Fatal(err)
	}
	foreign := s.create()
	foreign.ClientDescription.ApplicationURI = "urn:somebody:else"
	if code := codeOf(s.send(foreign)); code != ua.StatusBadCertificateURIInvalid {
		t.Errorf("another ApplicationUri: %v", code)
	}
	bare := s.create()
	bare.ClientCertificate = nil
	if code := codeOf(s.send(bare)); code == ua.StatusOK {
		t.Error("a session without a certificate")
	}

	rq := s.create()
	created, ok := s.send(rq).(*ua.CreateSessionResponse)
	if !ok {
		t.Fatal("refused")
	}
	leaf, err := x509.ParseCertificate(created.ServerCertificate)
	if err != nil {
		t.Fatal(err)
	}
	if err := security.Basic256Sha256.Verify(leaf.PublicKey.(*rsa.PublicKey), append(append([]byte(nil), s.certificate...), rq.ClientNonce...), created.ServerSignature.Signature); err != nil {
		t.Errorf("the server's signature: %v", err)
	}
	for _, ep := range created.ServerEndpoints {
		if ep.SecurityMode != ua.MessageSecurityModeSign || ep.TransportProfileURI != httpsProfile {
			t.Errorf("endpoint %v %v", ep.SecurityMode, ep.TransportProfileURI)
		}
	}
	s.token = created.AuthenticationToken
	good := s.activate(created)
	unsigned := activateOf(s.peer)
	if code := codeOf(s.send(unsigned)); code != ua.StatusBadApplicationSignatureInvalid {
		t.Errorf("unsigned: %v", code)
	}
	if facts.seen() {
		t.Error("the classifier was shown a certificate before its key was proven")
	}
	good.RequestHeader = s.header()
	if code := codeOf(s.send(good)); code != ua.StatusOK {
		t.Fatalf("signed: %v", code)
	}
	if code := codeOf(s.send(readOf(s.peer, numeric(2259)))); code != ua.StatusOK {
		t.Errorf("read: %v", code)
	}
	if !facts.seen() {
		t.Error("the classifier was not shown the proven certificate")
	}

	// Without AllowNone nothing but discovery goes without a policy.
	plain := &peer{T: t}
	c := browser(t)
	if msg, _ := post(t, c, srv, plain.encode(createOf(plain))); codeOf(msg) != ua.StatusBadSecurityPolicyRejected {
		t.Errorf("policy None: %v", codeOf(msg))
	}
	if msg, _ := post(t, c, srv, plain.encode(&ua.GetEndpointsRequest{RequestHeader: plain.header()})); codeOf(msg) != ua.StatusOK {
		t.Errorf("GetEndpoints: %v", codeOf(msg))
	}
	// A certificate that is not trusted any more ends the session.
	if _, err := srv.PKI().Reject(pki.Thumbprint(s.certificate)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return codeOf(s.send(readOf(s.peer, numeric(2259)))) == ua.StatusBadSessionIDInvalid })
}

// factsClassifier notes whether it was shown a certificate.
type factsClassifier struct {
	mu          sync.Mutex
	certificate bool
}

func (c *factsClassifier) ClassifyIngress(_, _ netip.AddrPort) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{}, false
}

func (c *factsClassifier) Classify(_ isolation.ServiceKind, ch *isolation.ChannelFacts, _ *isolation.BindingFacts) (isolation.OwnerClaim, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.certificate = c.certificate || ch.Certificate != nil
	return isolation.OwnerClaim{}, false
}

func (c *factsClassifier) seen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.certificate
}
