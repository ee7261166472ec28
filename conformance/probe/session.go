package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// ApplicationURI is what the probe calls itself; its certificate must carry it.
const ApplicationURI = "urn:breakwater:conformance:probe"

// Identity is what a session is activated with.
type Identity struct {
	// Kind of the user token; UserTokenTypeAnonymous is the zero value.
	Kind ua.UserTokenType
	// User and Password for UserTokenTypeUserName.
	User, Password string
	// Key for UserTokenTypeCertificate.
	Key *security.Key
}

// Anonymous is the anonymous identity.
var Anonymous = Identity{}

// Session is one session on a Conn.
type Session struct {
	*Conn
	Token    *ua.NodeID
	ID       *ua.NodeID
	Created  *ua.CreateSessionResponse
	nonce    []byte // the server's last nonce
	endpoint *ua.EndpointDescription
}

// CreateRequest returns the CreateSession request the probe sends; tests change it before Create.
func (c *Conn) CreateRequest() *ua.CreateSessionRequest {
	rq := &ua.CreateSessionRequest{
		RequestHeader: Header(nil),
		ClientDescription: &ua.ApplicationDescription{
			ApplicationURI: ApplicationURI, ProductURI: ApplicationURI,
			ApplicationName: ua.NewLocalizedText("Breakwater probe"), ApplicationType: ua.ApplicationTypeClient,
		},
		EndpointURL: c.URL, SessionName: "probe", ClientNonce: security.Nonce(32),
		RequestedSessionTimeout: 60_000,
	}
	if c.Key != nil && !c.Policy.IsNone() {
		rq.ClientCertificate = c.Key.Certificate()
	}
	return rq
}

// Create creates a session with rq (nil: CreateRequest) and checks the server's signature.
func (c *Conn) Create(ctx context.Context, rq *ua.CreateSessionRequest) (*Session, error) {
	if rq == nil {
		rq = c.CreateRequest()
	}
	rs, err := Call[*ua.CreateSessionResponse](ctx, c, rq)
	if err != nil {
		return nil, err
	}
	s := &Session{Conn: c, Token: rs.AuthenticationToken, ID: rs.SessionID, Created: rs, nonce: rs.ServerNonce}
	profile := c.Transport().Profile()
	for _, e := range rs.ServerEndpoints {
		if e.SecurityPolicyURI == c.Policy.URI && e.SecurityMode == c.Mode && e.TransportProfileURI == profile {
			s.endpoint = e
			break
		}
	}
	if !c.Policy.IsNone() {
		if rs.ServerSignature == nil {
			return s, errors.New("probe: CreateSession without a server signature")
		}
		signed := append(bytes.Clone(rq.ClientCertificate), rq.ClientNonce...)
		cert, err := leaf(c.ServerCertificate)
		if err != nil {
			return s, err
		}
		if err := c.Policy.Verify(cert, signed, rs.ServerSignature.Signature); err != nil {
			return s, fmt.Errorf("probe: server signature: %w", err)
		}
	}
	return s, nil
}

// On returns the same session as seen from another channel, to be activated there.
func (s *Session) On(c *Conn) *Session {
	o := *s
	o.Conn = c
	return &o
}

// ActivateRequest builds the ActivateSession request for an identity; tests change it before sending.
func (s *Session) ActivateRequest(ctx context.Context, id Identity) (*ua.ActivateSessionRequest, error) {
	rq := &ua.ActivateSessionRequest{RequestHeader: Header(s.Token), ClientSignature: &ua.SignatureData{},
		UserTokenSignature: &ua.SignatureData{}, LocaleIDs: []string{"en"}}
	if !s.Policy.IsNone() {
		sig, err := s.Policy.Sign(ctx, s.Key, security.PrioritySession, append(bytes.Clone(s.ServerCertificate), s.nonce...))
		if err != nil {
			return nil, err
		}
		rq.ClientSignature = &ua.SignatureData{Algorithm: s.Policy.SignatureURI(), Signature: sig}
	}
	t, err := s.TokenPolicy(id.Kind)
	if err != nil {
		return nil, err
	}
	policy := s.Policy
	if t.SecurityPolicyURI != "" {
		if policy = security.PolicyByURI(t.SecurityPolicyURI); policy == nil {
			return nil, fmt.Errorf("probe: token policy %q", t.SecurityPolicyURI)
		}
	}
	switch id.Kind {
	case ua.UserTokenTypeAnonymous:
		rq.UserIdentityToken = ua.NewExtensionObject(&ua.AnonymousIdentityToken{PolicyID: t.PolicyID})
	case ua.UserTokenTypeUserName:
		tok := &ua.UserNameIdentityToken{PolicyID: t.PolicyID, UserName: id.User, Password: []byte(id.Password)}
		if !policy.IsNone() {
			cert, err := leaf(s.Created.ServerCertificate)
			if err != nil {
				return nil, err
			}
			if tok.Password, err = policy.EncryptSecret(cert, []byte(id.Password), s.nonce); err != nil {
				return nil, err
			}
			tok.EncryptionAlgorithm = policy.EncryptionURI()
		}
		rq.UserIdentityToken = ua.NewExtensionObject(tok)
	case ua.UserTokenTypeCertificate:
		rq.UserIdentityToken = ua.NewExtensionObject(&ua.X509IdentityToken{PolicyID: t.PolicyID, CertificateData: id.Key.Certificate()})
		sig, err := policy.Sign(ctx, id.Key, security.PrioritySession, append(bytes.Clone(s.Created.ServerCertificate), s.nonce...))
		if err != nil {
			return nil, err
		}
		rq.UserTokenSignature = &ua.SignatureData{Algorithm: policy.SignatureURI(), Signature: sig}
	}
	return rq, nil
}

