package hostile

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/gopcua/opcua/ua"
)

func TestC12ParkedPublishesHoldNoWorker(t *testing.T) {
	each(t, all, func(o *stack.Options) { o.Limits.MaxExecutingRequests = 1 }, func(t *testing.T, s *site) {
		ses := s.session()
		s.subscribe(ses, 200, 30)
		for range 15 {
			if _, err := ses.Send(&ua.PublishRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ses.Call(context.Background(), &ua.CallRequest{MethodsToCall: []*ua.CallMethodRequest{{ObjectID: ua.NewNumericNodeID(0, 2253),
			MethodID: ua.NewNumericNodeID(0, 11492), InputArguments: []*ua.Variant{ua.MustVariant(uint32(1))}}}}); err != nil {
			t.Errorf("a Call beside 15 parked requests: %v", err)
		}
	})
}

func TestC13X32LockoutHitsOnlyTheOffender(t *testing.T) {
	each(t, all, func(o *stack.Options) { withUser(t, o) }, func(t *testing.T, s *site) {
		o := s.secured(security.Basic256Sha256)
		for range 6 {
			c := s.channelWith(o)
			ses, err := c.Create(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			wrong := ann
			wrong.User, wrong.Password = "bob", "wrong"
			s.status(ses.Activate(context.Background(), wrong), "a wrong password", ua.StatusBadUserAccessDenied, ua.StatusBadIdentityTokenRejected)
		}
		s.activate(s.channelWith(o), ann) // the same certificate, another user
	})
}

func TestC14D2RenewOfAnotherChannel(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		for _, id := range []uint32{0, 0xdeadbeef} {
			c := s.channelWith(s.secured(security.Basic256Sha256))
			sealed, err := c.Channel.SealOpen(context.Background(), &id, openBody(1, ua.MessageSecurityModeSignAndEncrypt))
			if err != nil {
				t.Fatal(err)
			}
			c.Channel.Write(sealed)
			s.ends(c, ua.StatusBadTCPSecureChannelUnknown)
		}
	})
}

func TestC16ShortTimeoutIsKept(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		c := s.channel()
		rq := c.CreateRequest()
		rq.RequestedSessionTimeout = 2000
		ses, err := c.Create(context.Background(), rq)
		if err != nil || ses.Created.RevisedSessionTimeout != 2000 {
			t.Fatalf("%v, revised to %v", err, ses.Created.RevisedSessionTimeout)
		}
		if err := ses.Activate(context.Background(), probe.Anonymous); err != nil {
			t.Fatal(err)
		}
		for range 12 {
			if _, err := ses.Call(context.Background(), read(s.node())); err != nil {
				t.Fatalf("a session that is used ended: %v", err)
			}
			pause(200 * time.Millisecond)
		}
		s.eventually("silence ends the session", func() bool { return s.srv.Sessions().Len() == 1 })
	})
}

func TestI6SessionsExpire(t *testing.T) {
	each(t, all, func(o *stack.Options) {
		o.RateLimits.Disabled, o.Limits.MaxSessionTimeout = true, 3*time.Second
	}, func(t *testing.T, s *site) {
		for range size(s, 200, 30) {
			s.session()
		}
		s.eventually("silent sessions have expired", func() bool { return s.srv.Sessions().Len() == 1 })
	})
}

func TestI7X37AcceptLoopDoesNotRead(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		s.socket() // silent
		if s.on != probe.TCP {
			s.secret()
		}
		s.session()
	})
}

func TestI8X37ResetBeforeHello(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		for range 50 {
			c := s.socket()
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
		s.session()
	})
}

func TestI9X38ReverseHelloMakesNobodyDial(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		dialled := make(chan struct{})
		go func() {
			if c, err := l.Accept(); err == nil {
				c.Close()
				close(dialled)
			}
		}()
		url := "opc.tcp://" + l.Addr().String()
		b := []byte("RHEF\x00\x00\x00\x00")
		for range 2 {
			b = append(b, byte(len(url)), 0, 0, 0)
			b = append(b, url...)
		}
		b[4] = byte(len(b))
		c := s.dial()
		c.Write(b)
		s.closedWith(c, ua.StatusBadTCPMessageTypeInvalid)
		select {
		case <-dialled:
			t.Error("the server dialled an address a client named")
		default:
		}
	})
}

