package client

import (
	"bytes"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/gopcua/opcua/ua"
)

// serverSession is what the client knows of its session at the server. It
// survives the connection.
type serverSession struct {
	id       *ua.NodeID
	token    *ua.NodeID // AuthenticationToken
	timeout  time.Duration
	nonce    []byte // the server's last one
	endpoint *ua.EndpointDescription
	limits   atomic.Pointer[operationLimits]
}

const nonceLength = 32

// maxNonces bounds the memory of nonces that were seen.
const maxNonces = 1024

// nonces remembers what the server has used, to notice when one comes again.
type nonces struct {
	seen map[[32]byte]bool
	ring [][32]byte
	next int
}

// take checks a server nonce: 32 bytes or more (OPC 10000-4 §5.7.2), and never
// one that was used before, else signatures over it prove nothing.
func (n *nonces) take(nonce []byte) error {
	if len(nonce) < nonceLength || len(nonce) > 4096 {
		return broken(ua.StatusBadNonceInvalid, "server nonce of %d bytes", len(nonce))
	}
	key := [32]byte(nonce[:32])
	if n.seen[key] {
		return broken(ua.StatusBadNonceInvalid, "the server used a nonce twice")
	}
	if n.seen == nil {
		n.seen = make(map[[32]byte]bool)
	}
	if len(n.ring) < maxNonces {
		n.ring = append(n.ring, key)
	} else {
		delete(n.seen, n.ring[n.next])
		n.ring[n.next] = key
		n.next = (n.next + 1) % maxNonces
	}
	n.seen[key] = true
	return nil
}

// wantsNonce says whether the server's nonce is used for anything. Servers
// without any security may send none.
func (e *endpoint) wantsNonce() bool { return e.secretive() }

// createSession is the CreateSession service (OPC 10000-4 §5.7.2) with every
// check that the client has to make of the response.
func (s *Session) createSession(ctx context.Context, c *conn) (*serverSession, error) {
	e, o := s.endpoint, &s.opts
	rq := &ua.CreateSessionRequest{
		RequestHeader: &ua.RequestHeader{ReturnDiagnostics: wantAdditionalInfo},
		ClientDescription: &ua.ApplicationDescription{
			ApplicationURI: o.ApplicationURI, ProductURI: "urn:breakwater:client",
			ApplicationName: ua.NewLocalizedText(o.ApplicationName), ApplicationType: ua.ApplicationTypeClient,
		},
		EndpointURL: e.url.String(), SessionName: o.SessionName,
		ClientNonce:             security.Nonce(nonceLength),
		RequestedSessionTimeout: float64(o.SessionTimeout.Milliseconds()),
		MaxResponseMessageSize:  uint32(o.Limits.MaxMessageSize),
	}
	if !e.policy.IsNone() {
		rq.ClientCertificate = o.Key.Certificate()
	}
	msg, err := c.roundTrip(ctx, rq, nil)
	if err != nil {
		return nil, err
	}
	rs := msg.(*ua.CreateSessionResponse)
	ss := &serverSession{id: rs.SessionID, token: rs.AuthenticationToken, nonce: rs.ServerNonce}
	if err := s.checkCreated(rq, rs); err != nil {
		if ss.token != nil { // the server has a session now that nobody will use
			_, _ = c.roundTrip(ctx, &ua.CloseSessionRequest{DeleteSubscriptions: true}, ss.token)
		}
		return nil, err
	}
	ss.timeout = revised(rs.RevisedSessionTimeout, o.SessionTimeout)
	return ss, nil
}

// wantAdditionalInfo asks for the text in which some servers put their hints.
const wantAdditionalInfo = 0x04

func (s *Session) checkCreated(rq *ua.CreateSessionRequest, rs *ua.CreateSessionResponse) error {
	e := s.endpoint
	if rs.SessionID == nil || rs.AuthenticationToken == nil || isNull(rs.AuthenticationToken) {
		return broken(ua.StatusBadSessionIDInvalid, "CreateSession returned no token")
	}
	if e.wantsNonce() {
		if err := s.nonces.take(rs.ServerNonce); err != nil {
			return err
		}
	}
	if !e.policy.IsNone() {
		if got := pki.Leaf(rs.ServerCertificate); !bytes.Equal(got, s.leaf) {
			return broken(ua.StatusBadSecurityChecksFailed, "CreateSession returned another certificate than the endpoint's")
		}
		if err := verifySignature(e.policy, s.public, append(bytes.Clone(rq.ClientCertificate), rq.ClientNonce...), rs.ServerSignature); err != nil {
			return err
		}
	}
	if s.opts.InsecureSkipEndpointCheck {
		return nil
	}
	return e.confirm(rs.ServerEndpoints)
}

// verifySignature checks the proof that the server has the certificate's key.
func verifySignature(p *security.Policy, pub *rsa.PublicKey, signed []byte, sig *ua.SignatureData) error {
	switch {
	case sig == nil || len(sig.Signature) == 0:
		return broken(ua.StatusBadApplicationSignatureInvalid, "CreateSession without a server signature")
	case sig.Algorithm != "" && sig.Algorithm != p.SignatureURI():
		return broken(ua.StatusBadApplicationSignatureInvalid, "server signature by %q", sig.Algorithm)
	}
	if err := p.Verify(pub, signed, sig.Signature); err != nil {
		return broken(ua.StatusBadApplicationSignatureInvalid, "server signature: %w", err)
	}
	return nil
}

