package uabinary

import (
	"math"
	"time"
)

// DateTime is a DateTime as on the wire (OPC 10000-6 §5.2.2.5, DateTime): 100 ns ticks since 1601-01-01 UTC. 0 is null
// ("no time"), and so is everything before it.
type DateTime int64

// MaxDateTime stands for 9999-12-31T23:59:59Z and everything later.
const MaxDateTime DateTime = math.MaxInt64

const (
	ticksPerSecond = 10_000_000
	// unixEpoch is 1970-01-01 in seconds since 1601-01-01.
	unixEpoch = 11_644_473_600
	// maxSeconds is 9999-12-31T23:59:59Z in seconds since 1601-01-01.
	maxSeconds = 253_402_300_799 + unixEpoch
)

// FromTime returns t as DateTime: 0 for times up to 1601-01-01 (the zero time.Time among them), MaxDateTime from
// 9999-12-31T23:59:59Z on. Digits below 100 ns are cut.
func FromTime(t time.Time) DateTime {
	s := t.Unix() + unixEpoch
	switch {
	case s < 0:
		return 0
	case s >= maxSeconds:
		return MaxDateTime
	}
	return DateTime(s*ticksPerSecond + int64(t.Nanosecond())/100)
}

// Now returns the current time.
func Now() DateTime { return FromTime(time.Now()) }

// Time returns the time in UTC: the zero time.Time for 0 and less, 9999-12-31T23:59:59Z for what is later than that.
func (t DateTime) Time() time.Time {
	if t <= 0 {
		return time.Time{}
	}
	s := int64(t) / ticksPerSecond
	if s >= maxSeconds {
		return time.Unix(maxSeconds-unixEpoch, 0).UTC()
	}
	return time.Unix(s-unixEpoch, int64(t)%ticksPerSecond*100).UTC()
}
