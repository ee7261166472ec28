package subscription

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// nullChannel drops what it is given.
type nullChannel struct {
	*fakeChannel
	bytes int
}

func (c *nullChannel) Reply(_ uint32, b []byte) error { c.bytes += len(b); return nil }

// publishing is a session with one subscription whose items change before each Publish. Its timer is fired by hand.
type publishing struct {
	e    *Engine
	s    *fakeSession
	ch   *nullChannel
	sub  *subscription
	p    *publisher
	vars []*addressspace.Variable
	n    int
	d    uabinary.Decoder
	body []byte
	h    uabinary.RequestHeader
	now  time.Time
}

func newPublishing(tb testing.TB, items int) *publishing {
	ns := newNamespace()
	b := &publishing{e: NewEngine(Options{Space: space()}), ch: &nullChannel{fakeChannel: newChannel()}, now: time.Now()}
	tb.Cleanup(b.e.Close)
	b.s = newSession(b.ch, "")
	rs, code := b.e.CreateSubscription(b.s, &ua.CreateSubscriptionRequest{RequestedPublishingInterval: 3_600_000, PublishingEnabled: true})
	if code != ua.StatusOK {
		tb.Fatal(code)
	}
	rq := &ua.CreateMonitoredItemsRequest{SubscriptionID: rs.SubscriptionID, TimestampsToReturn: ua.TimestampsToReturnBoth}
	for i := range items {
		v := ns.Variable(fmt.Sprint("V", i), 0.0)
		b.vars = append(b.vars, v)
		rq.ItemsToCreate = append(rq.ItemsToCreate, &ua.MonitoredItemCreateRequest{
			ItemToMonitor:       &ua.ReadValueID{NodeID: v.Node().ID().UA(), AttributeID: ua.AttributeIDValue},
			MonitoringMode:      ua.MonitoringModeReporting,
			RequestedParameters: &ua.MonitoringParameters{ClientHandle: uint32(i), SamplingInterval: -1, QueueSize: 1, DiscardOldest: true},
		})
	}
	if _, code := b.e.CreateMonitoredItems(b.s, rq); code != ua.StatusOK {
		tb.Fatal(code)
	}
	b.sub = b.e.find(rs.SubscriptionID)
	b.p = b.sub.pub.Load()
	b.round()
	return b
}

// set changes every value.
func (b *publishing) set() {
	b.n++
	for _, v := range b.vars {
		v.Set(float64(b.n))
	}
}

// round is one Publish that acknowledges the last message, and the cycle that answers it.
func (b *publishing) round() {
	b.body = uabinary.AppendUint32(uabinary.AppendUint32(uabinary.AppendInt32(b.body[:0], 1), b.sub.id), b.sub.sequence)
	b.d.Reset(b.body, nil)
	if kept, _ := b.e.Publish(b.s, b.ch, 1, &b.h, &b.d, b.now); !kept {
		panic("not kept")
	}
	b.sub.nextCycle.Store(0)
	b.p.fire(b.now)
}

func BenchmarkPublish(b *testing.B) {
	for _, items := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint("items=", items), func(b *testing.B) {
			p := newPublishing(b, items)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				p.set()
				b.StartTimer()
				p.round()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(items), "ns/value")
		})
	}
}

func BenchmarkSampleUnchanged(b *testing.B) {
	p := newPublishing(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		p.sub.mu.Lock()
		p.sub.sampleCycle(0, 0)
		p.sub.mu.Unlock()
	}
}

func BenchmarkChangeWatchedBy(b *testing.B) {
	for _, watchers := range []int{1, 100} {
		b.Run(fmt.Sprint(watchers), func(b *testing.B) {
			p := newPublishing(b, 1)
			for range watchers {
				p.e.CreateMonitoredItems(p.s, &ua.CreateMonitoredItemsRequest{SubscriptionID: p.sub.id, ItemsToCreate: []*ua.MonitoredItemCreateRequest{{
					ItemToMonitor:       &ua.ReadValueID{NodeID: p.vars[0].Node().ID().UA(), AttributeID: ua.AttributeIDValue},
					MonitoringMode:      ua.MonitoringModeReporting,
					RequestedParameters: &ua.MonitoringParameters{QueueSize: 10, DiscardOldest: true},
				}}})
			}
			b.ReportAllocs()
			for b.Loop() {
				p.set()
			}
		})
	}
}

// A Publish of 100 items is one copy of the message for Republish, its acknowledgement results, and little else.
func TestPublishAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("exact counts need a plain build")
	}
	p := newPublishing(t, 100)
	sets := testing.AllocsPerRun(200, p.set)
	both := testing.AllocsPerRun(200, func() { p.set(); p.round() })
	if n := both - sets; n > 4 {
		t.Errorf("a Publish of 100 items costs %v allocations", n)
	}
}

