package measure

import (
	"cmp"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uastatus"
)

const (
	// longest is the highest latency that a histogram can hold; a longer one
	// counts as this.
	longest = 10 * time.Minute
	// longestHint is the same of retry hints, at most a day.
	longestHint = 24 * time.Hour
	// maxCodes bounds how many different codes are told apart, because a
	// hostile server may make up as many as it likes.
	maxCodes = 64
	// otherCode stands for the codes beyond maxCodes.
	otherCode ua.StatusCode = 0xFFFFFFFF
)

type refusalKey struct {
	how  Refusal
	code ua.StatusCode
}

type errorKey struct {
	kind Kind
	code ua.StatusCode
}

type refusalTally struct{ count, hinted uint64 }

// A timing is the operations of one kind.
type timing struct {
	count, errors    uint64
	latency, service *hdrhistogram.Histogram // microseconds; nil: none yet
}

// A tally is what was counted in some stretch of time.
type tally struct {
	Counts
	kinds    [Kinds]timing
	refusals map[refusalKey]refusalTally
	errors   map[errorKey]uint64
	hints    *hdrhistogram.Histogram // milliseconds; nil: none yet
	lateness *hdrhistogram.Histogram // microseconds; nil: none yet
}

func newTally() *tally {
	return &tally{refusals: make(map[refusalKey]refusalTally), errors: make(map[errorKey]uint64)}
}

func microseconds(h **hdrhistogram.Histogram) *hdrhistogram.Histogram {
	if *h == nil {
		*h = hdrhistogram.New(1, longest.Microseconds(), 3)
	}
	return *h
}

func hintHistogram(h **hdrhistogram.Histogram) *hdrhistogram.Histogram {
	if *h == nil {
		*h = hdrhistogram.New(1, longestHint.Milliseconds(), 2)
	}
	return *h
}

// note puts a duration into a histogram. It cannot fail: the value is clipped
// to what the histogram holds.
func note(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d.Microseconds(), 0), longest.Microseconds()))
}

func (t *tally) operation(k Kind, latency, service time.Duration, code ua.StatusCode) {
	o := &t.kinds[k]
	o.count++
	if isBad(code) {
		o.errors++
		key := errorKey{k, code}
		if _, known := t.errors[key]; !known && len(t.errors) >= maxCodes {
			key.code = otherCode
		}
		t.errors[key]++
		if !isTimeout(code) {
			return
		}
	}
	note(microseconds(&o.latency), latency)
	note(microseconds(&o.service), service)
}

func (t *tally) refused(how Refusal, code ua.StatusCode, hint time.Duration) {
	t.Refused++
	key := refusalKey{how, code}
	if _, known := t.refusals[key]; !known && len(t.refusals) >= maxCodes {
		key.code = otherCode
	}
	r := t.refusals[key]
	r.count++
	if hint > 0 {
		t.Hinted++
		r.hinted++
		ms := (min(hint, longestHint) + time.Millisecond - 1).Milliseconds()
		_ = hintHistogram(&t.hints).RecordValue(ms)
	}
	t.refusals[key] = r
}

// isBad tells whether a StatusCode's severity is Bad (OPC 10000-4 §7.39,
// "StatusCode").
func isBad(code ua.StatusCode) bool { return code&0x80000000 != 0 }

func isTimeout(code ua.StatusCode) bool {
	return code == ua.StatusBadTimeout || code == ua.StatusBadRequestTimeout
}

// add adds what another tally counted.
func (t *tally) add(o *tally) {
	t.Counts.add(&o.Counts)
	for k := range o.kinds {
		to, from := &t.kinds[k], &o.kinds[k]
		to.count += from.count
		to.errors += from.errors
		if from.latency != nil && from.latency.TotalCount() > 0 {
			microseconds(&to.latency).Merge(from.latency)
			microseconds(&to.service).Merge(from.service)
		}
	}
	for key, r := range o.refusals {
		if _, known := t.refusals[key]; !known && len(t.refusals) >= maxCodes {
			key.code = otherCode
		}
		sum := t.refusals[key]
		sum.count += r.count
		sum.hinted += r.hinted
		t.refusals[key] = sum
	}
	for key, n := range o.errors {
		if _, known := t.errors[key]; !known && len(t.errors) >= maxCodes {
			key.code = otherCode
		}
		t.errors[key] += n
	}
	if o.hints != nil && o.hints.TotalCount() > 0 {
		hintHistogram(&t.hints).Merge(o.hints)
	}
	if o.lateness != nil && o.lateness.TotalCount() > 0 {
		microseconds(&t.lateness).Merge(o.lateness)
	}
}

