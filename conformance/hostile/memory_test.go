package hostile

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/gopcua/opcua/ua"
)

// small limits what a channel may send, and the budget of all.
func small(o *stack.Options) {
	o.Limits.MaxChunkCount = 20
	o.Budget = stack.Budget{MaxBytes: 64 << 20}
}

// chunks sends n intermediate chunks of one request, each with size bytes, and
// stops at the first error: the server may have closed by then.
func chunks(c *probe.Conn, request uint32, n, size int) {
	for range n {
		if _, err := c.Channel.Write(c.Channel.Seal(securechannel.RawChunk{Final: 'C', RequestID: request, Body: make([]byte, size)})); err != nil {
			return
		}
	}
}

func TestA1MoreChunksThanNegotiated(t *testing.T) {
	each(t, chunked, small, func(t *testing.T, s *site) {
		c := s.session().Conn
		chunks(c, 77, 21, 1000)
		s.ends(c, ua.StatusBadTCPMessageTooLarge, ua.StatusBadRequestTooLarge)
	})
}

func TestA2DefaultsAreFinite(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		c := s.session().Conn
		chunks(c, 77, 4000, 8000)
		s.ends(c, ua.StatusBadTCPMessageTooLarge, ua.StatusBadRequestTooLarge, ua.StatusBadTCPNotEnoughResources)
	})
}

func TestA3ZeroLimitsOfThePeerAreNotOurs(t *testing.T) {
	each(t, chunked, small, func(t *testing.T, s *site) { // the probe's HEL says 0 for both: no limit for our answers
		ses := s.session()
		rq := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnNeither}
		for range 5000 {
			rq.NodesToRead = append(rq.NodesToRead, &ua.ReadValueID{NodeID: ua.NewNumericNodeID(0, 2255), AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}})
		}
		if _, err := ses.Call(context.Background(), rq); err != nil {
			t.Errorf("a large answer: %v", err)
		}
		chunks(ses.Conn, 77, 21, 1000)
		s.ends(ses.Conn, ua.StatusBadTCPMessageTooLarge, ua.StatusBadRequestTooLarge)
	})
}

func TestA4OversizeBeforeSecurity(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		for _, first := range []string{"OPNF\xff\xff\xff\x7f", "OPNF\x00\x00\x02\x00", "MSGC\xff\xff\xff\xff"} {
			c := s.greeted()
			c.Write([]byte(first))
			s.closedWith(c, ua.StatusBadTCPMessageTooLarge)
		}
	})
}

func TestA5OneBudgetForAllSockets(t *testing.T) {
	each(t, chunked, func(o *stack.Options) {
		o.Budget = stack.Budget{MaxBytes: 64 << 20}
		o.Limits.AssemblyTimeout = 8 * time.Second
	}, func(t *testing.T, s *site) {
		var conns []*probe.Conn
		for range 20 {
			conns = append(conns, s.channel())
		}
		peak := int64(0)
		for range 60 { // together about 80 MB, and nobody has a session
			for _, c := range conns {
				chunks(c, 9, 1, 60_000)
			}
			peak = max(peak, s.srv.Stats().BudgetReserved)
		}
		st := s.srv.Stats()
		refused := st.BudgetRefused + s.srv.Isolation().Refused(isolation.ReassemblyBytes, isolation.Capacity)
		if peak == 0 || peak > st.BudgetMax || refused == 0 {
			t.Errorf("at most %d bytes of a budget of %d were held, %d times refused", peak, st.BudgetMax, refused)
		}
		if ses := s.session(); ses == nil {
			t.Error("no session beside the flood")
		}
		s.eventually("the assembly deadline has closed the rest", func() bool { return s.srv.Stats().BudgetReserved == 0 })
	})
}

func TestA6OneSocketIsBoundedToo(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		c := s.channel()
		chunks(c, 9, 600, 60_000)
		s.ends(c, ua.StatusBadTCPMessageTooLarge, ua.StatusBadRequestTooLarge, ua.StatusBadTCPNotEnoughResources)
	})
}

func TestA7X19HeaderOfImpossibleSize(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		for size := range byte(8) {
			c := s.greeted()
			c.Write([]byte{'M', 'S', 'G', 'F', size, 0, 0, 0})
			s.closedWith(c, ua.StatusBadTCPMessageTypeInvalid, ua.StatusBadTCPMessageTooLarge)
		}
	})
}

