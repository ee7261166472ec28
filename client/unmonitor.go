package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/gopcua/opcua/ua"
)

// Unmonitor takes items out of the subscription (OPC 10000-4 §5.13.6,
// DeleteMonitoredItems). An item stays, and its values come, until the server has
// confirmed that it does not monitor it any more, so after an error the same call
// can be made again; the first bad status of an item is the error. nil and what is
// not an item of the subscription is left out. What is queued of an item is still
// delivered.
func (sub *Subscription) Unmonitor(ctx context.Context, items ...*Item) error {
	s := sub.session
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	l, err := s.online(ctx)
	if err != nil {
		return err
	}
	id, generation, asked := sub.leaving(items)
	if len(asked) == 0 {
		return nil
	}
	codes, err := split(asked, s.operations(ctx, l).monitored, func(part []leavingItem) ([]ua.StatusCode, error) {
		return deleteItems(ctx, l.do, id, part)
	})
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.generation != generation { // made anew, with these items
		return fmt.Errorf("client: DeleteMonitoredItems: %w", errors.Join(ua.StatusBadConnectionClosed, errors.New("the subscription was lost")))
	}
	if errors.Is(err, ua.StatusBadSubscriptionIDInvalid) && sub.denied.IsZero() {
		for _, a := range asked { // gone with the subscription
			delete(sub.items, a.item.handle)
		}
		return nil
	}
	for i, code := range codes {
		it := asked[i].item
		switch {
		case !isBad(code) || code == ua.StatusBadMonitoredItemIDInvalid:
			delete(sub.items, it.handle)
		case err == nil:
			err = fmt.Errorf("client: unmonitor %v: %w", it.NodeID, code)
		}
	}
	return err
}

type leavingItem struct {
	item *Item
	id   uint32 // at the server
}

// leaving takes out at once what the server does not have, and returns what is to
// be asked of it.
func (sub *Subscription) leaving(items []*Item) (id uint32, generation int, asked []leavingItem) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	seen := make(map[*Item]bool, len(items))
	for _, it := range items {
		switch {
		case it == nil || it.sub != sub || sub.items[it.handle] != it || it.pending || seen[it]:
		case sub.id == 0 || it.err != nil:
			delete(sub.items, it.handle)
		default:
			seen[it] = true
			asked = append(asked, leavingItem{it, it.id})
		}
	}
	return sub.id, sub.generation, asked
}

func deleteItems(ctx context.Context, do caller, id uint32, items []leavingItem) ([]ua.StatusCode, error) {
	rq := &ua.DeleteMonitoredItemsRequest{SubscriptionID: id}
	for _, it := range items {
		rq.MonitoredItemIDs = append(rq.MonitoredItemIDs, it.id)
	}
	msg, err := do(ctx, rq)
	if err != nil {
		return nil, err
	}
	rs, err := as[*ua.DeleteMonitoredItemsResponse](msg)
	if err != nil {
		return nil, err
	}
	return rs.Results, results(rq, rs.Results, len(items))
}
