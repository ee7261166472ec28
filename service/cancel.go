package service

import "github.com/gopcua/opcua/ua"

// cancel is the Cancel service, OPC 10000-4 §5.7.5: it ends Publish requests
// that wait and requests that run on goroutines of their own. They are answered
// with BadRequestCancelledByClient.
func cancel(s *Set, r *Request) ua.StatusCode {
	handle := r.Body.UInt32()
	if code := r.decoded(); code != ua.StatusOK {
		return code
	}
	n := s.calls.Cancel(r.Session, handle)
	n += s.Subscriptions.CancelPublish(r.Session, handle)
	r.putCount(n)
	return ua.StatusOK
}
