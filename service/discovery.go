package service

import (
	"slices"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// findServers is the FindServers service, OPC 10000-4 §5.5.2: this server only.
func findServers(s *Set, r *Request) ua.StatusCode {
	url := r.Body.String()
	r.skipStrings() // one locale is all we have
	uris, ok := r.strings()
	if !ok {
		return r.decoded()
	}
	app := s.Discovery.Application(r.Channel, url)
	if len(uris) > 0 && !slices.Contains(uris, app.ApplicationURI) {
		r.putCount(0)
		return ua.StatusOK
	}
	r.putCount(1)
	e := uabinary.Encoder{B: r.Out}
	uabinary.EncodeApplicationDescription(&e, app)
	r.Out = e.B
	return encoded(&e)
}

// getEndpoints is the GetEndpoints service, OPC 10000-4 §5.5.4.
func getEndpoints(s *Set, r *Request) ua.StatusCode {
	url := r.Body.String()
	r.skipStrings()
	profiles, ok := r.strings()
	if !ok {
		return r.decoded()
	}
	eps := s.Discovery.Endpoints(r.Channel, url)
	size := 0
	for _, ep := range eps {
		size += len(ep.ServerCertificate) + 1024
	}
	r.Reserve(size)
	e := uabinary.Encoder{B: r.Out}
	at, n := len(e.B), 0
	e.B = append(e.B, 0, 0, 0, 0)
	for _, ep := range eps {
		if len(profiles) > 0 && !slices.Contains(profiles, ep.TransportProfileURI) {
			continue
		}
		uabinary.EncodeEndpointDescription(&e, ep)
		n++
	}
	r.Out = e.B
	r.endArray(at, n)
	return encoded(&e)
}

// maxDiscoveryStrings bounds the filters of a discovery request, which anybody
// may send.
const maxDiscoveryStrings = 100

// strings reads an array of strings.
func (r *Request) strings() ([]string, bool) {
	n := r.Body.ArrayLen(4)
	if n > maxDiscoveryStrings {
		r.Body.Fail(ua.StatusBadEncodingLimitsExceeded, "discovery filter")
		return nil, false
	}
	var out []string
	for range n {
		out = append(out, r.Body.String())
	}
	return out, r.Body.Err() == nil
}

func (r *Request) skipStrings() {
	for range r.Body.ArrayLen(4) {
		r.Body.StringBytes()
		if r.Body.Err() != nil {
			return
		}
	}
}

func encoded(e *uabinary.Encoder) ua.StatusCode {
	if e.Err() != nil {
		return ua.StatusBadEncodingError
	}
	return ua.StatusOK
}
