package conformance

import (
	"encoding/binary"
	"net"
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// chunked ends a case that is about chunks and SecureChannels where there are none.
func (t *T) chunked() {
	if !t.Target.Transport().Chunked() {
		t.NotApplicable("%s has no chunks and no SecureChannel", t.Target.Transport())
	}
}

// raw opens the stream of chunks without sending anything.
func (t *T) raw() net.Conn {
	t.chunked()
	nc, err := probe.Dial(t, t.Target.options())
	t.OK(err, "connect")
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(15 * time.Second))
	return nc
}

// expectERR reads until the ERR message and checks its code, then the close.
func (t *T) expectERR(nc net.Conn, doing string, want ...ua.StatusCode) {
	kind, body, err := probe.ReadMessage(nc)
	if err != nil || kind != "ERR" || len(body) < 4 {
		t.Fatalf("%s: got %q %v, want ERR", doing, kind, err)
	}
	t.Code(ua.StatusCode(binary.LittleEndian.Uint32(body)), doing, want...)
	if _, _, err := probe.ReadMessage(nc); err == nil {
		t.Errorf("%s: the connection stayed open after ERR", doing)
	}
}

var protocolCases = []Case{
	{"Protocol UA TCP", "ACK keeps to what HEL asked for", "OPC 10000-6 §7.1.2.4", func(t *T) {
		for _, c := range []struct{ receive, send uint32 }{{8192, 8192}, {65535, 65535}, {0xFFFFFFFF, 0xFFFFFFFF}, {8192, 65535}} {
			nc := t.raw()
			nc.Write(probe.Hello(c.receive, c.send, 0, 0, t.Target.URL))
			kind, body, err := probe.ReadMessage(nc)
			if err != nil || kind != "ACK" || len(body) != 20 {
				t.Fatalf("got %q of %d bytes, %v", kind, len(body), err)
			}
			receive, send := binary.LittleEndian.Uint32(body[4:]), binary.LittleEndian.Uint32(body[8:])
			// The server receives what the client sends and the other way round.
			if receive > c.send || send > c.receive || receive < 8192 || send < 8192 {
				t.Errorf("HEL receive %d send %d: ACK receive %d send %d", c.receive, c.send, receive, send)
			}
		}
	}},
	{"Protocol UA TCP", "a first message that is no HEL is refused", "OPC 10000-6 §7.1.2", func(t *T) {
		for _, first := range []string{"MSGF\x08\x00\x00\x00", "GET / HT", "OPNF\x20\x00\x00\x00", "RHEF\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"} {
			nc := t.raw()
			nc.Write([]byte(first))
			t.expectERR(nc, first[:3], ua.StatusBadTCPMessageTypeInvalid)
		}
	}},
	{"Protocol UA TCP", "a second HEL is refused", "OPC 10000-6 §7.1.2.3", func(t *T) {
		nc := t.raw()
		nc.Write(probe.Hello(65535, 65535, 0, 0, t.Target.URL))
		if kind, _, err := probe.ReadMessage(nc); kind != "ACK" {
			t.Fatalf("got %q %v", kind, err)
		}
		nc.Write(probe.Hello(65535, 65535, 0, 0, t.Target.URL))
		t.expectERR(nc, "second HEL", ua.StatusBadTCPMessageTypeInvalid)
	}},
	{"Protocol UA TCP", "an oversize header is refused before its body comes", "OPC 10000-6 §7.1.5", func(t *T) {
		nc := t.raw()
		nc.Write(probe.Hello(65535, 65535, 0, 0, t.Target.URL))
		if kind, _, err := probe.ReadMessage(nc); kind != "ACK" {
			t.Fatalf("got %q %v", kind, err)
		}
		nc.Write([]byte("OPNF\xff\xff\xff\x7f\x00\x00\x00\x00"))
		t.expectERR(nc, "2 GiB chunk", ua.StatusBadTCPMessageTooLarge)
	}},
	{"Protocol UA TCP", "a message of less than its header is refused", "OPC 10000-6 §7.1.2.2", func(t *T) {
		for size := byte(0); size < 8; size++ {
			nc := t.raw()
			nc.Write(probe.Hello(65535, 65535, 0, 0, t.Target.URL))
			if kind, _, err := probe.ReadMessage(nc); kind != "ACK" {
				t.Fatalf("got %q %v", kind, err)
			}
			nc.Write([]byte{'M', 'S', 'G', 'F', size, 0, 0, 0})
			t.expectERR(nc, "short size", ua.StatusBadTCPMessageTypeInvalid, ua.StatusBadTCPMessageTooLarge)
		}
	}},
	{"Protocol UA TCP", "an endpoint URL over 4096 bytes is refused", "OPC 10000-6 §7.1.2.3", func(t *T) {
		nc := t.raw()
		long := make([]byte, 4097)
		for i := range long {
			long[i] = 'a'
		}
		nc.Write(probe.Hello(65535, 65535, 0, 0, "opc.tcp://"+string(long)))
		t.expectERR(nc, "long URL", ua.StatusBadTCPEndpointURLInvalid, ua.StatusBadTCPMessageTooLarge)
	}},
	{"UA Secure Conversation", "a policy nobody knows is refused", "OPC 10000-6 §6.7.2", func(t *T) {
		nc := t.raw()
		nc.Write(probe.Hello(65535, 65535, 0, 0, t.Target.URL))
		if kind, _, err := probe.ReadMessage(nc); kind != "ACK" {
			t.Fatalf("got %q %v", kind, err)
		}
		uri := "http://opcfoundation.org/UA/SecurityPolicy#Imaginary"
		b := append([]byte("OPNF\x00\x00\x00\x00\x00\x00\x00\x00"), byte(len(uri)), 0, 0, 0)
		b = append(append(b, uri...), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 1, 0, 0, 0)
		b = append(b, make([]byte, 64)...)
		binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
		nc.Write(b)
		t.expectERR(nc, "unknown policy", ua.StatusBadSecurityPolicyRejected)
	}},
	{"UA Secure Conversation", "a token is renewed and requests go on", "OPC 10000-4 §5.6.2", func(t *T) {
		t.chunked()
		s := t.Session()
		for range 3 {
			t.OK(s.Channel.Renew(t), "renew")
			rs := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, serverStatus))
			t.Code(rs.Results[0].Status, "read after renewal", ua.StatusOK)
		}
	}},
	{"UA Secure Conversation", "a request of many chunks is put together", "OPC 10000-6 §6.7.2", func(t *T) {
		s := t.Session()
		rq := readOf(ua.AttributeIDValue)
		n := min(3000, t.limit(operationLimitRead, 3000))
		for range n {
			rq.NodesToRead = append(rq.NodesToRead, item(ua.AttributeIDBrowseName, longNodeID))
		}
		rs := call[*ua.ReadResponse](t, s, rq)
		if len(rs.Results) != n {
			t.Fatalf("%d results for %d nodes", len(rs.Results), n)
		}
		t.Code(rs.Results[n-1].Status, "an unknown node", ua.StatusBadNodeIDUnknown)
	}},
	{"UA Secure Conversation", "a response of many chunks arrives", "OPC 10000-6 §6.7.2", func(t *T) {
		s := t.Session()
		n := min(5000, t.limit(operationLimitRead, 5000))
		rq := readOf(ua.AttributeIDValue)
		for range n {
			rq.NodesToRead = append(rq.NodesToRead, item(ua.AttributeIDValue, namespaceArray))
		}
		rs := call[*ua.ReadResponse](t, s, rq)
		if len(rs.Results) != n || rs.Results[n-1].Status != ua.StatusOK {
			t.Errorf("%d results", len(rs.Results))
		}
	}},
}

