package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/gopcua/opcua/ua"
)

// The steps of a recovery that concern subscriptions. They run on the session's
// own goroutine while no publisher does, with nothing but the channel.

func (s *Session) doNow(ctx context.Context, rq ua.Request) (ua.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.RequestTimeout, errStepTimeout)
	defer cancel()
	return s.conn.roundTrip(ctx, rq, s.server.token)
}

// alive returns the subscriptions that the server may have, by id.
func (s *Session) alive() []*Subscription {
	return slices.DeleteFunc(s.subscriptions(), func(sub *Subscription) bool {
		sub.mu.Lock()
		defer sub.mu.Unlock()
		return sub.lost || sub.ended
	})
}

// transferAll moves the subscriptions to the new session (OPC 10000-4 §5.14.7,
// TransferSubscriptions). Initial values are not asked for: the queues come
// along, so they would be values for the second time.
//
// A server that has not noticed the end of the old connection may believe in it
// until the old session times out, and deny the subscriptions so long: they are
// asked for again later, with the session online meanwhile, because the server
// still holds their values. Who is nobody in particular cannot prove that they are
// his (OPC 10000-4 §5.14.7.1): a denial is the last word then.
func (s *Session) transferAll(ctx context.Context) error {
	subs := s.alive()
	for try := 0; len(subs) > 0; try++ {
		if try > 0 {
			if err := pause(ctx, transferPause); err != nil {
				return err
			}
		}
		var denied []*Subscription
		for part := range chunks(subs, 1000) {
			no, err := s.transferSome(ctx, part)
			if err != nil {
				return err
			}
			denied = append(denied, no...)
		}
		if final := s.endpoint.nobody(); !final && len(denied) > 0 && s.await(denied, time.Now()) {
			return nil
		} else if final || try >= transferTries {
			for _, sub := range denied {
				s.lose(sub)
			}
			break
		}
		subs = denied
	}
	return nil
}

// A server may not let a subscription go before it has noticed the end of the
// old connection, so a denial is asked about again, so often and after so long.
const (
	transferTries = 3
	transferPause = time.Second
)

// await notes denied subscriptions for another try, unless the old session must
// have timed out already.
func (s *Session) await(denied []*Subscription, now time.Time) bool {
	until := s.until.Add(2 * transferRetry)
	for _, sub := range denied {
		sub.mu.Lock()
		first := sub.denied.IsZero()
		if first && now.Before(until) {
			sub.denied = until
		}
		over := now.After(sub.denied)
		sub.mu.Unlock()
		switch {
		case first && over:
			return false
		case over:
			s.lose(sub)
		}
	}
	return true
}

func (s *Session) transferSome(ctx context.Context, subs []*Subscription) (denied []*Subscription, err error) {
	rq := &ua.TransferSubscriptionsRequest{}
	for _, sub := range subs {
		sub.mu.Lock()
		rq.SubscriptionIDs = append(rq.SubscriptionIDs, sub.id)
		sub.mu.Unlock()
	}
	msg, err := s.doNow(ctx, rq)
	var rs *ua.TransferSubscriptionsResponse
	if err == nil {
		rs = msg.(*ua.TransferSubscriptionsResponse)
		err = results(rq, rs.Results, len(subs))
	}
	var refused *reconnect.Error
	switch {
	case err == nil:
	case errors.As(err, &refused) && !isSessionLost(refused.Status) && !reconnect.IsBusy(refused.Status):
		for _, sub := range subs { // no such service, or not for us
			s.lose(sub)
		}
		s.log.Info("session: subscriptions not transferred", "error", err)
		return nil, nil
	default:
		return nil, err
	}
	for i, r := range rs.Results {
		if s.transferred(subs[i], r) {
			denied = append(denied, subs[i])
		}
	}
	return denied, nil
}

func (s *Session) transferred(sub *Subscription, r *ua.TransferResult) (denied bool) {
	switch {
	case r != nil && r.StatusCode == ua.StatusBadUserAccessDenied:
		return true
	case r == nil || isBad(r.StatusCode) && r.StatusCode != ua.StatusBadNothingToDo:
		s.lose(sub)
		return false
	}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.heard = time.Now()
	sub.transfer, sub.denied = nil, time.Time{}
	if r.StatusCode != ua.StatusBadNothingToDo { // else it is ours already, and there is no list
		sub.transfer = r
	}
	return false
}

// maxRepublish bounds the messages asked for again, of one subscription in one
// recovery. Servers keep some twenty.
const maxRepublish = 10_000

// republishAll fetches what was sent on the old connection and did not arrive.
func (s *Session) republishAll(ctx context.Context) error {
	for _, sub := range s.alive() {
		sub.mu.Lock()
		away := sub.away()
		sub.mu.Unlock()
		if away {
			continue
		}
		err := s.republishMissing(ctx, sub)
		var refused *reconnect.Error
		switch {
		case err == nil:
		case errors.Is(err, ua.StatusBadSubscriptionIDInvalid):
			s.lose(sub)
		case errors.As(err, &refused) && !isSessionLost(refused.Status) && !reconnect.IsBusy(refused.Status):
			s.log.Info("session: Republish refused", "error", err) // a server without it
		default:
			return err
		}
	}
	return nil
}

