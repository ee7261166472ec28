// Command uastorm load-tests OPC UA servers: storms of connects, steady load with
// honest latencies, floods, and scenarios with limits for CI.
//
//	go run ./cmd/uastorm storm opc.tcp://localhost:4840
//
// It is polite by default; see uastorm --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/breakwater-ua/breakwater/internal/command"
)

// Exit codes.
const (
	exitLimits    = 1 // a limit was not kept
	exitUsage     = 2 // nothing was done: flags, files, a target that is not ours
	exitTarget    = 3 // the target could not be reached or used, or this machine is at its end
	exitSaturated = 4 // the generator did not keep up: its figures are its own
	exitCancelled = 130
)

// exitError is an error with its exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

func fails(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

// exitCode of an error; what has none of its own is a matter of usage.
func exitCode(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, context.Canceled):
		return exitCancelled
	}
	return exitUsage
}

func main() {
	setRuntime()
	ctx, stop := command.UntilSignal(context.Background())
	cmd := newRoot(os.Stdout, os.Stderr)
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "uastorm:", err)
	}
	os.Exit(exitCode(err))
}
