package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
)

// Items stay until the server has confirmed that they are gone, so what has failed
// can be asked for again; the results count item by item.
func TestUnmonitorAgain(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		sub := subs[0]
		items, err := sub.Monitor(r.ctx, make([]Monitor, 4)...)
		if err != nil {
			t.Fatal(err)
		}
		left := func(n int) {
			t.Helper()
			if got := len(sub.Items()); got != n {
				t.Errorf("%d items, want %d", got, n)
			}
		}
		unmonitor := func(ctx context.Context, want error, answer any, items ...*Item) {
			t.Helper()
			r.on("DeleteMonitoredItems", func(int, ua.Request) any { return answer })
			if err := sub.Unmonitor(ctx, items...); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		}
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		defer cancel()
		unmonitor(ctx, ua.StatusBadTimeout, silent{}, items...)
		left(5)
		unmonitor(r.ctx, ua.StatusBadUnexpectedError, ua.StatusBadUnexpectedError, items...)
		left(5)
		unmonitor(r.ctx, ua.StatusBadUnknownResponse, &ua.DeleteMonitoredItemsResponse{Results: make([]ua.StatusCode, 1)}, items...)
		left(5)
		unmonitor(r.ctx, ua.StatusBadUserAccessDenied, &ua.DeleteMonitoredItemsResponse{Results: []ua.StatusCode{
			ua.StatusOK, ua.StatusBadUserAccessDenied, ua.StatusBadMonitoredItemIDInvalid, ua.StatusBadInternalError}}, items...)
		left(3)
		r.push(sub.id, 1, nil, &ua.DataChangeNotification{MonitoredItems: []*ua.MonitoredItemNotification{
			{ClientHandle: items[0].handle, Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(int64(1))}},
			{ClientHandle: items[1].handle, Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(int64(2))}}}})
		time.Sleep(time.Second)
		want(t, sub, "2") // its values come still
		unmonitor(r.ctx, nil, &ua.DeleteMonitoredItemsResponse{Results: make([]ua.StatusCode, 1)}, items[1], items[0], items[1], nil)
		left(2)
		unmonitor(r.ctx, nil, ua.StatusBadSubscriptionIDInvalid, items...)
		left(1)
		s.Close(r.ctx)
	})
}

// An item that is taken out while the server does not have the subscription is not
// made anew with it.
func TestUnmonitorOfALostSubscription(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		sub := subs[0]
		items, err := sub.Monitor(r.ctx, make([]Monitor, 2)...)
		if err != nil {
			t.Fatal(err)
		}
		r.on("CreateSubscription", func(int, ua.Request) any { return ua.StatusBadTooManySubscriptions })
		r.on("DeleteMonitoredItems", nil)
		r.forget()
		time.Sleep(10 * time.Second)
		if err := sub.Unmonitor(r.ctx, items...); err != nil || r.asked("DeleteMonitoredItems") != 0 {
			t.Errorf("%v, asked %d times", err, r.asked("DeleteMonitoredItems"))
		}
		r.on("CreateSubscription", nil)
		made := 0
		r.on("CreateMonitoredItems", func(_ int, rq ua.Request) any {
			r.mu.Lock()
			defer r.mu.Unlock()
			made += len(rq.(*ua.CreateMonitoredItemsRequest).ItemsToCreate)
			return behaved{}
		})
		time.Sleep(2 * time.Minute)
		r.mu.Lock()
		if made != 1 {
			t.Errorf("%d items made anew, want 1", made)
		}
		r.mu.Unlock()
		want(t, sub, "new")
		s.Close(r.ctx)
	})
}
