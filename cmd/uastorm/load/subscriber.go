package load

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// publishesWaiting is how many Publish requests a subscriber keeps with the server.
const publishesWaiting = 3

// itemQueue is the queue size of monitored items: notifications that wait for a
// slow publishing interval are not to be discarded.
const itemQueue = 1000

// counterHandle is the client handle of the counter node; others count from there.
const counterHandle = 1

// A subscriber keeps one subscription on a member's session and watches that
// nothing is missing: message after message by sequence number, and value after
// value where the server counts. All but subscribe runs on the goroutine that
// serves the connection, or before there is one.
type subscriber struct {
	m        *member
	nodes    []string
	counter  string // "": none
	interval time.Duration

	id uint32 // SubscriptionId; 0: none now

	next       uint32                             // sequence number that is due
	held       map[uint32]*ua.NotificationMessage // that came before it
	asked      bool                               // the due one was asked for again
	made       uint32                             // SubscriptionId of one whose items are to be created yet
	last       int64                              // value of the counter
	values     int64                              // how often it was another
	counted    bool                               // there was one
	began      bool                               // the next value is a new item's first
	isLoopback bool                               // the server's clock is ours
}

// subscribe is the member's up: it creates the subscription unless the session
// still has it (OPC 10000-4 §5.14.2, CreateSubscription; §5.13.2,
// CreateMonitoredItems).
func (s *subscriber) subscribe(ctx context.Context, c *conn, fresh bool) error {
	if !fresh && s.id != 0 {
		return nil
	}
	begun := time.Now()
	if fresh {
		s.made = 0
	}
	err := s.create(ctx, c)
	s.m.e.rec.Operation(measure.Subscribe, begun, begun, time.Now(), codeOf(err))
	return err
}

// create does what subscribe says. A subscription that has no items yet because
// the server was busy is used again.
func (s *subscriber) create(ctx context.Context, c *conn) error {
	if s.counter != "" && s.m.sessions.Load() == 0 {
		if err := c.counts(ctx, s.counter); err != nil {
			return err
		}
	}
	s.id, s.next, s.held, s.asked, s.began = 0, 1, map[uint32]*ua.NotificationMessage{}, false, true
	if s.made == 0 {
		sub, err := as[*ua.CreateSubscriptionResponse](c.call(ctx, &ua.CreateSubscriptionRequest{
			RequestedPublishingInterval: float64(s.interval.Milliseconds()), RequestedLifetimeCount: 6000,
			RequestedMaxKeepAliveCount: uint32(max(1, 10*time.Second/s.interval)), PublishingEnabled: true}))
		if err != nil {
			return err
		}
		s.made = sub.SubscriptionID
	}
	rq := &ua.CreateMonitoredItemsRequest{SubscriptionID: s.made, TimestampsToReturn: ua.TimestampsToReturnBoth}
	add := func(node string, handle uint32, sampling float64) {
		rq.ItemsToCreate = append(rq.ItemsToCreate, &ua.MonitoredItemCreateRequest{ItemToMonitor: valueOf(node), MonitoringMode: ua.MonitoringModeReporting,
			RequestedParameters: &ua.MonitoringParameters{ClientHandle: handle, SamplingInterval: sampling, QueueSize: itemQueue,
				DiscardOldest: true, Filter: ua.NewExtensionObject(nil)}})
	}
	if s.counter != "" {
		add(s.counter, counterHandle, 0) // every change
	}
	for i, n := range s.nodes {
		add(n, uint32(counterHandle+1+i), -1) // the publishing interval
	}
	rs, err := as[*ua.CreateMonitoredItemsResponse](c.call(ctx, rq))
	if err != nil {
		return err
	}
	if len(rs.Results) != len(rq.ItemsToCreate) {
		return uastatus.New(ua.StatusBadUnknownResponse, "CreateMonitoredItems", nil)
	}
	for i, r := range rs.Results {
		if err := unfit(uabinary.NodeIDOf(rq.ItemsToCreate[i].ItemToMonitor.NodeID).String(), "cannot be watched", r.StatusCode); err != nil {
			return err
		}
	}
	s.id, s.made = s.made, 0
	return nil
}

// publishing is the member's ready: it sends the first Publish requests.
func (s *subscriber) publishing(c *conn) {
	for range publishesWaiting {
		s.publish(c)
	}
}

// publish sends a Publish request (OPC 10000-4 §5.14.5, Publish) that acknowledges.
func (s *subscriber) publish(c *conn, acks ...*ua.SubscriptionAcknowledgement) {
	err := c.send(&ua.PublishRequest{SubscriptionAcknowledgements: acks}, 0, func(body []byte, at time.Time, err error) {
		if err != nil && !single(err) {
			return // the connection has ended
		}
		var rs *ua.PublishResponse
		if err == nil {
			rs, err = as[*ua.PublishResponse](decode(body))
		}
		if err != nil {
			s.refused(c, err)
			return
		}
		s.received(c, rs, at)
	})
	if err != nil {
		c.cut(err)
	}
}

