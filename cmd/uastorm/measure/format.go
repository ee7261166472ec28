package measure

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration writes milliseconds for people, three digits long, with the unit
// that fits: "0", "85 µs", "1.23 ms", "45.6 s", "3.5 min", "24 h".
func Duration(ms float64) string {
	switch {
	case ms <= 0:
		return "0"
	case ms < 0.9995:
		return fmt.Sprintf("%.0f µs", ms*1000)
	case ms < 999.5:
		return digits(ms) + " ms"
	case ms < 99_950:
		return digits(ms/1000) + " s"
	case ms < 5_990_000:
		return digits(ms/60_000) + " min"
	}
	return digits(ms/3_600_000) + " h"
}

// digits writes a number with three digits, zeros at the end left out.
func digits(v float64) string {
	decimals := 0
	switch {
	case v < 9.995:
		decimals = 2
	case v < 99.95:
		decimals = 1
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if decimals > 0 {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// Number writes a count or a rate for people: three digits for small ones,
// groups of three for large ones: "0.25", "17.5", "12,345".
func Number(v float64) string {
	if math.Abs(v) < 999.5 {
		if v < 0 {
			return "-" + digits(-v)
		}
		return digits(v)
	}
	s := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if v < 0 {
		return "-" + s
	}
	return s
}

// Clock writes seconds since the begin of a run: "0:07", "12:30", "1:02:03".
func Clock(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	if h > 0 {
		return fmt.Sprintf("%d:%02d:%02d", h, m, s)
	}
	return fmt.Sprintf("%d:%02d", m, s)
}
