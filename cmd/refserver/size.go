package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// size is a number of bytes; in text it may have a unit, as in "4 MiB".
type size int64

var units = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}}

func parseSize(s string) (size, error) {
	number, unit := strings.TrimSpace(s), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is no size: want bytes or a number with KiB, MiB, GiB or TiB", s)
	}
	return size(n * unit), nil
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (z *size) UnmarshalYAML(n *yaml.Node) error {
	v, err := parseSize(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*z = v
	return nil
}

// String returns the size with the largest unit that divides it.
func (z size) String() string {
	for i := len(units) - 2; i >= 0; i-- {
		if u := units[i]; z > 0 && int64(z)%u.bytes == 0 {
			return fmt.Sprintf("%d %s", int64(z)/u.bytes, u.suffix)
		}
	}
	return fmt.Sprintf("%d B", int64(z))
}

// Set and Type make it a flag.
func (z *size) Set(s string) (err error) {
	*z, err = parseSize(s)
	return err
}

// Type names the value in --help.
func (z *size) Type() string { return "size" }
