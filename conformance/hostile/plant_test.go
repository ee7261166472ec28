package hostile

import (
	"context"
	"iter"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/gopcua/opcua/ua"
	"time"
)

// sessions iterates over the server's sessions.
func (s *site) sessions() iter.Seq[*session.Session] {
	return func(yield func(*session.Session) bool) { s.srv.Sessions().Each(yield) }
}

// blocking adds a method that ends when block is closed, or its caller gives up.
func (s *site) blocking(name string, block chan struct{}) {
	ns := s.srv.AddressSpace().Namespace("urn:hostile")
	ns.Method(name, nil, nil, func(ctx context.Context, _ *addressspace.Call) ([]any, error) {
		select {
		case <-block:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

func (s *site) callOf(name string) *ua.CallRequest {
	return &ua.CallRequest{MethodsToCall: []*ua.CallMethodRequest{{ObjectID: ua.NewNumericNodeID(0, 85), MethodID: ua.NewStringNodeID(s.ns, name)}}}
}

func openBody(kind uint32, mode ua.MessageSecurityMode) []byte {
	return securechannel.OpenRequestBody(kind, mode, make([]byte, 32), time.Minute)
}

func anyCertificate() session.Authenticator { return certificates{} }

// certificates lets in whoever proves to own a certificate.
type certificates struct{}

func (certificates) TokenTypes() []ua.UserTokenType {
	return []ua.UserTokenType{ua.UserTokenTypeCertificate, ua.UserTokenTypeAnonymous}
}

func (certificates) Authenticate(_ context.Context, a *session.Attempt) (*session.Identity, error) {
	return &session.Identity{Kind: a.Kind, User: "somebody"}, nil
}
