package subscription

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uastatus"
)

const ms = time.Millisecond

func TestFirstMessageAndKeepAlives(t *testing.T) { // OPC 10000-4 §5.14.1.2, rows 7, 9, 15, 16
	inBubble(t, Limits{}, func(b *bench) {
		start := time.Now()
		id := b.subscribe()
		for range 4 {
			b.publish()
		}
		b.wait(2 * time.Second)
		for i, want := range []time.Duration{100 * ms, 600 * ms, 1100 * ms, 1600 * ms} {
			r := b.ch.take(t)
			if r == nil {
				t.Fatalf("keep-alive %d is missing", i)
			}
			p := r.body.(*ua.PublishResponse)
			if at := r.at.Sub(start); at != want {
				t.Errorf("keep-alive %d after %v, want %v", i, at, want)
			}
			if p.SubscriptionID != id || p.NotificationMessage.SequenceNumber != 1 || len(p.NotificationMessage.NotificationData) != 0 ||
				p.MoreNotifications || len(p.AvailableSequenceNumbers) != 0 {
				t.Errorf("keep-alive is %+v", p)
			}
			if r.requestID != uint32(i+1) {
				t.Errorf("keep-alive %d answers request %d: the oldest must go first", i, r.requestID)
			}
		}
		b.silent()
	})
}

func TestKeepAlivesGoOn(t *testing.T) { // hostile.md E12
	inBubble(t, Limits{}, func(b *bench) {
		b.subscribe()
		n := 0
		for range 1200 { // ten minutes
			b.publish()
			b.wait(500 * ms)
			for b.ch.take(t) != nil {
				n++
			}
		}
		if n < 1199 {
			t.Errorf("%d keep-alives in ten minutes of one each 500 ms", n)
		}
	})
}

func TestDataChangesArrive(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", 1.0)
		id := b.subscribe()
		if r := b.monitor(id, v.Node().ID(), handle(77)); r.StatusCode != ua.StatusOK || r.RevisedSamplingInterval != 100 || r.RevisedQueueSize != 1 {
			t.Fatalf("item: %+v", r)
		}
		b.publish()
		b.publish()
		b.wait(100 * ms)
		p := b.response()
		n := b.notifications(p)
		if len(n) != 1 || n[0].ClientHandle != 77 || n[0].Value.Value.Value() != 1.0 || p.NotificationMessage.SequenceNumber != 1 || p.SubscriptionID != id {
			t.Fatalf("initial value: %+v", p)
		}
		if !n[0].Value.Has(ua.DataValueSourceTimestamp) || !n[0].Value.Has(ua.DataValueServerTimestamp) {
			t.Error("timestamps are missing")
		}
		if !slices.Equal(p.AvailableSequenceNumbers, []uint32{1}) {
			t.Errorf("available: %v", p.AvailableSequenceNumbers)
		}
		b.wait(250 * ms)
		b.silent()
		v.Set(2.0)
		v.Set(3.0)
		b.wait(50 * ms)
		p = b.response()
		if got := fmt.Sprint(b.values(p)); got != "[3]" || p.NotificationMessage.SequenceNumber != 2 {
			t.Errorf("change: %s, sequence number %d", got, p.NotificationMessage.SequenceNumber)
		}
		if !slices.Equal(p.AvailableSequenceNumbers, []uint32{1, 2}) {
			t.Errorf("available: %v", p.AvailableSequenceNumbers)
		}
		v.Set(3.0) // the same value: not a change under the default trigger
		b.publish(ack{id, 1}, ack{id, 9}, ack{id + 1, 1})
		b.wait(200 * ms)
		b.silent()
		v.Set(4.0)
		b.wait(100 * ms)
		p = b.response()
		want := []ua.StatusCode{ua.StatusOK, ua.StatusBadSequenceNumberUnknown, ua.StatusBadSubscriptionIDInvalid}
		if !slices.Equal(p.Results, want) {
			t.Errorf("results %v, want %v", p.Results, want)
		}
		if !slices.Equal(p.AvailableSequenceNumbers, []uint32{2, 3}) {
			t.Errorf("available: %v", p.AvailableSequenceNumbers)
		}
	})
}

// A subscription without a Publish request is late; the request that comes is answered at once (row 10).
func TestLateSubscriptionAnswersAtOnce(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", 1.0)
		id := b.subscribe()
		b.monitor(id, v.Node().ID(), queued(10, true))
		b.wait(250 * ms)
		b.silent()
		b.publish()
		if p := b.response(); fmt.Sprint(b.values(p)) != "[1]" {
			t.Errorf("late response: %+v", p)
		}
		b.publish()
		b.wait(5 * ms)
		b.silent()
	})
}

