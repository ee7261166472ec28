package demo

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
)

const (
	step   = 100 * time.Millisecond // between two values of the simulation
	period = 10 * time.Second       // of the periodic signals
)

// simulation holds the variables that move by themselves.
type simulation struct {
	counter                                      *addressspace.Variable
	sinusoid, sawtooth, square, triangle, random *addressspace.Variable
}

// addSimulation adds the signals a tester plots.
func addSimulation(ns *addressspace.Namespace) *simulation {
	ns.Folder("Demo.Simulation", addressspace.Description("Values that move by themselves, ten times a second"))
	signal := func(name, description string) *addressspace.Variable {
		return ns.Variable("Demo.Simulation."+name, 0.0, addressspace.EURange(-1, 1),
			addressspace.Description(description), addressspace.MinimumSamplingInterval(float64(step.Milliseconds())))
	}
	return &simulation{
		// Without a least sampling interval, so that who subscribes can see every
		// value: sampling at the pace of the steps would miss some.
		counter:  ns.Variable("Demo.Simulation.Counter", uint32(0), addressspace.Description("Counts up")),
		sinusoid: signal("Sinusoid", "Sine, -1 to 1 in 10 s"),
		sawtooth: signal("Sawtooth", "Rises from -1 to 1 in 10 s and drops"),
		square:   signal("Square", "1 for 5 s, -1 for 5 s"),
		triangle: signal("Triangle", "Rises from -1 to 1 in 5 s and falls again"),
		random:   signal("Random", "Evenly distributed from -1 to 1"),
	}
}

// run moves the signals until ctx ends.
func (s *simulation) run(ctx context.Context) {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for n := uint32(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.set(n, rand.Float64())
		}
	}
}

// set gives the signals their values of step n; random is in [0, 1).
func (s *simulation) set(n uint32, random float64) {
	phase := float64(n%uint32(period/step)) / float64(period/step)
	square := 1.0
	if phase >= 0.5 {
		square = -1
	}
	// The types are those of the initial values, so Set cannot fail.
	_ = s.counter.Set(n)
	_ = s.sinusoid.Set(math.Sin(2 * math.Pi * phase))
	_ = s.sawtooth.Set(2*phase - 1)
	_ = s.square.Set(square)
	_ = s.triangle.Set(1 - 4*math.Abs(phase-0.5))
	_ = s.random.Set(2*random - 1)
}