// binary ends a case that is about OPC UA Binary where messages are JSON.
func (t *T) binary() {
	if t.Target.JSON {
		t.NotApplicable("messages are JSON")
	}
}

var binaryCases = []Case{
	{"UA Binary Encoding", "a service nobody knows is answered with a fault", "OPC 10000-4 §7.39", func(t *T) {
		t.binary()
		s := t.Session()
		body := uabinary.AppendTypeID(nil, 54321)
		body = uabinary.AppendRequestHeader(body, &uabinary.RequestHeader{AuthenticationToken: uabinary.NodeIDOf(s.Token), RequestHandle: 4711})
		t.fault(s, body, ua.StatusBadServiceUnsupported)
	}},
	{"UA Binary Encoding", "a body that ends early is answered with BadDecodingError", "OPC 10000-6 §5.2", func(t *T) {
		t.binary()
		s := t.Session()
		rq := readOf(ua.AttributeIDValue, serverStatus)
		rq.SetHeader(probe.Header(s.Token))
		body, err := probe.Encode(rq)
		t.OK(err, "encode")
		t.fault(s, body[:len(body)-3], ua.StatusBadDecodingError)
		call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, serverStatus)) // the channel lives on
	}},
	{"UA Binary Encoding", "an array length that cannot be is answered with a fault", "OPC 10000-6 §5.2.5", func(t *T) {
		t.binary()
		s := t.Session()
		body := uabinary.AppendTypeID(nil, 631) // ReadRequest
		body = uabinary.AppendRequestHeader(body, &uabinary.RequestHeader{AuthenticationToken: uabinary.NodeIDOf(s.Token), RequestHandle: 4711})
		body = append(body, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f)
		t.fault(s, body, ua.StatusBadDecodingError, ua.StatusBadEncodingLimitsExceeded, ua.StatusBadTooManyOperations)
	}},
	{"UA Binary Encoding", "values nested deeper than 100 are refused", "OPC 10000-6 §5.2.2.16", func(t *T) {
		t.binary()
		s := t.Session()
		body := uabinary.AppendTypeID(nil, 673) // WriteRequest
		body = uabinary.AppendRequestHeader(body, &uabinary.RequestHeader{AuthenticationToken: uabinary.NodeIDOf(s.Token), RequestHandle: 4711})
		body = append(body, 1, 0, 0, 0)                                    // one node
		body = append(body, 0, 85, 13, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1) // i=85, Value, no range, DataValue with a value
		body = append(body, repeat([]byte{0x98, 1, 0, 0, 0}, 10_000)...)   // Variant[] of one Variant[] of one …
		body = append(body, 0)                                             // null at the bottom
		t.fault(s, body, ua.StatusBadEncodingLimitsExceeded, ua.StatusBadDecodingError)
		call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, serverStatus))
	}},
}

func repeat(b []byte, n int) []byte {
	out := make([]byte, 0, len(b)*n)
	for range n {
		out = append(out, b...)
	}
	return out
}

// fault sends an encoded request and expects a ServiceFault that echoes handle 4711
// (or the handle that the body carries).
func (t *T) fault(s *probe.Session, body []byte, want ...ua.StatusCode) {
	p, err := s.SendEncoded(body)
	t.OK(err, "send")
	msg, err := p.Wait(t)
	t.Status(err, "answer", want...)
	if _, ok := msg.(*ua.ServiceFault); !ok {
		t.Errorf("answered with %T instead of a ServiceFault", msg)
	}
}
