package measure

import (
	"math"
	"time"
)

// keptSamples is how many samples a result has at most: two hours of seconds.
const keptSamples = 7200

// sampling is the state of the worker that samples.
type sampling struct {
	last     time.Time     // when the last sample ended
	cpu      time.Duration // used by then
	sessions int64
	conns    int64
	kept     []Sample
	stride   int // how many seconds one kept sample stands for
	pending  int // how many the last of kept has so far
}

func (s *sampling) begin(now time.Time) {
	s.last, s.stride = now, 1
	s.cpu, _ = processCPU()
}

// sample ends an interval: it makes its Sample, keeps it and hands it on. Only
// the worker calls it.
func (r *Recorder) sample() {
	r.tellEvents()
	now := time.Now()
	elapsed := now.Sub(r.sampling.last)
	if elapsed <= 0 {
		return
	}
	r.mu.Lock()
	r.flush(0)
	cpu, known := processCPU()
	t, s := r.interval, &r.sampling
	s.sessions += int64(t.SessionsUp) - int64(t.SessionsDown)
	s.conns += int64(t.ConnectionsUp) - int64(t.ConnectionsDown)
	p := r.phaseAt(now.Sub(r.began) - elapsed/2)
	sample := Sample{At: now.Sub(r.began).Seconds(), Seconds: elapsed.Seconds(), Phase: p.name,
		Sessions: s.sessions, Connections: s.conns, Counts: t.Counts, Operations: t.operations(),
		Hints: quantiles(t.hints, 1), Lateness: quantiles(t.lateness, 1000), CPU: -1}
	for key, n := range t.refusals {
		count(&sample.Refusals, key.how, n.count)
		count(&sample.RefusalCodes, codeName(key.code), n.count)
	}
	for key, n := range t.errors {
		count(&sample.Errors, codeName(key.code), n)
	}
	if known {
		sample.CPU = (cpu - s.cpu).Seconds() / elapsed.Seconds()
	}
	l := r.options.Limits
	busy := l.busy(sample.CPU, processors)
	sample.Saturated = busy || l.late(sample.Lateness)
	p.measure(&sample, busy)
	s.last, s.cpu = now, cpu
	t.reset()
	r.mu.Unlock()

	if r.scrape != nil {
		sample.Server = r.scrape.latest(now)
		r.scrape.next()
	}
	for _, o := range r.options.Observers {
		o.Sample(&sample)
	}
	s.keep(sample)
}

func count[K comparable](m *map[K]uint64, key K, n uint64) {
	if *m == nil {
		*m = make(map[K]uint64)
	}
	(*m)[key] += n
}

// measure takes a sample's processor time down for the phase. Fractions of a
// second, as at the end of a run, do not count: the system's clock of processor
// time may be coarse.
func (p *phase) measure(s *Sample, busy bool) {
	if s.Seconds < 0.5 || s.CPU < 0 {
		return
	}
	p.cpuKnown = true
	p.seconds++
	p.cpu += s.CPU
	p.maxCPU = max(p.maxCPU, s.CPU)
	if busy {
		p.busy++
	}
}

// keep adds a sample to those of the result. When there are too many,
// neighbours are merged and from then on one stands for twice as many seconds.
func (s *sampling) keep(sample Sample) {
	if s.pending > 0 && s.pending < s.stride {
		s.kept[len(s.kept)-1].Merge(&sample)
		s.pending++
		return
	}
	if len(s.kept) == keptSamples {
		for i := range keptSamples / 2 {
			s.kept[i] = s.kept[2*i]
			s.kept[i].Merge(&s.kept[2*i+1])
		}
		clear(s.kept[keptSamples/2:])
		s.kept = s.kept[:keptSamples/2]
		s.stride *= 2
	}
	s.kept = append(s.kept, sample)
	s.pending = 1
}

// Merge adds the sample that follows: counts are added, levels and quantiles
// become the later and the worse ones.
func (s *Sample) Merge(o *Sample) {
	length := s.Seconds + o.Seconds
	s.CPU = (s.CPU*s.Seconds + o.CPU*o.Seconds) / length
	s.At, s.Seconds, s.Phase = o.At, length, o.Phase
	s.Sessions, s.Connections = o.Sessions, o.Connections
	s.Counts.add(&o.Counts)
	s.Operations = merged(s.Operations, o.Operations, Operations.merge)
	sum := func(a, b uint64) uint64 { return a + b }
	s.Refusals = merged(s.Refusals, o.Refusals, sum)
	s.RefusalCodes = merged(s.RefusalCodes, o.RefusalCodes, sum)
	s.Errors = merged(s.Errors, o.Errors, sum)
	s.Hints, s.Lateness = s.Hints.worse(o.Hints), s.Lateness.worse(o.Lateness)
	s.Saturated = s.Saturated || o.Saturated
	if o.Server != nil {
		s.Server = o.Server
	}
}

// merged is both maps in a new one: observers may still hold the old ones.
func merged[K comparable, V any](a, b map[K]V, merge func(a, b V) V) map[K]V {
	if a == nil {
		return b
	}
	m := make(map[K]V, len(a))
	for k, v := range a {
		m[k] = v
	}
	for k, v := range b {
		if old, ok := m[k]; ok {
			v = merge(old, v)
		}
		m[k] = v
	}
	return m
}

func (o Operations) merge(b Operations) Operations {
	return Operations{Count: o.Count + b.Count, Errors: o.Errors + b.Errors,
		Latency: o.Latency.worse(b.Latency), Service: o.Service.worse(b.Service)}
}

// worse is both, with the higher percentiles.
func (q Quantiles) worse(o Quantiles) Quantiles {
	n := q.Count + o.Count
	switch {
	case q.Count == 0:
		return o
	case o.Count == 0:
		return q
	}
	return Quantiles{Count: n, Min: math.Min(q.Min, o.Min),
		Mean: (q.Mean*float64(q.Count) + o.Mean*float64(o.Count)) / float64(n),
		P50:  math.Max(q.P50, o.P50), P90: math.Max(q.P90, o.P90), P99: math.Max(q.P99, o.P99),
		P999: math.Max(q.P999, o.P999), Max: math.Max(q.Max, o.Max)}
}
