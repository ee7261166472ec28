// Package child runs parts of a measurement in processes of their own, so that a
// server and its clients neither share a heap nor a scheduler, and lets the
// parent ask them questions over their standard input and output, a line of JSON
// each.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a child may take to end once it was told to.
const stopTimeout = 30 * time.Second

// A question is a line from the parent, an answer a line from the child.
type question struct {
	Verb string          `json:"verb"`
	Arg  json.RawMessage `json:"arg"`
}

type answer struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
}

// A Verb does what the parent asks for. ctx ends with the parent's pipe.
type Verb func(ctx context.Context, arg json.RawMessage) (any, error)

// None is the argument or the answer of verbs that have none.
type None struct{}

// Asks makes a Verb of a typed function.
func Asks[A, V any](f func(context.Context, A) (V, error)) Verb {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var a A
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, err
		}
		return f(ctx, a)
	}
}

// Serve answers the parent's questions, one at a time, until standard input ends.
func Serve(ctx context.Context, verbs map[string]Verb) {
	ctx, cancel := context.WithCancel(ctx)
	questions := make(chan question)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(questions)
		defer cancel() // the parent is gone: whatever runs must end
		in := json.NewDecoder(os.Stdin)
		for {
			var q question
			if in.Decode(&q) != nil {
				return
			}
			questions <- q
		}
	})
	defer reader.Wait()
	out := json.NewEncoder(os.Stdout)
	for q := range questions {
		var a answer
		if f := verbs[q.Verb]; f == nil {
			a.Error = "no verb " + q.Verb
		} else if v, err := f(ctx, q.Arg); err != nil {
			a.Error = err.Error()
		} else if a.Value, err = json.Marshal(v); err != nil {
			a.Error = err.Error()
		}
		if out.Encode(a) != nil {
			cancel()
		}
	}
}

// A Process is a child under the parent's control.
type Process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// Start starts a child, whose program calls Serve. Its standard error is ours.
func Start(name string, cmd *exec.Cmd) (*Process, error) {
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
	return &Process{name: name, cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

// Ask asks one question and waits for its answer, which goes into v unless nil.
func (p *Process) Ask(verb string, arg, v any) error {
	raw, err := json.Marshal(arg)
	if err != nil {
		return err
	}
	line, err := json.Marshal(question{Verb: verb, Arg: raw})
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%s %s: %w", p.name, verb, err)
	}
	text, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s %s: the process ended: %w", p.name, verb, err)
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("%s %s: %w in %q", p.name, verb, err, text)
	}
	if a.Error != "" {
		return fmt.Errorf("%s %s: %s", p.name, verb, a.Error)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(a.Value, v)
}

// Stop ends the child and says how it ended.
func (p *Process) Stop() error {
	p.in.Close()
	late := time.AfterFunc(stopTimeout, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, p.out)
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// CPU is the CPU time that this process has used; 0 when it cannot be told.
func CPU() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// Resident is the resident set size of this process in bytes; 0 when it cannot
// be told.
func Resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(f[1], 10, 64)
	return n * int64(os.Getpagesize())
}
