package uajson

import "github.com/breakwater-ua/breakwater/uabinary"

const (
	ticksPerSecond = 10_000_000
	secondsPerDay  = 86_400
	// firstDay is 1601-01-01 in days since 0000-03-01, from where the calendar is easy.
	firstDay = 584_694
	// lastSecond is 9999-12-31T23:59:59Z in seconds since 1601-01-01.
	lastSecond = 265_046_774_399
)

// appendDateTime appends the inside of the string of OPC 10000-6 §5.4.2.6 (DateTime): ISO 8601 in UTC with as many digits as
// it takes, at most 7. Below the range is "0001-01-01T00:00:00Z", above it "9999-12-31T23:59:59Z".
func appendDateTime(dst []byte, t uabinary.DateTime) []byte {
	if t <= 0 {
		return append(dst, "0001-01-01T00:00:00Z"...)
	}
	s, frac := int64(t)/ticksPerSecond, int64(t)%ticksPerSecond
	if s >= lastSecond {
		return append(dst, "9999-12-31T23:59:59Z"...)
	}
	year, month, day := civil(s/secondsPerDay + firstDay)
	s %= secondsPerDay
	dst = appendDigits(dst, year, 4)
	dst = append(dst, '-')
	dst = appendDigits(dst, month, 2)
	dst = append(dst, '-')
	dst = appendDigits(dst, day, 2)
	dst = append(dst, 'T')
	dst = appendDigits(dst, s/3600, 2)
	dst = append(dst, ':')
	dst = appendDigits(dst, s/60%60, 2)
	dst = append(dst, ':')
	dst = appendDigits(dst, s%60, 2)
	if frac != 0 {
		dst = append(dst, '.')
		dst = appendDigits(dst, frac, 7)
		for dst[len(dst)-1] == '0' {
			dst = dst[:len(dst)-1]
		}
	}
	return append(dst, 'Z')
}

func appendDigits(dst []byte, v int64, n int) []byte {
	for range n {
		dst = append(dst, '0')
	}
	for i := len(dst) - 1; v > 0; i-- {
		dst[i] = byte('0' + v%10)
		v /= 10
	}
	return dst
}

// civil turns days since 0000-03-01 into a date.
func civil(days int64) (year, month, day int64) {
	era := days / 146_097
	d := days % 146_097
	y := (d - d/1460 + d/36_524 - d/146_096) / 365
	d -= 365*y + y/4 - y/100
	m := (5*d + 2) / 153
	day = d - (153*m+2)/5 + 1
	month = (m+2)%12 + 1
	year = era*400 + y
	if month <= 2 {
		year++
	}
	return year, month, day
}

// daysOf is the inverse of civil.
func daysOf(year, month, day int64) int64 {
	if month <= 2 {
		year--
	}
	m := (month + 9) % 12
	return year/400*146_097 + year%400*365 + year%400/4 - year%400/100 + (153*m+2)/5 + day - 1
}

// parseDateTime parses a date and time of ISO 8601 with the zone, which may be an offset. Digits below 100 ns are cut. Times
// before 1601 are null, and those from 9999-12-31T23:59:59Z on are the largest DateTime (OPC 10000-6 §5.1.4, DateTime).
func parseDateTime(s []byte) (uabinary.DateTime, bool) {
	ok := true
	number := func(n int) (v int64) {
		if len(s) < n {
			ok = false
			return 0
		}
		for _, c := range s[:n] {
			if c < '0' || c > '9' {
				ok = false
			}
			v = v*10 + int64(c-'0')
		}
		s = s[n:]
		return v
	}
	expect := func(c byte) {
		if len(s) == 0 || s[0] != c {
			ok = false
			return
		}
		s = s[1:]
	}
	year := number(4)
	expect('-')
	month := number(2)
	expect('-')
	day := number(2)
	expect('T')
	hour := number(2)
	expect(':')
	minute := number(2)
	expect(':')
	second := number(2)
	if !ok || year == 0 || month == 0 || month > 12 || day == 0 || day > daysIn(year, month) || hour > 23 || minute > 59 || second > 59 {
		return 0, false
	}
	var frac int64
	if len(s) > 0 && s[0] == '.' {
		s = s[1:]
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			if n < 7 {
				frac = frac*10 + int64(s[n]-'0')
			}
			n++
		}
		if n == 0 {
			return 0, false
		}
		for i := n; i < 7; i++ {
			frac *= 10
		}
		s = s[n:]
	}
	var offset int64
	switch {
	case len(s) == 1 && s[0] == 'Z':
	case len(s) == 6 && (s[0] == '+' || s[0] == '-'):
		sign := int64(1)
		if s[0] == '-' {
			sign = -1
		}
		s = s[1:]
		h := number(2)
		expect(':')
		m := number(2)
		if !ok || h > 23 || m > 59 {
			return 0, false
		}
		offset = sign * (h*3600 + m*60)
	default:
		return 0, false
	}
	t := (daysOf(year, month, day)-firstDay)*secondsPerDay + hour*3600 + minute*60 + second - offset
	switch {
	case t < 0:
		return 0, true
	case t >= lastSecond:
		return uabinary.MaxDateTime, true
	}
	return uabinary.DateTime(t*ticksPerSecond + frac), true
}

func daysIn(year, month int64) int64 {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}
