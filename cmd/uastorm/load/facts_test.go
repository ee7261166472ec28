package load

import (
	"net"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

// Each refusal of a client counts in one column, also where nobody listens.
func TestRefusalsAreTold(t *testing.T) {
	rec, err := measure.Start(measure.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Finish()
	e := New(Options{Target: &Target{}, Recorder: rec})
	m := &member{e: e, client: true}
	for _, err := range []error{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, &net.OpError{Op: "read", Err: syscall.ECONNRESET}, errTimeout} {
		e.refused(m, err)
	}
	c := e.now.Load()
	if got := [...]int64{c.refused.Load(), c.unreached.Load(), c.silent.Load(), c.timedOut.Load()}; got != [...]int64{3, 1, 1, 1} {
		t.Errorf("refused, unreached, silent, timed out: %v", got)
	}
}

func TestRecord(t *testing.T) {
	var res measure.Result
	for range 2 { // the second replaces the first
		Record(&res, []Facts{
			{Phase: "before", Ran: time.Second},
			{Phase: "storm", Clients: 3, Holding: 2, Held: 1500 * time.Millisecond, Attempts: 9, MaxAttempts: 4, Refused: 6, Hinted: 1, Unhinted: 2,
				Silent: 3, Unreached: 4, TimedOut: 5, Lost: 7, Floods: []FloodFacts{{Kind: "OPN", Connections: 1, Opened: 2, Refused: 3, Held: 4, Peak: 5,
					Longest: 2 * time.Second, Bytes: 6, Ended: map[string]int{"silence": 1}}}},
		})
	}
	want := measure.Result{
		Clients: []measure.ClientFacts{{Phase: "storm", Clients: 3, Holding: 2, HeldAfter: 1500, Attempts: 9, MostAttempts: 4, Refused: 6, Hinted: 1,
			Unhinted: 2, Silent: 3, Unreached: 4, TimedOut: 5, Lost: 7}},
		Floods: []measure.FloodFacts{{Phase: "storm", Kind: "OPN", Connections: 1, Opened: 2, Refused: 3, Held: 4, Peak: 5, Longest: 2000, Bytes: 6,
			Ended: map[string]int{"silence": 1}}},
	}
	if !reflect.DeepEqual(res, want) {
		t.Errorf("%+v", res)
	}
}