func TestA8ChargeIsWhatIsHeld(t *testing.T) {
	each(t, chunked, func(o *stack.Options) {
		o.Budget = stack.Budget{MaxBytes: 64 << 20}
		o.Limits.ReceiveBufferSize = 65536
	}, func(t *testing.T, s *site) {
		c := s.channel()
		chunks(c, 9, 10, 1) // ten chunks of a byte hold ten buffers, whatever is in them
		s.eventually("ten chunks are charged", func() bool { return s.srv.Stats().BudgetReserved > 0 })
		got := s.srv.Stats().BudgetReserved
		if got < 10*64 || got > 10*(128<<10) {
			t.Errorf("%d bytes are charged for ten chunks", got)
		}
	})
}

func TestA9RequestIDZero(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		ses := s.session()
		chunks(ses.Conn, 0, 1, 500)
		if _, err := ses.Call(context.Background(), read(s.node())); err != nil {
			t.Errorf("another message after one of request id 0: %v", err)
		}
	})
}

func TestA11A13SizesInHelloAreClamped(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		for _, c := range []struct{ receive, send uint32 }{{8192, 8192}, {65535, 65535}, {8192, 65535}, {0xFFFFFFFF, 0xFFFFFFFF}} {
			nc := s.dial()
			nc.Write(probe.Hello(c.receive, c.send, 0xFFFFFFFF, 0xFFFFFFFF, s.url))
			kind, ack, err := probe.ReadMessage(nc)
			if err != nil || kind != "ACK" {
				t.Fatalf("%q %v", kind, err)
			}
			for _, got := range []uint32{uint32(ack[4]) | uint32(ack[5])<<8 | uint32(ack[6])<<16, uint32(ack[8]) | uint32(ack[9])<<8 | uint32(ack[10])<<16} {
				if got < 8192 || got > 147456 || (c.receive != 0xFFFFFFFF && got > c.receive) {
					t.Errorf("HEL %d, %d: ACK says %d", c.receive, c.send, got)
				}
			}
			nc.Close()
		}
	})
}

// nested returns a WriteRequest body whose value is n levels deep.
func nested(ses *probe.Session, level []byte, n int) []byte {
	b := append(body(ses, 673), 1, 0, 0, 0)                      // one node
	b = append(b, 0, 85, 13, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1) // i=85, Value, no range, a value
	return append(append(b, bytes.Repeat(level, n)...), 0)
}

func TestA14X13ImpossibleLengths(t *testing.T) {
	inTurn(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		huge := []byte{0xff, 0xff, 0xff, 0x7f}
		before := heap()
		for range 50 {
			if s.json() {
				for _, v := range []string{
					`{"UaType":6,"Value":[1],"Dimensions":[2147483647]}`,
					`{"UaType":6,"Value":[],"Dimensions":[2147483647,2147483647]}`,
					`{"UaType":24,"Value":[1],"Dimensions":[65536,65536]}`,
					`{"UaType":11,"Value":1e999999999}`,
				} {
					s.fault(ses, s.text(ses, 671, value(v)), ua.StatusBadDecodingError, ua.StatusBadEncodingLimitsExceeded)
				}
				continue
			}
			b := append(body(ses, 631), 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0)
			s.fault(ses, append(b, huge...), ua.StatusBadDecodingError, ua.StatusBadEncodingLimitsExceeded, ua.StatusBadTooManyOperations)
			b = append(body(ses, 673), 1, 0, 0, 0, 0, 85, 13, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0x80|11)
			s.fault(ses, append(b, huge...), ua.StatusBadDecodingError, ua.StatusBadEncodingLimitsExceeded)
			b = append(body(ses, 673), 1, 0, 0, 0, 0, 85, 13, 0, 0, 0)
			s.fault(ses, append(b, huge...), ua.StatusBadDecodingError, ua.StatusBadEncodingLimitsExceeded)
		}
		if grown := heap() - before; grown > 16<<20 {
			t.Errorf("the heap grew by %d bytes: something was allocated by a claimed length", grown)
		}
	})
}

