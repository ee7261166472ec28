package stack_test

import (
	"context"
	"net/netip"
	"sync"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/transport"
)

// Profiles, OPC 10000-7.
const (
	httpsProfile   = "http://opcfoundation.org/UA-Profile/Transport/https-uabinary"
	wssJSONProfile = "http://opcfoundation.org/UA-Profile/Transport/wss-uajson"
)

// A web is a client that sends whole messages, each on a connection of its own
// unless it is lasting. It stands where a transport does.
type web struct {
	*peer
	srv    *stack.Server
	policy *security.Policy
	remote netip.AddrPort
	conn   *transport.Peer // of a lasting one
	gone   chan struct{}

	mu    sync.Mutex
	calls []*webCall
}

func (s *site) web(addr string) *web {
	return &web{peer: &peer{T: s.T, settle: synctest.Wait}, srv: s.srv, policy: security.None, remote: netip.MustParseAddrPort(addr)}
}

// socket is a web that holds one WebSocket.
func (s *site) socket(addr string) *web {
	w := s.web(addr)
	w.gone = make(chan struct{})
	w.conn = w.newPeer()
	w.conn.Profile, w.conn.Lasting, w.conn.Done = wssJSONProfile, true, w.gone
	return w
}

func (w *web) newPeer() *transport.Peer {
	return &transport.Peer{Profile: httpsProfile, EndpointURL: "opc.https://192.0.2.2:4843", RemoteAddr: w.remote, LocalAddr: netip.MustParseAddrPort("192.0.2.2:4843")}
}

// hangUp ends a lasting web.
func (w *web) hangUp() {
	close(w.gone)
	w.srv.CallHandler().Gone(w.conn)
}

// A webCall is one request as a transport keeps it. It checks what a transport
// relies on.
type webCall struct {
	w      *web
	peer   *transport.Peer
	ctx    context.Context
	cancel context.CancelFunc
	full   bool // the account of who sent it
	small  int  // largest answer that is taken; 0 = any

	mu      sync.Mutex
	body    []byte // nil once it was given back
	parked  bool
	ended   int
	account string
	answer  chan response
	hint    time.Duration
	code    ua.StatusCode
}

func (c *webCall) Peer() *transport.Peer    { return c.peer }
func (c *webCall) Policy() *security.Policy { return c.w.policy }
func (c *webCall) Received() time.Time      { return time.Now() }
func (c *webCall) Context() context.Context { return c.ctx }

func (c *webCall) Body() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.body == nil {
		c.w.Error("the body is used after it was given back")
	}
	return c.body
}

func (c *webCall) Principal(tenant, principal string, control, heavy bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.account != "" {
		c.w.Error("two principals for one call")
	}
	c.account = tenant + "/" + principal
	if control {
		c.account += " control"
	}
	if heavy {
		c.account += " heavy"
	}
	return !c.full
}

func (c *webCall) Park() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parked || c.ended > 0 {
		c.w.Error("parked twice, or after the answer")
	}
	c.parked = true
	c.giveBack()
}

func (c *webCall) Respond(body []byte, code ua.StatusCode, hint time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.small > 0 && len(body) > c.small {
		return ua.StatusBadResponseTooLarge
	}
	c.ended++
	c.hint, c.code = hint, code
	c.giveBack()
	c.answer <- response{msg: decode(c.w.T, body)}
	return nil
}

func (c *webCall) Drop(code ua.StatusCode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	c.giveBack()
	c.answer <- response{err: code}
}

// giveBack does what the next user of the memory would do.
func (c *webCall) giveBack() {
	for i := range c.body {
		c.body[i] = 0xdb
	}
	c.body = nil
}

// start sends a request.
func (w *web) start(rq any) *webCall {
	w.Helper()
	c := w.prepare(rq)
	w.srv.CallHandler().Call(c)
	return c
}

func (w *web) prepare(rq any) *webCall {
	c := &webCall{w: w, peer: w.conn, body: w.encode(rq), answer: make(chan response, 2)}
	if c.peer == nil {
		c.peer = w.newPeer()
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	w.mu.Lock()
	w.calls = append(w.calls, c)
	w.mu.Unlock()
	return c
}

func (c *webCall) wait() (any, ua.StatusCode) {
	c.w.Helper()
	r := <-c.answer
	msg, code := c.w.result(r)
	if r.err == nil && c.code != code {
		c.w.Errorf("the transport is told %v, the answer says %v", c.code, code)
	}
	return msg, code
}

func (w *web) call(rq any) (any, ua.StatusCode) {
	w.Helper()
	defer w.settle()
	return w.start(rq).wait()
}

func (w *web) must(rq any) any {
	w.Helper()
	rs, code := w.call(rq)
	if code != ua.StatusOK {
		w.Fatalf("%T: %v", rq, code)
	}
	return rs
}

func (w *web) refused(rq any, want ua.StatusCode) *ua.ServiceFault {
	w.Helper()
	rs, code := w.call(rq)
	f, ok := rs.(*ua.ServiceFault)
	if code != want || !ok {
		w.Errorf("%T: %v (%T), want a fault with %v", rq, code, rs, want)
		return &ua.ServiceFault{ResponseHeader: &ua.ResponseHeader{}}
	}
	return f
}

func (w *web) login() *web {
	w.Helper()
	w.token = w.must(createOf(w.peer)).(*ua.CreateSessionResponse).AuthenticationToken
	w.must(activateOf(w.peer))
	return w
}

func (w *web) subscribe() {
	w.Helper()
	w.must(&ua.CreateSubscriptionRequest{RequestHeader: w.header(), RequestedPublishingInterval: 1000, RequestedLifetimeCount: 1000, RequestedMaxKeepAliveCount: 10, PublishingEnabled: true})
}

// onceEach asserts that every call of the web had one end.
func (w *web) onceEach() {
	w.Helper()
	for i, c := range w.calls {
		c.mu.Lock()
		if c.ended != 1 {
			w.Errorf("call %d ended %d times", i, c.ended)
		}
		c.mu.Unlock()
	}
}
