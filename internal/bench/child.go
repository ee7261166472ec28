package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"time"

	"github.com/breakwater-ua/breakwater/internal/child"
)

// firstNode is the numeric identifier of the first benchmark variable.
const firstNode = 1000

// listening is where a server under measurement is, and in which namespace its
// variables are.
type listening struct {
	Addr      string
	Namespace uint16
}

// usage is what a server has used: CPU time since its start, resident bytes now.
type usage struct {
	CPU      time.Duration
	Resident int64
}

// server is the server's side of the talk with the parent.
type server struct {
	ready chan listening
	// operations returns the CPU time of the private-key operations of one
	// secured session; it is set before ready is sent. nil: cannot be told.
	operations func() (time.Duration, error)
}

func newServer() *server { return &server{ready: make(chan listening, 1)} }

// verbs are the questions that the parent may ask.
func (s *server) verbs() map[string]child.Verb {
	used := func(context.Context, child.None) (usage, error) {
		return usage{CPU: child.CPU(), Resident: child.Resident()}, nil
	}
	return map[string]child.Verb{
		"ready": child.Asks(func(ctx context.Context, _ child.None) (listening, error) {
			select {
			case l := <-s.ready:
				return l, nil
			case <-ctx.Done():
				return listening{}, ctx.Err()
			}
		}),
		"usage": child.Asks(used),
		"collect": child.Asks(func(ctx context.Context, n child.None) (usage, error) {
			debug.FreeOSMemory()
			return used(ctx, n)
		}),
		"operations": child.Asks(func(context.Context, child.None) (time.Duration, error) { return s.operations() }),
	}
}

// peer is a server under measurement, in a process of its own.
type peer struct {
	*child.Process
	addr string
	ns   uint16
}

func start(name string, args ...string) (*peer, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	process, err := child.Start(name, exec.Command(exe, append([]string{"-serve", name}, args...)...))
	if err != nil {
		return nil, err
	}
	var at listening
	if err := process.Ask("ready", child.None{}, &at); err != nil {
		_ = process.Stop()
		return nil, fmt.Errorf("%s did not start: %w", name, err)
	}
	return &peer{Process: process, addr: at.Addr, ns: at.Namespace}, nil
}

// usage returns the CPU time the server has used and its resident bytes, after a
// collection of its garbage when collect is set.
func (p *peer) usage(collect bool) (cpu time.Duration, resident int64, err error) {
	verb := "usage"
	if collect {
		verb = "collect"
	}
	var u usage
	err = p.Ask(verb, child.None{}, &u)
	return u.CPU, u.Resident, err
}

// stop ends the server; how it ends is of no interest any more.
func (p *peer) stop() { _ = p.Stop() }
