package stack_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/transport/wss"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// A webClient is an HTTPS client with a session.
type webClient struct {
	*peer
	c   *http.Client
	srv *stack.Server
}

func newWebClient(t *testing.T, srv *stack.Server) *webClient {
	return &webClient{&peer{T: t}, browser(t), srv}
}

// ask returns the answer and the HTTP response.
func (w *webClient) ask(rq any, header ...string) (any, *http.Response) {
	w.Helper()
	return post(w.T, w.c, w.srv, w.encode(rq), header...)
}

func (w *webClient) must(rq any) any {
	w.Helper()
	rs, h := w.ask(rq)
	if rs == nil || codeOf(rs) != ua.StatusOK {
		w.Fatalf("%T: %s %v", rq, h.Status, rs)
	}
	return rs
}

func (w *webClient) login() *webClient {
	w.Helper()
	w.token = w.must(createOf(w.peer)).(*ua.CreateSessionResponse).AuthenticationToken
	w.must(activateOf(w.peer))
	return w
}

func (w *webClient) fault(rq any, want ua.StatusCode, hint bool) {
	w.Helper()
	rs, h := w.ask(rq)
	f, ok := rs.(*ua.ServiceFault)
	if !ok || codeOf(rs) != want {
		w.Errorf("%T: %s %T, want a fault with %v", rq, h.Status, rs, want)
		return
	}
	if got := reconnect.HeaderHint(f.ResponseHeader) > 0; got != hint {
		w.Errorf("%T: hint %v, want %v", rq, got, hint)
	}
}

func (w *webClient) status(rq any, want int, retryAfter bool, header ...string) {
	w.Helper()
	_, h := w.ask(rq, header...)
	n, err := strconv.Atoi(h.Header.Get("Retry-After"))
	if h.StatusCode != want || retryAfter != (err == nil && n >= 1) {
		w.Errorf("%T: %s, Retry-After %q; want %d", rq, h.Status, h.Header.Get("Retry-After"), want)
	}
}