// value are the members of a WriteRequest in JSON, of a value for i=85.
func value(v string) string {
	return `"NodesToWrite":[{"NodeId":"i=85","AttributeId":13,"Value":` + v + `}]`
}

// levels is a value in JSON that is n levels deep.
func levels(n int, before, bottom, after string) string {
	return value(strings.Repeat(before, n) + bottom + strings.Repeat(after, n))
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestX5A19NestedVariants(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		deep := func(n int) []byte {
			if s.json() {
				return s.text(ses, 671, levels(n, `{"UaType":24,"Value":[`, `{"UaType":1,"Value":true}`, `]}`))
			}
			return nested(ses, []byte{0x80 | 24, 1, 0, 0, 0}, n) // Variant[] of one
		}
		for _, n := range []int{101, 1000, 10_000, 150_000} {
			s.fault(ses, deep(n), ua.StatusBadEncodingLimitsExceeded)
		}
		p, err := ses.SendEncoded(deep(90))
		if err != nil {
			t.Fatal(err)
		}
		if msg, err := p.Wait(context.Background()); err != nil {
			t.Errorf("90 levels are allowed: %T %v", msg, err)
		}
	})
}

func TestA17A18NestedDiagnostics(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		if s.json() {
			before := `{"UaType":25,"Value":[` + strings.Repeat(`{"InnerDiagnosticInfo":`, 10_000)
			s.fault(ses, s.text(ses, 671, value(before+`{}`+strings.Repeat("}", 10_000)+`]}`)), ua.StatusBadEncodingLimitsExceeded)
			s.fault(ses, s.text(ses, 671, value(`{"UaType":25,"Value":[{"InnerDiagnosticInfo":}]}`)), ua.StatusBadDecodingError)
			return
		}
		inner := []byte{0x80 | 25, 1, 0, 0, 0} // DiagnosticInfo[] of one, then …
		deep := append(bytes.Clone(inner), bytes.Repeat([]byte{0x40}, 10_000)...)
		s.fault(ses, nested(ses, deep, 1), ua.StatusBadEncodingLimitsExceeded)
		short := nested(ses, append(bytes.Clone(inner), 0x40), 1) // the inner one is promised and not there
		s.fault(ses, short[:len(short)-1], ua.StatusBadDecodingError)
	})
}

func TestA20X33NestedExtensionObjects(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		if s.json() {
			known := levels(500, `{"UaType":22,"Value":{"UaTypeId":"i=14533","Key":"k","Value":`, `null`, `}}`)
			s.fault(ses, s.text(ses, 671, known), ua.StatusBadEncodingLimitsExceeded)
			unknown := levels(6000, `{"UaType":22,"Value":{"UaTypeId":"i=77777","V":`, `null`, `}}`)
			s.fault(ses, s.text(ses, 671, unknown), ua.StatusBadEncodingLimitsExceeded)
			return
		}
		// A KeyValuePair (i=14846) whose value is an ExtensionObject with a KeyValuePair …
		level := []byte{0x16, 1, 0, 0xfe, 0x39, 1, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0xff, 0xff, 0xff, 0xff}
		s.fault(ses, nested(ses, level, 500), ua.StatusBadEncodingLimitsExceeded, ua.StatusBadDecodingError)
		unknown := []byte{0x16, 1, 2, 0x77, 0x77, 1, 0xff, 0xff, 0xff, 0x7f}
		s.fault(ses, nested(ses, unknown, 500), ua.StatusBadEncodingLimitsExceeded, ua.StatusBadDecodingError)
	})
}

func TestA21X26ArrayDimensions(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		if s.json() {
			for _, dims := range []string{"2147483648,2", "2147483647,2147483647", "3,5", "0,0,0", "-1", "4294967296", "1.5", strings.Repeat("1,0,", 512) + "1"} {
				v := `{"UaType":6,"Value":[7],"Dimensions":[` + dims + `]}`
				s.fault(ses, s.text(ses, 671, value(v)), ua.StatusBadDecodingError, ua.StatusBadEncodingLimitsExceeded)
			}
			return
		}
		for _, dims := range [][]byte{
			{2, 0, 0, 0, 0, 0, 0, 0x80, 2, 0, 0, 0},                                          // 2^31 × 2
			{2, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f},                     // overflow
			{2, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0},                                             // not the length
			{3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},                                 // zeros for one element
			{0xff, 0xff, 0xff, 0x7f},                                                         // a claimed count
			append([]byte{0, 4, 0, 0}, bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, 512)...), // many, some zero
		} {
			v := append([]byte{0x80 | 0x40 | 6, 1, 0, 0, 0, 7, 0, 0, 0}, dims...)
			b := append(body(ses, 673), 1, 0, 0, 0, 0, 85, 13, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1)
			s.fault(ses, append(b, v...), ua.StatusBadDecodingError, ua.StatusBadEncodingLimitsExceeded)
		}
	})
}