// refused deals with a Publish that the server did not take.
func (s *subscriber) refused(c *conn, err error) {
	if c.leaving.Load() {
		return
	}
	code, hint := reconnect.Signal(err)
	switch code {
	case ua.StatusBadTooManyPublishRequests:
		s.m.e.rec.Event("the server wants fewer Publish requests")
		return // two are left, or one
	case ua.StatusBadNoSubscription, ua.StatusBadSubscriptionIDInvalid:
		s.id = 0
		c.cut(err)
		return
	}
	if !reconnect.IsBusy(code) {
		c.cut(err)
		return
	}
	s.m.e.rec.Refused(measure.ByFault, code, hint)
	s.m.e.later(max(hint, eagerPause), func() { s.publish(c) })
}

// received takes one response: messages in the order of their sequence numbers,
// which need not be that of the responses.
func (s *subscriber) received(c *conn, rs *ua.PublishResponse, at time.Time) {
	m := rs.NotificationMessage
	if m == nil || rs.SubscriptionID != s.id || len(m.NotificationData) == 0 { // keep-alive
		s.publish(c)
		return
	}
	if s.isLoopback && !m.PublishTime.IsZero() {
		s.m.e.rec.Operation(measure.Publish, m.PublishTime, m.PublishTime, at, ua.StatusOK)
	}
	ack := &ua.SubscriptionAcknowledgement{SubscriptionID: s.id, SequenceNumber: m.SequenceNumber}
	if m.SequenceNumber-s.next > math.MaxUint32/2 {
		s.m.e.rec.Duplicates(1)
		s.publish(c, ack)
		return
	}
	s.held[m.SequenceNumber] = m
	s.take()
	s.publish(c, ack)
	switch {
	case len(s.held) >= publishesWaiting && !s.asked:
		s.asked = true
		s.republish(c)
	case len(s.held) >= patience:
		s.missed()
	}
}

// patience is how many later messages come before one is given up for which
// Republish has no answer.
const patience = 20 * publishesWaiting

// take takes the messages that are due.
func (s *subscriber) take() {
	for m := s.held[s.next]; m != nil; m = s.held[s.next] {
		delete(s.held, s.next)
		s.asked = false
		if s.next++; s.next == 0 {
			s.next = 1 // OPC 10000-4 §5.14.1.1: 0 is left out
		}
		for _, n := range m.NotificationData {
			d, ok := n.Value.(*ua.DataChangeNotification)
			if !ok {
				continue
			}
			s.m.e.rec.Notifications(len(d.MonitoredItems))
			for _, item := range d.MonitoredItems {
				if item != nil && item.Value != nil && item.ClientHandle == counterHandle && s.counter != "" {
					s.saw(item.Value)
				}
			}
		}
	}
}

// republish asks for the message that is due (OPC 10000-4 §5.14.6, Republish).
func (s *subscriber) republish(c *conn) {
	missing := s.next
	err := c.send(&ua.RepublishRequest{SubscriptionID: s.id, RetransmitSequenceNumber: missing}, 0, func(body []byte, _ time.Time, err error) {
		if err != nil && !single(err) || missing != s.next {
			return // the connection has ended, or the message came after all
		}
		var rs *ua.RepublishResponse
		if err == nil {
			rs, err = as[*ua.RepublishResponse](decode(body))
		}
		if err != nil || rs.NotificationMessage == nil || rs.NotificationMessage.SequenceNumber != missing {
			s.missed()
			return
		}
		s.held[missing] = rs.NotificationMessage
		s.take()
	})
	if err != nil {
		c.cut(err)
	}
}

// missed gives the message up that is due.
func (s *subscriber) missed() {
	lost := 1
	if s.counter != "" {
		lost = 0 // its values will tell how many
	}
	s.m.e.rec.Gap(lost)
	s.next++
	s.asked = false
	s.take()
}

// saw checks a value of the counter.
func (s *subscriber) saw(dv *ua.DataValue) {
	if dv.Value == nil {
		return
	}
	v, ok := integer(dv.Value.Value())
	if !ok {
		return
	}
	first := s.began
	s.began = false
	switch {
	case !s.counted, v == s.last+1, v == s.last && first:
	case v > s.last:
		s.m.e.rec.Gap(int(min(v-s.last-1, math.MaxInt32)))
	case v == s.last:
		s.m.e.rec.Duplicates(1)
	default: // the counter began anew, as it does when the server starts
		s.m.e.rec.Event(fmt.Sprintf("the counter went back from %d to %d", s.last, v))
	}
	if !s.counted || v != s.last {
		s.values++
		s.m.e.counted(s.values)
	}
	s.last, s.counted = v, true
}

// integer is a number of any type that counts.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case uint64:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int8:
		return int64(v), true
	case uint8:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case float64:
		return int64(v), v == math.Trunc(v)
	case float32:
		return int64(v), float64(v) == math.Trunc(float64(v))
	}
	return 0, false
}
