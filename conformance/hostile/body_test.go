package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/transport/wss"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/coder/websocket"
	"github.com/gopcua/opcua/ua"
)

// Where messages are not cut into chunks, the rows about too many of them are about
// one message that is too large: 413, or close code 1009.
func TestA1A2A4A6OversizeMessages(t *testing.T) {
	each(t, messages, nil, func(t *testing.T, s *site) {
		for _, withSession := range []bool{true, false} {
			c := s.channel()
			if withSession {
				s.activate(c, probe.Anonymous)
			}
			p, err := c.SendEncoded(bytes.Repeat([]byte(" "), 6<<20))
			if err != nil { // the server may close while the rest is on its way
				continue
			}
			_, err = p.Body(context.Background())
			if s.on == probe.WSSJSON {
				s.status(err, "6 MiB", ua.StatusBadTCPMessageTooLarge)
			} else if _, refused := uastatusOf(err); refused {
				s.status(err, "6 MiB", ua.StatusBadRequestTooLarge)
			}
		}
	})
}

// uastatusOf is the code of an error that a server answered with, and whether it
// did: a connection may end before its answer is read.
func uastatusOf(err error) (ua.StatusCode, bool) {
	code := uastatus.Code(err)
	return code, code != ua.StatusBadInternalError
}

// X1, A5: many messages that never end, over one budget.
func TestX1A5MessagesThatNeverEnd(t *testing.T) {
	each(t, messages, func(o *stack.Options) {
		o.Budget = stack.Budget{MaxBytes: 64 << 20}
		o.Limits.AssemblyTimeout = 4 * time.Second
	}, func(t *testing.T, s *site) {
		began := time.Now()
		var ends []func() error
		for range 30 { // together 90 MiB are promised, and 60 sent
			ends = append(ends, s.unfinished(3<<20, 2<<20))
		}
		st := s.srv.Stats()
		refused := st.BudgetRefused + s.srv.Isolation().Refused(isolation.ReassemblyBytes, isolation.Capacity)
		all := time.Since(began) < 4*time.Second // else the first have ended before the last began
		if st.BudgetReserved > st.BudgetMax || refused == 0 && all {
			t.Errorf("%d bytes of a budget of %d are held, %d times refused", st.BudgetReserved, st.BudgetMax, refused)
		}
		if s.session() == nil {
			t.Error("no session beside the flood")
		}
		for _, end := range ends {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
		s.eventually("the assembly deadline has closed the rest", func() bool { return s.srv.Stats().BudgetReserved == 0 })
	})
}

// unfinished begins a message of size bytes and stops after sent. What it returns
// waits for the server to end it.
func (s *site) unfinished(size, sent int) func() error {
	s.t.Helper()
	part := strings.Repeat(" ", 64<<10)
	if s.on == probe.WSSJSON {
		ws, err := wss.DialJSON(context.Background(), s.url, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = ws.CloseNow() })
		ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
		s.t.Cleanup(cancel)
		w, err := ws.Writer(ctx, websocket.MessageText)
		for n := 0; n < sent && err == nil; n += len(part) {
			_, err = io.WriteString(w, part)
		}
		return func() error { // refused or too late: either ends the connection
			if _, _, err := ws.Read(ctx); ctx.Err() != nil {
				return fmt.Errorf("a message that never ends is still waited for: %w", err)
			}
			return nil
		}
	}
	c := s.secret()
	kind := "application/octet-stream"
	if s.json() {
		kind = "application/json"
	}
	_, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: plant\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", kind, size)
	for n := 0; n < sent && err == nil; n += len(part) {
		_, err = io.WriteString(c, part)
	}
	return func() error { return endsWith(c, http.StatusRequestTimeout, http.StatusServiceUnavailable) }
}

// endsWith reads an answer of HTTP/1.1 with one of the codes, and the end.
func endsWith(c net.Conn, want ...int) error {
	b, err := io.ReadAll(c)
	if isTimeout(err) {
		return fmt.Errorf("a body that never ends is still waited for: %w", err)
	}
	if len(b) == 0 { // reset before it was read
		return nil
	}
	for _, code := range want {
		if bytes.HasPrefix(b, fmt.Appendf(nil, "HTTP/1.1 %d ", code)) {
			return nil
		}
	}
	return fmt.Errorf("answered %.60q", b)
}
