package load

import (
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

// Record puts facts into a result. Phases without clients, and without floods,
// are left out of the table.
func Record(res *measure.Result, facts []Facts) {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	res.Clients, res.Floods = nil, nil
	for i := range facts {
		f := &facts[i]
		if f.Clients > 0 || f.Attempts > 0 {
			res.Clients = append(res.Clients, measure.ClientFacts{Phase: f.Phase, Clients: f.Clients, Holding: f.Holding, HeldAfter: ms(f.Held),
				Attempts: f.Attempts, MostAttempts: f.MaxAttempts, Refused: f.Refused, Hinted: f.Hinted, Unhinted: f.Unhinted,
				Silent: f.Silent, Unreached: f.Unreached, TimedOut: f.TimedOut, Lost: f.Lost})
		}
		for _, x := range f.Floods {
			res.Floods = append(res.Floods, measure.FloodFacts{Phase: f.Phase, Kind: x.Kind, Connections: x.Connections, Opened: x.Opened,
				Refused: x.Refused, Held: x.Held, Peak: x.Peak, Longest: ms(x.Longest), Bytes: x.Bytes, Ended: x.Ended})
		}
	}
}
