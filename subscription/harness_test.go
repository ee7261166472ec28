package subscription

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// fakeChannel keeps the responses that are sent over it.
type fakeChannel struct {
	mode   ua.MessageSecurityMode
	cert   []byte
	remote netip.AddrPort
	limit  int
	done   chan struct{}
	gone   atomic.Bool

	mu      sync.Mutex
	replies []reply
	answers map[uint32]int // by request id
}

type reply struct {
	requestID uint32
	at        time.Time
	body      any
	err       error
}

func newChannel() *fakeChannel {
	return &fakeChannel{
		mode: ua.MessageSecurityModeNone, remote: netip.MustParseAddrPort("192.0.2.1:5000"),
		done: make(chan struct{}), answers: make(map[uint32]int),
	}
}

func (c *fakeChannel) ID() uint32                                        { return 1 }
func (c *fakeChannel) SecurityPolicy() *security.Policy                  { return security.None }
func (c *fakeChannel) SecurityMode() ua.MessageSecurityMode              { return c.mode }
func (c *fakeChannel) PeerCertificate() []byte                           { return c.cert }
func (c *fakeChannel) RemoteAddr() netip.AddrPort                        { return c.remote }
func (c *fakeChannel) LocalAddr() netip.AddrPort                         { return netip.AddrPort{} }
func (c *fakeChannel) EndpointURL() string                               { return "" }
func (c *fakeChannel) MaxResponseSize() int                              { return c.limit }
func (c *fakeChannel) Close(r transport.CloseReason, code ua.StatusCode) {}
func (c *fakeChannel) Done() <-chan struct{}                             { return c.done }
func (c *fakeChannel) SessionAttached()                                  {}
func (c *fakeChannel) SessionDetached()                                  {}

func (c *fakeChannel) Reply(requestID uint32, body []byte) error {
	if c.gone.Load() {
		return uastatus.New(ua.StatusBadSecureChannelClosed, "reply", nil)
	}
	if c.limit > 0 && len(body) > c.limit {
		return uastatus.New(ua.StatusBadResponseTooLarge, "reply", nil)
	}
	d := uabinary.NewDecoder(append([]byte(nil), body...), nil)
	m, err := uabinary.DecodeMessage(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[requestID]++
	c.replies = append(c.replies, reply{requestID, time.Now(), m, err})
	return nil
}

// take returns the oldest reply that was not taken yet, nil when there is none.
func (c *fakeChannel) take(t *testing.T) *reply {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.replies) == 0 {
		return nil
	}
	r := c.replies[0]
	c.replies = c.replies[1:]
	if r.err != nil {
		t.Fatalf("undecodable response: %v", r.err)
	}
	return &r
}

type fakeSession struct {
	id      uabinary.NodeID
	caller  atomic.Pointer[addressspace.Caller]
	limit   uint32
	app     string
	done    chan struct{}
	mu      sync.Mutex
	channel session.Channel
	request atomic.Uint32
}

var sessionCount atomic.Uint32

func newSession(ch session.Channel, user string) *fakeSession {
	s := &fakeSession{
		id: uabinary.NumericID(1, sessionCount.Add(1)), app: "urn:test:client", done: make(chan struct{}), channel: ch,
	}
	s.caller.Store(&addressspace.Caller{SessionID: s.id, User: user, Anonymous: user == ""})
	return s
}

func (s *fakeSession) ID() uabinary.NodeID            { return s.id }
func (s *fakeSession) Caller() *addressspace.Caller   { return s.caller.Load() }
func (s *fakeSession) MaxResponseMessageSize() uint32 { return s.limit }
func (s *fakeSession) Done() <-chan struct{}          { return s.done }
func (s *fakeSession) ClientDescription() *ua.ApplicationDescription {
	return &ua.ApplicationDescription{ApplicationURI: s.app}
}

func (s *fakeSession) Channel() session.Channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channel
}

func (s *fakeSession) bind(ch session.Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.channel = ch
}

// bench is an engine on a small address space, in a synctest bubble, with one session.
type bench struct {
	*testing.T
	space *addressspace.Space
	ns    *addressspace.Namespace
	e     *Engine
	ch    *fakeChannel
	s     *fakeSession
	kept  int
	freed atomic.Int64
}

// space is shared by the tests, because namespace 0 takes long to load under the race detector; each test has a namespace of
// its own in it.
var space = sync.OnceValue(func() *addressspace.Space {
	space, err := addressspace.New(addressspace.Options{})
	if err != nil {
		panic(err)
	}
	return space
})

