// Package demo fills the reference server's address space with what somebody
// who tests a client looks for: every built-in type, access levels, analog
// items, moving values, methods, deep and wide folders, and masses of variables.
//
// All nodes are in the namespace [NamespaceURI]; their NodeIds are strings like
// "Demo.Scalar.Double".
package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
)

// NamespaceURI is the URI of the demo namespace.
const NamespaceURI = "urn:breakwater:demo"

// Options configure Build. The zero value gives the demo space without mass
// variables.
type Options struct {
	// Variables is the number of mass variables below Demo.Mass, in folders of
	// 1,000. 0 or negative: none.
	Variables int
	// Interval is how often the mass variables change. 0: once a second.
	// Negative: never.
	Interval time.Duration
}

// MaxVariables is the most mass variables Build makes.
const MaxVariables = 10_000_000

// A Space is the demo part of an address space.
type Space struct {
	simulation *simulation
	mass       []*addressspace.Variable
	interval   time.Duration
}

// Build adds the demo nodes to space. Their values move while Run runs.
func Build(space *addressspace.Space, o Options) (*Space, error) {
	if o.Variables > MaxVariables {
		return nil, fmt.Errorf("demo: %d variables; at most %d are possible", o.Variables, MaxVariables)
	}
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	ns := space.Namespace(NamespaceURI)
	if _, err := ns.AddFolder("Demo", addressspace.Description("Nodes for testing clients")); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	addTypes(ns)
	addAccess(ns)
	addDataAccess(ns)
	addMethods(ns)
	addFolders(ns)
	s := &Space{simulation: addSimulation(ns), interval: o.Interval}
	var err error
	if s.mass, err = addMass(ns, o.Variables); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return s, nil
}

// Run moves the simulated values until ctx ends.
func (s *Space) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { s.simulation.run(ctx) })
	if len(s.mass) > 0 && s.interval > 0 {
		wg.Go(func() { runMass(ctx, s.mass, s.interval) })
	}
	wg.Wait()
}
