package hostile

import (
	"context"
	"testing"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

func TestX18E1EndlessPublish(t *testing.T) {
	s := start(t, nil)
	ses := s.session()
	s.subscribe(ses, 200, 30)
	var first *probe.Pending
	for i := range 2000 {
		p, err := ses.Send(&ua.PublishRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			first = p
		}
	}
	_, err := first.Wait(context.Background())
	s.status(err, "an old one of 2000", ua.StatusBadTooManyPublishRequests)
	if n := s.srv.Stats().ParkedPublishes; n > 40 {
		t.Errorf("%d Publish requests are parked", n)
	}
}

func TestE4PublishLimitFitsTheSubscriptions(t *testing.T) {
	s := start(t, nil)
	ses := s.session()
	for range 5 {
		s.monitor(ses, s.subscribe(ses, 50, 60))
	}
	var waiting []*probe.Pending
	for range 10 {
		p, err := ses.Send(&ua.PublishRequest{})
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, p)
	}
	for _, p := range waiting[:5] {
		if _, err := p.Wait(context.Background()); uastatus.Code(err) == ua.StatusBadTooManyPublishRequests {
			t.Error("ten Publish requests for five subscriptions were too many")
		}
	}
}

func TestX8E9SubscriptionsAreBounded(t *testing.T) {
	s := start(t, func(o *stack.Options) { o.Limits.MaxSubscriptionsPerSession = 5 })
	for range 4 { // sessions that leave their subscriptions behind
		ses := s.session()
		var last error
		for range 9 {
			_, err := ses.Call(context.Background(), &ua.CreateSubscriptionRequest{RequestedPublishingInterval: 50, RequestedLifetimeCount: 10, RequestedMaxKeepAliveCount: 3})
			last = err
		}
		s.status(last, "the ninth subscription", ua.StatusBadTooManySubscriptions)
		ses.Call(context.Background(), &ua.CloseSessionRequest{DeleteSubscriptions: false})
	}
	s.eventually("orphans die at their lifetime", func() bool { return s.srv.Stats().Subscriptions == 1 })
}

func TestE10E12KeepAlivesGoOn(t *testing.T) {
	s := start(t, nil)
	ses := s.session()
	sub := s.subscribe(ses, 50, 6)
	for range 10 {
		rs, err := probe.Call[*ua.PublishResponse](context.Background(), ses, &ua.PublishRequest{})
		if err != nil || rs.SubscriptionID != sub {
			t.Fatalf("%v %+v", err, rs)
		}
	}
}
