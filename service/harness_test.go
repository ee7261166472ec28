package service

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/subscription"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// fakeChannel is a session.Channel of policy None that leads nowhere.
type fakeChannel struct {
	done    chan struct{}
	replies chan []byte
}

func (*fakeChannel) ID() uint32                                 { return 7 }
func (*fakeChannel) SecurityPolicy() *security.Policy           { return security.None }
func (*fakeChannel) SecurityMode() ua.MessageSecurityMode       { return ua.MessageSecurityModeNone }
func (*fakeChannel) PeerCertificate() []byte                    { return nil }
func (*fakeChannel) RemoteAddr() netip.AddrPort                 { return netip.MustParseAddrPort("192.0.2.1:1") }
func (*fakeChannel) LocalAddr() netip.AddrPort                  { return netip.MustParseAddrPort("192.0.2.2:4840") }
func (*fakeChannel) EndpointURL() string                        { return "opc.tcp://192.0.2.2:4840" }
func (*fakeChannel) MaxResponseSize() int                       { return 0 }
func (*fakeChannel) Close(transport.CloseReason, ua.StatusCode) {}
func (c *fakeChannel) Done() <-chan struct{}                    { return c.done }
func (*fakeChannel) SessionAttached()                           {}
func (*fakeChannel) SessionDetached()                           {}
func (c *fakeChannel) Reply(_ uint32, body []byte) error {
	select {
	case c.replies <- append([]byte(nil), body...):
	default:
	}
	return nil
}

// harness is a Set with one activated session, called as the dispatcher calls it.
type harness struct {
	t     testing.TB
	set   *Set
	ch    *fakeChannel
	table *Table
	sess  *session.Session
	token *ua.NodeID
	ns    *addressspace.Namespace
	limit int
	id    uint32
	ctx   context.Context
}

type discoveryStub struct{}

func (discoveryStub) Application(session.Channel, string) *ua.ApplicationDescription {
	return &ua.ApplicationDescription{ApplicationURI: "urn:test", ApplicationName: ua.NewLocalizedText("Test")}
}

func (d discoveryStub) Endpoints(ch session.Channel, url string) []*ua.EndpointDescription {
	return []*ua.EndpointDescription{{EndpointURL: url, Server: d.Application(ch, url), SecurityMode: ua.MessageSecurityModeNone,
		SecurityPolicyURI: ua.SecurityPolicyURINone, TransportProfileURI: "urn:profile"}}
}

func newHarness(t testing.TB, limits Limits) *harness {
	t.Helper()
	space, err := addressspace.New(addressspace.Options{ApplicationURI: "urn:test"})
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, table: NewTable(), ch: &fakeChannel{done: make(chan struct{}), replies: make(chan []byte, 100)}, ctx: context.Background()}
	h.set = &Set{Space: space, Discovery: discoveryStub{}, Logger: slog.New(slog.DiscardHandler)}
	h.set.SetLimits(limits)
	h.set.Subscriptions = subscription.NewEngine(subscription.Options{Space: space})
	h.set.Sessions = session.NewStore(session.Options{OnClose: func(s *session.Session, del bool) {
		h.set.Subscriptions.SessionClosed(s, del)
		h.set.SessionClosed(s)
	}})
	t.Cleanup(func() {
		h.set.Sessions.Shutdown()
		h.set.Subscriptions.Close()
	})
	h.ns = space.Namespace("urn:test:nodes")
	created := h.must(&ua.CreateSessionRequest{RequestHeader: &ua.RequestHeader{}, ClientDescription: &ua.ApplicationDescription{ApplicationName: ua.NewLocalizedText("")},
		EndpointURL: "opc.tcp://192.0.2.2:4840", RequestedSessionTimeout: 60000}).(*ua.CreateSessionResponse)
	h.token = created.AuthenticationToken
	h.must(&ua.ActivateSessionRequest{RequestHeader: h.header(), ClientSignature: &ua.SignatureData{}, UserTokenSignature: &ua.SignatureData{},
		UserIdentityToken: &ua.ExtensionObject{TypeID: ua.NewFourByteExpandedNodeID(0, 321), EncodingMask: ua.ExtensionObjectBinary,
			Value: &ua.AnonymousIdentityToken{PolicyID: session.TokenPolicies(security.None, ua.MessageSecurityModeNone, []ua.UserTokenType{ua.UserTokenTypeAnonymous})[0].PolicyID}}})
	return h
}

func (h *harness) header() *ua.RequestHeader {
	h.id++
	return &ua.RequestHeader{AuthenticationToken: h.token, RequestHandle: h.id, Timestamp: time.Now()}
}

// encode gives the bytes of a request message.
func (h *harness) encode(rq any) []byte {
	h.t.Helper()
	var e uabinary.Encoder
	uabinary.EncodeMessage(&e, rq)
	if err := e.Err(); err != nil {
		h.t.Fatal(err)
	}
	return e.B
}

// send runs a request from its bytes and returns the response message and the
// service result.
func (h *harness) send(body []byte, mayBlock bool) (any, ua.StatusCode) {
	h.t.Helper()
	r := &Request{Channel: h.ch, RequestID: h.id, Time: time.Now(), Limit: h.limit, Context: h.ctx, MayBlock: mayBlock, Caller: &addressspace.Caller{}}
	defer r.Reset()
	r.Now = uabinary.FromTime(r.Time)
	r.Body.Reset(body, nil)
	r.Entry = h.table.Lookup(r.Body.TypeID())
	r.Header = r.Body.RequestHeader()
	if r.Entry == nil || r.Body.Err() != nil {
		h.t.Fatalf("request: %v, %v", r.Entry, r.Body.Err())
	}
	if r.Entry.NeedsSession {
		s, code := h.set.Sessions.Lookup(h.ch, r.Header.AuthenticationToken, r.Time)
		if code != ua.StatusOK {
			h.t.Fatalf("session: %v", code)
		}
		h.sess, r.Session, r.Caller = s, s, s.Caller()
	}
	r.Begin(0)
	code := r.Entry.Handle(h.set, r)
	if r.Deferred() {
		return "deferred", ua.StatusOK
	}
	if r.Parked {
		return "parked", ua.StatusOK
	}
	if code == ua.StatusOK && r.Full() {
		code = ua.StatusBadResponseTooLarge
	}
	if code != ua.StatusOK {
		r.Fault(code)
	}
	var d uabinary.Decoder
	d.Reset(r.Out, nil)
	msg, err := uabinary.DecodeMessage(&d)
	if err != nil {
		h.t.Fatalf("%s response: %v\n%x", r.Entry.Name, err, r.Out)
	}
	if d.Remaining() != 0 {
		h.t.Fatalf("%s response: %d bytes left over", r.Entry.Name, d.Remaining())
	}
	return msg, code
}

func (h *harness) call(rq any) (any, ua.StatusCode) {
	h.t.Helper()
	return h.send(h.encode(rq), true)
}

// must is call for requests that succeed.
func (h *harness) must(rq any) any {
	h.t.Helper()
	rs, code := h.call(rq)
	if code != ua.StatusOK {
		h.t.Fatalf("%T: %v", rq, code)
	}
	return rs
}

// refused is call for requests that fail as a whole.
func (h *harness) refused(rq any, want ua.StatusCode) {
	h.t.Helper()
	rs, code := h.call(rq)
	f, ok := rs.(*ua.ServiceFault)
	if code != want || !ok || f.ResponseHeader.ServiceResult != want || f.ResponseHeader.RequestHandle != h.id {
		h.t.Errorf("%T: got %v (%T), want a fault with %v", rq, code, rs, want)
	}
}
