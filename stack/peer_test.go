package stack_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// A site is a server in a synctest bubble, reached through an in-memory network.
type site struct {
	*testing.T
	srv   *stack.Server
	ln    *memnet.Listener
	peers []*peer
	ended chan error
	addr  int
}

// inBubble runs a test against a server without security, on a fake clock.
func inBubble(t *testing.T, o stack.Options, f func(s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { bubble(t, o, f) })
}

// bubble is inBubble for a test that is in one already.
func bubble(t *testing.T, o stack.Options, f func(s *site)) {
	t.Helper()
	if o.Security.Policies == nil {
		o.Security = stack.Security{Policies: stack.NoPolicies, AllowNone: true, AllowAnonymous: true}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(testLog, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	srv, err := stack.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, srv: srv, ln: memnet.Listen("192.0.2.2:4840"), ended: make(chan error, 1)}
	go func() { s.ended <- srv.Serve(s.ln) }()
	f(s)
	for _, p := range s.peers {
		p.close()
	}
	s.down()
	if err := <-s.ended; !errors.Is(err, stack.ErrServerClosed) {
		t.Errorf("Serve: %v", err)
	}
	synctest.Wait()
	st := srv.Stats()
	if st.Channels != 0 || st.Sessions != 0 || st.Subscriptions != 0 || st.MonitoredItems != 0 || st.ParkedPublishes != 0 || st.BlockingRequests != 0 || st.BudgetReserved != 0 {
		t.Errorf("left behind: %+v", st)
	}
	noLeases(t, srv)
	if n := buffer.Outstanding(); n != 0 { // counted with -tags bufdebug
		t.Errorf("%d buffers left behind\n%s", n, buffer.Leaks())
	}
	// synctest fails the test when a goroutine is left in the bubble.
}

// down shuts the server down without grace.
func (s *site) down() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.srv.Shutdown(ctx)
}

// An answer is on its way before the server has tidied up behind it. What a test
// reads of the server's counters it reads when everything in the bubble has come
// to rest.

func (s *site) stats() stack.Stats {
	synctest.Wait()
	return s.srv.Stats()
}

func (s *site) usage() (stages [isolation.Stages]isolation.Usage, owners int) {
	synctest.Wait()
	return s.srv.Isolation().Snapshot()
}

func (s *site) used(stage isolation.Stage) int64 {
	synctest.Wait()
	return s.srv.Isolation().Used(stage)
}

func (s *site) admission() stack.AdmissionStatus {
	synctest.Wait()
	return s.srv.AdmissionStatus()
}

// A peer is a client on one channel.
type peer struct {
	*testing.T
	c       *securechannel.Client
	token   *ua.NodeID
	handle  uint32
	mu      sync.Mutex
	waiting map[uint32]chan response
	early   map[uint32]response
	gone    chan struct{}
	err     error
	// settle lets the server tidy up behind an answer, which leaves before that: in a
	// bubble it waits until nothing moves any more. nil: there is no bubble, or
	// something in it moves all the time.
	settle func()
}

type response struct {
	msg any
	err error
}

// connect opens a channel of policy None.
func (s *site) connect() *peer {
	s.Helper()
	s.addr++
	conn, err := s.ln.Dial(context.Background(), netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(10000+s.addr)))
	if err != nil {
		s.Fatal(err)
	}
	p, err := open(s.T, conn)
	if err != nil {
		s.Fatal(err)
	}
	s.peers = append(s.peers, p)
	return p
}

func open(t *testing.T, conn net.Conn) (*peer, error) {
	c, err := securechannel.Dial(context.Background(), conn, securechannel.ClientConfig{EndpointURL: "opc.tcp://192.0.2.2:4840"})
	if err != nil {
		return nil, err
	}
	p := &peer{T: t, c: c, waiting: make(map[uint32]chan response), early: make(map[uint32]response), gone: make(chan struct{}), settle: synctest.Wait}
	go p.receive()
	return p, nil
}

func (p *peer) receive() {
	defer close(p.gone)
	for {
		id, body, err := p.c.Receive()
		if err != nil {
			p.mu.Lock()
			p.err = err
			for _, w := range p.waiting {
				w <- response{err: err}
			}
			clear(p.waiting)
			p.mu.Unlock()
			return
		}
		var d uabinary.Decoder
		d.Reset(body, nil)
		msg, err := uabinary.DecodeMessage(&d)
		r := response{msg, err}
		p.mu.Lock()
		if w := p.waiting[id]; w != nil {
			delete(p.waiting, id)
			w <- r
		} else {
			p.early[id] = r
		}
		p.mu.Unlock()
	}
}

func (p *peer) close() {
	p.c.Close()
	<-p.gone
	p.c.Release()
}

func (p *peer) header() *ua.RequestHeader {
	p.handle++
	return &ua.RequestHeader{AuthenticationToken: p.token, RequestHandle: p.handle, Timestamp: time.Now()}
}

