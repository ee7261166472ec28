package https

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// conversation is a client that does what a script of bytes says: mostly what is
// right, one step after the other, until a step ends it. It knows what each step
// must bring.
type conversation struct {
	t       testing.TB
	s       *server
	ws      *wsConn
	script  []byte
	chunks  bool // opcua+uacp
	greeted bool
	handle  uint32
	calls   int              // that the handler has seen
	pending []transport.Call // not answered yet
	wsKind  byte
}

// next takes a decision among n.
func (v *conversation) next(n int) int {
	if len(v.script) == 0 {
		return 0
	}
	d := int(v.script[0]) % n
	v.script = v.script[1:]
	return d
}

// What a step leads to, apart from a close code.
const (
	goesOn   = 0
	vanished = 1
)

// steps that end nothing; the others end the conversation.
const goodSteps = 6

// step does one thing. It returns goesOn, vanished or the close code that must
// come, and whether that is the peer's own.
func (v *conversation) step() (code uint16, peer bool) {
	kind := v.next(40)
	if kind < 40-12 {
		switch kind % goodSteps {
		case 0, 1:
			v.message()
		case 2:
			text := make([]byte, v.next(126))
			v.ws.send(v.t, frame(fin|opPing, text))
			v.expect(v.frames(1), [][]byte{text}, nil)
		case 3:
			v.ws.send(v.t, frame(fin|opPong, make([]byte, v.next(126))))
		case 4:
			v.undecodable()
		case 5:
			v.settle()
		}
		return goesOn, false
	}
	unfinished := v.next(3) == 0
	if unfinished { // something goes wrong in the middle of a message
		v.ws.send(v.t, frame(v.wsKind, v.sample()[:5]))
	}
	switch kind - (40 - 12) {
	case 0:
		_ = v.ws.Conn.(*tls.Conn).NetConn().Close()
		return vanished, true
	case 1:
		v.ws.send(v.t, frame(fin|opClose, goodbye(uint16(1000+v.next(4)), "bye")))
		return 0, true
	case 2:
		v.ws.send(v.t, frame(fin|opClose, goodbye(1000, "\xc3")))
		return 1007, true
	case 3:
		v.ws.send(v.t, frame(fin|opClose, [][]byte{{1}, goodbye(999, ""), goodbye(1005, ""), goodbye(1006, ""), goodbye(5000, "x")}[v.next(5)]))
	case 4:
		v.ws.send(v.t, frame(fin|[]byte{reserved1, reserved2, reserved3}[v.next(3)]|[]byte{opText, opBinary, opMore, opPing}[v.next(4)], nil))
	case 5:
		v.ws.send(v.t, frame(fin|[]byte{3, 4, 5, 6, 7, 11, 12, 13, 14, 15}[v.next(10)], []byte("?")))
	case 6:
		v.ws.send(v.t, frame(opPing, nil))
	case 7:
		v.ws.send(v.t, frame(fin|opPing|byte(v.next(2)), make([]byte, 126+v.next(200))))
	case 8:
		v.ws.send(v.t, []byte{fin | []byte{opBinary, opText, opPing, opClose}[v.next(4)], 2, 3, 232})
	case 9: // a beginning in the middle, or a middle without beginning
		if unfinished {
			v.ws.send(v.t, frame(fin|[]byte{opText, opBinary}[v.next(2)], v.sample()))
		} else {
			v.ws.send(v.t, frame(byte(v.next(2))*fin|opMore, v.sample()))
		}
	case 10:
		return v.wrongKind(unfinished), false
	case 11:
		return v.tooLarge(unfinished), false
	}
	return 1002, false
}

// sample is a message of the sub-protocol, without effect as long as it does not
// come whole.
func (v *conversation) sample() []byte {
	switch {
	case !v.chunks:
		return jsonRequest(v.t, 0)
	case !v.greeted:
		return hello()
	}
	return chunk("MSGF", 300)
}

