package service

import (
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// createSession is the CreateSession service, OPC 10000-4 §5.7.2.
func createSession(s *Set, r *Request) ua.StatusCode {
	var rq ua.CreateSessionRequest
	uabinary.DecodeCreateSessionRequestBody(&r.Body, &rq)
	if code := r.decoded(); code != ua.StatusOK {
		return code
	}
	rs, code := s.Sessions.Create(r.Context, r.Channel, &rq)
	if code != ua.StatusOK {
		return code
	}
	size := len(rs.ServerCertificate) + 1024
	for _, ep := range rs.ServerEndpoints {
		size += len(ep.ServerCertificate) + 1024
	}
	r.Reserve(size)
	e := uabinary.Encoder{B: r.Out}
	uabinary.EncodeCreateSessionResponseBody(&e, rs)
	r.Out = e.B
	return encoded(&e)
}

// activateSession is the ActivateSession service, OPC 10000-4 §5.7.3.
func activateSession(s *Set, r *Request) ua.StatusCode {
	var rq ua.ActivateSessionRequest
	uabinary.DecodeActivateSessionRequestBody(&r.Body, &rq)
	if code := r.decoded(); code != ua.StatusOK {
		return code
	}
	rs, code := s.Sessions.Activate(r.Context, r.Channel, r.Header.AuthenticationToken, &rq)
	if code != ua.StatusOK {
		return code
	}
	e := uabinary.Encoder{B: r.Out}
	uabinary.EncodeActivateSessionResponseBody(&e, rs)
	r.Out = e.B
	return encoded(&e)
}

// closeSession is the CloseSession service, OPC 10000-4 §5.7.4.
func closeSession(s *Set, r *Request) ua.StatusCode {
	deleteSubscriptions := r.Body.Bool()
	if code := r.decoded(); code != ua.StatusOK {
		return code
	}
	return s.Sessions.Close(r.Channel, r.Header.AuthenticationToken, deleteSubscriptions)
}