// The rows of overload.md §9 that a client of opc.https can reach, each through
// a whole server.
func TestRefusalsOverHTTPS(t *testing.T) {
	// during runs f while one client's Call is held.
	during := func(t *testing.T, srv *stack.Server, f func()) {
		t.Helper()
		rq, started, release := block(srv, "Block")
		w := newWebClient(t, srv).login()
		body := w.encode(rq(w.peer))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			post(t, w.c, srv, body)
		}()
		<-started
		f()
		release()
		<-ended
	}

	t.Run("establishment", func(t *testing.T) {
		o, auth := establishing(1, 0)
		o.Endpoints, o.Logger = []string{"opc.https://127.0.0.1:0"}, options().Logger
		srv := start(t, o)
		first, second := newWebClient(t, srv), newWebClient(t, srv)
		first.token = first.must(createOf(first.peer)).(*ua.CreateSessionResponse).AuthenticationToken
		body := first.encode(activateOf(first.peer))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			post(t, first.c, srv, body)
		}()
		waitFor(t, func() bool { return srv.Stats().Establishing == 1 })
		second.fault(createOf(second.peer), uastatus.BadServerTooBusy, true)
		close(auth.open)
		<-ended
		second.login()
	})
	t.Run("sessions", func(t *testing.T) {
		o := everywhere()
		o.Limits.MaxSessions = 2
		srv := start(t, o)
		newWebClient(t, srv).login()
		newWebClient(t, srv).login()
		w := newWebClient(t, srv)
		w.fault(createOf(w.peer), ua.StatusBadTooManySessions, false)
	})
	t.Run("queue", func(t *testing.T) {
		o := everywhere()
		o.Isolation = narrow(1, 1)
		srv := start(t, o)
		during(t, srv, func() {
			rq, _, release := block(srv, "Block again")
			w := newWebClient(t, srv).login()
			body := w.encode(rq(w.peer))
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				post(t, w.c, srv, body)
			}()
			waitFor(t, func() bool { return srv.Stats().QueuedRequests == 1 })
			w.fault(rq(w.peer), uastatus.BadServerTooBusy, true)
			release()
			t.Cleanup(func() { <-ended })
		})
	})
	t.Run("command governor", func(t *testing.T) {
		o := everywhere()
		o.Governors.Commands = &admission.CommandOptions{MaxPrincipalCommands: 1}
		srv := start(t, o)
		during(t, srv, func() {
			w := newWebClient(t, srv).login()
			w.fault(&ua.WriteRequest{RequestHeader: w.header(), NodesToWrite: []*ua.WriteValue{{NodeID: numeric(2258), AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{}}}}, uastatus.BadServerTooBusy, true)
			w.must(readOf(w.peer, numeric(2259)))
		})
	})
	t.Run("HTTP governor", func(t *testing.T) {
		o := everywhere()
		o.Governors.HTTP = &admission.HTTPOptions{MaxRequests: 1, SmallBodyRequests: -1}
		srv := start(t, o)
		during(t, srv, func() {
			w := newWebClient(t, srv)
			w.status(&ua.GetEndpointsRequest{RequestHeader: w.header()}, http.StatusServiceUnavailable, true)
		})
		waitFor(t, func() bool { return srv.AdmissionStatus().HTTP.Node.Data.Count == 0 }) // after the answer
		w := newWebClient(t, srv)
		w.must(&ua.GetEndpointsRequest{RequestHeader: w.header()})
		if st := srv.AdmissionStatus().HTTP; st.Node.Data.Refused["count"] == 0 && len(st.Node.Data.Refused) == 0 {
			t.Errorf("not counted: %+v", st)
		}
	})
	t.Run("principal of the HTTP governor", func(t *testing.T) {
		o := everywhere()
		o.Governors.HTTP = &admission.HTTPOptions{MaxPrincipalRequests: 1}
		srv := start(t, o)
		during(t, srv, func() {
			w := newWebClient(t, srv).login() // its own ingress is not the principal's
			w.fault(readOf(w.peer, numeric(2259)), uastatus.BadServerTooBusy, true)
			w.must(&ua.CloseSessionRequest{RequestHeader: w.header()}) // the control lane
		})
	})
	t.Run("body admission", func(t *testing.T) {
		o := everywhere()
		srv := start(t, o)
		w := newWebClient(t, srv)
		owner, err := srv.Isolation().Issue("test", isolation.Established)
		if err != nil {
			t.Fatal(err)
		}
		var all isolation.Lease
		shared := srv.Plan().Stages[isolation.ReassemblyBytes].Shared
		if r := srv.Isolation().TryAcquire(&all, isolation.ReassemblyBytes, owner, shared); r != isolation.Granted {
			t.Fatal(r)
		}
		w.status(&ua.GetEndpointsRequest{RequestHeader: w.header()}, http.StatusServiceUnavailable, true)
		all.Release()
		w.must(&ua.GetEndpointsRequest{RequestHeader: w.header()})
	})
	t.Run("rate", func(t *testing.T) {
		o := everywhere()
		o.HTTP.RequestsPerSecond, o.HTTP.RequestBurst = 0.001, 3
		srv := start(t, o)
		w := newWebClient(t, srv).login() // two of three
		for range 10 {
			w.must(readOf(w.peer, numeric(2259))) // live sessions do not count
		}
		w.must(&ua.GetEndpointsRequest{RequestHeader: w.header()}) // with its token
		stranger := newWebClient(t, srv)
		stranger.must(&ua.GetEndpointsRequest{RequestHeader: stranger.header()})
		stranger.status(&ua.GetEndpointsRequest{RequestHeader: stranger.header()}, http.StatusTooManyRequests, true)
		w.must(readOf(w.peer, numeric(2259)))
	})
	t.Run("size and type", func(t *testing.T) {
		o := everywhere()
		o.Limits.MaxMessageSize = 64 << 10
		srv := start(t, o)
		w := newWebClient(t, srv).login()
		w.status(&ua.WriteRequest{RequestHeader: w.header(), NodesToWrite: []*ua.WriteValue{{NodeID: numeric(2258), AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(make([]byte, 65<<10))}}}}, http.StatusRequestEntityTooLarge, false)
		w.status(readOf(w.peer, numeric(2259)), http.StatusUnsupportedMediaType, false, "Content-Type", "text/plain")
		w.must(readOf(w.peer, numeric(2259)))
	})
	t.Run("undecodable", func(t *testing.T) {
		srv := start(t, everywhere())
		for _, b := range [][]byte{{}, {1}, bytes.Repeat([]byte{0xff}, 100)} {
			if msg, rs := post(t, browser(t), srv, b); msg == nil || codeOf(msg) == ua.StatusOK {
				t.Errorf("%d bytes: %s %v", len(b), rs.Status, msg)
			}
		}
		out := postJSON(t, browser(t), srv, `{"RequestHeader":{"RequestHandle":99}`)
		if h, _ := out["ResponseHeader"].(map[string]any); h["RequestHandle"] != 99.0 {
			t.Errorf("the fault does not echo the handle: %v", out)
		}
	})
	t.Run("connections", func(t *testing.T) {
		o := everywhere()
		o.RateLimits.ConnectionsPerSecond, o.RateLimits.ConnectionBurst = 3, 4
		srv := start(t, o)
		refused := false
		for range 10 {
			c, err := tls.Dial("tcp", srv.Addrs()[0].String(), insecure())
			if err != nil {
				refused = true
				continue
			}
			defer c.Close()
		}
		if !refused {
			t.Error("ten connections at once were admitted")
		}
	})
	t.Run("draining", func(t *testing.T) {
		srv := start(t, everywhere())
		var down chan error
		during(t, srv, func() {
			w := newWebClient(t, srv).login()
			down = make(chan error, 1)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			t.Cleanup(cancel)
			go func() { down <- srv.Shutdown(ctx) }()
			waitFor(t, func() bool {
				rs, h := w.ask(readOf(w.peer, numeric(2259)))
				if rs == nil {
					t.Fatal(h.Status)
				}
				return rs.(*ua.ReadResponse).Results[0].Value.Value() == int32(ua.ServerStateShutdown)
			})
			waitFor(t, func() bool {
				rs, _ := w.ask(createOf(w.peer))
				return rs != nil && codeOf(rs) == uastatus.BadServerTooBusy
			})
			w.fault(createOf(w.peer), uastatus.BadServerTooBusy, true)
			w.fault(&ua.CallRequest{RequestHeader: w.header()}, ua.StatusBadServerHalted, false)
		})
		if err := <-down; err != nil {
			t.Error(err)
		}
	})
}

