package subscription

import (
	"slices"

	"github.com/gopcua/opcua/ua"
)

// SetTriggering is the SetTriggering service (OPC 10000-4 §5.13.5): links go before they come. A link makes the linked item
// report what it has queued while it is only sampled, each time the triggering item has a new value. Links are not followed
// further. BadMonitoredItemIdInvalid for the triggering item is the result of the service, for a linked one its own;
// BadTooManyMonitoredItems when the triggering item has as many links as it may.
func (e *Engine) SetTriggering(s Session, rq *ua.SetTriggeringRequest) (*ua.SetTriggeringResponse, ua.StatusCode) {
	if code := e.operations(len(rq.LinksToAdd) + len(rq.LinksToRemove)); code != ua.StatusOK {
		return nil, code
	}
	sub := e.own(s, rq.SubscriptionID)
	if sub == nil {
		return nil, ua.StatusBadSubscriptionIDInvalid
	}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	it := sub.find(rq.TriggeringItemID)
	if it == nil {
		return nil, ua.StatusBadMonitoredItemIDInvalid
	}
	out := &ua.SetTriggeringResponse{
		AddResults:    make([]ua.StatusCode, len(rq.LinksToAdd)),
		RemoveResults: make([]ua.StatusCode, len(rq.LinksToRemove)),
	}
	for i, id := range rq.LinksToRemove {
		at := slices.IndexFunc(it.links, func(l *item) bool { return l.id == id })
		if at < 0 {
			out.RemoveResults[i] = ua.StatusBadMonitoredItemIDInvalid
			continue
		}
		it.links = slices.Delete(it.links, at, at+1)
	}
	for i, id := range rq.LinksToAdd {
		linked := sub.find(id)
		switch {
		case linked == nil:
			out.AddResults[i] = ua.StatusBadMonitoredItemIDInvalid
		case slices.Contains(it.links, linked):
		case len(it.links) >= e.limits.Load().MaxTriggeringLinks:
			out.AddResults[i] = ua.StatusBadTooManyMonitoredItems
		default:
			it.links = append(it.links, linked)
		}
	}
	if len(it.links) == 0 {
		it.links = nil
	}
	return out, ua.StatusOK
}
