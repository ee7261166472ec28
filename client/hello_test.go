package client

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
)

// frame is a message of the opc.tcp handshake with a size of its own choice.
func frame(kind string, size int, body ...uint32) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(kind), 0)
	for _, v := range body {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	if size < 0 {
		size = len(b)
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(size))
	return b
}

// C8, before there is a channel (OPC 10000-6 §7.1.2, Message structure): the
// server says something else than Acknowledge or the OpenSecureChannel response,
// or nothing. Each time the next attempt succeeds, and comes when the policy or
// the server's hint wants it.
func TestC8HelloAndOpen(t *testing.T) {
	ack := frame("ACKF", -1, 0, 65535, 65535, 0, 0)
	refused := func(code ua.StatusCode, reason string) []byte {
		return (&uatcp.Error{Code: code, Reason: reason}).Append(nil)
	}
	for _, c := range []struct {
		name   string
		says   []byte
		hangUp bool
		after  time.Duration // until the second attempt
	}{
		{"hangs up", nil, true, time.Second},
		{"says nothing", nil, false, 30*time.Second + 4*time.Second}, // a timeout counts as busy
		{"garbage", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), true, time.Second},
		{"size 0", frame("ACKF", 0), true, time.Second},
		{"size 4 GiB", frame("ACKF", 1<<32-1), true, time.Second},
		{"half a header", ack[:5], true, time.Second},
		{"half an Acknowledge", ack[:20], true, time.Second},
		{"a Hello", frame("HELF", -1, 0, 65535, 65535, 0, 0, 0), true, time.Second},
		{"no buffers", frame("ACKF", -1, 0, 0, 0, 0, 0), true, time.Second},
		{"buffers of 4 GiB, then nothing", frame("ACKF", -1, 0, 1<<32-1, 1<<32-1, 0, 0), true, time.Second},
		{"busy", refused(ua.StatusBadTCPServerTooBusy, "later"), true, 4 * time.Second},
		{"busy with a hint", refused(ua.StatusBadTCPServerTooBusy, "RetryAfterMs=7000"), true, 7 * time.Second},
		{"a hint that is none", refused(ua.StatusBadTCPInternalError, "RetryAfterMs=7000"), true, time.Second},
		{"halted", refused(ua.StatusBadServerHalted, ""), true, time.Second},
		{"an ERR without an end", frame("ERRF", -1, uint32(ua.StatusBadTCPServerTooBusy), 4000), true, time.Second},
		{"Acknowledge, then the end", ack, true, time.Second},
		{"Acknowledge, then a response", append(ack[:28:28], frame("MSGF", -1, 1, 1, 1, 1)...), true, time.Second},
		{"Acknowledge, then an empty OPN", append(ack[:28:28], frame("OPNF", -1, 1)...), true, time.Second},
		{"Acknowledge, then ERR", append(ack[:28:28], refused(ua.StatusBadTCPServerTooBusy, "RetryAfterMs=9000")...), true, 9 * time.Second},
		{"Acknowledge twice", append(ack[:28:28], ack...), true, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inRogue(t, func(r *rogue) {
				r.wrap = func(n int, real net.Conn) net.Conn {
					if n != 1 {
						return real
					}
					real.Close()
					ours, theirs := memnet.Pair(real.LocalAddr(), real.RemoteAddr(), 0)
					_, _ = theirs.Write(c.says)
					if c.hangUp {
						_ = theirs.CloseWrite()
					}
					return ours
				}
				begun := time.Now()
				s, err := Connect(r.ctx, plantURL, r.opts())
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took != c.after {
					t.Errorf("second attempt after %v, want %v", took, c.after)
				}
				s.Close(r.ctx)
			})
		})
	}
}

// An error of the handshake that waiting does not heal ends it.
func TestFatalRefusals(t *testing.T) {
	inRogue(t, func(r *rogue) {
		r.on("ActivateSession", func(int, ua.Request) any { return ua.StatusBadIdentityTokenRejected })
		r.on("CloseSession", nil)
		_, err := Connect(r.ctx, plantURL, r.opts())
		if n := r.asked("ActivateSession"); !errors.Is(err, reconnect.ErrGaveUp) || !errors.Is(err, ua.StatusBadIdentityTokenRejected) || n != 4 {
			t.Errorf("%v after %d attempts", err, n)
		}
		if n := r.asked("CloseSession"); n != 4 {
			t.Errorf("%d of 4 sessions were closed", n)
		}
	})
}
