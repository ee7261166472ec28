package subscription

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// What may not be read now, or has no data now, is reported as such and heals.
func TestUnreadableValuesAreReported(t *testing.T) { // §5.13.2.1
	inBubble(t, Limits{}, func(b *bench) {
		var allowed atomic.Bool
		b.ns.Variable("Secret", int32(7), addressspace.UserAccess(func(*addressspace.Caller) ua.AccessLevelType {
			if allowed.Load() {
				return ua.AccessLevelTypeCurrentRead
			}
			return 0
		}))
		array := b.ns.Variable("Array", []int32{1, 2})
		id := b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedMaxKeepAliveCount = 1000 })
		b.monitor(id, b.ns.Node("Secret").ID())
		b.want("denied", b.cycle(), ua.StatusBadUserAccessDenied)
		b.monitor(id, array.Node().ID(), func(r *ua.MonitoredItemCreateRequest) { r.ItemToMonitor.IndexRange = "2:3" })
		b.want("no data", b.cycle(), ua.StatusBadIndexRangeNoData)
		array.Set([]int32{1, 2, 3, 4})
		b.want("data", b.cycle(), []int32{3, 4})
		allowed.Store(true)
		b.wait(2 * auditPeriod)
		b.want("allowed", b.cycle(), int32(7))
		allowed.Store(false)
		b.wait(2 * auditPeriod)
		b.want("denied again", b.cycle(), ua.StatusBadUserAccessDenied)
	})
}

func TestDeletedNodesAreReportedAndComeBack(t *testing.T) { // §5.13.2.1
	for _, interval := range []float64{-1, 0} {
		inBubble(t, Limits{}, func(b *bench) {
			v := b.ns.Variable("A", int32(1))
			id := b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedMaxKeepAliveCount = 1000 })
			b.monitor(id, v.Node().ID(), sampled(interval))
			b.want("first", b.cycle(), int32(1))
			if b.ns.Delete("A") != 1 {
				t.Fatal("not deleted")
			}
			b.want("deleted", b.cycle(), ua.StatusBadNodeIDUnknown)
			b.want("still deleted", b.cycle())
			v = b.ns.Variable("A", int32(2))
			b.wait(auditPeriod)
			b.wait(auditPeriod)
			b.want("back", b.values(b.response()), int32(2))
			v.Set(int32(3))
			b.want("changes", b.cycle(), int32(3))
		})
	}
}

func TestSampling(t *testing.T) {
	for _, c := range []struct {
		name     string
		interval float64
		revised  float64
		want     string // of ten changes 20 ms apart, with a queue of 20
	}{
		{"§7.21 publishing interval", -1, 200, "[0 9 10]"},
		{"as publishing", 200, 200, "[0 9 10]"},
		{"each change", 0, 0, "[0 1 2 3 4 5 6 7 8 9 10]"},
		{"100 ms", 100, 100, "[0 5 10]"},
		{"faster than allowed", 10, 50, ""},
		{"slower than publishing", 1000, 1000, "[0]"},
		{"rounded up", 101, 110, ""},
	} {
		inBubble(t, Limits{}, func(b *bench) {
			v := b.ns.Variable("A", int32(0))
			id := b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedPublishingInterval = 200 })
			time.Sleep(5 * ms) // off the ticks of the changes below
			r := b.monitor(id, v.Node().ID(), sampled(c.interval), queued(20, true))
			if r.RevisedSamplingInterval != c.revised {
				t.Errorf("%s: revised to %v, want %v", c.name, r.RevisedSamplingInterval, c.revised)
			}
			b.publish()
			b.publish()
			for i := range int32(10) {
				b.wait(20 * ms)
				v.Set(i + 1)
			}
			b.wait(300 * ms)
			var got []any
			for r := b.ch.take(t); r != nil; r = b.ch.take(t) {
				got = append(got, b.values(r.body.(*ua.PublishResponse))...)
			}
			if c.want != "" && fmt.Sprint(got) != c.want {
				t.Errorf("%s: %v, want %s", c.name, got, c.want)
			}
		})
	}
}

// A sample that is due together with the cycle is in its message, whichever timer comes first.
func TestSamplesDueWithTheCycle(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(0))
		for range 10 {
			b.monitor(b.subscribe(), v.Node().ID(), sampled(50), queued(5, true))
			b.publish()
		}
		b.wait(75 * ms)
		v.Set(int32(1))
		b.wait(25 * ms)
		for i := range 10 {
			b.want(fmt.Sprint("subscription ", i), b.values(b.response()), int32(0), int32(1))
		}
	})
}