// TokenPolicy returns the endpoint's first policy for a kind of user token.
func (s *Session) TokenPolicy(kind ua.UserTokenType) (*ua.UserTokenPolicy, error) {
	if s.endpoint == nil {
		return nil, fmt.Errorf("probe: CreateSession listed no endpoint for %s %v", s.Policy.Name, s.Mode)
	}
	for _, t := range s.endpoint.UserIdentityTokens {
		if t.TokenType == kind {
			return t, nil
		}
	}
	return nil, fmt.Errorf("probe: endpoint offers no %v token", kind)
}

// Activate activates the session.
func (s *Session) Activate(ctx context.Context, id Identity) error {
	rq, err := s.ActivateRequest(ctx, id)
	if err != nil {
		return err
	}
	_, err = s.ActivateWith(ctx, rq)
	return err
}

// ActivateWith sends a prepared ActivateSession request and remembers the new nonce.
func (s *Session) ActivateWith(ctx context.Context, rq *ua.ActivateSessionRequest) (*ua.ActivateSessionResponse, error) {
	rs, err := Call[*ua.ActivateSessionResponse](ctx, s.Conn, rq)
	if err != nil {
		return rs, err
	}
	s.nonce = rs.ServerNonce
	if s.JSON {
		s.learnTables(ctx)
	}
	return rs, nil
}

// learnTables reads NamespaceArray and ServerArray: in JSON a server writes ids
// with their URIs (OPC 10000-6 §5.4.2.10, NodeId). One that lets nobody read them
// is understood where it writes indexes.
func (s *Session) learnTables(ctx context.Context) {
	rq := &ua.ReadRequest{RequestHeader: Header(s.Token)}
	for _, n := range []uint32{id.Server_NamespaceArray, id.Server_ServerArray} {
		rq.NodesToRead = append(rq.NodesToRead, &ua.ReadValueID{NodeID: ua.NewNumericNodeID(0, n), AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}})
	}
	rs, err := Call[*ua.ReadResponse](ctx, s.Conn, rq)
	if err != nil || len(rs.Results) != 2 {
		return
	}
	uris := func(v *ua.DataValue) []string {
		if v == nil || v.Value == nil {
			return nil
		}
		list, _ := v.Value.Value().([]string)
		return list
	}
	tables := &uajson.Context{NamespaceURIs: uris(rs.Results[0]), ServerURIs: uris(rs.Results[1])}
	s.tables.Store(tables)
	if text := s.ID.StringID(); strings.HasPrefix(text, "nsu=") { // CreateSession was answered before the URI meant anything
		var n uabinary.NodeID
		if _, err := tables.Unmarshal(strconv.AppendQuote(nil, text), &n); err == nil {
			s.ID = n.UA()
		}
	}
}

// Call sends a request with the session's token and waits for its answer.
func (s *Session) Call(ctx context.Context, rq ua.Request) (any, error) {
	if rq.Header() == nil {
		rq.SetHeader(Header(s.Token))
	}
	return s.Conn.Call(ctx, rq)
}

// Send sends a request with the session's token.
func (s *Session) Send(rq ua.Request) (*Pending, error) {
	if rq.Header() == nil {
		rq.SetHeader(Header(s.Token))
	}
	return s.Conn.Send(rq)
}

// End closes the session and its channel.
func (s *Session) End(ctx context.Context) error {
	_, err := s.Call(ctx, &ua.CloseSessionRequest{DeleteSubscriptions: true})
	return errors.Join(err, s.Conn.Close())
}

// Connect opens a channel, creates a session and activates it.
func Connect(ctx context.Context, o Options, id Identity) (*Session, error) {
	c, err := Open(ctx, o)
	if err != nil {
		return nil, err
	}
	s, err := c.Create(ctx, nil)
	if err == nil {
		err = s.Activate(ctx, id)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}
