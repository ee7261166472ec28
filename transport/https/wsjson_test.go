package https

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// OPC 10000-6 §7.5.2: a text message is a request, its answer too.
func TestJSONWebSocket(t *testing.T) {
	bubble(t, webSocket(nil), func(t *testing.T, s *server) {
		var peers []*transport.Peer
		s.h.seen = func(c transport.Call) { peers = append(peers, c.Peer()) }
		ws := upgrade(t, s, uajsonProtocol)
		for i := range uint32(3) {
			ws.send(t, frame(fin|opText, jsonRequest(t, i+7)))
			if got := jsonHandle(t, ws.expect(t, opText)); got != i+7 {
				t.Errorf("handle %d", got)
			}
		}
		ws.send(t, frame(fin|opPing, []byte("x")))
		ws.expect(t, opPong)
		p := peers[0]
		if peers[1] != p || peers[2] != p || !p.Lasting || p.Profile != transport.ProfileWSSJSON || p.EndpointURL != "opc.wss://plant/UA" {
			t.Errorf("%+v", p)
		}
		ws.send(t, frame(fin|opClose, []byte{0x03, 0xe8}))
		ws.closes(t, 1000)
		s.expectClosed(t, transport.PeerClosed)
		if got := <-s.h.gone; got != p || len(s.h.gone) != 0 {
			t.Error("Gone is wrong")
		}
		select {
		case <-p.Done:
		default:
			t.Error("the peer is not done")
		}
	})
}

// A message that the peer did not finish is none, also when what came of it would
// do as a whole one.
func TestJSONWebSocketCutOff(t *testing.T) {
	bubble(t, webSocket(nil), func(t *testing.T, s *server) {
		s.h.hold = true
		for _, cut := range [][]byte{
			frame(fin|opText, append(jsonRequest(t, 1), "    "...))[:len(frame(fin|opText, jsonRequest(t, 1)))],
			frame(opText, jsonRequest(t, 2)),
		} {
			ws := upgrade(t, s, uajsonProtocol)
			ws.send(t, cut)
			synctest.Wait()
			_ = ws.CloseWrite()
			ends(t, ws)
			s.expectClosed(t, transport.PeerClosed)
		}
		if len(s.h.held) != 0 {
			t.Error("half a message was handed on")
		}
	})
}

// What is no request: a fault where there can be one, else the close code.
func TestJSONWebSocketRefusals(t *testing.T) {
	for _, tc := range []struct {
		name  string
		frame []byte
		code  uint16
	}{
		{"binary", frame(fin|opBinary, []byte("{}")), 1003},
		{"invalid UTF-8", frame(fin|opText, []byte("{\"a\":\"\xff\"}")), 1007},
		{"too large", frame(fin|opText, make([]byte, 8192+1)), 1009},
		{"a claim of 1 TiB", claim(opText, 9000), 1009},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := webSocket(nil)
			o.Limits.MaxMessageSize = 8192
			bubble(t, o, func(t *testing.T, s *server) {
				ws := upgrade(t, s, uajsonProtocol)
				ws.send(t, tc.frame)
				ws.closes(t, tc.code)
				s.expectClosed(t, transport.ProtocolError)
				if len(s.h.gone) != 0 {
					t.Error("Gone without a call")
				}
			})
		})
	}
	t.Run("undecodable", func(t *testing.T) {
		bubble(t, webSocket(nil), func(t *testing.T, s *server) {
			ws := upgrade(t, s, uajsonProtocol)
			ws.send(t, frame(fin|opText, []byte(`{"UaTypeId":"i=629","RequestHeader":{"RequestHandle":42},"NodesToRead":7}`)))
			if got := jsonHandle(t, ws.expect(t, opText)); got != 42 {
				t.Errorf("handle %d", got)
			}
			ws.send(t, frame(fin|opText, jsonRequest(t, 43))) // and it goes on
			if got := jsonHandle(t, ws.expect(t, opText)); got != 43 {
				t.Errorf("handle %d", got)
			}
		})
	})
	t.Run("governor full", func(t *testing.T) { // overload.md §9: capacity after the upgrade
		o := governed(t, admission.HTTPOptions{MaxRequests: 1, SmallBodyRequests: -1})
		o.WSS = true
		bubble(t, o, func(t *testing.T, s *server) {
			s.h.hold = true
			ws := upgrade(t, s, uajsonProtocol)
			ws.send(t, frame(fin|opText, jsonRequest(t, 1)))
			call := <-s.h.held
			ws.send(t, frame(fin|opText, jsonRequest(t, 2)))
			ws.closes(t, 1013)
			s.expectClosed(t, transport.TooBusy)
			call.Drop(0)
			<-s.h.gone
		})
	})
}