func TestMoreNotifications(t *testing.T) { // row 5, MaxNotificationsPerPublish
	inBubble(t, Limits{}, func(b *bench) {
		id := b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.MaxNotificationsPerPublish = 3 })
		for i := range 8 {
			b.monitor(id, b.ns.Variable(fmt.Sprint("V", i), int32(i)).Node().ID())
		}
		b.publish()
		b.publish()
		b.wait(100 * ms)
		for i, want := range []string{"[0 1 2]", "[3 4 5]"} {
			p := b.response()
			if got := fmt.Sprint(b.values(p)); got != want || !p.MoreNotifications {
				t.Fatalf("message %d: %s, more %v", i, got, p.MoreNotifications)
			}
		}
		b.silent()
		b.publish()
		if p := b.response(); fmt.Sprint(b.values(p)) != "[6 7]" || p.MoreNotifications {
			t.Errorf("last message: %v, more %v", b.values(p), p.MoreNotifications)
		}
	})
}

// A message is cut to what the client takes, and a value that never fits is replaced by a status.
func TestMessagesFitTheClient(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		id := b.subscribe()
		b.ch.limit = 400
		for i := range 12 {
			b.monitor(id, b.ns.Variable(fmt.Sprint("V", i), make([]byte, 40)).Node().ID())
		}
		b.monitor(id, b.ns.Variable("Huge", make([]byte, 1000)).Node().ID(), handle(99))
		for range 10 {
			b.publish()
		}
		b.wait(100 * ms)
		total, large := 0, 0
		for range 10 {
			r := b.ch.take(t)
			if r == nil {
				break
			}
			for _, n := range b.notifications(r.body.(*ua.PublishResponse)) {
				if total++; n.ClientHandle == 99 {
					if large++; n.Value.Status != ua.StatusBadEncodingLimitsExceeded {
						t.Errorf("the value that does not fit has status %v", n.Value.Status)
					}
				}
			}
		}
		if total != 13 || large != 1 {
			t.Errorf("%d notifications, want 13; %d of the large one", total, large)
		}
	})
}

func TestPrioritiesAndRoundRobin(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		var ids []uint32
		var vars []*addressspace.Variable
		for i, priority := range []byte{1, 5, 5, 1} {
			v := b.ns.Variable(fmt.Sprint("P", i), int32(i))
			vars = append(vars, v)
			id := b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.Priority = priority })
			b.monitor(id, v.Node().ID())
			ids = append(ids, id)
		}
		order := func() (out []int) {
			for r := b.ch.take(t); r != nil; r = b.ch.take(t) {
				out = append(out, slices.Index(ids, r.body.(*ua.PublishResponse).SubscriptionID))
			}
			return out
		}
		change := func(n int32) {
			for _, v := range vars {
				v.Set(n)
			}
		}
		for range 4 {
			b.publish()
		}
		b.wait(100 * ms)
		if got := fmt.Sprint(order()); got != "[1 2 0 3]" {
			t.Errorf("order %s: highest priority first, then who came first", got)
		}
		// All are late, requests come one by one: the higher ones take turns, the lower ones get what is left.
		served := map[int]int{}
		var first []int
		for round := range int32(6) {
			change(100 + round)
			b.wait(100 * ms)
			b.publish()
			for _, i := range order() {
				served[i]++
				first = append(first, i)
			}
		}
		if got := fmt.Sprint(first); got != "[1 2 1 2 1 2]" {
			t.Errorf("served %s: equals must take turns", got)
		}
	})
}

func TestOldestParkedPublishGivesWay(t *testing.T) { // hostile.md X18, E1, C18
	inBubble(t, Limits{MaxPublishRequestsPerSession: 5}, func(b *bench) {
		b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedPublishingInterval = 10_000 })
		for range 10_000 {
			b.publish()
		}
		if c := b.e.Counts(); c.ParkedPublish != 5 {
			t.Fatalf("%d requests are parked", c.ParkedPublish)
		}
		for i := range uint32(9_995) {
			r := b.ch.take(t)
			f, ok := r.body.(*ua.ServiceFault)
			if !ok || f.ResponseHeader.ServiceResult != ua.StatusBadTooManyPublishRequests || r.requestID != i+1 {
				t.Fatalf("answer %d is for request %d: %+v", i, r.requestID, r.body)
			}
		}
		b.silent()
	})
}

