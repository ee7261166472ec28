package main

import (
	"bufio"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"
)

// subscribe creates one subscription with one exception-based item.
func (c *conn) subscribe(ns uint16, node uint32, interval time.Duration) error {
	c.r = bufio.NewReaderSize(c.c, 4096)
	msg, err := c.call(787, &ua.CreateSubscriptionRequest{RequestHeader: header(c.auth, 20),
		RequestedPublishingInterval: float64(interval.Milliseconds()), RequestedLifetimeCount: 600, RequestedMaxKeepAliveCount: 60, PublishingEnabled: true})
	if err != nil {
		return err
	}
	sub, ok := msg.(*ua.CreateSubscriptionResponse)
	if !ok {
		return fmt.Errorf("CreateSubscription: got %T %v", msg, result(msg))
	}
	msg, err = c.call(751, &ua.CreateMonitoredItemsRequest{RequestHeader: header(c.auth, 21), SubscriptionID: sub.SubscriptionID,
		TimestampsToReturn: ua.TimestampsToReturnBoth,
		ItemsToCreate: []*ua.MonitoredItemCreateRequest{{
			ItemToMonitor:  &ua.ReadValueID{NodeID: ua.NewNumericNodeID(ns, node), AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}},
			MonitoringMode: ua.MonitoringModeReporting,
			RequestedParameters: &ua.MonitoringParameters{ClientHandle: 1, SamplingInterval: float64(interval.Milliseconds()), QueueSize: 1, DiscardOldest: true,
				Filter: ua.NewExtensionObject(nil)},
		}}})
	if err != nil {
		return err
	}
	items, ok := msg.(*ua.CreateMonitoredItemsResponse)
	if !ok || len(items.Results) != 1 || items.Results[0].StatusCode != ua.StatusOK {
		return fmt.Errorf("CreateMonitoredItems: got %T %v", msg, result(msg))
	}
	return nil
}

// publish keeps two Publish requests with the server and counts the answers.
func (c *conn) publish(stop <-chan struct{}, notes *atomic.Int64) {
	rq := func(acks []*ua.SubscriptionAcknowledgement) error {
		body, err := message(826, &ua.PublishRequest{RequestHeader: header(c.auth, 30), SubscriptionAcknowledgements: acks})
		if err != nil {
			return err
		}
		_, err = c.c.Write(c.chunk(nil, body))
		return err
	}
	for range 2 {
		if rq(nil) != nil {
			return
		}
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		c.c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := c.r.Peek(8); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				continue
			}
			return
		}
		c.c.SetReadDeadline(time.Now().Add(ackTimeout))
		f, err := c.next()
		if err != nil {
			return
		}
		_, msg, err := ua.DecodeService(f[msgHeader:])
		if err != nil {
			return
		}
		rs, ok := msg.(*ua.PublishResponse)
		if !ok || rs.NotificationMessage == nil {
			return
		}
		var acks []*ua.SubscriptionAcknowledgement
		if len(rs.NotificationMessage.NotificationData) > 0 {
			notes.Add(1)
			acks = []*ua.SubscriptionAcknowledgement{{SubscriptionID: rs.SubscriptionID, SequenceNumber: rs.NotificationMessage.SequenceNumber}}
		}
		if rq(acks) != nil {
			return
		}
	}
}
