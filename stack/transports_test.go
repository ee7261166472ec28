package stack_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/transport/wss"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uajson"
)

// A speaker sends requests over some transport, several at once.
type speaker interface {
	ask(rq any) (any, error)
	close()
}

// exchange is what every transport must carry: a session, Read, Write, Browse,
// and a subscription whose long Publish is answered when a value changes.
func exchange(t *testing.T, srv *stack.Server, s speaker) {
	t.Helper()
	p := &peer{T: t}
	must := func(rq any) any {
		t.Helper()
		rs, err := s.ask(rq)
		if err != nil {
			t.Fatalf("%T: %v", rq, err)
		}
		if code := rs.(interface{ Header() *ua.ResponseHeader }).Header().ServiceResult; code != ua.StatusOK {
			t.Fatalf("%T: %v", rq, code)
		}
		return rs
	}
	id := valueNode(srv)
	p.token = must(createOf(p)).(*ua.CreateSessionResponse).AuthenticationToken
	must(activateOf(p))
	write := func(v float64) {
		t.Helper()
		rs := must(&ua.WriteRequest{RequestHeader: p.header(), NodesToWrite: []*ua.WriteValue{{NodeID: id, AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(v)}}}})
		if code := rs.(*ua.WriteResponse).Results[0]; code != ua.StatusOK {
			t.Fatalf("write: %v", code)
		}
	}
	write(3)
	if got := must(readOf(p, id)).(*ua.ReadResponse).Results[0].Value.Value(); got != 3.0 {
		t.Errorf("read %v, wrote 3", got)
	}
	browse := must(&ua.BrowseRequest{RequestHeader: p.header(), View: &ua.ViewDescription{ViewID: numeric(0)}, NodesToBrowse: []*ua.BrowseDescription{{NodeID: numeric(84), BrowseDirection: ua.BrowseDirectionForward, ReferenceTypeID: numeric(0), ResultMask: 63}}})
	if refs := browse.(*ua.BrowseResponse).Results[0].References; len(refs) < 3 {
		t.Errorf("browse of the root: %v", refs)
	}
	sub := must(&ua.CreateSubscriptionRequest{RequestHeader: p.header(), RequestedPublishingInterval: 50, RequestedLifetimeCount: 10000, RequestedMaxKeepAliveCount: 1000, PublishingEnabled: true}).(*ua.CreateSubscriptionResponse).SubscriptionID
	must(&ua.CreateMonitoredItemsRequest{RequestHeader: p.header(), SubscriptionID: sub, TimestampsToReturn: ua.TimestampsToReturnBoth, ItemsToCreate: []*ua.MonitoredItemCreateRequest{{
		ItemToMonitor: &ua.ReadValueID{NodeID: id, AttributeID: ua.AttributeIDValue}, MonitoringMode: ua.MonitoringModeReporting,
		RequestedParameters: &ua.MonitoringParameters{ClientHandle: 7, QueueSize: 1}}}})
	must(&ua.PublishRequest{RequestHeader: p.header()})
	type answer struct {
		rs  any
		err error
	}
	long := make(chan answer, 1)
	rq := &ua.PublishRequest{RequestHeader: p.header(), SubscriptionAcknowledgements: []*ua.SubscriptionAcknowledgement{{SubscriptionID: sub, SequenceNumber: 1}}}
	go func() {
		rs, err := s.ask(rq)
		long <- answer{rs, err}
	}()
	waitFor(t, func() bool { return srv.Stats().ParkedPublishes == 1 })
	write(4)
	a := <-long
	if a.err != nil {
		t.Fatal(a.err)
	}
	pub, ok := a.rs.(*ua.PublishResponse)
	if !ok || len(pub.NotificationMessage.NotificationData) != 1 {
		t.Fatalf("publish: %+v", a.rs)
	}
	n, ok := pub.NotificationMessage.NotificationData[0].Value.(*ua.DataChangeNotification)
	if !ok || n.MonitoredItems[0].ClientHandle != 7 || n.MonitoredItems[0].Value.Value.Value() != 4.0 {
		t.Errorf("notification: %+v", pub.NotificationMessage.NotificationData[0].Value)
	}
	if len(pub.Results) != 1 || pub.Results[0] != ua.StatusOK {
		t.Errorf("acknowledged: %v", pub.Results)
	}
	must(&ua.CloseSessionRequest{RequestHeader: p.header(), DeleteSubscriptions: true})
	s.close()
}

func valueNode(srv *stack.Server) *ua.NodeID {
	return srv.AddressSpace().Namespace("urn:plant").Node("Level").ID().UA()
}

func level(srv *stack.Server) {
	srv.AddressSpace().Namespace("urn:plant").Variable("Level", 1.0, addressspace.Writable())
}

// chanSpeaker speaks over a SecureChannel.
type chanSpeaker struct{ *peer }

func (s chanSpeaker) ask(rq any) (any, error) {
	r := <-s.peer.start(s.encode(rq))
	return r.msg, r.err
}

