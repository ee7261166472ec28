package subscription

import (
	"cmp"
	"slices"
	"time"

	"github.com/gopcua/opcua/ua"
)

// counts are what a subscription's row of SubscriptionDiagnosticsArray has to remember.
type counts struct {
	modified, enabled, disabled                uint32
	republishAsked, republished                uint32
	transferAsked, toOtherClient, toSameClient uint32
	published                                  uint32 // Publish requests that were answered with a message of it
	notifications                              uint32
}

// Diagnostics returns the rows of SubscriptionDiagnosticsArray (OPC 10000-5 §12.15, SubscriptionDiagnosticsDataType), by id.
// The SessionID of a subscription whose session has ended is null.
func (e *Engine) Diagnostics() []*ua.SubscriptionDiagnosticsDataType {
	e.mu.RLock()
	subs := make([]*subscription, 0, len(e.subscriptions))
	for _, s := range e.subscriptions {
		subs = append(subs, s)
	}
	e.mu.RUnlock()
	slices.SortFunc(subs, func(a, b *subscription) int { return cmp.Compare(a.id, b.id) })
	rows := make([]*ua.SubscriptionDiagnosticsDataType, 0, len(subs))
	for _, s := range subs {
		if p := s.lock(); p != nil {
			rows = append(rows, s.diagnostics(p))
			p.mu.Unlock()
		}
	}
	return rows
}

// diagnostics is one row. p, its publisher, is locked.
func (s *subscription) diagnostics(p *publisher) *ua.SubscriptionDiagnosticsDataType {
	c := &s.counts
	d := &ua.SubscriptionDiagnosticsDataType{
		SessionID: ua.NewTwoByteNodeID(0), SubscriptionID: s.id, Priority: s.priority,
		PublishingInterval: milliseconds(time.Duration(s.interval)),
		MaxKeepAliveCount:  s.maxKeepAlive, MaxLifetimeCount: s.maxLifetime, MaxNotificationsPerPublish: s.maxNotifications,
		PublishingEnabled: s.enabled,
		ModifyCount:       c.modified, EnableCount: c.enabled, DisableCount: c.disabled,
		RepublishRequestCount: c.republishAsked, RepublishMessageRequestCount: c.republishAsked, RepublishMessageCount: c.republished,
		TransferRequestCount: c.transferAsked, TransferredToAltClientCount: c.toOtherClient, TransferredToSameClientCount: c.toSameClient,
		PublishRequestCount:          c.published,
		DataChangeNotificationsCount: c.notifications, NotificationsCount: c.notifications,
		LatePublishRequestCount: s.lateCount, CurrentKeepAliveCount: s.keepAliveCount, CurrentLifetimeCount: s.lifetime,
		UnacknowledgedMessageCount: uint32(len(s.messages.messages)), DiscardedMessageCount: s.messages.discarded,
		NextSequenceNumber: nextSequence(s.sequence),
	}
	if !p.closed {
		d.SessionID = p.session.ID().UA()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.MonitoredItemCount, d.MonitoringQueueOverflowCount = uint32(len(s.items)), s.overflows
	for _, it := range s.items {
		if it.mode == ua.MonitoringModeDisabled {
			d.DisabledMonitoredItemCount++
		}
	}
	return d
}

// SessionCounts are what a session has at the moment, for its row of SessionDiagnosticsArray (OPC 10000-5 §12.11,
// SessionDiagnosticsDataType).
func (e *Engine) SessionCounts(s Session) (subscriptions, items, parked int) {
	p := e.publisher(s)
	if p == nil {
		return 0, 0, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sub := range p.subs {
		sub.mu.Lock()
		items += len(sub.items)
		sub.mu.Unlock()
	}
	return len(p.subs), items, len(p.parked)
}
