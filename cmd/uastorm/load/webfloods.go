package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport/wss"
)

// slowBody is what a slow body says its length is. It comes at a byte every
// slowInterval, so it would take days.
const slowBody = 1 << 20

// tlsConfig is the configuration of floods, which speak HTTP/1.1: a connection is
// one misbehaviour.
func (t *Target) tlsConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.url.Hostname(), RootCAs: t.tls.RootCAs, NextProtos: []string{"http/1.1"},
		InsecureSkipVerify: t.tls.InsecureSkipVerify} //nolint:gosec // see Security.RootCAs
}

// secure opens a connection with TLS.
func (w *flood) secure(ctx context.Context, i int) (nc net.Conn, c *tls.Conn, err error) {
	if nc, err = w.connect(ctx, i); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.e.target.timeout)
	defer cancel()
	c = tls.Client(nc, w.e.target.tlsConfig())
	if err := c.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, nil, err
	}
	return nc, c, nil
}

// tlsSilent says nothing after the handshake of TLS.
func (w *flood) tlsSilent(ctx context.Context, i int) error {
	return w.dribble(ctx, i, "", "")
}

// slowHeaders sends header after header of a request and never the last one.
func (w *flood) slowHeaders(ctx context.Context, i int) error {
	return w.dribble(ctx, i, w.e.target.requestLine(), "X-More: and more\r\n")
}

// slowBodies sends a request whose body comes byte by byte.
func (w *flood) slowBodies(ctx context.Context, i int) error {
	head := fmt.Sprintf("%sContent-Type: application/octet-stream\r\nOPCUA-SecurityPolicy: %s\r\nContent-Length: %d\r\n\r\n",
		w.e.target.requestLine(), security.None.URI, slowBody)
	return w.dribble(ctx, i, head, "\x00")
}

// requestLine begins a request of HTTP/1.1 as the target's clients do.
func (t *Target) requestLine() string {
	method := http.MethodPost
	if t.Scheme() == SchemeWSS {
		method = http.MethodGet
	}
	u := t.webURL()
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", method, u.RequestURI(), u.Host)
}

// dribble sends head over TLS, and then more, if there is any, every slowInterval,
// until the server ends the connection, and says with what.
func (w *flood) dribble(ctx context.Context, i int, head, more string) error {
	nc, c, err := w.secure(ctx, i)
	if err != nil {
		return w.refused(err)
	}
	defer nc.Close()
	defer until(ctx, nc)()
	defer w.opened()()
	over, end := context.WithCancel(ctx)
	defer end()
	var reader sync.WaitGroup
	reader.Go(func() {
		defer end()
		err = answer(c)
	})
	for b := []byte(head); ; b = []byte(more) {
		if len(b) > 0 {
			n, failed := c.Write(b)
			w.sent(n)
			if failed != nil {
				break
			}
		}
		if more == "" {
			<-over.Done()
		}
		if !pause(over, slowInterval) {
			break
		}
	}
	if ctx.Err() == nil { // the server's last words, if it has any
		_ = nc.SetReadDeadline(time.Now().Add(lastWords))
	}
	reader.Wait()
	return err
}

// answer reads the answer to a request that was never finished.
func answer(r io.Reader) error {
	rs, err := http.ReadResponse(bufio.NewReader(r), nil)
	if err != nil {
		return err
	}
	_ = rs.Body.Close()
	return answered(&wss.StatusError{Code: rs.StatusCode, Header: rs.Header})
}

// An httpStatus is an answer of HTTP that is not about being busy.
type httpStatus int

// Error is the status.
func (s httpStatus) Error() string { return fmt.Sprintf("HTTP %d %s", int(s), http.StatusText(int(s))) }

// answered gives an answer of HTTP that refuses its meaning.
func answered(err error) error {
	var refused *wss.StatusError
	if !errors.As(err, &refused) {
		return err
	}
	rs := &http.Response{StatusCode: refused.Code, Status: httpStatus(refused.Code).Error()[len("HTTP "):], Header: refused.Header}
	if busy := reconnect.HTTPError(rs, time.Now()); busy != nil {
		return busy
	}
	return httpStatus(refused.Code)
}
