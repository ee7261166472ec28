package overloadtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/internal/child"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/gopcua/opcua/ua"
)

// What an active session does.
const (
	readInterval       = 50 * time.Millisecond
	publishingInterval = 100 * time.Millisecond
	publishesWaiting   = 3
	itemQueue          = 200
)

type activeConfig struct {
	To       address
	Sessions int
}

// activeReport is what the active sessions saw since the report before.
type activeReport struct {
	Reads         latency
	FailedReads   int
	Notifications int // values
	Lost          int // values that never came
	Failures      []string
}

// A bystander is one active session.
type bystander struct {
	s    *probe.Session
	last atomic.Int64 // value

	mu     sync.Mutex
	reads  []time.Duration
	report activeReport
}

// active is the process of the active sessions.
type active struct {
	gate *security.CryptoGate
	stop context.CancelFunc
	work sync.WaitGroup
	all  []*bystander
}

func activeVerbs() (map[string]child.Verb, func()) {
	a := &active{gate: security.NewCryptoGate(runtime.NumCPU()), stop: func() {}}
	return map[string]child.Verb{
			"start":  child.Asks(a.start),
			"report": child.Asks(func(context.Context, child.None) (activeReport, error) { return a.report(), nil }),
			"last":   child.Asks(func(context.Context, child.None) (int64, error) { return a.last(), nil }),
			"end":    child.Asks(a.end),
			"bulk":   child.Asks(bulk),
			"hog":    child.Asks(hog),
		}, func() {
			_, _ = a.end(context.Background(), child.None{})
			a.gate.Close()
		}
}

func (a *active) start(ctx context.Context, c activeConfig) (child.None, error) {
	ctx, a.stop = context.WithCancel(ctx)
	keys, err := newKeys(c.Sessions, "active", a.gate)
	if err != nil {
		return child.None{}, err
	}
	host := strings.TrimPrefix(c.To.URL, "opc.tcp://")
	for i := range c.Sessions {
		o := probe.Options{URL: c.To.URL, Policy: security.Basic256Sha256, Mode: ua.MessageSecurityModeSignAndEncrypt,
			Key: keys[i], ServerCertificate: c.To.Certificate,
			Dial: func(ctx context.Context) (net.Conn, error) { return dialFrom(source(groupActive, i+1))(ctx, host) }}
		s, err := probe.Connect(ctx, o, probe.Anonymous)
		if err != nil {
			return child.None{}, fmt.Errorf("active session %d: %w", i, err)
		}
		b := &bystander{s: s}
		a.all = append(a.all, b)
		if err := b.subscribe(ctx, c.To.Namespace); err != nil {
			return child.None{}, fmt.Errorf("active session %d: %w", i, err)
		}
		a.work.Go(func() { b.read(ctx, c.To.Namespace) })
		a.work.Go(func() { b.publish(ctx) })
	}
	return child.None{}, nil
}

func (a *active) report() activeReport {
	var (
		sum   activeReport
		reads []time.Duration
	)
	for _, b := range a.all {
		b.mu.Lock()
		r := b.report
		reads = append(reads, b.reads...)
		b.reads, b.report = nil, activeReport{}
		b.mu.Unlock()
		sum.FailedReads += r.FailedReads
		sum.Notifications += r.Notifications
		sum.Lost += r.Lost
		sum.Failures = append(sum.Failures, r.Failures...)
	}
	sum.Reads = percentiles(reads)
	return sum
}

// last is the newest value that all sessions have seen.
func (a *active) last() int64 {
	last := int64(math.MaxInt64)
	for _, b := range a.all {
		last = min(last, b.last.Load())
	}
	return last
}

func (a *active) end(ctx context.Context, _ child.None) (child.None, error) {
	a.stop()
	var errs []error
	for _, b := range a.all {
		errs = append(errs, b.s.End(ctx))
	}
	a.work.Wait()
	a.all = nil
	return child.None{}, errors.Join(errs...)
}

func (b *bystander) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.report.Failures) < 5 {
		b.report.Failures = append(b.report.Failures, err.Error())
	}
}

func valueOf(ns uint16) *ua.ReadValueID {
	return &ua.ReadValueID{NodeID: ua.NewStringNodeID(ns, counterNode), AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}}
}

func (b *bystander) read(ctx context.Context, ns uint16) {
	tick := time.NewTicker(readInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		from := time.Now()
		rs, err := probe.Call[*ua.ReadResponse](ctx, b.s, &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth, NodesToRead: []*ua.ReadValueID{valueOf(ns)}})
		took := time.Since(from)
		if ctx.Err() != nil {
			return
		}
		if err == nil && (len(rs.Results) != 1 || rs.Results[0].Status != ua.StatusOK) {
			err = fmt.Errorf("read: %d results", len(rs.Results))
		}
		b.mu.Lock()
		b.reads = append(b.reads, took)
		if err != nil {
			b.report.FailedReads++
		}
		b.mu.Unlock()
		if err != nil {
			b.fail(err)
			if !pause(ctx, readInterval) {
				return
			}
		}
	}
}

