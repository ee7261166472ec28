package hostile

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// shared by all tests, so that few keys are made.
var (
	pkiDir string
	gate   *security.CryptoGate
	key    *security.Key
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hostile")
	if err != nil {
		panic(err)
	}
	pkiDir = dir
	gate = security.NewCryptoGate(1)
	if key, err = probe.NewKey(gate, probe.ApplicationURI, "probe"); err != nil {
		panic(err)
	}
	makeOwn(dir)
	code := m.Run()
	gate.Close()
	os.RemoveAll(dir)
	os.Exit(code)
}

// makeOwn makes the certificates, which the servers of a row share.
func makeOwn(dir string) {
	srv, err := stack.NewServer(stack.Options{Endpoints: []string{"opc.wss://127.0.0.1:0"}, Security: stack.Security{AllowNone: true, PKI: dir}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Listen(ctx); err != nil {
		panic(err)
	}
	cancel()
	_ = srv.Run(ctx)
}

// site is a server with a healthy client that works beside the row.
type site struct {
	t     *testing.T
	on    probe.Transport
	srv   *stack.Server
	url   string
	addr  string
	ns    uint16
	value *addressspace.Variable

	cancel       context.CancelFunc
	background   sync.WaitGroup
	healthy      *probe.Session
	reads, notes atomic.Int64
	unhealthy    atomic.Pointer[string]
	stopped      atomic.Bool
}

// here are those of a row's listeners on which it runs in this build. The race
// detector gets the first: it costs the row ten times the work, and the data paths
// of the others are raced by transport/https and stack.
func here(on listeners) listeners {
	if raceEnabled {
		return on[:1]
	}
	return on
}

// each runs a row on some listeners: a server with one listener for each, all at
// once, since most of a row is waiting.
func each(t *testing.T, on listeners, change func(*stack.Options), row func(t *testing.T, s *site)) {
	t.Helper()
	leavesNothing(t, func() {
		var rows sync.WaitGroup
		for _, l := range here(on) {
			rows.Go(func() {
				t.Run(string(l), func(t *testing.T) { row(t, start(t, l, change)) })
			})
		}
		rows.Wait()
	})
}

// inTurn is each for rows that measure the process: one listener after the other.
func inTurn(t *testing.T, on listeners, change func(*stack.Options), row func(t *testing.T, s *site)) {
	t.Helper()
	for _, l := range here(on) {
		leavesNothing(t, func() {
			t.Run(string(l), func(t *testing.T) { row(t, start(t, l, change)) })
		})
	}
}

// leavesNothing checks that f leaves no goroutine and no descriptor behind.
func leavesNothing(t *testing.T, f func()) {
	t.Helper()
	goroutines, open := runtime.NumGoroutine(), descriptors()
	f()
	if !wait(func() bool {
		runtime.GC() // closes what only a finalizer holds
		return runtime.NumGoroutine() <= goroutines && descriptors() <= open
	}) {
		b := make([]byte, 1<<16)
		t.Errorf("%d goroutines, was %d; %d descriptors, was %d\n%s", runtime.NumGoroutine(), goroutines, descriptors(), open, b[:runtime.Stack(b, true)])
	}
}

// size is how much of something a row does: n over opc.tcp, where it costs
// least, web over the others. The race detector gets, and -short asks for, less.
func size(s *site, n, web int) int {
	if s.on != probe.TCP {
		return web
	}
	if testing.Short() || raceEnabled {
		return max(n/10, min(n, web))
	}
	return n
}

// patience is how long something may take on a busy machine.
const patience = 20 * time.Second

// wait looks until it is so, or patience ends.
func wait(so func() bool) bool {
	for deadline := time.Now().Add(patience); !so(); pause(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// start runs a server with one listener, whose deadlines are shorter than usual.
func start(t *testing.T, on probe.Transport, change func(*stack.Options)) *site {
	t.Helper()
	s := &site{t: t, on: on}
	o := stack.Options{
		Endpoints: []string{on.Scheme() + "://127.0.0.1:0"},
		Security:  stack.Security{AllowNone: true, AllowAnonymous: true, TrustAll: true, PKI: pkiDir},
		Limits: stack.Limits{MinSessionTimeout: time.Second, MaxSessionTimeout: 30 * time.Second, HelloTimeout: 5 * time.Second,
			AssemblyTimeout: 5 * time.Second, HandshakeTimeout: 10 * time.Second, ActivationTimeout: 5 * time.Second, MinTokenLifetime: time.Second},
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	}
	if change != nil {
		change(&o)
	}
	srv, err := stack.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.srv = srv
	ns := srv.AddressSpace().Namespace("urn:hostile")
	s.ns = ns.Index()
	s.value = ns.Variable("Value", 1.0, addressspace.Writable())
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	if err := srv.Listen(ctx); err != nil {
		t.Fatal(err)
	}
	s.addr = srv.Addrs()[0].String()
	s.url = on.Scheme() + "://" + s.addr
	s.background.Go(func() {
		if err := srv.Run(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("server: %v", err)
		}
	})
	t.Cleanup(s.finish)
	s.startHealthy()
	return s
}

func (s *site) fail(what string) {
	if !s.stopped.Load() {
		s.unhealthy.CompareAndSwap(nil, &what)
	}
}

// startHealthy opens a session that reads all the time and holds a subscription.
func (s *site) startHealthy() {
	ctx := context.Background()
	var err error
	// Not closed with the test's other channels, which go before finish looks.
	if s.healthy, err = probe.Connect(ctx, s.options(), probe.Anonymous); err != nil {
		s.t.Fatal(err)
	}
	sub, err := probe.Call[*ua.CreateSubscriptionResponse](ctx, s.healthy, &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: 50, RequestedLifetimeCount: 600, RequestedMaxKeepAliveCount: 20, PublishingEnabled: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.monitor(s.healthy, sub.SubscriptionID)
	s.background.Go(func() { // the value moves, and each read must succeed
		for v := 0.0; !s.stopped.Load(); v++ {
			s.value.Set(v)
			rs, err := probe.Call[*ua.ReadResponse](ctx, s.healthy, read(s.node()))
			if err != nil || rs.Results[0].Status != ua.StatusOK {
				s.fail("a healthy read failed: " + errText(err))
				return
			}
			s.reads.Add(1)
			pause(10 * time.Millisecond)
		}
	})
	s.background.Go(func() { // no notification may be missing
		next := uint32(1)
		var acks []*ua.SubscriptionAcknowledgement
		for !s.stopped.Load() {
			rs, err := probe.Call[*ua.PublishResponse](ctx, s.healthy, &ua.PublishRequest{SubscriptionAcknowledgements: acks})
			if err != nil {
				s.fail("a healthy Publish failed: " + errText(err))
				return
			}
			acks = nil
			if len(rs.NotificationMessage.NotificationData) == 0 {
				continue
			}
			if n := rs.NotificationMessage.SequenceNumber; n != next {
				s.fail("a healthy notification was lost")
				return
			}
			next++
			s.notes.Add(1)
			acks = []*ua.SubscriptionAcknowledgement{{SubscriptionID: rs.SubscriptionID, SequenceNumber: rs.NotificationMessage.SequenceNumber}}
		}
	})
}

// finish is the second half of every row.
func (s *site) finish() {
	reads, notes := s.reads.Load(), s.notes.Load()
	s.eventually("the healthy client goes on", func() bool {
		return s.unhealthy.Load() != nil || (s.reads.Load() > reads+3 && s.notes.Load() > notes+1)
	})
	s.stopped.Store(true)
	if why := s.unhealthy.Load(); why != nil {
		s.t.Error(*why)
	}
	s.healthy.End(context.Background())
	// Sessions whose client went without a word live until their timeout, which
	// has rows of its own; here they end now.
	for each := range s.sessions() {
		s.srv.Sessions().Terminate(each, true)
	}
	s.eventually("nothing is left behind", func() bool {
		st := s.srv.Stats()
		return st.Channels == 0 && st.Sessions == 0 && st.Subscriptions == 0 && st.MonitoredItems == 0 &&
			st.ParkedPublishes == 0 && st.BlockingRequests == 0 && st.BudgetReserved == 0
	})
	if s.t.Failed() {
		st := s.srv.Stats()
		s.t.Logf("channels %d, sessions %d, subscriptions %d, items %d, parked %d, blocking %d, budget %d", st.Channels, st.Sessions,
			st.Subscriptions, st.MonitoredItems, st.ParkedPublishes, st.BlockingRequests, st.BudgetReserved)
	}
	s.cancel()
	s.background.Wait()
}

func descriptors() int {
	d, _ := filepath.Glob("/proc/self/fd/*")
	return len(d)
}

// pause waits between two looks at a real server: these tests run over real
// sockets and a real clock.
func pause(d time.Duration) { <-time.After(d) }

func (s *site) eventually(what string, ok func() bool) {
	s.t.Helper()
	if !wait(ok) {
		s.t.Errorf("%v have passed without this: %s", patience, what)
	}
}

func errText(err error) string {
	if err == nil {
		return "bad result"
	}
	return err.Error()
}

func (s *site) node() *ua.NodeID { return ua.NewStringNodeID(s.ns, "Value") }

func (s *site) options() probe.Options {
	return probe.Options{URL: s.url, JSON: s.json(), HTTP1: s.on == probe.HTTPSJSON}
}

// json tells whether messages are JSON.
func (s *site) json() bool { return s.on == probe.WSSJSON || s.on == probe.HTTPSJSON }

// secured returns options for the policy with Sign and Encrypt, for opc.https with
// Sign, where TLS encrypts. With opcua+uajson there is no other policy than None.
func (s *site) secured(p *security.Policy) probe.Options {
	o := s.options()
	switch {
	case s.on == probe.WSSJSON:
		return o
	case s.on.Chunked():
		o.Mode = ua.MessageSecurityModeSignAndEncrypt
	default:
		o.Mode = ua.MessageSecurityModeSign
	}
	o.Policy, o.Key, o.ServerCertificate = p, key, s.srv.Key().Certificate()
	return o
}

// channel opens a channel that is closed with the test.
func (s *site) channel() *probe.Conn { return s.channelWith(s.options()) }

func (s *site) channelWith(o probe.Options) *probe.Conn {
	s.t.Helper()
	c, err := probe.Open(context.Background(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// session opens a channel and an anonymous session.
func (s *site) session() *probe.Session { return s.activate(s.channel(), probe.Anonymous) }

func (s *site) activate(c *probe.Conn, id probe.Identity) *probe.Session {
	s.t.Helper()
	ses, err := c.Create(context.Background(), nil)
	if err == nil {
		err = ses.Activate(context.Background(), id)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return ses
}

// monitor adds one item for the value and returns its id.
func (s *site) monitor(ses *probe.Session, sub uint32) uint32 {
	s.t.Helper()
	rs, err := probe.Call[*ua.CreateMonitoredItemsResponse](context.Background(), ses, &ua.CreateMonitoredItemsRequest{SubscriptionID: sub,
		TimestampsToReturn: ua.TimestampsToReturnBoth, ItemsToCreate: []*ua.MonitoredItemCreateRequest{item(s.node(), 1)}})
	if err != nil || rs.Results[0].StatusCode != ua.StatusOK {
		s.t.Fatalf("monitor: %v %+v", err, rs.Results[0])
	}
	return rs.Results[0].MonitoredItemID
}

func (s *site) subscribe(ses *probe.Session, interval float64, life uint32) uint32 {
	s.t.Helper()
	rs, err := probe.Call[*ua.CreateSubscriptionResponse](context.Background(), ses, &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: interval, RequestedLifetimeCount: life, RequestedMaxKeepAliveCount: min(life/3, 3), PublishingEnabled: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return rs.SubscriptionID
}

func item(n *ua.NodeID, handle uint32) *ua.MonitoredItemCreateRequest {
	return &ua.MonitoredItemCreateRequest{ItemToMonitor: &ua.ReadValueID{NodeID: n, AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}},
		MonitoringMode:      ua.MonitoringModeReporting,
		RequestedParameters: &ua.MonitoringParameters{ClientHandle: handle, QueueSize: 1, DiscardOldest: true, Filter: ua.NewExtensionObject(nil)}}
}

func read(n *ua.NodeID) *ua.ReadRequest {
	return &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth,
		NodesToRead: []*ua.ReadValueID{{NodeID: n, AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}}}}
}

func write(n *ua.NodeID, v any) *ua.WriteRequest {
	return &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{{NodeID: n, AttributeID: ua.AttributeIDValue,
		Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(v)}}}}
}

// status fails the test unless err carries one of the codes.
func (s *site) status(err error, doing string, want ...ua.StatusCode) {
	s.t.Helper()
	got := uastatus.Code(err)
	for _, w := range want {
		if got == w {
			return
		}
	}
	s.t.Errorf("%s: %s (%v), want %s", doing, uastatus.Name(got), err, uastatus.Name(want[0]))
}

// refused calls and expects the request to be refused with one of the codes.
func (s *site) refused(c interface {
	Call(context.Context, ua.Request) (any, error)
}, rq ua.Request, want ...ua.StatusCode) {
	s.t.Helper()
	_, err := c.Call(context.Background(), rq)
	s.status(err, fmt.Sprintf("%T", rq), want...)
}

// body starts an encoded request of a session; what follows the header is the row's.
func body(ses *probe.Session, typeID uint32) []byte {
	b := uabinary.AppendTypeID(nil, typeID)
	return uabinary.AppendRequestHeader(b, &uabinary.RequestHeader{AuthenticationToken: uabinary.NodeIDOf(ses.Token), RequestHandle: 4711, TimeoutHint: 10_000})
}

// fault sends an encoded request, as it is, and expects a ServiceFault with one of
// the codes.
func (s *site) fault(ses *probe.Session, b []byte, want ...ua.StatusCode) {
	s.t.Helper()
	p, err := ses.SendEncoded(b)
	if err != nil {
		s.t.Fatal(err)
	}
	msg, err := p.Wait(context.Background())
	s.status(err, "answer", want...)
	if f, ok := msg.(*ua.ServiceFault); !ok || f.ResponseHeader.RequestHandle != 4711 {
		s.t.Errorf("answer %T %+v: want a ServiceFault with the request's handle", msg, msg)
	}
}

// text is a request of a session in JSON; what follows the header is the row's.
func (s *site) text(ses *probe.Session, typeID uint32, members string) []byte {
	s.t.Helper()
	b, err := ses.RequestJSON(typeID, 4711, members)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// opened checks, closes with the test, and bounds the time of a connection.
func (s *site) opened(c net.Conn, err error) net.Conn {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// socket opens a connection and sends nothing.
func (s *site) socket() net.Conn {
	s.t.Helper()
	return s.opened(net.Dial("tcp", s.addr))
}

// secret opens a connection of TLS and sends nothing in it.
func (s *site) secret() net.Conn {
	s.t.Helper()
	return s.opened(probe.DialTLS(context.Background(), s.options()))
}

// dial opens a stream of chunks and sends nothing.
func (s *site) dial() net.Conn {
	s.t.Helper()
	return s.opened(probe.Dial(context.Background(), s.options()))
}

// greeted opens a stream of chunks that has said HEL.
func (s *site) greeted() net.Conn {
	s.t.Helper()
	c := s.dial()
	c.Write(probe.Hello(65535, 65535, 0, 0, s.url))
	if kind, _, err := probe.ReadMessage(c); kind != "ACK" {
		s.t.Fatalf("%q, %v instead of ACK", kind, err)
	}
	return c
}

// closedWith reads until ERR, checks its code and that the connection ends.
func (s *site) closedWith(c net.Conn, want ...ua.StatusCode) {
	s.t.Helper()
	for {
		kind, payload, err := probe.ReadMessage(c)
		if err != nil {
			s.t.Errorf("the connection ended without ERR: %v", err)
			return
		}
		if kind != "ERR" {
			continue
		}
		s.status(ua.StatusCode(binary.LittleEndian.Uint32(payload)), "ERR", want...)
		break
	}
	if _, _, err := probe.ReadMessage(c); err == nil {
		s.t.Error("the connection stayed open behind ERR")
	}
}

// ends expects the server to close the channel's connection with a code.
func (s *site) ends(c *probe.Conn, want ...ua.StatusCode) {
	s.t.Helper()
	// What ends the channel may still be at work while requests are answered.
	var err error
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); {
		_, err = c.Call(context.Background(), &ua.GetEndpointsRequest{EndpointURL: s.url})
	}
	s.status(err, "the channel's end", want...)
}

// withUser offers a user "ann".
func withUser(t *testing.T, o *stack.Options) {
	users, err := session.OpenUsers(filepath.Join(t.TempDir(), "users.yaml"), session.UsersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := users.Add(session.User{Name: "ann"}, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	o.Authenticator = &session.Identities{Anonymous: true, Users: users}
}

var ann = probe.Identity{Kind: ua.UserTokenTypeUserName, User: "ann", Password: "secret"}
