package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// TestSecondSignalEndsTheProcess runs itself as a process that was started with
// SIGINT ignored and does not end by the first signal.
func TestSecondSignalEndsTheProcess(t *testing.T) {
	const role = "BREAKWATER_TEST_SIGNALS"
	if os.Getenv(role) != "" {
		signal.Ignore(syscall.SIGINT)
		ctx, stop := UntilSignal(context.Background())
		defer stop()
		fmt.Println("ready")
		<-ctx.Done()
		fmt.Println("first")
		<-make(chan struct{}) // a shutdown that takes for ever
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSecondSignalEndsTheProcess$")
	cmd.Env = append(os.Environ(), role+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	defer watchdog.Stop()
	lines := bufio.NewScanner(out)
	for _, want := range []string{"ready", "first"} {
		for lines.Scan() && lines.Text() != want {
		}
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGINT) {
		t.Errorf("ended with %v, want exit code %d", err, 128+int(syscall.SIGINT))
	}
}
