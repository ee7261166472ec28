// Command cmd runs the overload tests at full size and prints what they
// measured, with a verdict for every bound. ci/storm starts it:
//
//	ci/storm                                   # everything, about 15 minutes
//	go run ./internal/overloadtest/cmd -only hog
//
// The server is pinned to core 0 and its clients to core 1.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/breakwater-ua/breakwater/internal/overloadtest"
)

func main() {
	if overloadtest.RunChild() {
		return
	}
	f := overloadtest.FullSize()
	var (
		only       = flag.String("only", "", "run only `what`: storm, flood or hog")
		protection = flag.String("protection", "", "storm only a server with `which` protection: balanced (judged), SharedOnly or \"limits off\" (to compare)")
	)
	via := flag.String("via", "", "`schemes` of the load, in turn: opc.tcp, opc.wss, opc.https (default opc.tcp alone)")
	flag.IntVar(&f.Storm.Clients, "clients", f.Storm.Clients, "clients of the storm")
	flag.IntVar(&f.Storm.Bare, "bare", f.Storm.Bare, "establishments measured in peace, to judge the drain by")
	flag.IntVar(&f.Storm.Active, "active", f.Storm.Active, "active sessions")
	flag.IntVar(&f.Storm.Loopers, "loopers", f.Storm.Loopers, "clients that ignore hints, after the storm")
	flag.DurationVar(&f.Storm.Loop, "loop", f.Storm.Loop, "how long they do")
	flag.DurationVar(&f.Storm.Limit, "limit", f.Storm.Limit, "the most that a storm may take")
	flag.IntVar(&f.Flood.Connections, "flooders", f.Flood.Connections, "connections of the flood")
	flag.DurationVar(&f.Flood.For, "flood", f.Flood.For, "how long the flood lasts")
	flag.Parse()
	if *via != "" {
		f.Storm.Schemes = strings.Split(*via, ",")
		f.Flood.Schemes, f.Hog.Schemes = f.Storm.Schemes, f.Storm.Schemes
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	started := time.Now()
	missed, err := f.Run(ctx, os.Stdout, *only, *protection)
	fmt.Printf("\ntook %v\n", time.Since(started).Round(time.Second))
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "overloadtest:", err)
		os.Exit(1)
	case missed > 0:
		fmt.Fprintf(os.Stderr, "overloadtest: %d bounds missed\n", missed)
		os.Exit(1)
	}
}
