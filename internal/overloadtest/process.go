package overloadtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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

// roleVariable tells a child what it is. Its program must call RunChild first.
const roleVariable = "BREAKWATER_OVERLOAD_ROLE"

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

// verb does what the parent asks for. ctx ends with the parent's pipe.
type verb func(ctx context.Context, arg json.RawMessage) (any, error)

// asks makes a verb of a typed function.
func asks[A, V any](f func(context.Context, A) (V, error)) verb {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var a A
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, err
		}
		return f(ctx, a)
	}
}

// none is the argument or the answer of verbs that have none.
type none struct{}

// RunChild runs the child that this process was started as, and reports false in
// a process that is none.
func RunChild() bool {
	role := os.Getenv(roleVariable)
	if role == "" {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var (
		verbs map[string]verb
		end   func()
	)
	switch role {
	case "server":
		verbs, end = serverVerbs()
	case "active":
		verbs, end = activeVerbs()
	case "attack":
		verbs, end = attackVerbs()
	default:
		fmt.Fprintf(os.Stderr, "overloadtest: no role %q\n", role)
		os.Exit(2)
	}
	serveVerbs(ctx, cancel, verbs)
	end()
	return true
}

func serveVerbs(ctx context.Context, cancel context.CancelFunc, verbs map[string]verb) {
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

// A process is a child under the parent's control.
type process struct {
	role string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// placement is where and how willingly a child runs.
type placement struct {
	Core int // -1: anywhere
	Nice int
}

var anywhere = placement{Core: -1}

// startProcess starts this program again as a child with a role.
func startProcess(role string, at placement) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	argv := []string{exe}
	if at.Nice != 0 {
		argv = append([]string{"nice", "-n", strconv.Itoa(at.Nice)}, argv...)
	}
	if at.Core >= 0 {
		argv = append([]string{"taskset", "-c", strconv.Itoa(at.Core)}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
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
	return &process{role: role, cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

// ask asks one question and waits for its answer, which goes into v unless nil.
func (p *process) ask(verb string, arg, v any) error {
	raw, err := json.Marshal(arg)
	if err != nil {
		return err
	}
	line, err := json.Marshal(question{Verb: verb, Arg: raw})
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%s %s: %w", p.role, verb, err)
	}
	text, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s %s: the process ended: %w", p.role, verb, err)
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("%s %s: %w in %q", p.role, verb, err, text)
	}
	if a.Error != "" {
		return fmt.Errorf("%s %s: %s", p.role, verb, a.Error)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(a.Value, v)
}

// stop ends the child and says how it ended.
func (p *process) stop() error {
	p.in.Close()
	late := time.AfterFunc(stopTimeout, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, p.out)
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", p.role, err)
	}
	return nil
}

// cpuUsed is the CPU time that this process has used.
func cpuUsed() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// machineBusy is the CPU time that all cores have spent on anything.
func machineBusy() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux
	var sum time.Duration
	for i, f := range strings.Fields(line)[1:] {
		if i == 3 || i == 4 || i > 7 { // idle, iowait; guests are in user
			continue
		}
		n, _ := strconv.ParseInt(f, 10, 64)
		sum += time.Duration(n) * tick
	}
	return sum
}

// resident is the resident set size of this process in bytes.
func resident() int64 {
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

// pause waits for d and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// until asks again and again whether something is so; it is an error when it is
// still not after limit.
func until(ctx context.Context, limit time.Duration, what string, so func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := so()
		if ok || err != nil {
			return err
		}
		if !pause(ctx, 50*time.Millisecond) {
			return errors.New("still not so: " + what)
		}
	}
}