func (s *Session) republishMissing(ctx context.Context, sub *Subscription) error {
	sub.mu.Lock()
	known := sub.transfer
	sub.mu.Unlock()
	if known != nil {
		if err := s.fillAvailable(ctx, sub, known.AvailableSequenceNumbers); err != nil {
			return err
		}
		sub.mu.Lock()
		sub.transfer = nil
		sub.mu.Unlock()
		return nil
	}
	for range maxRepublish {
		sub.mu.Lock()
		number, ended := sub.expected, sub.ended || sub.lost
		sub.mu.Unlock()
		if ended {
			return nil
		}
		err := s.republish(ctx, s.conn, s.server, sub, number)
		if errors.Is(err, ua.StatusBadMessageNotAvailable) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fillAvailable fetches the listed messages from the expected one on.
func (s *Session) fillAvailable(ctx context.Context, sub *Subscription, available []uint32) error {
	sub.mu.Lock()
	end := sub.expected
	sub.mu.Unlock()
	last := int64(-1)
	for _, n := range available {
		if d := distance(end, n); n != 0 && d > last {
			last = d
		}
	}
	if last < 0 {
		return nil
	}
	for _, n := range available {
		if distance(end, n) == last {
			return s.fillGap(ctx, s.conn, s.server, sub, nextSequence(n), available)
		}
	}
	return nil
}

// recreateAll makes the lost subscriptions anew. One that the server refuses, or
// answers with nonsense, stays lost; the last such error is s.trouble. One that
// cannot be asked for ends.
func (s *Session) recreateAll(ctx context.Context) error {
	for _, sub := range s.subscriptions() {
		sub.mu.Lock()
		todo := sub.lost && !sub.ended
		sub.mu.Unlock()
		if !todo {
			continue
		}
		err := s.recreate(ctx, sub)
		code, _ := reconnect.Signal(err)
		switch {
		case err == nil:
		case s.conn.failure() != nil || ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || isSessionLost(code):
			return err
		case unsendable(err):
			s.log.Error("session: subscription ended", "error", err)
			s.forgo(ctx, sub, err)
		default:
			s.trouble = err
			s.log.Warn("session: subscription not recreated", "error", err)
			if reconnect.IsBusy(code) {
				return nil // the others would be refused too
			}
		}
	}
	return nil
}

// unsendable says whether a request was not sent because of what is in it, so
// trying again is of no use.
func unsendable(err error) bool {
	var refused *reconnect.Error
	return !errors.As(err, &refused) && (errors.Is(err, ua.StatusBadEncodingError) || errors.Is(err, ua.StatusBadRequestTooLarge))
}

// forgo ends a subscription whose recreation has failed for good.
func (s *Session) forgo(ctx context.Context, sub *Subscription, err error) {
	sub.leave(err)
	sub.mu.Lock()
	rest := sub.half
	sub.half = nil
	sub.mu.Unlock()
	if rest != nil && rest.server == s.server {
		if err := deleteSubscription(ctx, s.doNow, rest.id); err != nil {
			s.log.Debug("session: subscription not deleted", "id", rest.id, "error", err)
		}
	}
}

func (s *Session) recreate(ctx context.Context, sub *Subscription) error {
	sub.mu.Lock()
	rest := sub.half
	sub.half = nil
	sub.mu.Unlock()
	if rest != nil && rest.server == s.server {
		if err := deleteSubscription(ctx, s.doNow, rest.id); err != nil && s.conn.failure() != nil {
			return err
		}
	}
	if err := s.createSubscription(ctx, s.doNow, sub); err != nil {
		return err
	}
	sub.mu.Lock()
	id := sub.id
	sub.half = &half{s.server, id}
	items := make([]*Item, 0, len(sub.items))
	for _, it := range sub.items {
		if !it.pending {
			it.err = nil
			items = append(items, it)
		}
	}
	sub.rename(items)
	sub.mu.Unlock()
	limits := s.operationsBy(ctx, s.doNow, s.server)
	made, err := s.createItems(ctx, s.doNow, sub, id, items, limits)
	if err != nil {
		return fmt.Errorf("client: recreate the monitored items: %w", err)
	}
	s.mu.Lock()
	known := s.subs[sub]
	if known {
		s.byID[id] = sub
	}
	s.mu.Unlock()
	sub.mu.Lock()
	defer sub.mu.Unlock()
	made.apply()
	sub.lost, sub.half = false, nil
	sub.push(Notification{Subscription: sub, Recreated: true})
	for _, it := range items {
		if it.err != nil {
			var code ua.StatusCode
			errors.As(it.err, &code)
			sub.push(Notification{Subscription: sub, Item: it, Status: code})
		}
	}
	return nil
}