// A message is not read while as many calls as the limit allows wait for their
// answers, and parked ones do not count.
func TestJSONWebSocketOutstanding(t *testing.T) {
	o := webSocket(nil)
	o.Limits.MaxOutstandingPerConnection = 2
	bubble(t, o, func(t *testing.T, s *server) {
		s.h.hold = true
		ws := upgrade(t, s, uajsonProtocol)
		for i := range uint32(4) {
			ws.send(t, frame(fin|opText, jsonRequest(t, i+1)))
		}
		synctest.Wait()
		if n := len(s.h.held); n != 2 {
			t.Fatalf("%d calls at once", n)
		}
		first, second := <-s.h.held, <-s.h.held
		reply := s.h.answer(first.Body())
		first.Park()
		synctest.Wait()
		if n := len(s.h.held); n != 1 {
			t.Fatalf("%d more calls after one has parked", n)
		}
		third := <-s.h.held
		for _, c := range []transport.Call{second, third} {
			if err := c.Respond(s.h.answer(c.Body()), 0, 0); err != nil {
				t.Error(err)
			}
		}
		fourth := <-s.h.held
		if err := fourth.Respond(s.h.answer(fourth.Body()), 0, 0); err != nil {
			t.Error(err)
		}
		if err := first.Respond(reply, 0, 0); err != nil {
			t.Error(err)
		}
		for _, want := range []uint32{2, 3, 4, 1} {
			if got := jsonHandle(t, ws.expect(t, opText)); got != want {
				t.Errorf("answer to %d, want %d", got, want)
			}
		}
	})
}

// overload.md §9: a message over what the governor takes of a body at all is too
// large, 1009, however idle the server is; 1013 would make the client come again.
func TestJSONWebSocketOverMaxBody(t *testing.T) {
	o := governed(t, admission.HTTPOptions{MaxBodyBytes: 1000, MaxControlBodyBytes: 1000})
	o.WSS = true
	bubble(t, o, func(t *testing.T, s *server) {
		ws := upgrade(t, s, uajsonProtocol)
		fits := jsonRequest(t, 1)
		fits = append(fits, bytes.Repeat([]byte{' '}, 1000-len(fits))...)
		ws.send(t, frame(fin|opText, fits))
		if got := jsonHandle(t, ws.expect(t, opText)); got != 1 {
			t.Errorf("handle %d", got)
		}
		ws.send(t, frame(fin|opText, append(fits, ' ')))
		ws.closes(t, 1009)
		s.expectClosed(t, transport.ProtocolError)
		<-s.h.gone
	})
}

// overload.md §6, §9: memory for messages over 64 KiB is taken before they are
// buffered; without it the peer is to try again later.
func TestJSONWebSocketMemory(t *testing.T) {
	o := webSocket(nil)
	o.Budget, _ = budget.New(1 << 20) // half of it for those without a session
	bubble(t, o, func(t *testing.T, s *server) {
		s.h.hold = true
		for _, size := range []int{60 << 10, 200 << 10} {
			ws := upgrade(t, s, uajsonProtocol)
			ws.send(t, frame(opText, bytes.Repeat([]byte{' '}, size)))
			synctest.Wait()
			if n := s.budget.Reserved(); (n > 0) != (size > 60<<10) || n > 256<<10 {
				t.Errorf("%d bytes reserved for %d that are buffered", n, size)
			}
			_ = ws.Close()
			s.expectClosed(t, transport.PeerClosed)
		}
		ws := upgrade(t, s, uajsonProtocol)
		go func() { _, _ = ws.Write(frame(opText, bytes.Repeat([]byte{' '}, 1<<20))) }() // 512 KiB are there
		ws.closes(t, 1013)
		s.expectClosed(t, transport.ResourceLimit)
		if n := s.budget.Reserved(); n != 0 {
			t.Error(n, "bytes reserved")
		}
	})
}

