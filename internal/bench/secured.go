package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/internal/child"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/gopcua/opcua/ua"
)

// secured measures what a session with Basic256Sha256 costs the server beside
// the private-key operations it needs, and what it holds while idle.
func (r *runner) secured(n int) error {
	p, err := start("breakwater", "-addr", freeAddr())
	if err != nil {
		return err
	}
	defer p.stop()
	ctx := context.Background()
	url := "opc.tcp://" + p.addr
	endpoints, err := probe.Endpoints(ctx, probe.Options{URL: url})
	if err != nil {
		return err
	}
	gate := security.NewCryptoGate(runtime.NumCPU())
	defer gate.Close()
	key, err := probe.NewKey(gate, probe.ApplicationURI, "bench")
	if err != nil {
		return err
	}
	o := probe.Options{URL: url, Policy: security.Basic256Sha256, Mode: ua.MessageSecurityModeSignAndEncrypt, Key: key}
	for _, e := range endpoints {
		if strings.HasSuffix(e.SecurityPolicyURI, "Basic256Sha256") {
			o.ServerCertificate = e.ServerCertificate
		}
	}
	establish := func(n int) ([]*probe.Session, error) {
		held := make([]*probe.Session, n)
		var next atomic.Int64
		err := parallel(2*runtime.NumCPU(), func(int) error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				s, err := probe.Connect(ctx, o, probe.Anonymous)
				if err != nil {
					return err
				}
				held[i] = s
			}
		})
		return held, err
	}
	end := func(held []*probe.Session) {
		for _, s := range held {
			if s != nil {
				s.Conn.Close()
			}
		}
	}
	warm, err := establish(20)
	end(warm)
	if err != nil {
		return err
	}
	var operations time.Duration
	if err := p.Ask("operations", child.None{}, &operations); err != nil {
		return err
	}
	before, idle, err := p.usage(true)
	if err != nil {
		return err
	}
	from := time.Now()
	held, err := establish(n)
	defer end(held)
	if err != nil {
		return err
	}
	took := time.Since(from)
	after, _, err := p.usage(false)
	if err != nil {
		return err
	}
	_, all, err := p.usage(true)
	if err != nil {
		return err
	}
	each := (after - before) / time.Duration(n)
	ratio := float64(each) / float64(operations)
	bytes := float64(all-idle) / float64(n) / 1024
	if ratio > 1.2 {
		r.missed++
	}
	fmt.Printf("\nsecured establishment (Basic256Sha256): %.2f ms of server CPU, its private-key operations %.2f ms, ratio %.2f (target ≤ 1.2); %.0f per second with the clients on the same machine\n",
		each.Seconds()*1000, operations.Seconds()*1000, ratio, float64(n)/took.Seconds())
	fmt.Printf("idle secured session with its channel: %.1f KiB at %d sessions (target ≤ 20 at 10,000)\n", bytes, n)
	return nil
}
