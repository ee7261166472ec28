package security

import (
	"context"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkEchoBesideSaturatedGate is the reason for the gate's shape: a client on loopback
// asks an echo server every millisecond while 500 callers keep the gate busy with RSA-2048
// signatures without pause. p50 and p99 are the client's; RSA/s is the gate's. Run it on one
// core with taskset -c 0. "GOMAXPROCS" is the library's default width, "cores" what
// cmd/refserver sets up.
func BenchmarkEchoBesideSaturatedGate(b *testing.B) {
	cores := runtime.NumCPU()
	for _, c := range []struct {
		name           string
		procs, workers int
		waiters        int
	}{
		{"idle", cores, max(1, cores-1), 0},
		{"W=GOMAXPROCS-1", max(2, cores), max(1, cores-1), 500},
		{"W=cores,GOMAXPROCS=cores+W", 2 * cores, cores, 500},
	} {
		b.Run(c.name, func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.procs))
			echoBesideGate(b, c.workers, c.waiters)
		})
	}
}

func echoBesideGate(b *testing.B, workers, waiters int) {
	g := NewCryptoGate(workers)
	defer g.Close()
	k := newTestKey(b, 2048, g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close()
	wg.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{conn})
	})
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var signed sync.WaitGroup
	counts := make([]int, waiters)
	for i := range waiters {
		signed.Go(func() {
			for ctx.Err() == nil {
				if _, err := Basic256Sha256.Sign(ctx, k, PriorityIssue, []byte("storm")); err == nil {
					counts[i]++
				}
			}
		})
	}
	for waiters > 0 && g.Waiting()[PriorityIssue] < waiters*9/10 {
		runtime.Gosched()
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var took []time.Duration
	buf := make([]byte, 64)
	start := time.Now()
	for b.Loop() {
		<-tick.C
		t := time.Now()
		if _, err := client.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, buf); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(t))
	}
	elapsed := time.Since(start)
	cancel()
	signed.Wait()
	slices.Sort(took)
	total := 0
	for _, n := range counts {
		total += n
	}
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(total)/elapsed.Seconds(), "RSA/s")
}
