package command

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// UntilSignal returns a context that ends with the first SIGINT or SIGTERM. The
// second one ends the process, also when it was started with SIGINT ignored, as
// shells start what runs in the background. stop ends the watch.
func UntilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for n := 0; ; n++ {
			select {
			case s := <-signals:
				if n > 0 {
					os.Exit(128 + int(s.(syscall.Signal)))
				}
				cancel()
			case <-done:
				return
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		watch.Wait()
		cancel()
	}
}
