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
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		s.subscribe(ses, 200, 60)
		n := 2000 // over connections where requests keep their order
		if s.on.Scheme() == "opc.https" {
			n = 100
		}
		codes := make(chan ua.StatusCode, n)
		for i := range n {
			p, err := ses.Send(&ua.PublishRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if n == 2000 && i != 1 { // requests are taken in their order
				continue
			}
			go func() {
				_, err := p.Wait(context.Background())
				codes <- uastatus.Code(err)
			}()
		}
		for code := range codes {
			if code == ua.StatusBadTooManyPublishRequests {
				break
			}
			if n == 2000 || code != ua.StatusOK && code != uastatus.BadServerTooBusy {
				t.Fatalf("an old one was answered with %s", uastatus.Name(code))
			}
		}
		if n := s.srv.Stats().ParkedPublishes; n > 40 {
			t.Errorf("%d Publish requests are parked", n)
		}
	})
}

func TestE4PublishLimitFitsTheSubscriptions(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
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
	})
}

func TestX8E9SubscriptionsAreBounded(t *testing.T) {
	each(t, all, func(o *stack.Options) { o.Limits.MaxSubscriptionsPerSession = 5 }, func(t *testing.T, s *site) {
		for range 4 { // sessions that leave their subscriptions behind
			ses := s.session()
			var last error
			for range 9 {
				_, err := ses.Call(context.Background(), &ua.CreateSubscriptionRequest{RequestedPublishingInterval: 50, RequestedLifetimeCount: 80, RequestedMaxKeepAliveCount: 3})
				last = err
			}
			s.status(last, "the ninth subscription", ua.StatusBadTooManySubscriptions)
			ses.Call(context.Background(), &ua.CloseSessionRequest{DeleteSubscriptions: false})
		}
		s.eventually("orphans die at their lifetime", func() bool { return s.srv.Stats().Subscriptions == 1 })
	})
}

func TestE10E12KeepAlivesGoOn(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		sub := s.subscribe(ses, 50, 60)
		for range 10 {
			rs, err := probe.Call[*ua.PublishResponse](context.Background(), ses, &ua.PublishRequest{})
			if err != nil || rs.SubscriptionID != sub {
				t.Fatalf("%v %+v", err, rs)
			}
		}
	})
}
