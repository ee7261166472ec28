package measure

import "testing"

func TestLongRunsAreThinned(t *testing.T) {
	var s sampling
	s.stride = 1
	const seconds = 2*keptSamples + 1000
	for i := range seconds {
		x := Sample{At: float64(i + 1), Seconds: 1, Sessions: int64(i), Counts: Counts{Attempts: 2}, Phase: "run", CPU: 1,
			Operations:   map[Kind]Operations{Read: {Count: 1, Latency: Quantiles{Count: 1, P99: float64(i % 10), Min: float64(i), Mean: 3}}},
			Refusals:     map[Refusal]uint64{ByError: 1},
			RefusalCodes: map[string]uint64{"BadServerTooBusy": 1}}
		s.keep(x)
	}
	if len(s.kept) > keptSamples || len(s.kept) < keptSamples/2 {
		t.Fatalf("%d samples kept of %d", len(s.kept), seconds)
	}
	var length float64
	var attempts, reads, refusals uint64
	for i := range s.kept {
		k := &s.kept[i]
		length += k.Seconds
		attempts += k.Attempts
		reads += k.Operations[Read].Latency.Count
		refusals += k.Refusals[ByError]
		if k.At != length || k.CPU != 1 || k.Operations[Read].Latency.Mean != 3 || k.Sessions != int64(k.At)-1 {
			t.Fatalf("sample %d ends at %v after %v seconds: %+v", i, k.At, length, k)
		}
	}
	if length != seconds || attempts != 2*seconds || reads != seconds || refusals != seconds {
		t.Errorf("%v seconds, %d attempts, %d reads, %d refusals are left of %d", length, attempts, reads, refusals, seconds)
	}
	first := s.kept[0].Operations[Read].Latency
	if s.kept[0].Seconds != 4 || first.P99 != 3 || first.Min != 0 {
		t.Errorf("first sample of %v seconds %+v; want 4 seconds, the worst p99, the least minimum", s.kept[0].Seconds, first)
	}
}

// Observers keep what they were told; merging must not change it.
func TestThinningLeavesToldSamplesAlone(t *testing.T) {
	told := Sample{Seconds: 1, Refusals: map[Refusal]uint64{ByError: 1}}
	kept := told
	kept.Merge(&Sample{Seconds: 1, Refusals: map[Refusal]uint64{ByError: 5, ByFault: 1}})
	if told.Refusals[ByError] != 1 || len(told.Refusals) != 1 || kept.Refusals[ByError] != 6 {
		t.Errorf("told %v, kept %v", told.Refusals, kept.Refusals)
	}
}
