// Command refserver is Breakwater's reference server: an OPC UA server over
// opc.tcp with a demo address space, for testing clients and for looking up how
// the library is used.
//
//	go run ./cmd/refserver
//
// starts it on opc.tcp://:4840. See refserver --help.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	cmd := newRoot(os.Stdin, os.Stdout, os.Stderr)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "refserver:", err)
		os.Exit(1)
	}
}
