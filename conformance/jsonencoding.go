package conformance

import (
	"strings"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/gopcua/opcua/ua"
)

// request is a request in JSON with handle 4711; the case ends where messages are
// OPC UA Binary.
func (t *T) request(typeID uint32, members string) (*probe.Session, []byte) {
	if !t.Target.JSON {
		t.NotApplicable("messages are OPC UA Binary")
	}
	s := t.Session()
	text, err := s.RequestJSON(typeID, 4711, members)
	t.OK(err, "encode")
	return s, text
}

// value is a WriteRequest of one value, as text, to i=85.
func valueJSON(v string) string {
	return `"NodesToWrite":[{"NodeId":"i=85","AttributeId":13,"Value":` + v + `}]`
}

var jsonCases = []Case{
	{"UA JSON Encoding", "a service nobody knows is answered with a fault", "OPC 10000-4 §7.39", func(t *T) {
		s, text := t.request(54321, "")
		t.fault(s, text, ua.StatusBadServiceUnsupported)
	}},
	{"UA JSON Encoding", "a text that ends early is answered with BadDecodingError", "OPC 10000-6 §5.4", func(t *T) {
		s, text := t.request(629, `"NodesToRead":[{"NodeId":"i=2256","AttributeId":13}]`)
		t.fault(s, text[:len(text)-3], ua.StatusBadDecodingError)
		call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, serverStatus)) // the connection lives on
	}},
	{"UA JSON Encoding", "dimensions that cannot be are answered with a fault", "OPC 10000-6 §5.4.2.17", func(t *T) {
		s, text := t.request(671, valueJSON(`{"UaType":6,"Value":[1,2],"Dimensions":[2147483647,2147483647]}`))
		t.fault(s, text, ua.StatusBadDecodingError, ua.StatusBadEncodingLimitsExceeded)
	}},
	{"UA JSON Encoding", "values nested deeper than 100 are refused", "OPC 10000-6 §5.4.2.17", func(t *T) {
		s, text := t.request(671, valueJSON(strings.Repeat(`{"UaType":24,"Value":[`, 10_000)+"null"+strings.Repeat("]}", 10_000)))
		t.fault(s, text, ua.StatusBadEncodingLimitsExceeded, ua.StatusBadDecodingError)
		call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, serverStatus))
	}},
}
