package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

// setRuntime makes room beside the threads for private keys (security.CryptoGate),
// unless GOMAXPROCS says otherwise: else a storm of signatures would keep
// uastorm's own clock from being looked at.
func setRuntime() {
	if _, chosen := os.LookupEnv("GOMAXPROCS"); !chosen {
		runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0))
	}
}

// untilSignal ends at SIGINT or SIGTERM, so that a run ends in order; the second
// one ends the process.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
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
