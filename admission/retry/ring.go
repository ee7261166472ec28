package retry

import "time"

// ringSize times the width of a bucket is more than the longest hint.
const ringSize = 1024

// ring counts future moments in buckets, so that what has passed leaves the
// total without being looked for.
type ring struct {
	width  time.Duration
	first  int64 // number of the earliest bucket that still counts
	counts [ringSize]int
	total  int
}

func (r *ring) bucket(t time.Time) int64 { return t.UnixNano() / int64(r.width) }

// advance drops the buckets before now.
func (r *ring) advance(now time.Time) {
	to := r.bucket(now)
	if to-r.first >= ringSize || r.total == 0 {
		if r.total != 0 {
			clear(r.counts[:])
			r.total = 0
		}
		r.first = max(to, r.first)
		return
	}
	for ; r.first < to; r.first++ {
		c := &r.counts[r.first%ringSize]
		r.total -= *c
		*c = 0
	}
}

// add counts a moment, or with -1 takes it back unless it has passed.
func (r *ring) add(t time.Time, n int) {
	b := r.bucket(t)
	if b < r.first || b-r.first >= ringSize {
		return
	}
	r.counts[b%ringSize] += n
	r.total += n
}

// widen counts the same moments in wider buckets, those of now and later.
func (r *ring) widen(width time.Duration, now time.Time) {
	r.advance(now)
	wide := ring{width: width}
	wide.advance(now)
	for b := r.first; b < r.first+ringSize; b++ {
		if n := r.counts[b%ringSize]; n != 0 {
			at := max(b*int64(r.width), now.UnixNano())
			wide.add(time.Unix(0, at), n)
		}
	}
	*r = wide
}