var namespaces atomic.Uint32

func newNamespace() *addressspace.Namespace {
	return space().Namespace(fmt.Sprint("urn:test:", namespaces.Add(1)))
}

// inBubble runs f with an engine in a bubble and checks at the end that nothing is left behind.
func inBubble(t *testing.T, l Limits, f func(b *bench)) {
	ns := newNamespace()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, space: space(), ns: ns, ch: newChannel()}
		b.e = NewEngine(Options{Space: b.space, Limits: l, Answered: func(session.Channel, uint32) { b.freed.Add(1) }})
		b.s = newSession(b.ch, "")
		defer b.e.Close() // also when f fails
		f(b)
		b.e.Close()
		if c := b.e.Counts(); c.Subscriptions != 0 || c.MonitoredItems != 0 || c.ParkedPublish != 0 {
			t.Errorf("left behind: %+v", c)
		}
		if b.e.quota.total != (usage{}) || len(b.e.quota.owners) != 0 {
			t.Errorf("quota left behind: %+v, %d owners", b.e.quota.total, len(b.e.quota.owners))
		}
		if n, m := b.e.queuedBytes.Load(), b.e.retained.Load(); n != 0 || m != 0 {
			t.Errorf("bytes left behind: %d queued, %d for retransmission", n, m)
		}
		if int(b.freed.Load()) != b.kept {
			t.Errorf("%d requests kept, %d answered or dropped", b.kept, b.freed.Load())
		}
	})
}

func (b *bench) subscribe(change ...func(*ua.CreateSubscriptionRequest)) uint32 {
	b.Helper()
	rq := &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: 100, RequestedLifetimeCount: 1000, RequestedMaxKeepAliveCount: 5, PublishingEnabled: true,
	}
	for _, f := range change {
		f(rq)
	}
	rs, code := b.e.CreateSubscription(b.s, rq)
	if code != ua.StatusOK {
		b.Fatalf("CreateSubscription: %s", uastatus.Name(code))
	}
	return rs.SubscriptionID
}

// monitor creates one item and returns its result.
func (b *bench) monitor(sub uint32, node uabinary.NodeID, change ...func(*ua.MonitoredItemCreateRequest)) *ua.MonitoredItemCreateResult {
	b.Helper()
	item := &ua.MonitoredItemCreateRequest{
		ItemToMonitor:       &ua.ReadValueID{NodeID: node.UA(), AttributeID: ua.AttributeIDValue},
		MonitoringMode:      ua.MonitoringModeReporting,
		RequestedParameters: &ua.MonitoringParameters{ClientHandle: 1, SamplingInterval: -1, QueueSize: 1, DiscardOldest: true},
	}
	for _, f := range change {
		f(item)
	}
	rs, code := b.e.CreateMonitoredItems(b.s, &ua.CreateMonitoredItemsRequest{
		SubscriptionID: sub, TimestampsToReturn: ua.TimestampsToReturnBoth, ItemsToCreate: []*ua.MonitoredItemCreateRequest{item},
	})
	if code != ua.StatusOK {
		b.Fatalf("CreateMonitoredItems: %s", uastatus.Name(code))
	}
	return rs.Results[0]
}

func handle(n uint32) func(*ua.MonitoredItemCreateRequest) {
	return func(r *ua.MonitoredItemCreateRequest) { r.RequestedParameters.ClientHandle = n }
}

func sampled(ms float64) func(*ua.MonitoredItemCreateRequest) {
	return func(r *ua.MonitoredItemCreateRequest) { r.RequestedParameters.SamplingInterval = ms }
}

func queued(n uint32, discardOldest bool) func(*ua.MonitoredItemCreateRequest) {
	return func(r *ua.MonitoredItemCreateRequest) {
		r.RequestedParameters.QueueSize, r.RequestedParameters.DiscardOldest = n, discardOldest
	}
}

func filtered(f any) func(*ua.MonitoredItemCreateRequest) {
	return func(r *ua.MonitoredItemCreateRequest) { r.RequestedParameters.Filter = ua.NewExtensionObject(f) }
}

func moded(m ua.MonitoringMode) func(*ua.MonitoredItemCreateRequest) {
	return func(r *ua.MonitoredItemCreateRequest) { r.MonitoringMode = m }
}

type ack struct{ subscription, sequence uint32 }

