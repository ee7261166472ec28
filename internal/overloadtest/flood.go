package overloadtest

import (
	"context"
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
	// floodPause keeps a flooder that was thrown out from becoming a storm.
	floodPause = 20 * time.Millisecond
	// lastWords is the time to read why the server has ended a connection.
	lastWords = 5 * time.Second
)

type floodConfig struct {
	Connections int
	For         time.Duration
}

type floodResult struct {
	Connections int // SecureChannels opened
	Chunks      int
	Bytes       int64
	Codes       map[string]int // what ended them
	Silent      int
}

// flood sends intermediate chunks of messages that never end, over connections
// without security and each from an address of its own, half of them slowly. A
// connection that the server ends is opened again.
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
			for ctx.Err() == nil {
				chunks, bytes, err := floodOnce(ctx, to, i, i%2 == 1)
				code, _ := reconnect.Signal(err)
				mu.Lock()
				if chunks > 0 {
					res.Connections++
				}
				res.Chunks += chunks
				res.Bytes += bytes
				switch {
				case ctx.Err() != nil:
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

// floodOnce floods until the server ends the connection.
func floodOnce(ctx context.Context, to address, i int, slow bool) (chunks int, bytes int64, err error) {
	ch, err := openChannel(ctx, to, nil, source(groupFlood, i+1))
	if err != nil {
		return 0, 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = ch.nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var (
		reader sync.WaitGroup
		reason error
	)
	reader.Go(func() { _, _, reason = ch.c.Receive() })
	defer func() {
		_ = ch.nc.SetReadDeadline(time.Now().Add(lastWords))
		reader.Wait()
		if reason != nil && !closed(reason) || err == nil {
			err = reason
		}
		ch.nc.Close()
		ch.c.Release()
	}()
	body := make([]byte, floodChunk)
	if slow {
		body = body[:slowChunk]
	}
	request := ch.c.NextRequestID()
	for {
		if slow && !pause(ctx, slowInterval) {
			return chunks, bytes, ctx.Err()
		}
		n, err := ch.c.Write(ch.c.Seal(securechannel.RawChunk{Final: 'C', RequestID: request, Body: body}))
		bytes += int64(n)
		if err != nil {
			return chunks, bytes, err
		}
		chunks++
	}
}