// message sends a good message in some frames, pings between them, and reads what
// it brings.
func (v *conversation) message() {
	var m, answer []byte
	switch {
	case !v.chunks:
		v.handle++
		m = jsonRequest(v.t, v.handle)
	case !v.greeted:
		v.greeted, m = true, hello()
		answer = []byte("ACKF")
	default:
		m = chunk([]string{"MSGF", "MSGC", "OPNF"}[v.next(3)], 8+v.next(250)*v.next(250))
		answer = m
	}
	pieces := 1 + v.next(4)
	var pings [][]byte
	for i := range pieces {
		n := len(m)
		first := v.wsKind
		if i > 0 {
			first = opMore
		}
		if i == pieces-1 {
			first |= fin
		} else {
			n = v.next(len(m) + 1)
		}
		v.ws.send(v.t, frame(first, m[:n]))
		m = m[n:]
		if i < pieces-1 && v.next(2) == 1 {
			pings = append(pings, []byte{byte(i)})
			v.ws.send(v.t, frame(fin|opPing, pings[len(pings)-1]))
		}
	}
	if v.chunks {
		v.expect(v.frames(len(pings)+1), pings, answer)
		return
	}
	v.expect(v.frames(len(pings)), pings, nil)
	v.calls++
	c := <-v.s.h.held
	switch v.next(4) {
	case 0:
		v.answer(c, v.handle)
	case 1:
		v.pending = append(v.pending, c)
	case 2:
		c.Park()
		v.pending = append(v.pending, c)
	case 3:
		c.Drop(ua.StatusBadServerHalted)
	}
}

func (v *conversation) answer(c transport.Call, handle uint32) {
	body := v.s.h.answer(request(handle))
	if err := c.Respond(body, ua.StatusGood, 0); err != nil {
		v.t.Error(err)
	}
	if got := jsonHandle(v.t, v.ws.expect(v.t, opText)); got != handle {
		v.t.Errorf("answer to %d, want %d", got, handle)
	}
}

// settle answers one of the calls that wait.
func (v *conversation) settle() {
	if len(v.pending) == 0 {
		return
	}
	i := v.next(len(v.pending))
	v.answer(v.pending[i], 1000)
	v.pending = append(v.pending[:i], v.pending[i+1:]...)
}

// undecodable sends JSON that is no request: a fault, and it goes on.
func (v *conversation) undecodable() {
	if v.chunks {
		return
	}
	v.ws.send(v.t, frame(fin|opText, []byte([]string{"", "{}", "[", "null", `{"UaTypeId":"i=629"`, `{"UaTypeId":"i=1"}`, "\u00fc"}[v.next(7)])))
	v.ws.expect(v.t, opText)
}

// wrongKind is a message that is none of this sub-protocol.
func (v *conversation) wrongKind(unfinished bool) uint16 {
	switch {
	case unfinished:
		v.ws.send(v.t, frame(fin|opText, nil))
		return 1002
	case !v.chunks && v.next(2) == 0:
		v.ws.send(v.t, frame(fin|opText, []byte("\"\xff\"")))
		return 1007
	case !v.chunks:
		v.ws.send(v.t, frame(fin|opBinary, v.sample()))
		return 1003
	}
	m := v.sample()
	switch v.next(4) {
	case 0:
		v.ws.send(v.t, frame(fin|opText, m))
		return 1003
	case 1:
		v.ws.send(v.t, frame(fin|opBinary, append(m, m...)))
	case 2:
		v.ws.send(v.t, frame(fin|opBinary, m[:v.next(len(m))]))
	case 3:
		v.ws.send(v.t, frame(fin|opBinary, chunk([]string{"XYZF", "MSGX", "RHEF", "ACKF"}[v.next(4)], 20)))
	}
	return 1002
}

// tooLarge is a frame that is too large, of which more than the limit comes.
func (v *conversation) tooLarge(unfinished bool) uint16 {
	first := v.wsKind
	if unfinished {
		first = opMore
	}
	b := make([]byte, 70000)
	if v.chunks && !unfinished {
		b = chunk("MSGF", 70000)
	}
	v.ws.send(v.t, append(claim(first, 0), b...))
	return 1009
}