func TestPublishQueueGrowsWithSubscriptions(t *testing.T) { // hostile.md E4
	inBubble(t, Limits{MaxPublishRequestsPerSession: 4}, func(b *bench) {
		for range 5 {
			b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedPublishingInterval = 10_000 })
		}
		for range 10 {
			b.publish()
		}
		b.silent()
		b.publish()
		if code := b.fault(b.ch); code != ua.StatusBadTooManyPublishRequests {
			t.Errorf("eleventh of five subscriptions: %s", uastatus.Name(code))
		}
	})
}

func TestTimeoutHint(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedPublishingInterval = 60_000 })
		start := time.Now()
		b.publishOn(b.s, b.ch, 5000)
		b.publishOn(b.s, b.ch, 0)
		b.publishOn(b.s, b.ch, 1000)
		b.wait(30 * time.Second)
		for _, want := range []struct {
			id uint32
			at time.Duration
		}{{3, time.Second}, {1, 5 * time.Second}} {
			r := b.ch.take(t)
			if r == nil {
				t.Fatalf("request %d did not time out", want.id)
			}
			f, ok := r.body.(*ua.ServiceFault)
			if !ok || f.ResponseHeader.ServiceResult != ua.StatusBadTimeout || r.requestID != want.id || r.at.Sub(start) != want.at {
				t.Errorf("request %d answered after %v with %+v", r.requestID, r.at.Sub(start), r.body)
			}
		}
		b.silent()
	})
}

func TestRepublish(t *testing.T) {
	inBubble(t, Limits{MaxRetransmissionMessages: 3}, func(b *bench) {
		v := b.ns.Variable("A", int32(0))
		id := b.subscribe()
		b.monitor(id, v.Node().ID())
		var sent []*ua.PublishResponse
		for i := range int32(5) {
			v.Set(i + 1)
			b.publish()
			b.wait(100 * ms)
			sent = append(sent, b.response())
		}
		if got := fmt.Sprint(sent[4].AvailableSequenceNumbers); got != "[3 4 5]" {
			t.Errorf("available: %s", got)
		}
		for i, p := range sent {
			m, code := b.e.Republish(b.s, nil, id, uint32(i+1))
			if i < 2 {
				if code != ua.StatusBadMessageNotAvailable {
					t.Errorf("message %d: %s, want BadMessageNotAvailable", i+1, uastatus.Name(code))
				}
				continue
			}
			got := decodeMessage(t, m)
			if code != ua.StatusOK || got.SequenceNumber != uint32(i+1) || !got.PublishTime.Equal(p.NotificationMessage.PublishTime) ||
				got.NotificationData[0].Value.(*ua.DataChangeNotification).MonitoredItems[0].Value.Value.Value() != int32(i+1) {
				t.Errorf("message %d: %s %+v", i+1, uastatus.Name(code), got)
			}
		}
		b.publish(ack{id, 4})
		if _, code := b.e.Republish(b.s, nil, id, 4); code != ua.StatusBadMessageNotAvailable {
			t.Errorf("acknowledged message: %s", uastatus.Name(code))
		}
		other := newSession(b.ch, "")
		if _, code := b.e.Republish(other, nil, id, 5); code != ua.StatusBadSubscriptionIDInvalid {
			t.Errorf("another session: %s", uastatus.Name(code))
		}
	})
}

func TestPublishingMode(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(1))
		id := b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.PublishingEnabled = false })
		b.monitor(id, v.Node().ID(), queued(5, true))
		b.publish()
		b.wait(100 * ms)
		if p := b.response(); b.notifications(p) != nil {
			t.Errorf("disabled subscription notifies: %+v", p)
		}
		v.Set(int32(2))
		b.publish()
		b.wait(200 * ms)
		b.silent()
		b.e.SetPublishingMode(b.s, &ua.SetPublishingModeRequest{SubscriptionIDs: []uint32{id}, PublishingEnabled: true})
		b.wait(100 * ms)
		if p := b.response(); fmt.Sprint(b.values(p)) != "[1 2]" {
			t.Errorf("after enabling: %v", b.values(p))
		}
	})
}

