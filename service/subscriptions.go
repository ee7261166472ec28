package service

import (
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/subscription"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// The engine's services but Publish and Republish are not called often enough
// to stream: their requests are decoded into ua structures, within the limits of
// the decoder.

func createSubscription(s *Set, r *Request) ua.StatusCode {
	return structured(s, r, uabinary.DecodeCreateSubscriptionRequestBody, (*subscription.Engine).CreateSubscription, uabinary.EncodeCreateSubscriptionResponseBody)
}

func modifySubscription(s *Set, r *Request) ua.StatusCode {
	return structured(s, r, uabinary.DecodeModifySubscriptionRequestBody, (*subscription.Engine).ModifySubscription, uabinary.EncodeModifySubscriptionResponseBody)
}

func setPublishingMode(s *Set, r *Request) ua.StatusCode {
	return structured(s, r, uabinary.DecodeSetPublishingModeRequestBody, (*subscription.Engine).SetPublishingMode, uabinary.EncodeSetPublishingModeResponseBody)
}

func transferSubscriptions(s *Set, r *Request) ua.StatusCode {
	return structured(s, r, uabinary.DecodeTransferSubscriptionsRequestBody, (*subscription.Engine).TransferSubscriptions, uabinary.EncodeTransferSubscriptionsResponseBody)
}

func deleteSubscriptions(s *Set, r *Request) ua.StatusCode {
	return structured(s, r, uabinary.DecodeDeleteSubscriptionsRequestBody, (*subscription.Engine).DeleteSubscriptions, uabinary.EncodeDeleteSubscriptionsResponseBody)
}

func createMonitoredItems(s *Set, r *Request) ua.StatusCode {
	return structured(s, r, uabinary.DecodeCreateMonitoredItemsRequestBody, (*subscription.Engine).CreateMonitoredItems, uabinary.EncodeCreateMonitoredItemsResponseBody)
}

func modifyMonitoredItems(s *Set, r *Request) ua.StatusCode {
	return structured(s, r, uabinary.DecodeModifyMonitoredItemsRequestBody, (*subscription.Engine).ModifyMonitoredItems, uabinary.EncodeModifyMonitoredItemsResponseBody)
}

func setMonitoringMode(s *Set, r *Request) ua.StatusCode {
	return structured(s, r, uabinary.DecodeSetMonitoringModeRequestBody, (*subscription.Engine).SetMonitoringMode, uabinary.EncodeSetMonitoringModeResponseBody)
}

func setTriggering(s *Set, r *Request) ua.StatusCode {
	return structured(s, r, uabinary.DecodeSetTriggeringRequestBody, (*subscription.Engine).SetTriggering, uabinary.EncodeSetTriggeringResponseBody)
}

func deleteMonitoredItems(s *Set, r *Request) ua.StatusCode {
	return structured(s, r, uabinary.DecodeDeleteMonitoredItemsRequestBody, (*subscription.Engine).DeleteMonitoredItems, uabinary.EncodeDeleteMonitoredItemsResponseBody)
}

// structured handles a request by a decoder, a method of the engine and an encoder.
func structured[Rq, Rs any](
	s *Set, r *Request,
	decode func(*uabinary.Decoder, *Rq),
	do func(*subscription.Engine, subscription.Session, *Rq) (*Rs, ua.StatusCode),
	encode func(*uabinary.Encoder, *Rs),
) ua.StatusCode {
	rq := new(Rq)
	decode(&r.Body, rq)
	if code := r.decoded(); code != ua.StatusOK {
		return code
	}
	rs, code := do(s.Subscriptions, r.Session, rq)
	if code != ua.StatusOK {
		return code
	}
	e := uabinary.Encoder{B: r.Out}
	encode(&e, rs)
	r.Out = e.B
	return encoded(&e)
}

// publish is the Publish service, OPC 10000-4 §5.14.5. The engine keeps what it
// needs of the request and answers over the channel once there is something to
// say.
func publish(s *Set, r *Request) ua.StatusCode {
	parked, code := s.Subscriptions.Publish(r.Session, r.Channel, r.RequestID, &r.Header, &r.Body, r.Time)
	r.Parked = parked
	return code
}

// republish is the Republish service, OPC 10000-4 §5.14.6.
func republish(s *Set, r *Request) ua.StatusCode {
	id, sequence := r.Body.UInt32(), r.Body.UInt32()
	if code := r.decoded(); code != ua.StatusOK {
		return code
	}
	out, code := s.Subscriptions.Republish(r.Session, r.Out, id, sequence)
	if code == ua.StatusOK {
		r.Out = out
	}
	return code
}

var _ subscription.Session = (*session.Session)(nil)