func TestI10SlowMethodStopsNobody(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		block := make(chan struct{})
		s.blocking("Slow", block)
		ses := s.session()
		var waiting []*probe.Pending
		for range 10 {
			p, err := ses.Send(s.callOf("Slow"))
			if err != nil {
				t.Fatal(err)
			}
			waiting = append(waiting, p)
		}
		if _, err := ses.Call(context.Background(), read(s.node())); err != nil {
			t.Errorf("a read behind ten slow methods of its own connection: %v", err)
		}
		close(block)
		for _, p := range waiting {
			if _, err := p.Wait(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestI12X40Tokens(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		seen := map[string]bool{}
		c := s.channel()
		for range 10 {
			ses, err := c.Create(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			k := ses.Token.String()
			if seen[k] || len(tokenBytes(ses)) < 32 {
				t.Errorf("token %s is short or was given out twice", k)
			}
			seen[k] = true
		}
		if s.on.Scheme() != "opc.https" { // there the token is the session, on whichever connection
			other := s.healthy.On(s.channel()) // a stolen token on another channel
			s.refused(other, read(s.node()), ua.StatusBadSessionIDInvalid, ua.StatusBadSecureChannelIDInvalid)
		}
		for i := range 200 {
			guess := probe.Header(ua.NewNumericNodeID(0, uint32(i)))
			if i%2 == 0 {
				guess = probe.Header(ua.NewByteStringNodeID(0, bytes.Repeat([]byte{byte(i)}, 32)))
			}
			rq := read(s.node())
			rq.SetHeader(guess)
			s.refused(c, rq, ua.StatusBadSessionIDInvalid)
		}
	})
}

func TestI14SessionRules(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		s.refused(s.channel(), read(s.node()), ua.StatusBadSessionIDInvalid)
		rq := &ua.CloseSessionRequest{RequestHeader: probe.Header(ua.NewByteStringNodeID(0, bytes.Repeat([]byte{9}, 32)))}
		s.refused(s.channel(), rq, ua.StatusBadSessionIDInvalid)
		c := s.channel()
		ses, err := c.Create(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		act, err := ses.ActivateRequest(context.Background(), probe.Anonymous)
		if err != nil {
			t.Fatal(err)
		}
		act.UserIdentityToken = ua.NewExtensionObject(&ua.IssuedIdentityToken{PolicyID: "whatever", TokenData: []byte("x")})
		_, err = ses.ActivateWith(context.Background(), act)
		s.status(err, "a token nobody offered", ua.StatusBadIdentityTokenInvalid, ua.StatusBadIdentityTokenRejected)
		kept := s.session()
		s.subscribe(kept, 50, 100)
		if _, err := kept.Call(context.Background(), &ua.CloseSessionRequest{DeleteSubscriptions: false}); err != nil {
			t.Fatal(err)
		}
		if n := s.srv.Stats().Subscriptions; n != 2 {
			t.Errorf("%d subscriptions: DeleteSubscriptions false was ignored", n)
		}
	})
}

func TestI16TimeoutIsMilliseconds(t *testing.T) {
	each(t, all, func(o *stack.Options) {
		o.Limits.MinSessionTimeout, o.Limits.MaxSessionTimeout = 10*time.Second, time.Hour
	}, func(t *testing.T, s *site) {
		c := s.channel()
		for asked, want := range map[float64]float64{60_000: 60_000, 0: 10_000, 1e300: 3_600_000, math.Inf(-1): 10_000, math.NaN(): 10_000} {
			rq := c.CreateRequest()
			rq.RequestedSessionTimeout = asked
			ses, err := c.Create(context.Background(), rq)
			if err != nil {
				t.Fatal(err)
			}
			got := ses.Created.RevisedSessionTimeout
			if got != want && (asked == 60_000 || got < 10_000 || got > 3_600_000) {
				t.Errorf("asked for %v ms, got %v ms", asked, got)
			}
			ses.Call(context.Background(), &ua.CloseSessionRequest{})
		}
	})
}

func TestX4OldTimestampGivesNothingAway(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		if _, err := ses.Call(context.Background(), read(s.node())); err != nil {
			t.Fatal(err)
		}
		h := probe.Header(ses.Token)
		h.Timestamp = time.Date(1975, 1, 1, 0, 0, 0, 0, time.UTC)
		h.ReturnDiagnostics = 0x3ff
		msg, err := ses.Conn.Call(context.Background(), &ua.CloseSessionRequest{RequestHeader: h})
		if err != nil {
			s.status(err, "old timestamp", ua.StatusBadInvalidTimestamp)
		}
		if f, ok := msg.(*ua.ServiceFault); ok {
			text := fmt.Sprintf("%+v %v", f.ResponseHeader.ServiceDiagnostics, f.ResponseHeader.StringTable)
			if strings.Contains(text, "goroutine") || strings.Contains(text, ".go:") {
				t.Errorf("the fault gives away %s", text)
			}
		}
	})
}

