package uajson

import (
	"math"
	"strconv"
	"unsafe"
)

// integer returns the value of a JSON number that is one, whatever its notation ("10", "1e1", "10.0").
func integer(tok []byte) (neg bool, v uint64, ok bool) {
	if len(tok) > 0 && tok[0] == '-' {
		neg, tok = true, tok[1:]
	}
	if len(tok) <= 19 { // fits
		for _, c := range tok {
			if c < '0' || c > '9' {
				v, ok = decimalInteger(tok)
				return neg, v, ok
			}
			v = v*10 + uint64(c-'0')
		}
		return neg, v, len(tok) > 0
	}
	v, ok = decimalInteger(tok)
	return neg, v, ok
}

// decimalInteger does the same for any notation without sign.
func decimalInteger(tok []byte) (v uint64, ok bool) {
	exp, end := 0, len(tok)
	for i, c := range tok {
		if c|0x20 != 'e' {
			continue
		}
		// An exponent that does not fit is out of every range, unless the number is 0.
		exp, _ = strconv.Atoi(string(tok[i+1:]))
		exp = max(-maxNumber, min(exp, maxNumber))
		end = i
		break
	}
	// The digits without the point, of which whole are before it.
	digits := make([]byte, 0, 64)
	whole := -1
	for _, c := range tok[:end] {
		if c == '.' {
			whole = len(digits)
		} else {
			digits = append(digits, c)
		}
	}
	if whole < 0 {
		whole = len(digits)
	}
	whole += exp
	for i, c := range digits {
		if i >= whole {
			if c != '0' {
				return 0, false
			}
			continue
		}
		if v > (math.MaxUint64-uint64(c-'0'))/10 {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	for i := len(digits); i < whole && v != 0; i++ {
		if v > math.MaxUint64/10 {
			return 0, false
		}
		v *= 10
	}
	return v, true
}

// signed returns the value as a signed integer of that many bits.
func signed(neg bool, v uint64, bits uint) (int64, bool) {
	limit := uint64(1) << (bits - 1)
	if neg {
		return -int64(v), v <= limit
	}
	return int64(v), v < limit
}

// double returns the value of a JSON number.
func double(tok []byte) (float64, bool) {
	if m, exp, ok := exact(tok); ok && m < 1<<53 && exp >= -22 && exp <= 22 {
		// Both are exact, so one operation rounds once (Clinger).
		f := float64(m)
		if exp < 0 {
			f /= pow10[-exp]
		} else {
			f *= pow10[exp]
		}
		if tok[0] == '-' {
			f = -f
		}
		return f, true
	}
	return parseFloat(tok, 64)
}

// float does the same for a Float.
func float(tok []byte) (float32, bool) {
	if m, exp, ok := exact(tok); ok && m < 1<<24 && exp >= -10 && exp <= 10 {
		f := float32(m)
		if exp < 0 {
			f /= float32(pow10[-exp])
		} else {
			f *= float32(pow10[exp])
		}
		if tok[0] == '-' {
			f = -f
		}
		return f, true
	}
	f, ok := parseFloat(tok, 32)
	return float32(f), ok
}

var pow10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
	1e19, 1e20, 1e21, 1e22}

// exact returns a number of at most 18 digits as m × 10^exp.
func exact(tok []byte) (m uint64, exp int, ok bool) {
	i := 0
	if tok[0] == '-' {
		i++
	}
	digits, point := 0, false
	for ; i < len(tok); i++ {
		switch c := tok[i]; {
		case c >= '0' && c <= '9':
			if digits++; digits > 18 {
				return 0, 0, false
			}
			m = m*10 + uint64(c-'0')
			if point {
				exp--
			}
		case c == '.':
			point = true
		default: // the exponent
			if len(tok)-i > 4 {
				return 0, 0, false
			}
			e, sign := 0, 1
			for _, c := range tok[i+1:] {
				switch c {
				case '-':
					sign = -1
				case '+':
				default:
					e = e*10 + int(c-'0')
				}
			}
			return m, exp + sign*e, true
		}
	}
	return m, exp, true
}

func parseFloat(tok []byte, bits int) (float64, bool) {
	// The string lives no longer than the call: the error, which keeps it, is dropped.
	f, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(tok), len(tok)), bits)
	return f, err == nil
}

// appendFloat appends a number, or one of the three strings (OPC 10000-6 §5.4.2.4, Floating-point).
func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case f != f:
		return append(dst, `"NaN"`...)
	case f > math.MaxFloat64:
		return append(dst, `"Infinity"`...)
	case f < -math.MaxFloat64:
		return append(dst, `"-Infinity"`...)
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, bits)
}
