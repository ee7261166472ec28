package admission

import (
	"fmt"
	"math"
)

// OptionError is an option that cannot work.
type OptionError struct {
	Field  string // as the options struct calls it
	Reason string
}

// Error names the field.
func (e *OptionError) Error() string { return fmt.Sprintf("admission: %s %s", e.Field, e.Reason) }

// number is a limit with its default; a *int or *int64 by what is counted.
type number struct {
	field string
	count *int
	bytes *int64
	zero  int64
}

// resolve fills in defaults and refuses negative numbers.
func resolve(numbers []number) error {
	for _, n := range numbers {
		value := int64(0)
		if n.count != nil {
			value = int64(*n.count)
		} else {
			value = *n.bytes
		}
		switch {
		case value < 0:
			return &OptionError{n.field, fmt.Sprintf("is %d; it must be at least 1, or 0 for %d", value, n.zero)}
		case value > 0:
		case n.count != nil:
			*n.count = int(n.zero)
		default:
			*n.bytes = n.zero
		}
	}
	return nil
}

// overhead is charged for whatever comes with a command or request: its
// envelope, headers and bookkeeping, in bytes.
const overhead = 4096

// sum returns a × m + b × n + plus, for m, n ≥ 0 and plus ≥ 0, and whether it
// fits an int64. a and b must not be negative.
func sum(a, m, b, n, plus int64) (int64, bool) {
	if a > 0 && m > math.MaxInt64/a || b > 0 && n > math.MaxInt64/b {
		return 0, false
	}
	x, y := a*m, b*n
	if x > math.MaxInt64-plus || y > math.MaxInt64-plus-x {
		return 0, false
	}
	return x + y + plus, true
}