func TestModifySubscription(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(0))
		id := b.subscribe()
		b.monitor(id, v.Node().ID())                                                 // follows
		r := b.monitor(id, v.Node().ID(), sampled(100), queued(10, true), handle(2)) // keeps its 100 ms
		if r.RevisedSamplingInterval != 100 {
			t.Fatalf("revised to %v", r.RevisedSamplingInterval)
		}
		b.publish()
		b.wait(100 * ms)
		b.response()
		rs, code := b.e.ModifySubscription(b.s, &ua.ModifySubscriptionRequest{
			SubscriptionID: id, RequestedPublishingInterval: 1000, RequestedLifetimeCount: 2, RequestedMaxKeepAliveCount: 7,
		})
		if code != ua.StatusOK || rs.RevisedPublishingInterval != 1000 || rs.RevisedMaxKeepAliveCount != 7 || rs.RevisedLifetimeCount != 21 {
			t.Fatalf("revised: %+v", rs)
		}
		b.publish()
		b.publish()
		for i := range int32(9) {
			b.wait(100 * ms)
			v.Set(i + 1)
		}
		b.silent()
		b.wait(200 * ms)
		p := b.response()
		byHandle := map[uint32]int{}
		for _, n := range b.notifications(p) {
			byHandle[n.ClientHandle]++
		}
		if byHandle[1] != 1 || byHandle[2] != 9 {
			t.Errorf("notifications by handle: %v, want one sampled each second and nine each 100 ms", byHandle)
		}
		if _, code := b.e.ModifySubscription(b.s, &ua.ModifySubscriptionRequest{SubscriptionID: id + 1}); code != ua.StatusBadSubscriptionIDInvalid {
			t.Errorf("unknown subscription: %s", uastatus.Name(code))
		}
	})
}

// After the process was suspended, cycles go on from now: the missed ones are not made up for in a burst.
func TestMissedCyclesAreSkipped(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		s := b.e.find(b.subscribe())
		p := s.pub.Load()
		p.mu.Lock()
		s.nextCycle.Store(100)
		p.cycle(s, 100+3*s.interval, time.Now())
		if got, want := s.nextCycle.Load(), 100+4*s.interval; got != want {
			t.Errorf("next cycle at %d, want %d", got, want)
		}
		p.cycle(s, s.nextCycle.Load()+s.interval/2, time.Now())
		if got, want := s.nextCycle.Load(), 100+5*s.interval; got != want {
			t.Errorf("the phase moves: %d, want %d", got, want)
		}
		p.unlock()
	})
}

func TestRevisedParameters(t *testing.T) {
	l := Limits{}.resolved()
	for _, c := range []struct {
		name                string
		interval            float64
		lifetime, keepAlive uint32
		want                revised
	}{
		{"as asked", 1000, 60, 10, revised{time.Second, 10, 60, 10_000}},
		{"lifetime at least three keep-alives", 1000, 5, 10, revised{time.Second, 10, 30, 10_000}},
		{"interval too short", 1, 300, 100, revised{50 * ms, 100, 300, 10_000}},
		{"interval zero", 0, 300, 100, revised{50 * ms, 100, 300, 10_000}},
		{"interval negative", -5, 300, 100, revised{50 * ms, 100, 300, 10_000}},
		{"interval too long", 1e300, 100, 100, revised{time.Hour, 1, 3, 10_000}},
		{"keep-alive zero", 1000, 0, 0, revised{time.Second, 10, 30, 10_000}},
		{"lifetime clamped", 1000, 1 << 31, 10, revised{time.Second, 10, 3600, 10_000}},
		{"both clamped", 1000, 1<<32 - 1, 1<<32 - 1, revised{time.Second, 1200, 3600, 10_000}},
	} {
		if got := l.revise(c.interval, c.lifetime, c.keepAlive, 0); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestCancelPublish(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		if n := b.e.CancelPublish(b.s, 1001); n != 0 {
			t.Errorf("cancelled %d of a session without subscriptions", n)
		}
		b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedPublishingInterval = 10_000 })
		b.publish()
		b.publish()
		if n := b.e.CancelPublish(b.s, 1002); n != 1 {
			t.Errorf("cancelled %d", n)
		}
		r := b.ch.take(t)
		if f, ok := r.body.(*ua.ServiceFault); !ok || r.requestID != 2 || f.ResponseHeader.ServiceResult != ua.StatusBadRequestCancelledByClient || f.ResponseHeader.RequestHandle != 1002 {
			t.Errorf("answer: %+v", r)
		}
		if n := b.e.CancelPublish(b.s, 1002); n != 0 {
			t.Errorf("cancelled %d again", n)
		}
		b.silent()
	})
}

func TestPublishRejectsBadBodies(t *testing.T) {
	inBubble(t, Limits{MaxOperationsPerCall: 3}, func(b *bench) {
		id := b.subscribe()
		if _, code := b.publishOn(b.s, b.ch, 0, ack{id, 1}, ack{id, 2}, ack{id, 3}, ack{id, 4}); code != ua.StatusBadTooManyOperations {
			t.Errorf("too many acknowledgements: %s", uastatus.Name(code))
		}
	})
}
