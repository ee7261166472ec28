package overloadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/breakwater-ua/breakwater/internal/child"
)

// roleVariable tells a child what it is. Its program must call RunChild first.
const roleVariable = "BREAKWATER_OVERLOAD_ROLE"

// RunChild runs the child that this process was started as, and reports false in
// a process that is none.
func RunChild() bool {
	role := os.Getenv(roleVariable)
	if role == "" {
		return false
	}
	var (
		verbs map[string]child.Verb
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
	child.Serve(context.Background(), verbs)
	end()
	return true
}

// placement is where and how willingly a child runs.
type placement struct {
	Core int // -1: anywhere
	Nice int
}

var anywhere = placement{Core: -1}

// startProcess starts this program again as a child with a role.
func startProcess(role string, at placement) (*child.Process, error) {
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
	return child.Start(role, cmd)
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