// reset makes the tally new, its memory kept.
func (t *tally) reset() {
	t.Counts = Counts{}
	for k := range t.kinds {
		o := &t.kinds[k]
		o.count, o.errors = 0, 0
		forget(o.latency)
		forget(o.service)
	}
	clear(t.refusals)
	clear(t.errors)
	forget(t.hints)
	forget(t.lateness)
}

// forget empties a histogram that holds something.
func forget(h *hdrhistogram.Histogram) {
	if h != nil && h.TotalCount() > 0 {
		h.Reset()
	}
}

func (c *Counts) add(o *Counts) {
	c.Attempts += o.Attempts
	c.Refused += o.Refused
	c.Hinted += o.Hinted
	c.SessionsUp += o.SessionsUp
	c.SessionsDown += o.SessionsDown
	c.ConnectionsUp += o.ConnectionsUp
	c.ConnectionsDown += o.ConnectionsDown
	c.Notifications += o.Notifications
	c.Gaps += o.Gaps
	c.Lost += o.Lost
	c.Duplicates += o.Duplicates
}

func (t *tally) operations() map[Kind]Operations {
	m := map[Kind]Operations{}
	for k := range t.kinds {
		o := &t.kinds[k]
		if o.count > 0 {
			m[Kind(k)] = Operations{Count: o.count, Errors: o.errors,
				Latency: quantiles(o.latency, 1000), Service: quantiles(o.service, 1000)}
		}
	}
	return m
}

// totals is the tally as plain data.
func (t *tally) totals() Totals {
	s := Totals{Counts: t.Counts, Operations: t.operations(),
		Hints: quantiles(t.hints, 1), HintBuckets: hintBuckets(t.hints), Lateness: quantiles(t.lateness, 1000)}
	for key, r := range t.refusals {
		s.Refusals = append(s.Refusals, RefusalCount{How: key.how, Code: uint32(key.code), Name: codeName(key.code),
			Count: r.count, Hinted: r.hinted})
	}
	slices.SortFunc(s.Refusals, func(a, b RefusalCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.How, b.How), cmp.Compare(a.Code, b.Code))
	})
	for key, n := range t.errors {
		s.Errors = append(s.Errors, ErrorCount{Kind: key.kind, Code: uint32(key.code), Name: codeName(key.code), Count: n})
	}
	slices.SortFunc(s.Errors, func(a, b ErrorCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Code, b.Code))
	})
	return s
}

// codeName names a StatusCode.
func codeName(code ua.StatusCode) string {
	switch code {
	case otherCode:
		return "other"
	case ua.StatusOK:
		return "none"
	}
	return uastatus.Name(code)
}

// quantiles sums a histogram up; units is how many of its units make a
// millisecond.
func quantiles(h *hdrhistogram.Histogram, units float64) Quantiles {
	if h == nil || h.TotalCount() == 0 {
		return Quantiles{}
	}
	v := h.ValueAtPercentilesSlice([]float64{50, 90, 99, 99.9, 100})
	ms := func(v int64) float64 { return float64(v) / units }
	return Quantiles{Count: uint64(h.TotalCount()), Min: ms(h.Min()), Mean: h.Mean() / units,
		P50: ms(v[0]), P90: ms(v[1]), P99: ms(v[2]), P999: ms(v[3]), Max: ms(v[4])}
}

// hintBounds are the bounds of the histogram of retry hints, in milliseconds.
var hintBounds = [...]float64{100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000,
	3_600_000, 86_400_000}

func hintBuckets(h *hdrhistogram.Histogram) []Bucket {
	if h == nil || h.TotalCount() == 0 {
		return nil
	}
	b := make([]Bucket, len(hintBounds))
	for i, top := range hintBounds {
		b[i].UpTo = top
	}
	for _, bar := range h.Distribution() {
		if bar.Count == 0 {
			continue
		}
		// A bar's lower end is the value as long as it is exact, and within one
		// per cent of it afterwards.
		i, _ := slices.BinarySearch(hintBounds[:], float64(bar.From))
		b[min(i, len(b)-1)].Count += uint64(bar.Count)
	}
	for len(b) > 0 && b[0].Count == 0 {
		b = b[1:]
	}
	for len(b) > 0 && b[len(b)-1].Count == 0 {
		b = b[:len(b)-1]
	}
	return b
}
