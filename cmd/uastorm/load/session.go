package load

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// ApplicationURI is what uastorm calls itself; its certificate carries it.
const ApplicationURI = "urn:breakwater:uastorm"

// ApplicationName is shown by servers.
const ApplicationName = "uastorm"

// A session is what a client knows of its session at the server. It survives the
// connection.
type session struct {
	token   *ua.NodeID
	nonce   []byte // the server's last
	timeout time.Duration
	active  bool // was activated once
}

// create creates a session (OPC 10000-4 §5.7.2, CreateSession) and checks the
// server's signature.
func (c *conn) create(ctx context.Context) (*session, error) {
	t := c.t
	wanted := t.SessionTimeout
	if wanted <= 0 {
		wanted = 10 * time.Minute
	}
	rq := &ua.CreateSessionRequest{
		ClientDescription: &ua.ApplicationDescription{ApplicationURI: ApplicationURI, ProductURI: ApplicationURI,
			ApplicationName: ua.NewLocalizedText(ApplicationName), ApplicationType: ua.ApplicationTypeClient},
		EndpointURL: t.URL, SessionName: ApplicationName, ClientNonce: security.Nonce(32),
		RequestedSessionTimeout: float64(wanted.Milliseconds()),
	}
	if !t.Policy.IsNone() {
		rq.ClientCertificate = t.Key.Certificate()
	}
	rs, err := as[*ua.CreateSessionResponse](c.call(ctx, rq))
	if err != nil {
		return nil, err
	}
	if !t.Policy.IsNone() {
		if rs.ServerSignature == nil {
			return nil, uastatus.New(ua.StatusBadApplicationSignatureInvalid, "CreateSession", errors.New("no server signature"))
		}
		if err := t.Policy.Verify(t.public, append(bytes.Clone(rq.ClientCertificate), rq.ClientNonce...), rs.ServerSignature.Signature); err != nil {
			return nil, err
		}
	}
	// The token on its own: as it is it would keep the whole response, the server's
	// endpoints and certificates included, for as long as the session lives.
	return &session{token: uabinary.NodeIDOf(rs.AuthenticationToken).UA(), nonce: bytes.Clone(rs.ServerNonce),
		timeout: time.Duration(rs.RevisedSessionTimeout) * time.Millisecond}, nil
}

// activate activates s on this channel (OPC 10000-4 §5.7.3, ActivateSession).
func (c *conn) activate(ctx context.Context, s *session) error {
	t := c.t
	c.token = s.token
	rq := &ua.ActivateSessionRequest{ClientSignature: &ua.SignatureData{}, LocaleIDs: []string{"en"}}
	if !t.Policy.IsNone() {
		sig, err := t.Policy.Sign(ctx, t.Key, priority, append(bytes.Clone(t.certificate), s.nonce...))
		if err != nil {
			return err
		}
		rq.ClientSignature = &ua.SignatureData{Algorithm: t.Policy.SignatureURI(), Signature: sig}
	}
	token, signature, err := t.tokens(ctx, s.nonce)
	if err != nil {
		return err
	}
	rq.UserIdentityToken, rq.UserTokenSignature = ua.NewExtensionObject(token), signature
	rs, err := as[*ua.ActivateSessionResponse](c.call(ctx, rq))
	if err != nil {
		return err
	}
	s.nonce, s.active = bytes.Clone(rs.ServerNonce), true
	return nil
}

// A link is the way of one client to a session, step by step: what a step has
// reached is kept when the next one fails, as far as the server lets it.
type link struct {
	conn    *conn
	session *session
}

// step does what is missing to an active session. opened says that a connection
// was tried.
func (l *link) step(ctx context.Context, open func(context.Context) (*conn, error)) error {
	if l.conn == nil {
		c, err := open(ctx)
		if err != nil {
			return err
		}
		l.conn = c
	}
	if l.session == nil {
		s, err := l.conn.create(ctx)
		if err != nil {
			return err
		}
		l.session = s
	}
	return l.conn.activate(ctx, l.session)
}

// failed keeps what can be used again after a step has failed: the channel when
// the server has answered on it and not ended it, and the session unless it is the session that
// is no more. again says that the next step may be made at once: it lacked only
// the session that was given up.
func (l *link) failed(err error) (again bool) {
	var fault *reconnect.Error
	answered := errors.As(err, &fault)
	if answered && l.session != nil && !reconnect.IsBusy(fault.Status) {
		again = l.session.active
		l.session = nil
	}
	if l.conn != nil && (!answered || l.conn.broken || !reconnect.IsBusy(fault.Status) && !again) {
		l.drop()
	}
	return again
}

// drop closes the channel.
func (l *link) drop() {
	if l.conn != nil {
		l.conn.close()
		l.conn.ch.Release()
		l.conn = nil
	}
}

// end closes the session, if one was made, and the channel. What an attempt that
// was broken off has left at the server ends with it.
func (l *link) end() {
	if l.conn == nil {
		return
	}
	if l.session != nil {
		l.conn.token = l.session.token
	}
	l.conn.endUnread()
	l.conn = nil
}

// Try has one session and ends it. A server that is busy is no error: whether it
// lets clients in is what a run finds out. One that refuses uastorm's certificate
// or user is, and would refuse a thousand of them.
func (t *Target) Try(ctx context.Context) error {
	var l link
	defer l.end()
	err := l.step(ctx, func(ctx context.Context) (*conn, error) { return t.open(ctx, nil, smallBuffer) })
	if code, _ := reconnect.Signal(err); err != nil && !reconnect.IsBusy(code) {
		return err
	}
	return nil
}
