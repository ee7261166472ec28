package subscription

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// Everything at once, at random: whatever happens, each Publish that was kept is answered exactly once, nothing deadlocks,
// sequence numbers of a subscription arrive in order, and nothing is left behind.
func TestStress(t *testing.T) {
	d := 1500 * time.Millisecond
	if testing.Short() {
		d = 200 * time.Millisecond
	}
	ns := newNamespace()
	var vars []*addressspace.Variable
	for i := range 20 {
		vars = append(vars, ns.Variable(fmt.Sprint("V", i), int32(0)))
	}
	large := ns.Variable("Large", make([]byte, 1000))
	vars[18] = large
	vars[19].OnRead(func(*addressspace.Caller) (any, error) { return rand.Int32(), nil })

	var answered atomic.Int64
	e := NewEngine(Options{
		Space:    space(),
		Limits:   Limits{MinPublishingInterval: 10 * time.Millisecond, MinSamplingInterval: 10 * time.Millisecond, MaxPublishRequestsPerSession: 5, MaxLifetime: 200 * time.Millisecond},
		Answered: func(session.Channel, uint32) { answered.Add(1) },
	})

	type client struct {
		mu  sync.Mutex
		s   *fakeSession
		ch  *fakeChannel
		ids []uint32
	}
	clients := make([]*client, 6)
	var channels []*fakeChannel
	var channelsMu sync.Mutex
	open := func() (*fakeSession, *fakeChannel) {
		ch := newChannel()
		channelsMu.Lock()
		channels = append(channels, ch)
		channelsMu.Unlock()
		return newSession(ch, "anna"), ch
	}
	for i := range clients {
		clients[i] = new(client)
		clients[i].s, clients[i].ch = open()
	}
	var requestID atomic.Uint32
	var kept atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup

	for g := range 4 {
		wg.Go(func() { // setters
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for {
				select {
				case <-stop:
					return
				default:
				}
				vars[r.IntN(18)].Set(r.Int32())
				if r.IntN(10) == 0 {
					large.Set(make([]byte, 300+r.IntN(1000)))
				}
				if r.IntN(50) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 2))
			for {
				select {
				case <-stop:
					return
				default:
				}
				c := clients[r.IntN(len(clients))]
				c.mu.Lock()
				s, ch := c.s, c.ch
				var id uint32
				if len(c.ids) > 0 {
					id = c.ids[r.IntN(len(c.ids))]
				}
				c.mu.Unlock()
				switch n := r.IntN(100); {
				case n < 6:
					rs, code := e.CreateSubscription(s, &ua.CreateSubscriptionRequest{
						RequestedPublishingInterval: 10, RequestedMaxKeepAliveCount: 1 + r.Uint32N(5), RequestedLifetimeCount: 10,
						PublishingEnabled: true, Priority: byte(r.IntN(3)), MaxNotificationsPerPublish: r.Uint32N(4),
					})
					if code == ua.StatusOK {
						c.mu.Lock()
						if c.ids = append(c.ids, rs.SubscriptionID); len(c.ids) > 8 {
							c.ids = c.ids[1:]
						}
						c.mu.Unlock()
					}
				case n < 20:
					e.CreateMonitoredItems(s, &ua.CreateMonitoredItemsRequest{SubscriptionID: id, ItemsToCreate: []*ua.MonitoredItemCreateRequest{{
						ItemToMonitor:       &ua.ReadValueID{NodeID: vars[r.IntN(20)].Node().ID().UA(), AttributeID: ua.AttributeIDValue},
						MonitoringMode:      ua.MonitoringMode(r.IntN(3)),
						RequestedParameters: &ua.MonitoringParameters{SamplingInterval: []float64{-1, 0, 10, 20}[r.IntN(4)], QueueSize: r.Uint32N(5), DiscardOldest: r.IntN(2) == 0},
					}}})
				case n < 23:
					e.ModifySubscription(s, &ua.ModifySubscriptionRequest{SubscriptionID: id, RequestedPublishingInterval: float64(10 + r.IntN(3)*10), RequestedMaxKeepAliveCount: 3, RequestedLifetimeCount: 10})
				case n < 26:
					e.SetPublishingMode(s, &ua.SetPublishingModeRequest{SubscriptionIDs: []uint32{id}, PublishingEnabled: r.IntN(4) != 0})
				case n < 30:
					e.SetMonitoringMode(s, &ua.SetMonitoringModeRequest{SubscriptionID: id, MonitoringMode: ua.MonitoringMode(r.IntN(3)), MonitoredItemIDs: []uint32{1, 2, 3}})
				case n < 33:
					e.SetTriggering(s, &ua.SetTriggeringRequest{SubscriptionID: id, TriggeringItemID: 1, LinksToAdd: []uint32{2, 3}, LinksToRemove: []uint32{2}})
				case n < 36:
					e.ModifyMonitoredItems(s, &ua.ModifyMonitoredItemsRequest{SubscriptionID: id, ItemsToModify: []*ua.MonitoredItemModifyRequest{{
						MonitoredItemID: 1 + r.Uint32N(4), RequestedParameters: &ua.MonitoringParameters{SamplingInterval: []float64{-1, 0, 10, 20}[r.IntN(4)], QueueSize: r.Uint32N(5)},
					}}})
				case n < 39:
					e.DeleteMonitoredItems(s, &ua.DeleteMonitoredItemsRequest{SubscriptionID: id, MonitoredItemIDs: []uint32{1 + r.Uint32N(4), 1 + r.Uint32N(4)}})
				case n < 41:
					e.DeleteSubscriptions(s, &ua.DeleteSubscriptionsRequest{SubscriptionIDs: []uint32{id}})
				case n < 44:
					to := clients[r.IntN(len(clients))]
					to.mu.Lock()
					target := to.s
					to.mu.Unlock()
					rs, code := e.TransferSubscriptions(target, &ua.TransferSubscriptionsRequest{SubscriptionIDs: []uint32{id}, SendInitialValues: true})
					if code == ua.StatusOK && rs.Results[0].StatusCode == ua.StatusOK {
						to.mu.Lock()
						to.ids = append(to.ids, id)
						to.mu.Unlock()
					}
				case n < 46:
					e.Republish(s, nil, id, r.Uint32N(20))
					e.GetMonitoredItems(s.ID(), id)
					e.ResendData(s.ID(), id)
				case n < 48:
					e.CancelPublish(s, r.Uint32N(requestID.Load()+1))
				case n < 49:
					if r.IntN(3) == 0 { // the channel breaks, the session goes on
						next := newChannel()
						channelsMu.Lock()
						channels = append(channels, next)
						channelsMu.Unlock()
						c.mu.Lock()
						old := c.ch
						c.ch = next
						c.mu.Unlock()
						s.bind(nil)
						e.ChannelClosed(s, old)
						s.bind(next)
					}
				case n < 50:
					if r.IntN(4) == 0 {
						c.mu.Lock()
						same := c.s == s
						if same {
							c.s, c.ch = open()
						}
						c.mu.Unlock()
						if same {
							close(s.done)
							e.SessionClosed(s, r.IntN(2) == 0)
						}
					}
				default:
					body := uabinary.AppendUint32(uabinary.AppendUint32(uabinary.AppendInt32(nil, 1), id), r.Uint32N(30))
					rid := requestID.Add(1)
					ok, code := e.Publish(s, ch, rid, &uabinary.RequestHeader{RequestHandle: rid, TimeoutHint: uint32(r.IntN(2) * 20)}, uabinary.NewDecoder(body, nil), time.Now())
					if ok {
						kept.Add(1)
					} else if code == ua.StatusOK {
						t.Error("refused with Good")
					}
				}
				if r.IntN(20) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	time.Sleep(d)
	close(stop)
	wg.Wait()
	e.Close()

	if kept.Load() != answered.Load() {
		t.Errorf("%d requests kept, %d answered", kept.Load(), answered.Load())
	}
	c := e.Counts()
	if c.Subscriptions != 0 || c.MonitoredItems != 0 || c.ParkedPublish != 0 || e.quota.total != (usage{}) || len(e.quota.owners) != 0 {
		t.Errorf("left behind: %+v %+v", c, e.quota.total)
	}
	if n, m := e.queuedBytes.Load(), e.retained.Load(); n != 0 || m != 0 {
		t.Errorf("bytes left behind: %d queued, %d for retransmission", n, m)
	}
	if n := e.wheel.Len(); n != 0 {
		t.Errorf("%d timers left", n)
	}
	for i, v := range vars {
		if v.Node().Watched() {
			t.Errorf("variable %d is still watched", i)
		}
	}
	all := int64(0)
	for _, ch := range channels {
		last := map[uint32]uint32{}
		for id, n := range ch.answers {
			all++
			if n != 1 {
				t.Errorf("request %d was answered %d times", id, n)
			}
		}
		for _, r := range ch.replies {
			if r.err != nil {
				t.Errorf("undecodable: %v", r.err)
			}
			p, ok := r.body.(*ua.PublishResponse)
			if !ok || len(p.NotificationMessage.NotificationData) == 0 {
				continue
			}
			if _, ok := p.NotificationMessage.NotificationData[0].Value.(*ua.DataChangeNotification); !ok {
				continue
			}
			if n := p.NotificationMessage.SequenceNumber; n <= last[p.SubscriptionID] {
				t.Errorf("subscription %d: message %d after %d", p.SubscriptionID, n, last[p.SubscriptionID])
			} else {
				last[p.SubscriptionID] = n
			}
		}
	}
	if all != kept.Load() {
		t.Errorf("%d requests answered on the wire, %d kept", all, kept.Load())
	}
	t.Logf("%d requests, %d messages, %d notifications, %d subscriptions, %d expired", kept.Load(), c.Messages, c.Notifications, c.Created, c.Expired)
}
