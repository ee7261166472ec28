package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/load"
)

// metricsClient reads the server's metrics from the addresses that were checked,
// as those of the target are; nil when there are none to read.
func (r *runner) metricsClient(ctx context.Context) (*http.Client, error) {
	if r.output.serverMetrics == "" {
		return nil, nil
	}
	u, err := url.Parse(r.output.serverMetrics)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fails(exitUsage, fmt.Errorf("--server-metrics %q, want http://host:port/metrics", r.output.serverMetrics))
	}
	found, err := load.Lookup(ctx, u.Hostname(), r.target.owned)
	if err != nil {
		return nil, refused(ctx, fmt.Errorf("--server-metrics: %w", err))
	}
	return &http.Client{Transport: &http.Transport{DialContext: dialOnly(found)}}, nil
}

// dialOnly connects to these addresses, whatever the name stands for by then.
func dialOnly(hosts []netip.Addr) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		d := net.Dialer{Timeout: time.Second}
		var all []error
		for _, h := range hosts {
			if conn, err = d.DialContext(ctx, network, net.JoinHostPort(h.String(), port)); err == nil {
				return conn, nil
			}
			all = append(all, err)
		}
		return nil, errors.Join(all...)
	}
}
