package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/internal/child"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/stack"
)

// serveBreakwater runs our server as refserver would size it, with limits wide
// enough for the load: what is measured is the cost of work that is admitted.
func serveBreakwater(ctx context.Context, c *server, addr string, nodes int, change time.Duration) error {
	cores := runtime.NumCPU()
	runtime.GOMAXPROCS(2 * cores) // as refserver does, see security.CryptoGate
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	srv, err := stack.NewServer(stack.Options{
		ApplicationName: "Breakwater bench",
		Endpoints:       []string{"opc.tcp://" + addr},
		Security:        stack.Security{AllowNone: true, AllowAnonymous: true, TrustAll: true, PKI: dir, CryptoWorkers: cores},
		Limits:          stack.Limits{MaxSessions: 15000},
		RateLimits:      stack.RateLimits{Disabled: true},
		Logger:          slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	ns := srv.AddressSpace().Namespace("urn:breakwater:bench")
	vars := make([]*addressspace.Variable, nodes)
	for i := range vars {
		vars[i] = ns.Variable(fmt.Sprintf("v%d", i), 0.0, addressspace.NumericNodeID(uint32(firstNode+i)), addressspace.Writable())
	}
	if err := srv.Listen(ctx); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return err
	}
	c.operations = func() (time.Duration, error) { return privateOperations(ctx, srv.Key()) }
	c.ready <- listening{addr, ns.Index()}
	tick := time.NewTicker(change)
	defer tick.Stop()
	for round := 0.0; ; round++ {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return <-ended
		case <-tick.C:
			for _, v := range vars {
				v.Set(round)
			}
		}
	}
}

// privateOperations returns the CPU time of the private-key operations that one
// anonymous session with Basic256Sha256 needs: two decryptions and a signature
// in OpenSecureChannel, a signature in CreateSession.
func privateOperations(ctx context.Context, k *security.Key) (time.Duration, error) {
	const rounds = 50
	p := security.Basic256Sha256
	secret, err := p.Encrypt(nil, make([]byte, 300), k.Public()) // two blocks
	if err != nil {
		return 0, err
	}
	before := child.CPU()
	for range rounds {
		if _, err := p.Decrypt(ctx, k, security.PrioritySession, nil, secret); err != nil {
			return 0, err
		}
		for range 2 {
			if _, err := p.Sign(ctx, k, security.PrioritySession, secret); err != nil {
				return 0, err
			}
		}
	}
	return (child.CPU() - before) / rounds, nil
}