// encode gives the bytes of a request.
func (p *peer) encode(rq any) []byte {
	p.Helper()
	var e uabinary.Encoder
	uabinary.EncodeMessage(&e, rq)
	if err := e.Err(); err != nil {
		p.Fatal(err)
	}
	return e.B
}

// start sends a request; the answer comes on the channel.
func (p *peer) start(body []byte) <-chan response {
	p.Helper()
	id := p.c.NextRequestID()
	w := make(chan response, 1)
	p.mu.Lock()
	if p.err != nil {
		w <- response{err: p.err}
		p.mu.Unlock()
		return w
	}
	p.waiting[id] = w
	p.mu.Unlock()
	if err := p.c.Send(id, body); err != nil {
		p.mu.Lock()
		if _, still := p.waiting[id]; still {
			delete(p.waiting, id)
			w <- response{err: err}
		}
		p.mu.Unlock()
	}
	return w
}

// call sends a request and waits for its answer.
func (p *peer) call(rq any) (any, ua.StatusCode) {
	p.Helper()
	r := <-p.start(p.encode(rq))
	if p.settle != nil {
		p.settle()
	}
	return p.result(r)
}

// result is the message of an answer and its service result. An answer that did
// not come counts as the code of its error.
func (p *peer) result(r response) (any, ua.StatusCode) {
	p.Helper()
	if r.err != nil {
		var code ua.StatusCode
		if errors.As(r.err, &code) {
			return nil, code
		}
		if errors.Is(r.err, io.EOF) || errors.Is(r.err, io.ErrUnexpectedEOF) {
			return nil, ua.StatusBadConnectionClosed
		}
		return nil, ua.StatusBadUnexpectedError
	}
	h := r.msg.(interface{ Header() *ua.ResponseHeader }).Header()
	return r.msg, h.ServiceResult
}

// must is call for requests that succeed.
func (p *peer) must(rq any) any {
	p.Helper()
	rs, code := p.call(rq)
	if code != ua.StatusOK {
		p.Fatalf("%T: %v", rq, code)
	}
	return rs
}

// refused is call for requests that fail.
func (p *peer) refused(rq any, want ua.StatusCode) *ua.ServiceFault {
	p.Helper()
	rs, code := p.call(rq)
	f, ok := rs.(*ua.ServiceFault)
	if code != want || !ok {
		p.Errorf("%T: %v (%T), want a fault with %v", rq, code, rs, want)
		return &ua.ServiceFault{ResponseHeader: &ua.ResponseHeader{}}
	}
	return f
}

// login creates and activates an anonymous session.
func (p *peer) login() *peer {
	p.Helper()
	p.create(0)
	p.activate()
	return p
}

func (p *peer) create(maxResponse uint32) {
	p.Helper()
	rq := createOf(p)
	rq.MaxResponseMessageSize = maxResponse
	p.token = p.must(rq).(*ua.CreateSessionResponse).AuthenticationToken
}

func (p *peer) activate() {
	p.Helper()
	p.must(activateOf(p))
}

func createOf(p *peer) *ua.CreateSessionRequest {
	return &ua.CreateSessionRequest{RequestHeader: p.header(), ClientDescription: &ua.ApplicationDescription{ApplicationURI: "urn:peer", ApplicationName: ua.NewLocalizedText("peer")},
		EndpointURL: "opc.tcp://192.0.2.2:4840", SessionName: "peer", ClientNonce: make([]byte, 32), RequestedSessionTimeout: 60_000}
}

func activateOf(p *peer) *ua.ActivateSessionRequest {
	policy := session.TokenPolicies(security.None, ua.MessageSecurityModeNone, []ua.UserTokenType{ua.UserTokenTypeAnonymous})[0].PolicyID
	return &ua.ActivateSessionRequest{RequestHeader: p.header(), ClientSignature: &ua.SignatureData{}, UserTokenSignature: &ua.SignatureData{},
		UserIdentityToken: &ua.ExtensionObject{TypeID: ua.NewFourByteExpandedNodeID(0, 321), EncodingMask: ua.ExtensionObjectBinary, Value: &ua.AnonymousIdentityToken{PolicyID: policy}}}
}

// decode decodes a response.
func decode(t testing.TB, body []byte) any {
	t.Helper()
	var d uabinary.Decoder
	d.Reset(body, nil)
	msg, err := uabinary.DecodeMessage(&d)
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func readOf(p *peer, ids ...*ua.NodeID) *ua.ReadRequest {
	rq := &ua.ReadRequest{RequestHeader: p.header(), TimestampsToReturn: ua.TimestampsToReturnBoth}
	for _, id := range ids {
		rq.NodesToRead = append(rq.NodesToRead, &ua.ReadValueID{NodeID: id, AttributeID: ua.AttributeIDValue})
	}
	return rq
}

// read returns one value.
func (p *peer) read(id *ua.NodeID) any {
	p.Helper()
	r := p.must(readOf(p, id)).(*ua.ReadResponse).Results[0]
	if r.Status != ua.StatusOK || r.Value == nil {
		p.Fatalf("read %v: %v", id, r.Status)
	}
	return r.Value.Value()
}