// publishOn sends a Publish of session s over ch and returns the request id and, when it was not kept, the code.
func (b *bench) publishOn(s *fakeSession, ch session.Channel, hint uint32, acks ...ack) (uint32, ua.StatusCode) {
	b.Helper()
	id := s.request.Add(1)
	body := uabinary.AppendInt32(nil, int32(len(acks)))
	for _, a := range acks {
		body = uabinary.AppendUint32(uabinary.AppendUint32(body, a.subscription), a.sequence)
	}
	d := uabinary.NewDecoder(body, nil)
	kept, code := b.e.Publish(s, ch, id, &uabinary.RequestHeader{RequestHandle: 1000 + id, TimeoutHint: hint}, d, time.Now())
	if kept {
		b.kept++
		if code != ua.StatusOK {
			b.Fatalf("kept, but %s", uastatus.Name(code))
		}
	}
	return id, code
}

// publish sends a Publish and fails when it is refused.
func (b *bench) publish(acks ...ack) uint32 {
	b.Helper()
	id, code := b.publishOn(b.s, b.ch, 0, acks...)
	if code != ua.StatusOK {
		b.Fatalf("Publish: %s", uastatus.Name(code))
	}
	return id
}

// wait lets d pass and everything that happens meanwhile settle.
func (b *bench) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// response returns the next response of the bench's channel, which must be a PublishResponse.
func (b *bench) response() *ua.PublishResponse {
	b.Helper()
	return b.responseOn(b.ch)
}

func (b *bench) responseOn(ch *fakeChannel) *ua.PublishResponse {
	b.Helper()
	r := ch.take(b.T)
	if r == nil {
		b.Fatal("no response")
	}
	p, ok := r.body.(*ua.PublishResponse)
	if !ok {
		b.Fatalf("response is %T %+v", r.body, r.body)
	}
	if p.ResponseHeader.RequestHandle != 1000+r.requestID {
		b.Fatalf("request handle %d for request %d", p.ResponseHeader.RequestHandle, r.requestID)
	}
	return p
}

// fault returns the code of the next response, which must be a ServiceFault.
func (b *bench) fault(ch *fakeChannel) ua.StatusCode {
	b.Helper()
	r := ch.take(b.T)
	if r == nil {
		b.Fatal("no response")
	}
	f, ok := r.body.(*ua.ServiceFault)
	if !ok {
		b.Fatalf("response is %T", r.body)
	}
	return f.ResponseHeader.ServiceResult
}

func (b *bench) silent() {
	b.Helper()
	if r := b.ch.take(b.T); r != nil {
		b.Fatalf("unexpected response %+v", r.body)
	}
}

// notifications returns the data of a response; nil for a keep-alive.
func (b *bench) notifications(p *ua.PublishResponse) []*ua.MonitoredItemNotification {
	b.Helper()
	if len(p.NotificationMessage.NotificationData) == 0 {
		return nil
	}
	n, ok := p.NotificationMessage.NotificationData[0].Value.(*ua.DataChangeNotification)
	if !ok {
		b.Fatalf("notification is %T", p.NotificationMessage.NotificationData[0].Value)
	}
	return n.MonitoredItems
}

// values returns the values of a response in order.
func (b *bench) values(p *ua.PublishResponse) []any {
	b.Helper()
	var out []any
	for _, n := range b.notifications(p) {
		if !n.Value.Has(ua.DataValueValue) {
			out = append(out, n.Value.Status)
			continue
		}
		out = append(out, n.Value.Value.Value())
	}
	return out
}

// statusOf returns the code of a StatusChangeNotification.
func (b *bench) statusOf(p *ua.PublishResponse) ua.StatusCode {
	b.Helper()
	if len(p.NotificationMessage.NotificationData) != 1 {
		b.Fatalf("%d notifications", len(p.NotificationMessage.NotificationData))
	}
	n, ok := p.NotificationMessage.NotificationData[0].Value.(*ua.StatusChangeNotification)
	if !ok {
		b.Fatalf("notification is %T", p.NotificationMessage.NotificationData[0].Value)
	}
	return n.Status
}

func (b *bench) close(s *fakeSession, deleteSubscriptions bool) {
	close(s.done)
	b.e.SessionClosed(s, deleteSubscriptions)
}

func decodeMessage(t *testing.T, b []byte) *ua.NotificationMessage {
	t.Helper()
	var m ua.NotificationMessage
	d := uabinary.NewDecoder(b, nil)
	uabinary.DecodeNotificationMessage(d, &m)
	if d.Err() != nil || d.Remaining() != 0 {
		t.Fatalf("NotificationMessage: %v, %d bytes left", d.Err(), d.Remaining())
	}
	return &m
}