func TestX7ShortBodiesHoldNobody(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		short := append(body(ses, 673), 1)
		if s.json() {
			short = s.text(ses, 671, value("1"))
			short = short[:len(short)-2]
		}
		for range 200 {
			s.fault(ses, short, ua.StatusBadDecodingError)
		}
		if _, err := ses.Call(context.Background(), read(s.node())); err != nil {
			t.Error(err)
		}
	})
}

func TestX10CloseWhileOperationsRun(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		c := s.channel()
		rq := c.CreateRequest()
		rq.RequestedSessionTimeout = math.MaxUint32
		ses, err := c.Create(context.Background(), rq)
		if err == nil {
			err = ses.Activate(context.Background(), probe.Anonymous)
		}
		if err != nil {
			t.Fatal(err)
		}
		sub := s.subscribe(ses, 100, 30)
		method := &ua.CallMethodRequest{ObjectID: ua.NewNumericNodeID(0, 2253), MethodID: ua.NewNumericNodeID(0, 11492), InputArguments: []*ua.Variant{ua.MustVariant(sub)}}
		many := func(n int) *ua.CallRequest {
			r := &ua.CallRequest{}
			for range n {
				r.MethodsToCall = append(r.MethodsToCall, method)
			}
			return r
		}
		s.refused(ses, many(28_671), ua.StatusBadTooManyOperations)
		var waiting []*probe.Pending
		for range size(s, 50, 10) {
			p, err := ses.Send(many(1000))
			if err != nil {
				t.Fatal(err)
			}
			waiting = append(waiting, p)
		}
		if _, err := ses.Call(context.Background(), &ua.CloseSessionRequest{DeleteSubscriptions: true}); err != nil {
			t.Fatal(err)
		}
		for _, p := range waiting { // each gets exactly one answer, whatever it is
			if _, err := p.Body(context.Background()); err != nil {
				t.Fatalf("no answer: %v", err)
			}
		}
	})
}

func TestX11InvalidUTF8(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		c := s.channel()
		if s.json() {
			ses := s.activate(c, probe.Anonymous)
			s.fault(ses, s.text(ses, 671, value(`{"UaType":12,"Value":"\udc00\ud800"}`)), ua.StatusBadDecodingError)
			text := s.text(ses, 671, value(`{"UaType":12,"Value":"`+"\xff\xc0\x80"+`"}`))
			if s.on == probe.HTTPSJSON {
				s.fault(ses, text, ua.StatusBadDecodingError)
				return
			}
			if _, err := ses.SendEncoded(text); err != nil { // a message of text must be UTF-8: RFC 6455 §8.1
				t.Fatal(err)
			}
			s.ends(c, ua.StatusBadDecodingError)
			return
		}
		rq := c.CreateRequest()
		rq.SessionName = "\xff\xfe\xc0\x80" + strings.Repeat("\xf8", 100)
		rq.ClientDescription.ApplicationName = ua.NewLocalizedText("\xed\xa0\x80")
		ses, err := c.Create(context.Background(), rq)
		if err != nil {
			s.status(err, "invalid UTF-8", ua.StatusBadDecodingError)
			return
		}
		if err := ses.Activate(context.Background(), probe.Anonymous); err != nil {
			t.Error(err)
		}
	})
}

func TestX24UserTokenWithoutSignature(t *testing.T) {
	each(t, all, func(o *stack.Options) { o.Authenticator = anyCertificate() }, func(t *testing.T, s *site) {
		user, err := probe.NewKey(gate, "urn:user", "user")
		if err != nil {
			t.Fatal(err)
		}
		ses, err := s.channelWith(s.secured(security.Basic256Sha256)).Create(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		rq, err := ses.ActivateRequest(context.Background(), probe.Identity{Kind: ua.UserTokenTypeCertificate, Key: user})
		if err != nil {
			t.Fatal(err)
		}
		rq.UserTokenSignature = &ua.SignatureData{}
		_, err = ses.ActivateWith(context.Background(), rq)
		s.status(err, "no user signature", ua.StatusBadUserSignatureInvalid)
	})
}

func TestX36DiscoveryIsBounded(t *testing.T) {
	each(t, all, func(o *stack.Options) { o.Security.AllowNone = true }, func(t *testing.T, s *site) {
		c := s.channel()
		for range 50 {
			p, err := c.Send(&ua.GetEndpointsRequest{RequestHeader: probe.Header(nil), EndpointURL: "opc.tcp://" + strings.Repeat("x", 3000) + ":4840"})
			if err != nil {
				t.Fatal(err)
			}
			b, err := p.Body(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 64<<10 {
				t.Fatalf("an answer of %d bytes to somebody unknown", len(b))
			}
		}
	})
}
