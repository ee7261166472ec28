package measure

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uastatus"
)

// watcher is an Observer that keeps all it is told.
type watcher struct {
	samples []*Sample
	events  []Event
}

func (w *watcher) Sample(s *Sample) { w.samples = append(w.samples, s) }
func (w *watcher) Event(e Event)    { w.events = append(w.events, e) }

func start(t *testing.T, o Options) *Recorder {
	t.Helper()
	r, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// near allows for the three digits of a histogram.
func near(a, b float64) bool { return a >= b*0.998 && a <= b*1.002 }

func TestLatencyIsFromTheScheduledTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Options{})
		scheduled := time.Now()
		time.Sleep(400 * time.Millisecond) // the server stalls; the next call waits for its turn
		begun := time.Now()
		time.Sleep(5 * time.Millisecond)
		r.Operation(Read, scheduled, begun, time.Now(), ua.StatusOK)
		got := r.Finish().Total.Operations[Read]
		if !near(got.Latency.P50, 405) || !near(got.Service.P50, 5) {
			t.Errorf("latency %v, service time %v ms; want 405 and 5", got.Latency.P50, got.Service.P50)
		}
	})
}

func TestFailuresAreTimedOnlyWhenTheyAreTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Options{})
		now := time.Now()
		for _, code := range []ua.StatusCode{ua.StatusOK, ua.StatusUncertain, ua.StatusBadNodeIDUnknown, ua.StatusBadTimeout, ua.StatusBadRequestTimeout} {
			r.Operation(Write, now, now, now.Add(time.Second), code)
		}
		total := r.Finish().Total
		if got := total.Operations[Write]; got.Count != 5 || got.Errors != 3 || got.Latency.Count != 4 || got.Service.Count != 4 {
			t.Errorf("%d ended, %d failed, %d timed; want 5, 3, 4", got.Count, got.Errors, got.Latency.Count)
		}
		if e := total.Errors; len(e) != 3 || e[0].Kind != Write || e[0].Count != 1 {
			t.Errorf("errors %v", e)
		}
	})
}

func TestTimesOutOfRangeAreClipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Options{})
		now := time.Now()
		r.Operation(Read, now, now, now.Add(-time.Second), ua.StatusOK)
		r.Operation(Read, now, now, now.Add(9*time.Hour), ua.StatusOK)
		r.Operation(Kinds, now, now, now, ua.StatusOK) // no such kind
		got := r.Finish().Total.Operations[Read].Latency
		if got.Count != 2 || got.Min != 0 || !near(got.Max, 600_000) {
			t.Errorf("%+v, want 0 and 10 minutes", got)
		}
	})
}

func TestAnOperationCountsToThePhaseItWasScheduledIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Options{Phase: "calm"})
		inCalm := time.Now().Add(100 * time.Millisecond)
		time.Sleep(1250 * time.Millisecond)
		r.Phase("storm")
		inStorm := time.Now()
		time.Sleep(time.Second)
		r.Phase("after")
		now := time.Now()
		r.Operation(Read, inCalm, now, now, ua.StatusOK)
		r.Operation(Read, inStorm, now, now, ua.StatusOK)
		r.Operation(Read, inStorm, now, now, ua.StatusBadOutOfMemory)
		r.Operation(Read, now, now, now, ua.StatusOK)
		r.Attempt() // counts when it happens
		time.Sleep(time.Second)
		res := r.Finish()
		var names []string
		var counts []uint64
		for _, p := range res.Phases {
			names = append(names, p.Name)
			counts = append(counts, p.Totals.Operations[Read].Count)
		}
		if !slices.Equal(names, []string{"calm", "storm", "after"}) || !slices.Equal(counts, []uint64{1, 2, 1}) {
			t.Errorf("phases %q with %v reads; want calm, storm, after with 1, 2, 1", names, counts)
		}
		if p := res.Phases[1]; p.Begin != 1.25 || p.End != 2.25 || !near(p.Totals.Operations[Read].Latency.Max, 1000) {
			t.Errorf("storm from %v to %v, max %v ms; want 1.25 to 2.25 and 1000", p.Begin, p.End, p.Totals.Operations[Read].Latency.Max)
		}
		if res.Phases[2].Totals.Attempts != 1 || res.Total.Attempts != 1 {
			t.Error("the attempt is not in the last phase")
		}
		// The overdue ones are in the second in which they ended.
		var perSecond []uint64
		var phases []string
		for _, s := range res.Samples {
			perSecond = append(perSecond, s.Operations[Read].Count)
			phases = append(phases, s.Phase)
		}
		if !slices.Equal(perSecond, []uint64{0, 0, 4, 0}) || res.Total.Operations[Read].Count != 4 {
			t.Errorf("reads a second %v, total %d", perSecond, res.Total.Operations[Read].Count)
		}
		if !slices.Equal(phases, []string{"calm", "storm", "after", "after"}) {
			t.Errorf("samples are of the phases %q", phases)
		}
	})
}

func TestASampleIsMadeOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watcher{}
		r := start(t, Options{Observers: []Observer{w}})
		r.SessionUp()
		r.SessionUp()
		r.ConnectionUp()
		r.Notifications(7)
		time.Sleep(1500 * time.Millisecond)
		r.SessionDown()
		r.Gap(3)
		r.Duplicates(2)
		time.Sleep(time.Second)
		res := r.Finish()
		if len(w.samples) != 3 || len(res.Samples) != 3 || res.Seconds != 2.5 {
			t.Fatalf("%d samples told, %d kept, %v seconds; want 3, 3, 2.5", len(w.samples), len(res.Samples), res.Seconds)
		}
		a, b, c := w.samples[0], w.samples[1], w.samples[2]
		if a.At != 1 || a.Seconds != 1 || a.Sessions != 2 || a.Connections != 1 || a.Notifications != 7 || a.SessionsUp != 2 {
			t.Errorf("first sample %+v", a)
		}
		if b.At != 2 || b.Sessions != 1 || b.SessionsDown != 1 || b.Notifications != 0 || b.Gaps != 1 || b.Lost != 3 || b.Duplicates != 2 {
			t.Errorf("second sample %+v", b)
		}
		if c.At != 2.5 || c.Seconds != 0.5 || c.Sessions != 1 || c.SessionsDown != 0 {
			t.Errorf("last sample %+v", c)
		}
		if again := r.Finish(); again != res {
			t.Error("Finish sums up twice")
		}
	})
}

func TestEventsAreToldAtOnceAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watcher{}
		r := start(t, Options{Phase: "calm", Observers: []Observer{w}})
		time.Sleep(300 * time.Millisecond)
		r.Event("cut the network")
		synctest.Wait()
		if n := len(w.events); n != 2 || w.events[0].Text != "phase calm" || w.events[1] != (Event{0.3, "cut the network"}) {
			t.Errorf("told %v before the first sample", w.events)
		}
		for range 2 * EventLimit {
			r.Event("again\xff")
		}
		res := r.Finish()
		if len(res.Events) != EventLimit+1 || len(w.events) < EventLimit {
			t.Fatalf("%d events kept, %d told", len(res.Events), len(w.events))
		}
		if res.Events[2].Text != "again" {
			t.Errorf("text %q is not mended", res.Events[2].Text)
		}
		if last := res.Events[EventLimit].Text; last != "1002 more events left out" {
			t.Errorf("last event %q", last)
		}
	})
}

func TestRefusalsHaveTheirCodesAndHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Options{})
		for range 3 {
			r.Refused(ByError, uastatus.BadServerTooBusy, 1500*time.Millisecond)
		}
		r.Refused(ByFault, ua.StatusBadTooManySessions, 0)
		r.Refused(ByFault, ua.StatusBadTooManySessions, 30*time.Second)
		r.Refused(BySilence, 0, 0)
		r.Refused(Refusals, 0, 0) // no such way
		time.Sleep(time.Second)
		res := r.Finish()
		want := []RefusalCount{
			{ByError, uint32(uastatus.BadServerTooBusy), "BadServerTooBusy", 3, 3},
			{ByFault, uint32(ua.StatusBadTooManySessions), "BadTooManySessions", 2, 1},
			{BySilence, 0, "none", 1, 0},
		}
		if !slices.Equal(res.Total.Refusals, want) || res.Total.Refused != 6 || res.Total.Hinted != 4 {
			t.Errorf("refusals %v, %d in all, %d hinted", res.Total.Refusals, res.Total.Refused, res.Total.Hinted)
		}
		if b := res.Total.HintBuckets; !slices.Equal(b, []Bucket{{2000, 3}, {5000, 0}, {10000, 0}, {20000, 0}, {30000, 1}}) {
			t.Errorf("hint buckets %v", b)
		}
		if h := res.Samples[0].Hints; h.Count != 4 || h.P50 < 1485 || h.P50 > 1515 {
			t.Errorf("hints of the second: %+v", h)
		}
		if s := res.Samples[0]; s.Refusals[ByError] != 3 || s.RefusalCodes["BadTooManySessions"] != 2 {
			t.Errorf("second %+v", s)
		}
	})
}

func TestMadeUpCodesAreAddedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Options{})
		now := time.Now()
		for i := range 1000 {
			r.Refused(ByError, ua.StatusCode(0x90000000+i), 0)
			r.Operation(Read, now, now, now, ua.StatusCode(0x90000000+i))
		}
		total := r.Finish().Total
		if n := len(total.Refusals); n > maxCodes+1 {
			t.Errorf("%d codes of refusals", n)
		}
		if n := len(total.Errors); n > maxCodes+1 {
			t.Errorf("%d codes of errors", n)
		}
		if total.Refused != 1000 || total.Refusals[0].Name != "other" || total.Operations[Read].Errors != 1000 || total.Errors[0].Name != "other" {
			t.Errorf("refusals %v, errors %v", total.Refusals[:2], total.Errors[:2])
		}
	})
}

func TestPhasesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Options{})
		for range 2 * maxPhases {
			time.Sleep(time.Millisecond)
			r.Phase("flap")
			r.Attempt()
		}
		res := r.Finish()
		if len(res.Phases) != maxPhases || res.Total.Attempts != 2*maxPhases {
			t.Errorf("%d phases, %d attempts", len(res.Phases), res.Total.Attempts)
		}
	})
}