func TestA22X16LongBrowseNames(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		for _, n := range []int{127, 128, 200, 64 << 10} {
			rs, err := probe.Call[*ua.TranslateBrowsePathsToNodeIDsResponse](context.Background(), ses, &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: []*ua.BrowsePath{{
				StartingNode: ua.NewNumericNodeID(0, 85), RelativePath: &ua.RelativePath{Elements: []*ua.RelativePathElement{{
					ReferenceTypeID: ua.NewNumericNodeID(0, 33), IncludeSubtypes: true, TargetName: &ua.QualifiedName{Name: string(bytes.Repeat([]byte{'n'}, n))}}}}}}})
			if err != nil {
				s.status(err, "long name", ua.StatusBadEncodingLimitsExceeded)
				continue
			}
			s.status(rs.Results[0].StatusCode, "long name", ua.StatusBadNoMatch, ua.StatusBadBrowseNameInvalid)
		}
	})
}

// A23: every service with every truncation of a valid body is answered.
func TestA23TruncatedBodies(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		for _, rq := range []ua.Request{read(s.node()), write(s.node(), 1.5),
			&ua.BrowseRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, NodesToBrowse: []*ua.BrowseDescription{{NodeID: ua.NewNumericNodeID(0, 84), ReferenceTypeID: ua.NewNumericNodeID(0, 33)}}},
			&ua.CallRequest{MethodsToCall: []*ua.CallMethodRequest{{ObjectID: ua.NewNumericNodeID(0, 2253), MethodID: ua.NewNumericNodeID(0, 11492), InputArguments: []*ua.Variant{ua.MustVariant(uint32(1))}}}},
			&ua.CreateMonitoredItemsRequest{SubscriptionID: 1, ItemsToCreate: []*ua.MonitoredItemCreateRequest{item(s.node(), 1)}},
		} {
			rq.SetHeader(probe.Header(ses.Token))
			whole, err := probe.Encode(rq)
			if err != nil {
				t.Fatal(err)
			}
			var d uabinary.Decoder
			d.Reset(whole, nil)
			d.TypeID()
			d.RequestHeader()
			begin := d.Pos()
			if s.json() {
				if whole, err = uajson.AppendJSON(nil, whole, uajson.Compact, nil); err != nil {
					t.Fatal(err)
				}
				begin = bytes.IndexByte(whole, '}') // of the header
			}
			for n := begin; n < len(whole); n++ {
				p, err := ses.SendEncoded(whole[:n])
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.Wait(context.Background()); err == nil {
					t.Fatalf("%T cut to %d of %d bytes was taken", rq, n, len(whole))
				}
			}
		}
	})
}

func TestA24A25B21B27ConnectAndClose(t *testing.T) {
	inTurn(t, all, func(o *stack.Options) { o.RateLimits.Disabled = true }, func(t *testing.T, s *site) {
		cycle := func(n int) {
			for range n {
				ses, err := probe.Connect(context.Background(), s.options(), probe.Anonymous)
				if err != nil {
					t.Fatal(err)
				}
				ses.End(context.Background())
			}
		}
		n := size(s, 1500, 50)
		cycle(n / 5)
		before := heap()
		cycle(n)
		s.eventually("all channels have ended", func() bool { return s.srv.Stats().Channels <= 1 })
		if grown := heap() - before; grown > int64(400*n+1<<20) {
			t.Errorf("the heap grew by %d bytes over %d connections", grown, n)
		}
	})
}

