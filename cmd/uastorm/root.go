package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/breakwater-ua/breakwater/internal/command"
)

// app is what all commands share.
type app struct {
	stdout, stderr io.Writer
}

const rootLong = `uastorm load-tests any OPC UA server over opc.tcp, opc.wss and opc.https: the
URL says which. What TLS certificate the server has does not matter, unless
--tls-ca says whose it must be.

It refuses targets that are not on this machine or in a private network unless
--i-own-this-server says that they are yours, has hard bounds (50,000 clients,
one hour), and prints what it will do before it does it. By default its clients
wait as the server's retry hints tell them.

Latency counts from the moment an operation was due, so a server that stalls is
charged for all that should have begun meanwhile. Beside every percentile stand
uastorm's own CPU use and lateness; when it did not keep up itself, it says so
and fails.

Exit codes:
  0    done, all limits kept
  1    a limit was not kept, see the verdict
  2    nothing was done: bad flags or URL, a bad scenario, files that cannot be
       created, a target that is not yours
  3    the target could not be reached or used, or this machine is at its end (a
       full disk too)
  4    uastorm itself was saturated: measure with less, or from another machine
  130  interrupted`

const rootExample = `  uastorm connect opc.tcp://localhost:4840 --clients 500     500 clients at once, each keeps its session
  uastorm steady opc.tcp://localhost:4840 --read-rate 1000   latency under a steady load
  uastorm storm opc.tcp://localhost:4840 --clients 1000 --report storm.html
                                                             what a storm does to those who are there
  uastorm flood opc.tcp://localhost:4840 --chunks 20         what the server makes of misbehaviour
  uastorm scenario shift-start opc.tcp://localhost:4840      a sequence with limits, for CI
  uastorm scenario --list                                    the scenarios that come with uastorm`

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	a := &app{stdout: stdout, stderr: stderr}
	root := &cobra.Command{
		Use:           "uastorm",
		Short:         "Load tester for OPC UA servers",
		Long:          rootLong,
		Example:       rootExample,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(a.newConnect(), a.newSteady(), a.newStorm(), a.newFlood(), a.newScenario(), a.newReport(), command.NewVersion("uastorm", stdout))
	return root
}