func isNull(id *ua.NodeID) bool {
	return id.Namespace() == 0 && id.IntID() == 0 && id.StringID() == "" && (id.Type() == ua.NodeIDTypeTwoByte || id.Type() == ua.NodeIDTypeFourByte || id.Type() == ua.NodeIDTypeNumeric)
}

// revised is the session timeout that the server grants; nonsense counts as what
// was asked for, and what is past any Duration as a day.
func revised(ms float64, asked time.Duration) time.Duration {
	if math.IsNaN(ms) || ms <= 0 {
		return asked
	}
	return time.Duration(min(ms, float64((24*time.Hour).Milliseconds())) * float64(time.Millisecond))
}

// activateSession is the ActivateSession service (OPC 10000-4 §5.7.3) on a new
// session, or on an old one that moves to a new channel.
func (s *Session) activateSession(ctx context.Context, c *conn, ss *serverSession) error {
	e, o := s.endpoint, &s.opts
	rq := &ua.ActivateSessionRequest{
		RequestHeader:   &ua.RequestHeader{ReturnDiagnostics: wantAdditionalInfo},
		ClientSignature: &ua.SignatureData{}, UserTokenSignature: &ua.SignatureData{}, LocaleIDs: o.Locales,
	}
	if !e.policy.IsNone() {
		sig, err := e.policy.Sign(ctx, o.Key, security.PrioritySession, append(bytes.Clone(s.leaf), ss.nonce...))
		if err != nil {
			return fmt.Errorf("client: sign: %w", err)
		}
		rq.ClientSignature = &ua.SignatureData{Algorithm: e.policy.SignatureURI(), Signature: sig}
	}
	token, sig, err := o.Identity.token(ctx, &tokenContext{
		id: e.token.PolicyID, policy: e.tokenPolicy, certificate: s.leaf, public: s.public,
		nonce: ss.nonce,
	})
	if err != nil {
		return err
	}
	rq.UserIdentityToken = ua.NewExtensionObject(token)
	if sig != nil {
		rq.UserTokenSignature = sig
	}
	msg, err := c.roundTrip(ctx, rq, ss.token)
	if err != nil {
		return err
	}
	rs := msg.(*ua.ActivateSessionResponse)
	if e.wantsNonce() {
		if err := s.nonces.take(rs.ServerNonce); err != nil {
			return err
		}
	}
	ss.nonce = rs.ServerNonce
	return nil
}

// open opens a channel to the endpoint, asking for the endpoints first when they
// are not known or may have changed.
func (s *Session) open(ctx context.Context) (*conn, error) {
	o := &s.opts
	if s.stale {
		s.endpoint = nil
	}
	cached := s.endpoint != nil
	if s.endpoint == nil {
		list := []*ua.EndpointDescription{o.Endpoint}
		if o.Endpoint == nil {
			var err error
			if list, err = discover(ctx, s.url, o); err != nil {
				return nil, err
			}
		}
		e, err := selectEndpoint(s.url, list, o)
		if err != nil {
			return nil, err
		}
		if o.Endpoint != nil {
			e.discovered = nil
		}
		s.endpoint, s.stale, s.hangups = e, false, 0
	}
	e := s.endpoint
	ctx, cancel := context.WithTimeoutCause(ctx, o.ConnectTimeout, errStepTimeout)
	defer cancel()
	leaf, pub, err := e.verify(ctx, o)
	if err != nil {
		s.endpoint = nil
		return nil, err
	}
	cfg := ChannelConfig{URL: e.url, Policy: e.policy, Mode: e.description.SecurityMode,
		TLS: o.TLS, Lifetime: o.TokenLifetime, Limits: o.Limits, WriteTimeout: o.RequestTimeout}
	if !e.policy.IsNone() {
		cfg.Key, cfg.ServerCertificate = o.Key, leaf
	}
	ch, err := o.openChannel(ctx, cfg)
	if err != nil {
		if cached && isHangup(err) {
			s.hangups++
		}
		if forgetsEndpoint(err) || s.hangups >= maxHangups {
			s.endpoint = nil
		}
		return nil, fmt.Errorf("client: open the secure channel: %w", err)
	}
	s.leaf, s.public, s.hangups = leaf, pub, 0
	return newConn(ch, &o.DecodeLimits, o.RequestTimeout), nil
}

// maxHangups is how many times in a row a server may hang up while a channel is
// opened to a known endpoint before its endpoints are asked for again: behind some
// proxies this is all that shows of a certificate that was replaced.
const maxHangups = 2

// isHangup says whether a connection was made and then ended without a word.
func isHangup(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, ua.StatusBadConnectionClosed)
}

// reconsider has the endpoints asked for again at the next attempt when a server
// refuses to create or activate a session: the endpoint may not be any more what it
// was. Too much to do, a session that the server does not know, and a connection
// that breaks without a word say nothing of the endpoint.
func (s *Session) reconsider(err error, e event) {
	switch {
	case forgetsEndpoint(err):
		s.stale = true
	case e.outcome == outcomeRefused && !reconnect.IsBusy(e.code) && !isSessionLost(e.code):
		s.stale = true
	}
}

// forgetsEndpoint says whether a failure to open a channel may come from what
// discovery said: a server whose certificate was replaced, for example.
func forgetsEndpoint(err error) bool {
	var code ua.StatusCode
	return errors.As(err, &code) && isSecurityTrouble(code)
}
