package measure

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSaturationRule(t *testing.T) {
	late := func(ms float64) Quantiles { return Quantiles{Count: 100, P99: ms, Max: 10 * ms} }
	for _, c := range []struct {
		name       string
		limits     SaturationLimits
		busy, of   int
		lateness   Quantiles
		want       bool
		wantReason string
	}{
		{"keeps up", SaturationLimits{}, 0, 60, late(1), false, ""},
		{"late by less than 20 ms", SaturationLimits{}, 0, 60, late(19.9), false, ""},
		{"late by more than 20 ms", SaturationLimits{}, 0, 60, late(25), true, "one wake-up in a hundred was 25 ms late or more; the limit is 20 ms"},
		{"late by less than the caller's limit", SaturationLimits{MaxLateness: time.Second}, 0, 60, late(25), false, ""},
		{"no bound on lateness", SaturationLimits{MaxLateness: -1}, 0, 60, late(1e5), false, ""},
		{"busy in a tenth of the seconds", SaturationLimits{}, 6, 60, late(1), false, ""},
		{"busy in more than a tenth", SaturationLimits{}, 7, 60, late(1), true, "more than 85 % of 4 processors used in 7 of 60 seconds"},
		{"busy in two seconds of a short phase", SaturationLimits{}, 2, 2, late(1), false, ""},
		{"busy in three seconds of a short phase", SaturationLimits{}, 3, 3, late(1), true, "more than 85 % of 4 processors used in 3 of 3 seconds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.limits.resolved().judge(Saturation{BusySeconds: c.busy, Seconds: c.of}, c.lateness, 4)
			if got.Saturated != c.want || got.Reason != c.wantReason {
				t.Errorf("%v %q, want %v %q", got.Saturated, got.Reason, c.want, c.wantReason)
			}
		})
	}
	l := SaturationLimits{}.resolved()
	if l.busy(3.4, 4) || !l.busy(3.5, 4) || l.busy(-1, 4) || (SaturationLimits{MaxCPU: -1}).busy(4, 4) {
		t.Error("a second is busy with more than 85 % of its processors, 3.4 of 4, and only then")
	}
}

func TestALateGeneratorFailsItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Options{Phase: "calm"})
		wake := func(late time.Duration) {
			for range 100 {
				wanted := time.Now()
				r.Woke(wanted, wanted.Add(late))
			}
			time.Sleep(1100 * time.Millisecond)
		}
		wake(time.Millisecond)
		r.Phase("storm")
		wake(50 * time.Millisecond)
		res := r.Finish()
		saturated, why := res.Saturated()
		if !saturated || !strings.HasPrefix(why, "phase storm: one wake-up in a hundred was 50 ms late") || res.Passed() {
			t.Errorf("saturated %v: %q, passed %v", saturated, why, res.Passed())
		}
		if res.Phases[0].Saturation.Saturated || res.Samples[0].Saturated || !res.Samples[1].Saturated {
			t.Errorf("calm %+v, storm %+v", res.Phases[0].Saturation, res.Phases[1].Saturation)
		}
		res.Phases[1].Saturation.Saturated = false
		if !res.Passed() {
			t.Error("a run without verdicts fails")
		}
		res.Verdicts = []Verdict{{Pass: true}, {Pass: false}}
		if res.Passed() {
			t.Error("a run with a failed verdict passes")
		}
	})
}

// Processor time is real also where time is not: the sum is what counts.
func TestProcessorTimeIsMeasured(t *testing.T) {
	before, ok := processCPU()
	if !ok {
		t.Skip("this system does not tell processor time")
	}
	x := uint64(1)
	for n := 0; ; n++ {
		for range 1_000_000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
		if after, _ := processCPU(); after > before {
			break
		}
		if n > 10_000 {
			t.Fatal("ten billion multiplications took no processor time")
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Options{})
		r.mu.Lock()
		r.sampling.cpu -= 1500 * time.Millisecond // as if so much had been used since the start
		r.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		res := r.Finish()
		if len(res.Samples) != 1 || res.Samples[0].CPU < 1.5 || res.Phases[0].Saturation.CPU < 1.5 || res.Phases[0].Saturation.MaxCPU < 1.5 {
			t.Errorf("%+v, phase %+v; want 1.5 processors and a little", res.Samples, res.Phases[0].Saturation)
		}
	})
	_ = x
}

// How a run ends is judged by nobody.
func TestTheEndIsNotJudged(t *testing.T) {
	r := &Result{Phases: []Phase{{Name: "storm"}, {Name: EndPhase, Saturation: Saturation{Saturated: true, Reason: "late"}}}}
	if saturated, why := r.Saturated(); saturated || !r.Passed() {
		t.Errorf("saturated: %s", why)
	}
	r.Phases[0].Saturation.Saturated = true
	if saturated, _ := r.Saturated(); !saturated {
		t.Error("a phase before the end is not looked at")
	}
}

// More threads than processors do not make more processors.
func TestProcessorsAreThoseThereAre(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4 * runtime.NumCPU()))
	if n := Processors(); n < 1 || n > runtime.NumCPU() {
		t.Fatalf("%d processors, the machine has %d", n, runtime.NumCPU())
	}
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Options{})
		r.mu.Lock()
		r.sampling.cpu -= time.Duration(0.9 * float64(Processors()) * float64(time.Second)) // as if so much had been used
		r.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		res := r.Finish()
		if res.Processors != Processors() || !res.Samples[0].Saturated || res.Phases[0].Saturation.BusySeconds != 1 {
			t.Errorf("%d processors, %+v, %+v", res.Processors, res.Samples[0], res.Phases[0].Saturation)
		}
	})
}
