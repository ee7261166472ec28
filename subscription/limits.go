package subscription

import (
	"cmp"
	"time"
)

// Limits bound what clients can make the engine hold. A zero field takes its default, a negative one is an error of the
// caller and taken for zero.
type Limits struct {
	// MinPublishingInterval and MaxPublishingInterval clamp the requested publishing interval. Default 50 ms and 1 h.
	MinPublishingInterval, MaxPublishingInterval time.Duration
	// MaxLifetime clamps lifetime count × publishing interval. It never gets below three keep-alives of one publishing
	// interval each, which OPC 10000-4 §5.14.2 (CreateSubscription) asks for. Default 1 h.
	MaxLifetime time.Duration
	// MinSamplingInterval is the fastest sampling by polling; 0 requested means on each change where that is possible.
	// Default 50 ms.
	MinSamplingInterval time.Duration
	// MaxSamplingInterval clamps the requested sampling interval. Default 1 h.
	MaxSamplingInterval time.Duration

	// MaxSampling bounds the work of sampling, in samples of a stored value for each second (about 20 ns each; reading
	// another attribute or a callback counts 20, being told of each change 80). Sampling intervals are revised up when it is
	// used up. An owner gets at most three quarters. Default 10,000,000: about a fifth of a core.
	MaxSampling int

	// MaxSubscriptionsPerSession answers BadTooManySubscriptions. Default 100.
	MaxSubscriptionsPerSession int
	// MaxSubscriptions bounds all subscriptions, orphans included. Default 20,000.
	MaxSubscriptions int
	// MaxSubscriptionsPerOwner bounds those that the sessions of one owner have created, orphans included. An owner is a
	// user, else an application certificate, else an address. Default three quarters of MaxSubscriptions, so that nobody
	// can take all.
	MaxSubscriptionsPerOwner int

	// MaxMonitoredItemsPerSubscription answers BadTooManyMonitoredItems. Default 10,000.
	MaxMonitoredItemsPerSubscription int
	// MaxMonitoredItems bounds all items. Default 1,000,000.
	MaxMonitoredItems int
	// MaxMonitoredItemsPerOwner is as MaxSubscriptionsPerOwner. Default three quarters of MaxMonitoredItems.
	MaxMonitoredItemsPerOwner int
	// MaxOperationsPerCall bounds the operations of one request (items, links, subscriptions, acknowledgements);
	// BadTooManyOperations beyond. Default 10,000.
	MaxOperationsPerCall int
	// MaxTriggeringLinks bounds the links of one triggering item. Default 1,000.
	MaxTriggeringLinks int

	// MaxQueueSize clamps the requested queue size of an item. Default 1,000.
	MaxQueueSize int
	// MaxQueuedValues bounds the sum of all revised queue sizes above 1; queues are revised down to 1 when it is used up.
	// Default 2,000,000, of which an owner gets at most three quarters.
	MaxQueuedValues int
	// MaxQueuedBytesPerSubscription and MaxQueuedBytes bound the encoded values of more than 256 bytes that wait in queues:
	// beyond, a queue takes a new value only in the place of another one, with the overflow bit, as if it were full. Each
	// item keeps its newest value all the same. Default 16 MiB and 512 MiB.
	MaxQueuedBytesPerSubscription, MaxQueuedBytes int

	// MaxRetransmissionMessages bounds the unacknowledged NotificationMessages of one subscription; the oldest goes.
	// Default 20.
	MaxRetransmissionMessages int
	// MaxRetransmissionBytes bounds their encoded size, except that the newest is always kept. Default 4 MiB.
	MaxRetransmissionBytes int
	// MaxTotalRetransmissionBytes bounds those of all subscriptions together: one that would exceed it gives up its own
	// older messages, and does not keep a message that is larger than 64 KiB at all. Default 512 MiB.
	MaxTotalRetransmissionBytes int
	// MaxNotificationsPerPublish is used where a client sets no lower bound. Default 10,000.
	MaxNotificationsPerPublish int
	// MaxNotificationMessageSize bounds one encoded NotificationMessage in bytes; what does not fit follows in the next
	// one. A client's own limits are kept besides. Default 1 MiB.
	MaxNotificationMessageSize int
	// MaxPublishRequestsPerSession bounds the parked Publish requests of a session: the oldest is answered
	// BadTooManyPublishRequests. A session with many subscriptions may park two for each. Default 20.
	MaxPublishRequestsPerSession int
}

// resolved returns a copy with all defaults filled in.
func (l Limits) resolved() Limits {
	def(&l.MinPublishingInterval, 50*time.Millisecond)
	def(&l.MaxPublishingInterval, time.Hour)
	l.MaxPublishingInterval = max(l.MaxPublishingInterval, l.MinPublishingInterval)
	def(&l.MaxLifetime, time.Hour)
	def(&l.MinSamplingInterval, 50*time.Millisecond)
	def(&l.MaxSamplingInterval, time.Hour)
	l.MaxSamplingInterval = max(l.MaxSamplingInterval, l.MinSamplingInterval)
	def(&l.MaxSampling, 10_000_000)
	def(&l.MaxSubscriptionsPerSession, 100)
	def(&l.MaxSubscriptions, 20_000)
	def(&l.MaxSubscriptionsPerOwner, threeQuarters(l.MaxSubscriptions))
	def(&l.MaxMonitoredItemsPerSubscription, 10_000)
	def(&l.MaxMonitoredItems, 1_000_000)
	def(&l.MaxMonitoredItemsPerOwner, threeQuarters(l.MaxMonitoredItems))
	def(&l.MaxOperationsPerCall, 10_000)
	def(&l.MaxTriggeringLinks, 1_000)
	def(&l.MaxQueueSize, 1_000)
	def(&l.MaxQueuedValues, 2_000_000)
	def(&l.MaxQueuedBytesPerSubscription, 16<<20)
	def(&l.MaxQueuedBytes, 512<<20)
	def(&l.MaxRetransmissionMessages, 20)
	def(&l.MaxRetransmissionBytes, 4<<20)
	def(&l.MaxTotalRetransmissionBytes, 512<<20)
	def(&l.MaxNotificationsPerPublish, 10_000)
	def(&l.MaxNotificationMessageSize, 1<<20)
	def(&l.MaxPublishRequestsPerSession, 20)
	return l
}

func threeQuarters(n int) int { return max(n-n/4, 1) }

func def[T cmp.Ordered](p *T, d T) {
	var zero T
	if *p <= zero {
		*p = d
	}
}