// block adds a method that returns when it is told to.
func block(srv *stack.Server, name string) (rq func(p *peer) *ua.CallRequest, started chan struct{}, release func()) {
	started, gate := make(chan struct{}, 10), make(chan struct{})
	m := srv.AddressSpace().Namespace("urn:plant").Method(name, nil, nil, func(ctx context.Context, _ *addressspace.Call) ([]any, error) {
		started <- struct{}{}
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return nil, nil
	})
	return func(p *peer) *ua.CallRequest {
		return &ua.CallRequest{RequestHeader: p.header(), MethodsToCall: []*ua.CallMethodRequest{{ObjectID: numeric(85), MethodID: m.ID().UA()}}}
	}, started, func() { close(gate) }
}

// The rows of overload.md §9 and §10 for WebSockets.
func TestRefusalsOverWebSockets(t *testing.T) {
	dial := func(t *testing.T, srv *stack.Server, protocol string, header http.Header) (*websocket.Conn, *http.Response, error) {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: insecure(), DisableKeepAlives: true}}
		ws, rs, err := websocket.Dial(context.Background(), "wss://"+srv.Addrs()[0].String(), &websocket.DialOptions{HTTPClient: c, Subprotocols: []string{protocol}, HTTPHeader: header})
		if err == nil {
			t.Cleanup(func() { _ = ws.CloseNow() })
		}
		return ws, rs, err
	}
	closed := func(t *testing.T, ws *websocket.Conn, want websocket.StatusCode) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		for {
			if _, _, err := ws.Read(ctx); err != nil {
				if got := websocket.CloseStatus(err); got != want {
					t.Errorf("closed with %v (%v), want %v", got, err, want)
				}
				return
			}
		}
	}
	o := everywhere()
	o.Limits.MaxMessageSize = 64 << 10
	o.Governors.HTTP = &admission.HTTPOptions{}
	srv := start(t, o)
	write := func(t *testing.T, ws *websocket.Conn, kind websocket.MessageType, b []byte) {
		t.Helper()
		_ = ws.Write(context.Background(), kind, b) // the close may be faster
	}
	t.Run("text on uacp", func(t *testing.T) {
		ws, _, err := dial(t, srv, wss.SubprotocolUACP, nil)
		if err != nil {
			t.Fatal(err)
		}
		write(t, ws, websocket.MessageText, []byte("HELF"))
		closed(t, ws, websocket.StatusUnsupportedData)
	})
	t.Run("binary on uajson", func(t *testing.T) {
		ws, _, err := dial(t, srv, wss.SubprotocolJSON, nil)
		if err != nil {
			t.Fatal(err)
		}
		write(t, ws, websocket.MessageBinary, []byte("{}"))
		closed(t, ws, websocket.StatusUnsupportedData)
	})
	t.Run("too large", func(t *testing.T) {
		ws, _, err := dial(t, srv, wss.SubprotocolJSON, nil)
		if err != nil {
			t.Fatal(err)
		}
		write(t, ws, websocket.MessageText, bytes.Repeat([]byte{' '}, 65<<10))
		closed(t, ws, websocket.StatusMessageTooBig)
	})
	t.Run("another sub-protocol", func(t *testing.T) {
		if _, rs, err := dial(t, srv, "chat", nil); err == nil || rs == nil || rs.StatusCode != http.StatusBadRequest {
			t.Errorf("%v %v", rs, err)
		}
	})
	t.Run("foreign origin", func(t *testing.T) {
		if _, rs, err := dial(t, srv, wss.SubprotocolJSON, http.Header{"Origin": {"https://evil.example"}}); err == nil || rs == nil || rs.StatusCode != http.StatusForbidden {
			t.Errorf("%v %v", rs, err)
		}
	})
	t.Run("own origin", func(t *testing.T) {
		if _, _, err := dial(t, srv, wss.SubprotocolJSON, http.Header{"Origin": {"https://" + srv.Addrs()[0].String()}}); err != nil {
			t.Error(err)
		}
	})
}