// overload.md §4: a JSON peer has HelloTimeout for its first message and, while no
// session is activated over the connection, HandshakeTimeout for each further one.
// Nothing less renews that, and an activated session suspends it.
func TestJSONWebSocketSilence(t *testing.T) {
	limits := transport.Limits{}.Resolved()
	call := func(t *testing.T, ws *wsConn) {
		t.Helper()
		ws.send(t, frame(fin|opText, jsonRequest(t, 1)))
		ws.expect(t, opText)
	}
	each := func(ws *wsConn, every time.Duration, b []byte) {
		for {
			time.Sleep(every)
			if _, err := ws.Write(b); err != nil {
				return
			}
		}
	}
	for _, tc := range []struct {
		name   string
		run    func(t *testing.T, s *server, ws *wsConn)
		lasts  time.Duration // from the upgrade
		reason transport.CloseReason
	}{
		{"nothing at all", func(*testing.T, *server, *wsConn) {}, limits.HelloTimeout, transport.HelloTimeout},
		{"pings only", func(_ *testing.T, _ *server, ws *wsConn) { go each(ws, time.Second, frame(fin|opPing, nil)) }, limits.HelloTimeout, transport.HelloTimeout},
		{"a first message drop by drop", func(t *testing.T, _ *server, ws *wsConn) {
			ws.send(t, frame(opText, []byte("{")))
			go each(ws, time.Second, frame(opMore, []byte(" ")))
		}, limits.HelloTimeout, transport.HelloTimeout},
		{"no request", func(_ *testing.T, _ *server, ws *wsConn) { go each(ws, 3*time.Second, frame(fin|opText, []byte("{}"))) }, limits.HelloTimeout, transport.HelloTimeout},
		{"one request", func(t *testing.T, _ *server, ws *wsConn) {
			time.Sleep(limits.HelloTimeout / 2)
			call(t, ws)
		}, limits.HelloTimeout/2 + limits.HandshakeTimeout, transport.HandshakeTimeout},
		{"requests, then pings", func(t *testing.T, _ *server, ws *wsConn) {
			for range 5 {
				call(t, ws)
				time.Sleep(limits.HandshakeTimeout - time.Second)
			}
			go each(ws, time.Second, frame(fin|opPing, nil))
		}, 4*(limits.HandshakeTimeout-time.Second) + limits.HandshakeTimeout, transport.HandshakeTimeout},
		{"a session, and its end", func(t *testing.T, s *server, ws *wsConn) {
			var p *transport.Peer
			s.h.seen = func(c transport.Call) { p = c.Peer() }
			call(t, ws)
			p.Reclaimable(false)
			time.Sleep(time.Hour)
			p.Reclaimable(true)
		}, time.Hour + limits.HandshakeTimeout, transport.HandshakeTimeout},
		{"an answer that takes its time", func(t *testing.T, s *server, ws *wsConn) {
			s.h.hold = true
			ws.send(t, frame(fin|opText, jsonRequest(t, 1)))
			c := <-s.h.held
			time.Sleep(5 * limits.HandshakeTimeout / 2)
			if err := c.Respond(s.h.answer(c.Body()), 0, 0); err != nil {
				t.Error(err)
			}
		}, 3 * limits.HandshakeTimeout, transport.HandshakeTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, webSocket(nil), func(t *testing.T, s *server) {
				ws := upgrade(t, s, uajsonProtocol)
				begun := time.Now()
				tc.run(t, s, ws)
				ws.closes(t, 1008)
				s.expectClosed(t, tc.reason)
				if d := time.Since(begun); d < tc.lasts || d > tc.lasts+limits.LingerTimeout {
					t.Errorf("closed after %v, want %v", d, tc.lasts)
				}
				time.Sleep(10 * time.Second) // for who sends slowly to notice
			})
		})
	}
}

