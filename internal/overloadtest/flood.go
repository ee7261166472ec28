package overloadtest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/uastatus"
)

const (
	floodChunk   = 60000 // bytes of a fast flooder's chunk
	slowChunk    = 8000
	slowInterval = 100 * time.Millisecond
	floodLength  = 900 << 10 // bytes of a body that HTTPS is promised
	// floodPause keeps a flooder that was thrown out from becoming a storm.
	floodPause = 20 * time.Millisecond
	// lastWords is the time to read why the server has ended a connection.
	lastWords = 5 * time.Second
)

type floodConfig struct {
	Schemes     []string // of the connections, in turn
	Connections int
	For         time.Duration
}

type floodResult struct {
	Connections int // those that could send something
	Chunks      int
	Bytes       int64
	Codes       map[string]int // what ended them
	Silent      int
}

// flood sends intermediate chunks of messages that never end, over HTTPS bodies
// that do not, on connections without security and each from an address of its
// own, half of them slowly. A connection that the server ends is opened again.
func (a *attack) flood(ctx context.Context, c floodConfig) (floodResult, error) {
	ctx, cancel := context.WithTimeout(ctx, c.For)
	defer cancel()
	to := a.To
	to.Certificate = nil
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		res = floodResult{Codes: map[string]int{}}
	)
	for i := range c.Connections {
		wg.Go(func() {
			to, once := to.via(c.Schemes, i/2), floodChunks
			if strings.HasPrefix(to.URL, "opc.https:") {
				once = floodBody
			}
			for ctx.Err() == nil {
				chunks, bytes, err := once(ctx, to, i, i%2 == 1)
				code, _ := reconnect.Signal(err)
				mu.Lock()
				if chunks > 0 {
					res.Connections++
				}
				res.Chunks += chunks
				res.Bytes += bytes
				var status httpStatus
				switch {
				case ctx.Err() != nil:
				case errors.As(err, &status):
					res.Codes[status.Error()]++
				case closed(err):
					res.Silent++
				case timeout(err):
					res.Codes["no answer in time"]++
				default:
					res.Codes[uastatus.Name(code)]++
				}
				mu.Unlock()
				if !pause(ctx, floodPause) {
					return
				}
			}
		})
	}
	wg.Wait()
	return res, nil
}

// floodChunks floods until the server ends the connection.
func floodChunks(ctx context.Context, to address, i int, slow bool) (chunks int, bytes int64, err error) {
	ch, err := openChannel(ctx, to, nil, source(groupFlood, i+1))
	if err != nil {
		return 0, 0, err
	}
	c, ok := ch.c.(*securechannel.Client)
	if !ok {
		ch.close()
		return 0, 0, fmt.Errorf("overloadtest: %T sends no chunks", ch.c)
	}
	nc := c.Conn()
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var (
		reader sync.WaitGroup
		reason error
	)
	reader.Go(func() { _, _, reason = c.Receive() })
	defer func() {
		_ = nc.SetReadDeadline(time.Now().Add(lastWords))
		reader.Wait()
		if reason != nil && !closed(reason) || err == nil {
			err = reason
		}
		nc.Close()
		c.Release()
	}()
	body := make([]byte, floodChunk)
	if slow {
		body = body[:slowChunk]
	}
	request := c.NextRequestID()
	for {
		if slow && !pause(ctx, slowInterval) {
			return chunks, bytes, ctx.Err()
		}
		n, err := c.Write(c.Seal(securechannel.RawChunk{Final: 'C', RequestID: request, Body: body}))
		bytes += int64(n)
		if err != nil {
			return chunks, bytes, err
		}
		chunks++
	}
}

// floodBody posts a body of which the last byte never comes.
func floodBody(ctx context.Context, to address, i int, slow bool) (pieces int, bytes int64, err error) {
	u, err := url.Parse(to.URL)
	if err != nil {
		return 0, 0, err
	}
	nc, err := dialFrom(source(groupFlood, i+1))(ctx, u.Host)
	if err != nil {
		return 0, 0, err
	}
	c := tls.Client(nc, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a load test has no secrets
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var (
		reader sync.WaitGroup
		reason error
	)
	if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", u.Host, floodLength); err != nil {
		return 0, 0, err
	}
	reader.Go(func() {
		rs, err := http.ReadResponse(bufio.NewReader(c), nil)
		if reason = err; err == nil {
			reason = httpStatus(rs.StatusCode)
			_ = rs.Body.Close()
			_ = nc.SetWriteDeadline(time.Unix(1, 0))
		}
	})
	defer func() {
		_ = nc.SetReadDeadline(time.Now().Add(lastWords))
		reader.Wait()
		if reason != nil && !closed(reason) || err == nil {
			err = reason
		}
	}()
	piece := make([]byte, floodChunk)
	if slow {
		piece = piece[:slowChunk]
	}
	for bytes+int64(len(piece)) < floodLength {
		if slow && !pause(ctx, slowInterval) {
			return pieces, bytes, ctx.Err()
		}
		n, err := c.Write(piece)
		bytes += int64(n)
		if err != nil {
			return pieces, bytes, err
		}
		pieces++
	}
	pause(ctx, slowInterval*10) // and nothing more
	return pieces, bytes, nil
}

// httpStatus is an answer of HTTP that is no success.
type httpStatus int

func (s httpStatus) Error() string { return fmt.Sprintf("HTTP %d", int(s)) }