// Sampling work has a bound: what comes later is sampled less often and told so, and gets its share back when others leave.
func TestSamplingIsBounded(t *testing.T) {
	inBubble(t, Limits{MaxSampling: 374}, func(b *bench) { // of which an owner gets 280.5
		v := b.ns.Variable("A", int32(0))
		w := b.ns.Variable("W", int32(0)).OnRead(func(*addressspace.Caller) (any, error) { return int32(1), nil })
		id := b.subscribe()
		var items []uint32
		for i, c := range []struct {
			node  uabinary.NodeID
			asked float64
			want  float64
		}{
			{v.Node().ID(), 0, 0},       // 80
			{v.Node().ID(), 50, 50},     // 20
			{w.Node().ID(), 200, 200},   // 100
			{v.Node().ID(), 100, 100},   // 10, 210 together
			{v.Node().ID(), 0, 50},      // 80 are too many: 20
			{w.Node().ID(), 100, 400},   // 200 and 100 are too many: 50, 280 together
			{v.Node().ID(), -1, 3200},   // 10, 5 … are too many: 0.3125
			{v.Node().ID(), 50, 6400},   // 0.15625
			{v.Node().ID(), -1, 52_000}, // 0.01923
		} {
			r := b.monitor(id, c.node, sampled(c.asked))
			if r.RevisedSamplingInterval != c.want {
				t.Errorf("item %d: asked %v, revised to %v, want %v", i, c.asked, r.RevisedSamplingInterval, c.want)
			}
			items = append(items, r.MonitoredItemID)
		}
		b.e.DeleteMonitoredItems(b.s, &ua.DeleteMonitoredItemsRequest{SubscriptionID: id, MonitoredItemIDs: items})
		if r := b.monitor(id, v.Node().ID(), sampled(50)); r.RevisedSamplingInterval != 50 {
			t.Errorf("after the others have gone: %v", r.RevisedSamplingInterval)
		}
	})
}

// However many items of a subscription watch a node, the node has one watcher to tell.
func TestItemsShareAWatch(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(0))
		id := b.subscribe()
		var items []uint32
		for i := range uint32(100) {
			items = append(items, b.monitor(id, v.Node().ID(), sampled(0), handle(i)).MonitoredItemID)
		}
		sub := b.e.find(id)
		if g := sub.watches[v.Node()]; len(sub.watches) != 1 || len(g.items) != 100 {
			t.Errorf("%d watching groups", len(sub.watches))
		}
		if got := b.cycle(); len(got) != 100 {
			t.Errorf("%d first values", len(got))
		}
		v.Set(int32(1))
		if got := b.cycle(); len(got) != 100 {
			t.Errorf("%d changes", len(got))
		}
		b.e.DeleteMonitoredItems(b.s, &ua.DeleteMonitoredItemsRequest{SubscriptionID: id, MonitoredItemIDs: items[:99]})
		if !v.Node().Watched() {
			t.Error("one item is left, but the node is not watched")
		}
		b.e.DeleteMonitoredItems(b.s, &ua.DeleteMonitoredItemsRequest{SubscriptionID: id, MonitoredItemIDs: items[99:]})
		if v.Node().Watched() || len(sub.watches) != 0 {
			t.Error("no item is left, but the node is watched")
		}
	})
}

func TestMinimumSamplingInterval(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(0), addressspace.MinimumSamplingInterval(500))
		id := b.subscribe()
		for asked, want := range map[float64]float64{-1: 500, 0: 500, 100: 500, 2000: 2000} {
			if r := b.monitor(id, v.Node().ID(), sampled(asked)); r.RevisedSamplingInterval != want {
				t.Errorf("asked %v, revised to %v, want %v", asked, r.RevisedSamplingInterval, want)
			}
		}
	})
}