type received struct {
	first   byte
	payload []byte
}

func (v *conversation) frames(n int) (fs []received) {
	v.t.Helper()
	for range n {
		first, payload, err := v.ws.next()
		if err != nil {
			v.t.Fatalf("frame %d of %d: %v", len(fs)+1, n, err)
		}
		fs = append(fs, received{first, payload})
	}
	return fs
}

// expect checks that what came is these pongs, in their order, and among them an
// answer that begins so.
func (v *conversation) expect(fs []received, pongs [][]byte, answer []byte) {
	v.t.Helper()
	for _, f := range fs {
		switch {
		case f.first == fin|opPong && len(pongs) > 0 && bytes.Equal(f.payload, pongs[0]):
			pongs = pongs[1:]
		case f.first == fin|v.wsKind && answer != nil && bytes.HasPrefix(f.payload, answer):
			answer = nil
		default:
			v.t.Fatalf("unexpected frame %#x %.40q", f.first, f.payload)
		}
	}
}

// run is the whole conversation and its end.
func (v *conversation) run() {
	code, peer := uint16(goesOn), false
	for n := 0; n < 60 && len(v.script) > 0 && code == goesOn && !peer; n++ {
		code, peer = v.step()
	}
	if code == goesOn && !peer {
		v.ws.send(v.t, frame(fin|opClose, goodbye(1000, "")))
		code, peer = 1000, true
	}
	if code != vanished {
		_, farewell := v.ws.ending(v.t)
		if len(farewell) < 2 || code != 0 && binary.BigEndian.Uint16(farewell) != code {
			v.t.Errorf("farewell %q, want %d", farewell, code)
		}
	}
	want := transport.ProtocolError
	if peer {
		want = transport.PeerClosed
	}
	v.s.expectClosed(v.t, want)
	if v.calls > 0 {
		<-v.s.h.gone
	}
	for i, c := range v.pending {
		if i%2 == 0 {
			c.Drop(ua.StatusBadConnectionClosed)
		} else if err := c.Respond(v.s.h.answer(request(1)), ua.StatusGood, 0); !errors.Is(err, ua.StatusBadConnectionClosed) {
			v.t.Error("answered after the end:", err)
		}
	}
	synctest.Wait()
	if len(v.s.h.gone) != 0 || len(v.s.h.held) != 0 || len(v.s.closed) != 0 {
		v.t.Error("something came twice, or from nowhere")
	}
}

// FuzzConversation drives sequences of frames that are mostly right, and checks
// each answer, the close code, that calls end once, and that budget, governor,
// stages and buffers are back where they were.
func FuzzConversation(f *testing.F) {
	for last := range 12 {
		f.Add(last%2 == 0, []byte{0, 1, 2, 3, 0, 1, 2, 9, 0, 1, 2, 3, 2, 7, 6, 1, 1, 3, 40, 1, 80, 2, 200, byte(28 + last), byte(last), 1, 2, 3})
		f.Add(last%2 == 1, []byte{0, 0, 1, 0, 2, 4, 5, 5, 0, byte(28 + last), 0, 3, 1})
	}
	f.Fuzz(func(t *testing.T, chunks bool, script []byte) {
		synctest.Test(t, func(t *testing.T) {
			o := governed(t, admission.HTTPOptions{})
			o.WSS, o.NewSink = true, echoing().NewSink
			o.Limits.MaxMessageSize = 16 << 10
			s := start(t, false, o)
			s.h.hold = true
			v := conversation{t: t, s: s, script: script, chunks: chunks}
			if chunks {
				v.ws, v.wsKind = upgrade(t, s, uacp), opBinary
			} else {
				v.ws, v.wsKind = upgrade(t, s, uajsonProtocol), opText
			}
			v.run()
		})
	})
}