// overload.md §5: when the server is full, an idle JSON peer goes for a newcomer,
// 1013, the oldest first; one with a session, and one whose call runs, stay.
func TestJSONWebSocketReclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, err := transport.NewGate(transport.GateOptions{MaxConnections: 4, ConnectionsUnlimited: true})
		if err != nil {
			t.Fatal(err)
		}
		o := webSocket(nil)
		o.Gate = gate
		s := start(t, false, o)
		var seen []transport.Call
		s.h.seen = func(c transport.Call) { seen = append(seen, c) }
		var peers []*wsConn
		for i := range 4 {
			ws := upgrade(t, s, uajsonProtocol)
			s.h.hold = i == 1
			ws.send(t, frame(fin|opText, jsonRequest(t, 1)))
			if i == 0 {
				ws.expect(t, opText)
				seen[0].Peer().Reclaimable(false)
			} else if i > 1 {
				ws.expect(t, opText)
			} else {
				synctest.Wait()
			}
			peers = append(peers, ws)
			time.Sleep(2 * time.Second)
		}
		for _, victim := range peers[2:] {
			newcomer := make(chan *wsConn)
			go func() { newcomer <- upgrade(t, s, uajsonProtocol) }()
			victim.closes(t, 1013)
			s.expectClosed(t, transport.Reclaimed)
			<-s.h.gone
			<-newcomer
		}
		last := s.dial(t) // nobody is left to go: the newcomers have only just come
		ends(t, last)
		if u := gate.Usage(); u.Connections != 4 || u.Reclaimed != 2 {
			t.Errorf("%+v", u)
		}
		call := <-s.h.held
		if err := call.Respond(s.h.answer(call.Body()), 0, 0); err != nil {
			t.Error(err)
		}
		peers[1].expect(t, opText)
		peers[0].send(t, frame(fin|opText, jsonRequest(t, 9)))
		if got := jsonHandle(t, peers[0].expect(t, opText)); got != 9 {
			t.Errorf("handle %d", got)
		}
	})
}

// A peer that vanishes with calls running and parked: their context ends, Gone
// comes once, and each lease is given back once, when its call ends.
func TestJSONWebSocketVanishes(t *testing.T) {
	for name, vanish := range map[string]func(*server, *wsConn){
		"closed":     func(_ *server, ws *wsConn) { _ = ws.Conn.(*tls.Conn).NetConn().Close() },
		"close code": func(_ *server, ws *wsConn) { _, _ = ws.Write(frame(fin|opClose, goodbye(1001, ""))) },
		"bad frame":  func(_ *server, ws *wsConn) { _, _ = ws.Write(frame(fin|opReserved, nil)) },
		"mid-message": func(_ *server, ws *wsConn) {
			_, _ = ws.Write(frame(opText, bytes.Repeat([]byte{' '}, 100_000)))
			synctest.Wait()
			_ = ws.Conn.(*tls.Conn).NetConn().Close()
		},
		"the listener's end": func(s *server, _ *wsConn) { s.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			o := governed(t, admission.HTTPOptions{})
			o.WSS = true
			bubble(t, o, func(t *testing.T, s *server) {
				s.h.hold = true
				ws := upgrade(t, s, uajsonProtocol)
				for i := range uint32(4) {
					ws.send(t, frame(fin|opText, jsonRequest(t, i)))
				}
				parked, answered, dropped, both := <-s.h.held, <-s.h.held, <-s.h.held, <-s.h.held
				body := s.h.answer(answered.Body())
				parked.Park()
				vanish(s, ws)
				go func() { _, _ = io.Copy(io.Discard, ws) }()
				peer := <-s.h.gone
				<-peer.Done
				for _, c := range []transport.Call{parked, answered, dropped, both} {
					if c.Peer() != peer {
						t.Error("another peer is gone")
					}
					<-c.Context().Done()
				}
				slots := func(want int64) {
					t.Helper()
					if n := int64(s.governor.Status().Node.Data.Count); n != want {
						t.Errorf("%d slots held, want %d", n, want)
					}
				}
				slots(3) // not the parked one's
				for range 2 {
					if err := answered.Respond(body, 0, 0); !errors.Is(err, ua.StatusBadConnectionClosed) {
						t.Error(err)
					}
					slots(2)
				}
				dropped.Drop(ua.StatusBadServerHalted)
				dropped.Drop(ua.StatusBadServerHalted)
				slots(1)
				both.Drop(ua.StatusBadServerHalted)
				if err := both.Respond(body, 0, 0); !errors.Is(err, ua.StatusBadConnectionClosed) {
					t.Error(err)
				}
				slots(0)
				if err := parked.Respond(body, 0, 0); !errors.Is(err, ua.StatusBadConnectionClosed) {
					t.Error(err)
				}
				slots(0)
				<-s.closed
				synctest.Wait()
				if len(s.h.gone) != 0 || len(s.closed) != 0 {
					t.Error("gone more than once")
				}
			})
		})
	}
}