// httpSpeaker posts in OPC UA Binary or JSON.
type httpSpeaker struct {
	*testing.T
	c    *http.Client
	url  string
	json bool
}

func (s httpSpeaker) close() { s.c.CloseIdleConnections() }

func (s httpSpeaker) ask(rq any) (any, error) {
	body, kind := []byte(nil), "application/octet-stream"
	if s.json {
		b, err := uajson.MarshalMessage(rq, uajson.Compact)
		if err != nil {
			return nil, err
		}
		body, kind = b, "application/json"
	} else {
		var e uabinary.Encoder
		uabinary.EncodeMessage(&e, rq)
		body = e.B
	}
	rs, err := s.c.Post(s.url, kind, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer rs.Body.Close()
	b, err := io.ReadAll(rs.Body)
	if err != nil || rs.StatusCode != http.StatusOK {
		return nil, errors.Join(err, errors.New(rs.Status))
	}
	if s.json {
		msg, _, err := uajson.UnmarshalMessage(b)
		return msg, err
	}
	var d uabinary.Decoder
	d.Reset(b, nil)
	return uabinary.DecodeMessage(&d)
}

// socketSpeaker sends JSON over a WebSocket.
type socketSpeaker struct {
	ws *websocket.Conn

	mu      sync.Mutex
	waiting map[uint32]chan any
	ended   chan struct{}
}

func newSocketSpeaker(ws *websocket.Conn) *socketSpeaker {
	s := &socketSpeaker{ws: ws, waiting: make(map[uint32]chan any), ended: make(chan struct{})}
	ws.SetReadLimit(1 << 20)
	go func() {
		defer close(s.ended)
		for {
			_, b, err := ws.Read(context.Background())
			if err != nil {
				return
			}
			msg, _, err := uajson.UnmarshalMessage(b)
			if err != nil {
				return
			}
			h := msg.(interface{ Header() *ua.ResponseHeader }).Header().RequestHandle
			s.mu.Lock()
			w := s.waiting[h]
			delete(s.waiting, h)
			s.mu.Unlock()
			if w != nil {
				w <- msg
			}
		}
	}()
	return s
}

func (s *socketSpeaker) ask(rq any) (any, error) {
	b, err := uajson.MarshalMessage(rq, uajson.Compact)
	if err != nil {
		return nil, err
	}
	w := make(chan any, 1)
	s.mu.Lock()
	s.waiting[rq.(interface{ Header() *ua.RequestHeader }).Header().RequestHandle] = w
	s.mu.Unlock()
	if err := s.ws.Write(context.Background(), websocket.MessageText, b); err != nil {
		return nil, err
	}
	select {
	case msg := <-w:
		return msg, nil
	case <-s.ended:
		return nil, io.ErrUnexpectedEOF
	}
}

func (s *socketSpeaker) close() {
	_ = s.ws.Close(websocket.StatusNormalClosure, "")
	<-s.ended
}

func insecure() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// wssPeer opens a SecureChannel over a WebSocket.
func wssPeer(t *testing.T, srv *stack.Server, cfg securechannel.ClientConfig) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cfg.EndpointURL = "opc.wss://" + srv.Addrs()[0].String()
	conn, err := wss.Dial(ctx, cfg.EndpointURL, insecure())
	if err != nil {
		t.Fatal(err)
	}
	c, err := securechannel.Dial(ctx, conn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{T: t, c: c, waiting: make(map[uint32]chan response), early: make(map[uint32]response), gone: make(chan struct{})}
	go p.receive()
	return p
}

// Every transport carries the same services, with our own halves at both ends.
func TestEveryTransport(t *testing.T) {
	srv := start(t, everywhere(), level)
	addr := srv.Addrs()[0].String()
	t.Run("opc.wss, opcua+uacp", func(t *testing.T) {
		exchange(t, srv, chanSpeaker{wssPeer(t, srv, securechannel.ClientConfig{})})
	})
	t.Run("opc.wss, opcua+uajson", func(t *testing.T) {
		ws, err := wss.DialJSON(context.Background(), "opc.wss://"+addr, insecure())
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, srv, newSocketSpeaker(ws))
	})
	t.Run("opc.https, binary", func(t *testing.T) {
		exchange(t, srv, httpSpeaker{t, browser(t), "https://" + addr, false})
	})
	t.Run("opc.https, JSON", func(t *testing.T) {
		exchange(t, srv, httpSpeaker{t, browser(t), "https://" + addr, true})
	})
	waitFor(t, func() bool { st := srv.Stats(); return st.Sessions == 0 && st.Channels == 0 })
	noLeases := func() bool {
		stages, _ := srv.Isolation().Snapshot()
		for _, u := range stages {
			if u.Used != 0 && !strings.Contains("Connection Handshake", u.Name) {
				return false
			}
		}
		return srv.Stats().BudgetReserved == 0
	}
	waitFor(t, noLeases)
}
