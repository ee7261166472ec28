package conformance

import (
	"bytes"
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/gopcua/opcua/ua"
)

// ordered tells whether requests reach the server in the order in which they are
// sent.
func (t *T) ordered() bool { return t.Target.Transport().Scheme() != "opc.https" }

// channelBound ends a case that is about sessions that belong to a channel.
func (t *T) channelBound() {
	if t.Target.Transport().Scheme() == "opc.https" {
		t.NotApplicable("over opc.https a session is known by its token, on whichever connection")
	}
}

var sessionCases = []Case{
	{"Session Base", "creates, activates and closes", "OPC 10000-4 §5.7", func(t *T) {
		e := t.Endpoint()
		c := t.OpenWith(t.OptionsFor(e))
		s, err := c.Create(t, nil)
		t.OK(err, "CreateSession")
		if len(s.Created.ServerNonce) < 32 {
			t.Errorf("server nonce of %d bytes", len(s.Created.ServerNonce))
		}
		t.OK(s.Activate(t, t.Identity(e)), "ActivateSession")
		call[*ua.CloseSessionResponse](t, s, &ua.CloseSessionRequest{DeleteSubscriptions: true})
		refuse(t, s, readOf(ua.AttributeIDValue, serverStatus), ua.StatusBadSessionIDInvalid)
	}},
	{"Session Base", "the timeout is revised to something sensible", "OPC 10000-4 §5.7.2", func(t *T) {
		c := t.Open()
		for _, ms := range []float64{0, 1, 60_000, 1e15, -5} {
			rq := c.CreateRequest()
			rq.RequestedSessionTimeout = ms
			s, err := c.Create(t, rq)
			t.OK(err, "CreateSession")
			if r := s.Created.RevisedSessionTimeout; r < 1000 || r > 24*3600*1000 || (ms == 60_000 && r != 60_000) {
				t.Errorf("asked for %v ms, revised to %v ms", ms, r)
			}
			s.Call(t, &ua.CloseSessionRequest{})
		}
	}},
	{"Session Base", "a session that was not activated is refused and closed", "OPC 10000-4 §5.7.2", func(t *T) {
		e := t.Endpoint()
		s := t.Create(t.OpenWith(t.OptionsFor(e)))
		refuse(t, s, readOf(ua.AttributeIDValue, serverStatus), ua.StatusBadSessionNotActivated)
		t.Status(s.Activate(t, t.Identity(e)), "ActivateSession afterwards", ua.StatusBadSessionIDInvalid, ua.StatusBadSessionClosed)
	}},
	{"Session Base", "a request without a session is refused", "OPC 10000-4 §7.33", func(t *T) {
		refuse(t, t.Open(), readOf(ua.AttributeIDValue, serverStatus), ua.StatusBadSessionIDInvalid)
	}},
	{"Session Base", "a token is worth nothing on another channel", "OPC 10000-4 §5.7.3", func(t *T) {
		t.channelBound()
		s := t.Session()
		refuse(t, s.On(t.Open()), readOf(ua.AttributeIDValue, serverStatus), ua.StatusBadSessionIDInvalid, ua.StatusBadSecureChannelIDInvalid)
		call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, serverStatus))
	}},
	{"Session Base", "closing a session nobody has is refused", "OPC 10000-4 §5.7.4", func(t *T) {
		rq := &ua.CloseSessionRequest{RequestHeader: probe.Header(ua.NewByteStringNodeID(0, bytes.Repeat([]byte{7}, 32)))}
		refuse(t, t.Open(), rq, ua.StatusBadSessionIDInvalid)
	}},
	{"Session Base", "nonces never repeat", "OPC 10000-4 §5.7.3", func(t *T) {
		e := t.Endpoint()
		s := t.Create(t.OpenWith(t.OptionsFor(e)))
		seen := map[string]bool{string(s.Created.ServerNonce): true}
		for range 3 {
			rq, err := s.ActivateRequest(t, t.Identity(e))
			t.OK(err, "build the request")
			rs, err := s.ActivateWith(t, rq)
			t.OK(err, "ActivateSession")
			if seen[string(rs.ServerNonce)] || len(rs.ServerNonce) < 32 {
				t.Errorf("nonce % x is short or was used before", rs.ServerNonce)
			}
			seen[string(rs.ServerNonce)] = true
		}
	}},
	{"Session Base", "a token is good on every connection", "OPC 10000-6 §7.4.1", func(t *T) {
		if t.Target.Transport().Scheme() != "opc.https" {
			t.NotApplicable("a session belongs to its channel over %s", t.Target.Transport())
		}
		s := t.Session()
		call[*ua.ReadResponse](t, s.On(t.Open()), readOf(ua.AttributeIDValue, serverStatus))
		call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, serverStatus))
		s.Cut()
		call[*ua.ReadResponse](t, s.On(t.Open()), readOf(ua.AttributeIDValue, serverStatus))
	}},
	{"Session Minimum 2 Parallel", "two sessions work on one channel", "OPC 10000-4 §5.7.2", func(t *T) {
		e := t.Endpoint()
		c := t.OpenWith(t.OptionsFor(e))
		a, b := t.Create(c), t.Create(c)
		t.OK(a.Activate(t, t.Identity(e)), "first")
		t.OK(b.Activate(t, t.Identity(e)), "second")
		call[*ua.ReadResponse](t, a, readOf(ua.AttributeIDValue, serverStatus))
		call[*ua.CloseSessionResponse](t, a, &ua.CloseSessionRequest{})
		call[*ua.ReadResponse](t, b, readOf(ua.AttributeIDValue, serverStatus))
	}},
	{"Session Change User", "a session moves to another channel and leaves the old one", "OPC 10000-4 §5.7.3", func(t *T) {
		t.channelBound()
		e := t.Endpoint()
		id := t.Identity(e)
		if id.Kind == ua.UserTokenTypeAnonymous && e.SecurityMode == ua.MessageSecurityModeNone && t.Target.User != "" {
			id = probe.Identity{Kind: ua.UserTokenTypeUserName, User: t.Target.User, Password: t.Target.Password}
		}
		first := t.OpenWith(t.OptionsFor(e))
		s := t.Create(first)
		t.OK(s.Activate(t, id), "ActivateSession")
		moved := s.On(t.OpenWith(t.OptionsFor(e)))
		if err := moved.Activate(t, id); err != nil {
			if e.SecurityMode == ua.MessageSecurityModeNone {
				t.NotApplicable("without security the server keeps a session on its channel: %v", err)
			}
			t.Fatalf("ActivateSession on a new channel: %v", err)
		}
		call[*ua.ReadResponse](t, moved, readOf(ua.AttributeIDValue, serverStatus))
		refuse(t, s, readOf(ua.AttributeIDValue, serverStatus), ua.StatusBadSessionIDInvalid, ua.StatusBadSecureChannelIDInvalid)
	}},
	{"Session Cancel", "a waiting Publish is cancelled by its handle", "OPC 10000-4 §5.7.5", func(t *T) {
		s := t.Session()
		t.subscription(s, 1000, 100)
		rq := &ua.PublishRequest{RequestHeader: probe.Header(s.Token)}
		// The first Publish takes the first keep-alive; the second one waits.
		first, err := s.Send(&ua.PublishRequest{})
		t.OK(err, "Publish")
		_, err = first.Wait(t)
		t.OK(err, "first Publish")
		p, err := s.Send(rq)
		t.OK(err, "Publish")
		rs := call[*ua.CancelResponse](t, s, &ua.CancelRequest{RequestHandle: rq.RequestHeader.RequestHandle})
		for tries := 0; rs.CancelCount == 0 && tries < 100 && !t.ordered(); tries++ {
			time.Sleep(10 * time.Millisecond)
			rs = call[*ua.CancelResponse](t, s, &ua.CancelRequest{RequestHandle: rq.RequestHeader.RequestHandle})
		}
		if rs.CancelCount != 1 {
			t.Errorf("CancelCount %d", rs.CancelCount)
		}
		_, err = p.Wait(t)
		t.Status(err, "the cancelled Publish", ua.StatusBadRequestCancelledByClient, ua.StatusBadRequestCancelledByRequest)
		none := call[*ua.CancelResponse](t, s, &ua.CancelRequest{RequestHandle: 0xfffffff0})
		if none.CancelCount != 0 {
			t.Errorf("cancelled %d requests with a handle nobody used", none.CancelCount)
		}
	}},
	{"Session Base", "closing a session answers what waits in it", "OPC 10000-4 §5.7.4", func(t *T) {
		s := t.Session()
		t.subscription(s, 1000, 100)
		var waiting []*probe.Pending
		for range 3 {
			p, err := s.Send(&ua.PublishRequest{})
			t.OK(err, "Publish")
			waiting = append(waiting, p)
		}
		call[*ua.CloseSessionResponse](t, s, &ua.CloseSessionRequest{DeleteSubscriptions: true})
		answered := time.Now()
		for _, p := range waiting {
			_, err := p.Wait(t)
			if err != nil { // the first may have taken a keep-alive
				t.Status(err, "a waiting Publish", ua.StatusBadSessionClosed, ua.StatusBadSessionIDInvalid, ua.StatusBadNoSubscription)
			}
		}
		if d := time.Since(answered); d > 5*time.Second {
			t.Errorf("answered after %v", d)
		}
	}},
}