func (b *bystander) subscribe(ctx context.Context, ns uint16) error {
	sub, err := probe.Call[*ua.CreateSubscriptionResponse](ctx, b.s, &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: float64(publishingInterval.Milliseconds()), RequestedLifetimeCount: 6000, RequestedMaxKeepAliveCount: 100, PublishingEnabled: true})
	if err != nil {
		return err
	}
	items, err := probe.Call[*ua.CreateMonitoredItemsResponse](ctx, b.s, &ua.CreateMonitoredItemsRequest{
		SubscriptionID: sub.SubscriptionID, TimestampsToReturn: ua.TimestampsToReturnBoth,
		ItemsToCreate: []*ua.MonitoredItemCreateRequest{{ItemToMonitor: valueOf(ns), MonitoringMode: ua.MonitoringModeReporting,
			// Sampling interval 0: every change, so that none may be missing.
			RequestedParameters: &ua.MonitoringParameters{ClientHandle: 1, QueueSize: itemQueue, DiscardOldest: true, Filter: ua.NewExtensionObject(nil)}}}})
	if err != nil {
		return err
	}
	if len(items.Results) != 1 || items.Results[0].StatusCode != ua.StatusOK {
		return errors.New("monitored item refused")
	}
	return nil
}

// publish keeps Publish requests with the server and checks that value follows
// value: the server counts up by one.
func (b *bystander) publish(ctx context.Context) {
	waiting := make(chan *probe.Pending, publishesWaiting)
	send := func(acks ...*ua.SubscriptionAcknowledgement) bool {
		p, err := b.s.Send(&ua.PublishRequest{SubscriptionAcknowledgements: acks})
		if err != nil {
			if ctx.Err() == nil {
				b.fail(fmt.Errorf("publish: %w", err))
			}
			return false
		}
		waiting <- p
		return true
	}
	for range publishesWaiting {
		if !send() {
			return
		}
	}
	// Requests that waited for a run slot may be parked in another order than
	// they were sent in: it is the sequence number that orders messages.
	next, held := uint32(1), map[uint32]*ua.NotificationMessage{}
	for {
		msg, err := (<-waiting).Wait(ctx)
		if ctx.Err() != nil {
			return
		}
		rs, ok := msg.(*ua.PublishResponse)
		if err != nil || !ok {
			b.fail(fmt.Errorf("publish: %T %w", msg, err))
			return
		}
		var acks []*ua.SubscriptionAcknowledgement
		if m := rs.NotificationMessage; len(m.NotificationData) > 0 {
			held[m.SequenceNumber] = m
			acks = []*ua.SubscriptionAcknowledgement{{SubscriptionID: rs.SubscriptionID, SequenceNumber: m.SequenceNumber}}
		}
		for m := held[next]; m != nil; m = held[next] {
			delete(held, next)
			next++
			for _, n := range m.NotificationData {
				if d, ok := n.Value.(*ua.DataChangeNotification); ok {
					for _, item := range d.MonitoredItems {
						b.saw(item.Value)
					}
				}
			}
		}
		if len(held) > publishesWaiting {
			b.fail(fmt.Errorf("message %d never came", next))
			return
		}
		if !send(acks...) {
			return
		}
	}
}

func (b *bystander) saw(dv *ua.DataValue) {
	v, _ := dv.Value.Value().(int64)
	last := b.last.Swap(v)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report.Notifications++
	if last != 0 && v != last+1 {
		b.report.Lost += int(max(v-last-1, 1))
	}
}

type bulkConfig struct {
	To    address
	Bytes int
	Times int
}

// bulk writes a value of several chunks, some times, and returns how often the
// server took it.
func bulk(ctx context.Context, c bulkConfig) (int, error) {
	ch, err := connect(ctx, c.To, nil, source(groupPlant, 1))
	if err != nil {
		return 0, err
	}
	good := 0
	for i := range c.Times {
		value := make([]byte, c.Bytes)
		value[0] = byte(i)
		v, err := ua.NewVariant(value)
		if err != nil {
			return good, err
		}
		msg, err := ch.call(ctx, &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{{NodeID: ua.NewStringNodeID(c.To.Namespace, bulkNode),
			AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: v}}}})
		if err != nil {
			ch.close()
			return good, err
		}
		if rs, ok := msg.(*ua.WriteResponse); ok && len(rs.Results) == 1 && rs.Results[0] == ua.StatusOK {
			good++
		}
	}
	return good, ch.end(ctx)
}