func TestA26E8SubscriptionsOfClientsThatVanish(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		sub := s.subscribe(ses, 50, 60)
		s.monitor(ses, sub)
		for range 3 { // takes messages and never acknowledges
			if _, err := ses.Call(context.Background(), &ua.PublishRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		ses.Cut()
		s.eventually("the subscription has expired", func() bool { return s.srv.Stats().Subscriptions == 1 })
	})
}

// X1: a huge request is never finished. The presets are what broke products.
func TestX1TheFinalChunkNeverComes(t *testing.T) {
	each(t, chunked, func(o *stack.Options) { o.Limits.AssemblyTimeout = 3 * time.Second }, func(t *testing.T, s *site) {
		open := func(withSession bool) *probe.Conn {
			c := s.channel()
			if withSession {
				s.activate(c, probe.Anonymous)
			}
			return c
		}
		var slow []*probe.Conn
		for _, withSession := range []bool{true, false} {
			c := open(withSession)
			chunks(c, 5, 63, 3000) // Ignition: stays under 64 chunks, and meets the assembly deadline
			slow = append(slow, c)
		}
		s.eventually("the chunks are charged", func() bool { return s.srv.Stats().BudgetReserved > 0 })
		for _, preset := range []struct{ size, chunks int }{
			{2000, 20_000}, // old .NET, Prosys
			{4000, 5000},   // newer .NET
			{2000, 5000},   // Kepware
		} {
			for _, withSession := range []bool{true, false} {
				c := open(withSession)
				chunks(c, 5, preset.chunks, preset.size)
				s.ends(c, ua.StatusBadTCPMessageTooLarge, ua.StatusBadRequestTooLarge, ua.StatusBadTCPNotEnoughResources)
			}
		}
		s.eventually("the partial messages are gone", func() bool { return s.srv.Stats().BudgetReserved == 0 })
		for _, c := range slow {
			s.ends(c, ua.StatusBadTimeout)
		}
	})
}

func TestX39I11ThousandsOfRequestIDs(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		ses := s.session()
		for id := range uint32(3000) {
			chunks(ses.Conn, 100_000+id, 1, 2000)
		}
		if held := s.srv.Stats().BudgetReserved; held > 1<<20 {
			t.Errorf("%d bytes are held: a channel has one partial message", held)
		}
		if _, err := ses.Call(context.Background(), read(s.node())); err != nil {
			t.Errorf("a whole request afterwards: %v", err)
		}
	})
}

// X31: a client that does not read its answers is closed, and stops nobody.
func TestX31SlowReader(t *testing.T) {
	each(t, lasting, func(o *stack.Options) { o.Limits.WriteQueueBytes, o.Limits.WriteTimeout = 1<<20, 2*time.Second }, func(t *testing.T, s *site) {
		o := s.options()
		var stall func()
		o.URL, stall = s.stallable()
		ses := s.activate(s.channelWith(o), probe.Anonymous)
		rq := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth}
		for range 2000 {
			rq.NodesToRead = append(rq.NodesToRead, &ua.ReadValueID{NodeID: ua.NewNumericNodeID(0, 2255), AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}})
		}
		stall()
		s.background.Go(func() {
			for range 3000 {
				rq.SetHeader(probe.Header(ses.Token))
				if _, err := ses.Send(rq); err != nil {
					return
				}
			}
		})
		s.eventually("the connection is closed for not reading", func() bool { return s.srv.Stats().Channels == 1 })
	})
}

// stallable is a way to the server on which answers are read until stall is called.
func (s *site) stallable() (url string, stall func()) {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	s.t.Cleanup(func() { l.Close() })
	stalled, stall := context.WithCancel(ctx)
	s.background.Go(func() {
		down, err := l.Accept()
		if err != nil {
			return
		}
		defer down.Close()
		up, err := net.Dial("tcp", s.addr)
		if err != nil {
			return
		}
		defer up.Close()
		context.AfterFunc(stalled, func() { up.SetReadDeadline(time.Unix(1, 0)) })
		s.background.Go(func() { io.Copy(down, up) })
		io.Copy(up, down) // ends when the server has closed, or the client
	})
	return s.on.Scheme() + "://" + l.Addr().String(), stall
}

func tokenBytes(ses *probe.Session) []byte {
	return uabinary.AppendNodeID(nil, uabinary.NodeIDOf(ses.Token))
}
