package uabinary

import (
	"bytes"

	"github.com/gopcua/opcua/ua"
)

// NumericRange is a parsed NumericRange (OPC 10000-4 §7.27, NumericRange). The zero value is the whole value.
type NumericRange struct{ spans []span }

// span is one dimension, both bounds included.
type span struct{ low, high uint32 }

func (s span) len() int { return int(s.high-s.low) + 1 }

// IsZero reports whether r is the whole value.
func (r NumericRange) IsZero() bool { return len(r.spans) == 0 }

// ParseNumericRange parses "1", "1:3" or "0:1,2:3". Empty and null text is the whole value. What does not follow the
// syntax, has a lower bound that is not below the upper one, or has more than 32 dimensions is BadIndexRangeInvalid.
func ParseNumericRange(b []byte) (NumericRange, ua.StatusCode) {
	if len(b) == 0 {
		return NumericRange{}, ua.StatusGood
	}
	if bytes.Count(b, []byte{','}) >= maxRank {
		return NumericRange{}, ua.StatusBadIndexRangeInvalid
	}
	spans := make([]span, 0, 2)
	for more := true; more; {
		var part []byte
		part, b, more = bytes.Cut(b, []byte{','})
		lowText, highText, isRange := bytes.Cut(part, []byte{':'})
		low, ok := parseIndex(lowText)
		if !ok {
			return NumericRange{}, ua.StatusBadIndexRangeInvalid
		}
		s := span{low, low}
		if isRange {
			if s.high, ok = parseIndex(highText); !ok || s.low >= s.high {
				return NumericRange{}, ua.StatusBadIndexRangeInvalid
			}
		}
		spans = append(spans, s)
	}
	return NumericRange{spans}, ua.StatusGood
}

// parseIndex parses decimal digits below 2^31: no array has more elements.
func parseIndex(b []byte) (uint32, bool) {
	if len(b) == 0 || len(b) > 10 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return uint32(n), n < 1<<31
}
