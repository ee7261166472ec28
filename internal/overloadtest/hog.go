package overloadtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/client"
	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// hogConfig is load from one owner: everything comes from one address, without
// security and for an anonymous user.
type hogConfig struct {
	To          address
	Schemes     []string // of the connections, in turn
	Connections int
	Depth       int // requests that each keeps with the server
	Group       byte
	Method      bool // call the method that takes its time, instead of reading
	For         time.Duration
}

type hogResult struct {
	Good    int // answers
	Busy    int // refused BadServerTooBusy
	Hinted  int // of those, with a hint
	Other   int
	Latency latency // of good answers
}

// hog pipelines over many connections until the time is over.
func hog(ctx context.Context, c hogConfig) (hogResult, error) {
	c.To.Certificate = nil
	chans := make([]*channel, c.Connections)
	for i := range chans {
		ch, err := connect(ctx, c.To.via(c.Schemes, i), nil, source(c.Group, 1))
		if err != nil {
			return hogResult{}, err
		}
		chans[i] = ch
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		sum  hogResult
		took []time.Duration
		fail error
	)
	end := time.Now().Add(c.For)
	for _, ch := range chans {
		wg.Go(func() {
			r, d, err := ch.pipeline(c, end)
			if err == nil {
				err = ch.end(ctx)
			} else {
				ch.close()
			}
			mu.Lock()
			defer mu.Unlock()
			sum.Good += r.Good
			sum.Busy += r.Busy
			sum.Hinted += r.Hinted
			sum.Other += r.Other
			took = append(took, d...)
			if err != nil {
				fail = err
			}
		})
	}
	wg.Wait()
	sum.Latency = percentiles(took)
	return sum, fail
}

// pipeline keeps requests in flight until the time is over, and takes every
// answer.
func (ch *channel) pipeline(c hogConfig, end time.Time) (r hogResult, took []time.Duration, err error) {
	var rq ua.Request = &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth, NodesToRead: []*ua.ReadValueID{valueOf(c.To.Namespace)}}
	if c.Method {
		rq = &ua.CallRequest{MethodsToCall: []*ua.CallMethodRequest{{ObjectID: ua.NewStringNodeID(c.To.Namespace, workObject),
			MethodID: ua.NewStringNodeID(c.To.Namespace, workNode)}}}
	}
	rq.SetHeader(probe.Header(ch.token))
	body, err := probe.Encode(rq)
	if err != nil {
		return r, nil, err
	}
	late := time.AfterFunc(time.Until(end)+callTimeout, func() { _ = ch.c.Close() })
	defer late.Stop()
	sent := map[uint32]time.Time{}
	send := func() error {
		id := ch.c.NextRequestID()
		sent[id] = time.Now()
		return ch.c.Send(id, body)
	}
	for range c.Depth {
		if err := send(); err != nil {
			return r, took, err
		}
	}
	for len(sent) > 0 {
		id, answer, err := ch.c.Receive()
		var (
			one    *client.RequestError
			code   ua.StatusCode
			hinted bool
		)
		switch {
		case errors.As(err, &one): // HTTPS has refused it before it was a request of OPC UA
			hint := time.Duration(0)
			code, hint = reconnect.Signal(one)
			hinted = hint > 0
		case err != nil:
			return r, took, err
		default:
			code, hinted = outcome(answer, c.Method)
		}
		from, mine := sent[id]
		delete(sent, id)
		now := time.Now()
		switch {
		case !mine:
			r.Other++ // an answer that nobody waits for, or a second one
		case code == ua.StatusOK:
			r.Good++
			took = append(took, now.Sub(from))
		case code == uastatus.BadServerTooBusy:
			r.Busy++
			if hinted {
				r.Hinted++
			}
		default:
			r.Other++
		}
		if now.Before(end) {
			if err := send(); err != nil {
				return r, took, err
			}
		}
	}
	return r, took, nil
}

// outcome is an answer's ServiceResult, or its first result when it is a Call's,
// and whether its header carries something more, which is the hint.
func outcome(body []byte, call bool) (code ua.StatusCode, more bool) {
	var d uabinary.Decoder
	d.Reset(body, nil)
	_ = d.TypeID()
	h := d.ResponseHeader()
	if d.Err() != nil {
		return ua.StatusBadDecodingError, false
	}
	if call && h.ServiceResult == ua.StatusOK {
		_ = d.ArrayLen(4)
		code = d.StatusCode()
		if d.Err() != nil {
			return ua.StatusBadDecodingError, false
		}
		return code, false
	}
	return h.ServiceResult, len(h.AdditionalHeader.Body) > 0
}
