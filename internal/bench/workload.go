package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"
)

// workload drives a peer for about d and returns how many operations it did.
type workload struct {
	name   string
	target float64 // how many times less server CPU than gopcua's the issue asks for
	run    func(p *peer, d time.Duration) (int, error)
}

var workloads = []workload{
	{"read 1 node, 8 × 8 pipelined", 20, reads(1, 8, 8)},
	{"read 100 nodes, 8 × 8 pipelined", 40, reads(100, 8, 8)},
	{"read 1 node, ping-pong", 5, reads(1, 1, 1)},
	{"connect cycle, None", 2.5, connects(8)},
}

func reads(nodes, conns, depth int) func(*peer, time.Duration) (int, error) {
	return func(p *peer, d time.Duration) (int, error) {
		total := 0
		var mu sync.Mutex
		err := parallel(conns, func(i int) error {
			c, err := dial(p.addr)
			if err != nil {
				return err
			}
			defer c.close()
			if err := c.session("opc.tcp://" + p.addr); err != nil {
				return err
			}
			rq := &ua.ReadRequest{RequestHeader: header(c.auth, 7), TimestampsToReturn: ua.TimestampsToReturnBoth}
			for n := range nodes {
				rq.NodesToRead = append(rq.NodesToRead, &ua.ReadValueID{
					NodeID:      ua.NewNumericNodeID(p.ns, uint32(firstNode+(i*nodes+n)%nodeCount)),
					AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{},
				})
			}
			body, err := message(631, rq)
			if err != nil {
				return err
			}
			n, err := c.pipeline(body, 634, depth, time.Now().Add(d))
			mu.Lock()
			total += n
			mu.Unlock()
			return err
		})
		return total, err
	}
}

func connects(workers int) func(*peer, time.Duration) (int, error) {
	return func(p *peer, d time.Duration) (int, error) {
		until := time.Now().Add(d)
		var n atomic.Int64
		err := parallel(workers, func(int) error {
			for time.Now().Before(until) {
				c, err := dial(p.addr)
				if err != nil {
					return err
				}
				if err := c.session("opc.tcp://" + p.addr); err != nil {
					c.close()
					return err
				}
				if _, err := c.call(473, &ua.CloseSessionRequest{RequestHeader: header(c.auth, 9), DeleteSubscriptions: true}); err != nil {
					c.close()
					return err
				}
				c.close()
				n.Add(1)
			}
			return nil
		})
		return int(n.Load()), err
	}
}

// hold opens n sessions, several at a time, and returns their connections.
func hold(p *peer, n int) ([]*conn, error) {
	conns := make([]*conn, n)
	var next atomic.Int64
	err := parallel(16, func(int) error {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return nil
			}
			c, err := dial(p.addr)
			if err != nil {
				return err
			}
			conns[i] = c
			if err := c.session("opc.tcp://" + p.addr); err != nil {
				return err
			}
			// A held connection needs no 64 KiB of the generator's memory.
			c.r, c.buf = nil, nil
		}
	})
	return conns, err
}

// subscribe gives each connection one subscription with one item and answers
// its notifications until stop is closed.
func subscribe(p *peer, conns []*conn, interval time.Duration, stop <-chan struct{}, notes *atomic.Int64) (*sync.WaitGroup, error) {
	var wg sync.WaitGroup
	err := parallel(16, func(w int) error {
		for i := w; i < len(conns); i += 16 {
			if err := conns[i].subscribe(p.ns, uint32(firstNode+i%nodeCount), interval); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return &wg, err
	}
	for _, c := range conns {
		wg.Go(func() { c.publish(stop, notes) })
	}
	return &wg, nil
}

func parallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