// Memory of one subscription with one item, its session's publisher, two parked requests and one unacknowledged message.
func TestSubscriptionMemory(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("needs a plain build")
	}
	const n = 2000
	ns := newNamespace()
	v := ns.Variable("V", 1.0)
	e := NewEngine(Options{Space: space()})
	defer e.Close()
	sessions := make([]*fakeSession, n)
	ch := &nullChannel{fakeChannel: newChannel()}
	for i := range sessions {
		sessions[i] = newSession(ch, "")
	}
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := inUse()
	body := uabinary.AppendInt32(nil, 0)
	for _, s := range sessions {
		rs, code := e.CreateSubscription(s, &ua.CreateSubscriptionRequest{RequestedPublishingInterval: 50, RequestedMaxKeepAliveCount: 1000, PublishingEnabled: true})
		if code != ua.StatusOK {
			t.Fatal(code)
		}
		e.CreateMonitoredItems(s, &ua.CreateMonitoredItemsRequest{SubscriptionID: rs.SubscriptionID, ItemsToCreate: []*ua.MonitoredItemCreateRequest{{
			ItemToMonitor:       &ua.ReadValueID{NodeID: v.Node().ID().UA(), AttributeID: ua.AttributeIDValue},
			MonitoringMode:      ua.MonitoringModeReporting,
			RequestedParameters: &ua.MonitoringParameters{SamplingInterval: -1, QueueSize: 1},
		}}})
		for range 3 {
			e.Publish(s, ch, 1, &uabinary.RequestHeader{}, uabinary.NewDecoder(body, nil), time.Now())
		}
	}
	for deadline := time.Now().Add(5 * time.Second); e.Counts().Messages < n && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	per := float64(inUse()-before) / n
	t.Logf("%.0f bytes each", per)
	if per > 2048 {
		t.Errorf("a subscription with one item takes %.0f bytes", per)
	}
	runtime.KeepAlive(sessions)
}

// The CPU of 2,000 subscriptions whose items change once a second, without transport: a share of a core. Run with
// -bench=Thousand -benchtime=1x.
func BenchmarkTwoThousandAtOneHertz(b *testing.B) {
	const n = 2000
	ns := newNamespace()
	v := ns.Variable("V", 0.0)
	e := NewEngine(Options{Space: space()})
	defer e.Close()
	ch := &republisher{fakeChannel: newChannel(), e: e}
	for i := range n {
		s := newSession(ch, "")
		ch.sessions = append(ch.sessions, s)
		rs, _ := e.CreateSubscription(s, &ua.CreateSubscriptionRequest{RequestedPublishingInterval: 1000, RequestedMaxKeepAliveCount: 10, PublishingEnabled: true})
		e.CreateMonitoredItems(s, &ua.CreateMonitoredItemsRequest{SubscriptionID: rs.SubscriptionID, ItemsToCreate: []*ua.MonitoredItemCreateRequest{{
			ItemToMonitor:       &ua.ReadValueID{NodeID: v.Node().ID().UA(), AttributeID: ua.AttributeIDValue},
			MonitoringMode:      ua.MonitoringModeReporting,
			RequestedParameters: &ua.MonitoringParameters{SamplingInterval: 1000, QueueSize: 1},
		}}})
		for range 2 {
			e.Publish(s, ch, uint32(i), &uabinary.RequestHeader{}, uabinary.NewDecoder([]byte{0, 0, 0, 0}, nil), time.Now())
		}
		time.Sleep(time.Second / n)
	}
	cpu := func() time.Duration {
		var r syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	var used, passed time.Duration
	for b.Loop() {
		c, t := cpu(), time.Now()
		for range 3 {
			v.Set(float64(time.Now().Unix()))
			time.Sleep(time.Second)
		}
		used += cpu() - c
		passed += time.Since(t)
	}
	b.ReportMetric(100*float64(used)/float64(passed), "%core")
	b.ReportMetric(float64(e.Counts().Messages)/passed.Seconds(), "messages/s")
}

// republisher sends the next Publish for each response.
type republisher struct {
	*fakeChannel
	e        *Engine
	sessions []*fakeSession
}

func (c *republisher) Reply(id uint32, b []byte) error {
	s := c.sessions[id]
	// 829 response: type id 4, header 24, subscription 4, count 4, …: acknowledge the one number that is available.
	d := uabinary.NewDecoder(b, nil)
	d.TypeID()
	d.ResponseHeader()
	sub := d.UInt32()
	body := uabinary.AppendInt32(nil, 0)
	if n := d.ArrayLen(4); n > 0 {
		body = uabinary.AppendUint32(uabinary.AppendUint32(uabinary.AppendInt32(body[:0], 1), sub), d.UInt32())
	}
	go c.e.Publish(s, c, id, &uabinary.RequestHeader{}, uabinary.NewDecoder(body, nil), time.Now())
	return nil
}

var _ session.Channel = (*republisher)(nil)
