package conformance

import (
	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/gopcua/opcua/ua"
)

// twoSessions opens two sessions of one user; where the target names a user
// they are that user's, since an anonymous user's subscriptions need not move.
func (t *T) twoSessions() (a, b *probe.Session) {
	e := t.Endpoint()
	id := t.Identity(e)
	if t.Target.User != "" {
		for _, p := range e.UserIdentityTokens {
			if p.TokenType == ua.UserTokenTypeUserName {
				id = probe.Identity{Kind: p.TokenType, User: t.Target.User, Password: t.Target.Password}
			}
		}
	}
	open := func() *probe.Session {
		s := t.Create(t.OpenWith(t.OptionsFor(e)))
		t.OK(s.Activate(t, id), "ActivateSession")
		return s
	}
	return open(), open()
}

var transferCases = []Case{
	{"Subscription Transfer", "a subscription moves with its values", "OPC 10000-4 §5.14.7", func(t *T) {
		a, b := t.twoSessions()
		sub := t.subscription(a, 100, 5)
		t.monitor(a, sub, monitored(namespaceArray, 4))
		t.notified(a, sub, 4)
		rs := call[*ua.TransferSubscriptionsResponse](t, b, &ua.TransferSubscriptionsRequest{SubscriptionIDs: []uint32{sub, sub + 1000}, SendInitialValues: true})
		t.Code(rs.Results[0].StatusCode, "transfer", ua.StatusOK)
		t.Code(rs.Results[1].StatusCode, "transfer an unknown one", ua.StatusBadSubscriptionIDInvalid)
		if len(rs.Results[0].AvailableSequenceNumbers) != 1 {
			t.Errorf("available %v: message 1 was never acknowledged", rs.Results[0].AvailableSequenceNumbers)
		}
		t.notified(b, sub, 4)
		refuse(t, a, &ua.ModifySubscriptionRequest{SubscriptionID: sub, RequestedPublishingInterval: 100}, ua.StatusBadSubscriptionIDInvalid)
		refuse(t, b, &ua.TransferSubscriptionsRequest{}, ua.StatusBadNothingToDo)
	}},
	{"Subscription Transfer", "the old session is told", "OPC 10000-4 §5.14.7", func(t *T) {
		a, b := t.twoSessions()
		moves, stays := t.subscription(a, 100, 5), t.subscription(a, 100, 50)
		rs := call[*ua.TransferSubscriptionsResponse](t, b, &ua.TransferSubscriptionsRequest{SubscriptionIDs: []uint32{moves}})
		t.Code(rs.Results[0].StatusCode, "transfer", ua.StatusOK)
		for range 4 {
			p := t.publish(a)
			if p.SubscriptionID == stays {
				continue
			}
			for _, d := range p.NotificationMessage.NotificationData {
				if n, ok := d.Value.(*ua.StatusChangeNotification); ok && p.SubscriptionID == moves {
					t.Code(n.Status, "status change", ua.StatusGoodSubscriptionTransferred)
					return
				}
			}
		}
		t.Errorf("no status change on the old session")
	}},
	{"Subscription Transfer", "subscriptions outlive their session when asked to", "OPC 10000-4 §5.7.4", func(t *T) {
		a, b := t.twoSessions()
		kept := t.subscription(a, 500, 100)
		call[*ua.CloseSessionResponse](t, a, &ua.CloseSessionRequest{DeleteSubscriptions: false})
		rs := call[*ua.TransferSubscriptionsResponse](t, b, &ua.TransferSubscriptionsRequest{SubscriptionIDs: []uint32{kept}})
		t.Code(rs.Results[0].StatusCode, "transfer from a closed session", ua.StatusOK)
		other, _ := t.twoSessions()
		dropped := t.subscription(other, 500, 100)
		call[*ua.CloseSessionResponse](t, other, &ua.CloseSessionRequest{DeleteSubscriptions: true})
		rs = call[*ua.TransferSubscriptionsResponse](t, b, &ua.TransferSubscriptionsRequest{SubscriptionIDs: []uint32{dropped}})
		t.Code(rs.Results[0].StatusCode, "transfer what was deleted", ua.StatusBadSubscriptionIDInvalid)
	}},
}
