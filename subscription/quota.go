package subscription

import (
	"sync"
	"sync/atomic"
)

// quota counts what exists against the totals and against what one owner may have (hostile.md X8). Its lock is a leaf.
type quota struct {
	mu     sync.Mutex
	limits *atomic.Pointer[Limits]
	total  usage
	owners map[string]*account
}

// usage counts; sampling is in thousandths, see samplingCost.
type usage struct{ subscriptions, items, values, sampling int }

// An account is one owner's share. It exists while anything is charged to it.
type account struct {
	key string
	usage
}

// takeSubscription charges a subscription to the owner; ok is false when a limit is reached.
func (q *quota) takeSubscription(owner string) (a *account, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a = q.owners[owner]
	if q.total.subscriptions >= q.limits.Load().MaxSubscriptions {
		return nil, false
	}
	if a == nil {
		a = &account{key: owner}
		q.owners[owner] = a
	} else if a.subscriptions >= q.limits.Load().MaxSubscriptionsPerOwner {
		return nil, false
	}
	q.total.subscriptions++
	a.subscriptions++
	return a, true
}

// takeItem charges an item with a queue of the wanted size and returns the size granted.
func (q *quota) takeItem(a *account, size uint32) (granted uint32, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.total.items >= q.limits.Load().MaxMonitoredItems || a.items >= q.limits.Load().MaxMonitoredItemsPerOwner {
		return 0, false
	}
	q.total.items++
	a.items++
	return q.takeValues(a, size), true
}

// resize changes the charge of a queue and returns the size granted.
func (q *quota) resize(a *account, from, to uint32) uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.giveValues(a, from)
	return q.takeValues(a, to)
}

// takeValues charges a queue: its first place is the item's own.
func (q *quota) takeValues(a *account, size uint32) uint32 {
	free := min(q.limits.Load().MaxQueuedValues-q.total.values, threeQuarters(q.limits.Load().MaxQueuedValues)-a.values)
	n := max(min(int(size)-1, free), 0)
	q.total.values += n
	a.values += n
	return uint32(n) + 1
}

func (q *quota) giveValues(a *account, size uint32) {
	q.total.values -= int(size) - 1
	a.values -= int(size) - 1
}

// samplingCost is what an item that is sampled each interval (in ns) costs, in thousandths of Limits.MaxSampling's unit.
func samplingCost(interval int64, read bool) int {
	cost := 1_000_000_000_000 / interval
	if read {
		cost *= 20
	}
	return int(cost)
}

// watchCost is what an item costs that is told of each change.
const watchCost = 80_000

// takeSampling charges sampling unless that exceeds what there is; force charges it all the same.
func (q *quota) takeSampling(a *account, cost int, force bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := q.limits.Load().MaxSampling * 1000
	if !force && (q.total.sampling+cost > most || a.sampling+cost > threeQuarters(most)) {
		return false
	}
	q.total.sampling += cost
	a.sampling += cost
	return true
}

func (q *quota) giveSampling(a *account, cost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total.sampling -= cost
	a.sampling -= cost
}

func (q *quota) giveItem(a *account, size uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total.items--
	a.items--
	q.giveValues(a, size)
}

func (q *quota) giveSubscription(a *account) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total.subscriptions--
	if a.subscriptions--; a.subscriptions == 0 {
		delete(q.owners, a.key)
	}
}

func (q *quota) used() usage {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}