func TestReadCallbacks(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		var n, fails, panics atomic.Int32
		v := b.ns.Variable("A", int32(0))
		v.OnRead(func(*addressspace.Caller) (any, error) {
			switch {
			case panics.Load() != 0:
				panic("host")
			case fails.Load() != 0:
				return nil, ua.StatusBadSensorFailure
			}
			return n.Load(), nil
		})
		id := b.subscribe()
		if r := b.monitor(id, v.Node().ID(), sampled(0)); r.RevisedSamplingInterval != 50 {
			t.Errorf("a callback cannot be watched, but revised to %v", r.RevisedSamplingInterval)
		}
		b.want("first", b.cycle(), int32(0))
		n.Store(5)
		b.want("changed", b.cycle(), int32(5))
		b.want("same", b.cycle())
		fails.Store(1)
		b.want("error", b.cycle(), ua.StatusBadSensorFailure)
		panics.Store(1)
		b.want("panic", b.cycle(), ua.StatusBadInternalError)
		panics.Store(0)
		fails.Store(0)
		b.want("healed", b.cycle(), int32(5))
		// Without the callback the stored value counts again.
		v.OnRead(nil)
		v.Set(int32(9))
		b.wait(2 * auditPeriod)
		b.want("stored", b.cycle(), int32(9))
		v.Set(int32(10))
		b.want("stored again", b.cycle(), int32(10))
	})
}

// CreateMonitoredItems does not run, and so cannot be held up by, a callback of the host.
func TestCreateDoesNotWaitForCallbacks(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		release := make(chan struct{})
		v := b.ns.Variable("A", int32(0)).OnRead(func(*addressspace.Caller) (any, error) {
			<-release
			return int32(5), nil
		})
		id := b.subscribe()
		w := b.ns.Variable("W", ua.NewExtensionObject(&ua.Range{}))
		w.OnRead(func(*addressspace.Caller) (any, error) {
			<-release
			return nil, ua.StatusBadSensorFailure
		})
		for _, o := range []struct {
			node uabinary.NodeID
			name string
			want ua.StatusCode
		}{
			{v.Node().ID(), "", ua.StatusOK},
			{v.Node().ID(), "Default Binary", ua.StatusBadDataEncodingInvalid},
			{w.Node().ID(), "Default Binary", ua.StatusOK},
			{w.Node().ID(), "Default XML", ua.StatusBadDataEncodingUnsupported},
		} {
			name, want := o.name, o.want
			r := b.monitor(id, o.node, func(r *ua.MonitoredItemCreateRequest) { r.ItemToMonitor.DataEncoding = &ua.QualifiedName{Name: name} })
			if r.StatusCode != want {
				t.Errorf("encoding %q: %s, want %s", name, uastatus.Name(r.StatusCode), uastatus.Name(want))
			}
		}
		b.monitor(id, b.ns.Variable("B", int32(7)).Node().ID())
		b.want("stored values go on", b.cycle(), int32(7))
		close(release)
		if got := b.cycle(); len(got) != 2 {
			t.Errorf("then the others: %v", got)
		}
	})
}

// Values that follow the publishing interval and must be read are read shortly before the cycle.
func TestReadCallbackFollowsPublishing(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		var reads atomic.Int32
		start := time.Now()
		v := b.ns.Variable("A", int32(0)).OnRead(func(*addressspace.Caller) (any, error) {
			reads.Add(1)
			return int32(time.Since(start) / ms), nil
		})
		id := b.subscribe()
		b.monitor(id, v.Node().ID())
		b.want("first", b.cycle(), int32(80))
		b.want("second", b.cycle(), int32(180))
		if n := reads.Load(); n != 3 { // and the one at creation
			t.Errorf("%d reads in two cycles", n)
		}
	})
}

func TestOtherAttributes(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(0), addressspace.WriteMask(ua.AttributeWriteMaskDisplayName))
		id := b.subscribe()
		b.monitor(id, v.Node().ID(), func(r *ua.MonitoredItemCreateRequest) { r.ItemToMonitor.AttributeID = ua.AttributeIDDisplayName })
		text := func(got []any) string {
			if len(got) != 1 {
				return fmt.Sprint(got)
			}
			return got[0].(*ua.LocalizedText).Text
		}
		if got := text(b.cycle()); got != "A" {
			t.Errorf("DisplayName %q", got)
		}
		b.want("same", b.cycle())
		name, _ := uabinary.NewVariant(ua.NewLocalizedText("B"))
		if code := b.space.Write(v.Node().ID(), uint32(ua.AttributeIDDisplayName), nil, &uabinary.DataValue{Mask: ua.DataValueValue, Value: name}, &addressspace.Caller{Admin: true}); code != ua.StatusOK {
			t.Skipf("cannot write DisplayName: %s", uastatus.Name(code))
		}
		if got := text(b.cycle()); got != "B" {
			t.Errorf("changed DisplayName %q", got)
		}
	})
}
