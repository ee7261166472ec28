package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// firstNode is the numeric identifier of the first benchmark variable.
const firstNode = 1000

// ready tells the parent that the server listens and in which namespace its
// variables are.
func ready(addr string, ns uint16) { fmt.Printf("ready %s %d\n", addr, ns) }

// child is the server's side of the talk with the parent.
type child struct {
	mu         sync.Mutex
	operations func() (time.Duration, error)
}

func (c *child) setOperations(f func() (time.Duration, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations = f
}

// answer answers the parent's questions on standard input until it ends.
func (c *child) answer(cancel context.CancelFunc) {
	defer cancel()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch in.Text() {
		case "collect":
			debug.FreeOSMemory()
		case "operations":
			c.mu.Lock()
			f := c.operations
			c.mu.Unlock()
			d, err := f()
			if err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
				return
			}
			fmt.Printf("usage %d 0\n", d.Microseconds())
			continue
		}
		fmt.Printf("usage %d %d\n", cpu().Microseconds(), rss())
	}
}

// cpu returns the CPU time that this process has used.
func cpu() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// rss returns the resident set size of this process in bytes.
func rss() int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	n, _ := strconv.Atoi(f[1])
	return n * os.Getpagesize()
}

// peer is a server under measurement, in a process of its own.
type peer struct {
	name string
	addr string
	ns   uint16
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
}

func start(name string, args ...string) (*peer, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, append([]string{"-serve", name}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &peer{name: name, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	for p.out.Scan() {
		if _, err := fmt.Sscanf(p.out.Text(), "ready %s %d", &p.addr, &p.ns); err == nil {
			return p, nil
		}
	}
	p.stop()
	return nil, fmt.Errorf("%s did not start", name)
}

// usage returns the CPU time the server has used and its resident bytes.
func (p *peer) usage(collect bool) (cpu time.Duration, resident int, err error) {
	if collect {
		return p.ask("collect")
	}
	return p.ask("usage")
}

func (p *peer) ask(question string) (cpu time.Duration, resident int, err error) {
	if _, err := io.WriteString(p.in, question+"\n"); err != nil {
		return 0, 0, err
	}
	for p.out.Scan() {
		var us int64
		if _, err := fmt.Sscanf(p.out.Text(), "usage %d %d", &us, &resident); err == nil {
			return time.Duration(us) * time.Microsecond, resident, nil
		}
	}
	return 0, 0, fmt.Errorf("%s ended", p.name)
}

func (p *peer) stop() {
	p.in.Close()
	done := make(chan struct{})
	go func() { p.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		p.cmd.Process.Kill()
		<-done
	}
}
