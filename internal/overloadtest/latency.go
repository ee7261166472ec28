package overloadtest

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"
)

// latency sums up how long something took.
type latency struct {
	N             int
	P50, P99, Max time.Duration
}

func percentiles(d []time.Duration) latency {
	if len(d) == 0 {
		return latency{}
	}
	s := slices.Sorted(slices.Values(d))
	at := func(p int) time.Duration { return s[(len(s)-1)*p/100] }
	return latency{N: len(s), P50: at(50), P99: at(99), Max: s[len(s)-1]}
}

// closed reports whether a peer has closed a connection without a word.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNREFUSED)
}

// timeout reports whether nothing came in time.
func timeout(err error) bool {
	var t net.Error
	return errors.Is(err, errNoAnswer) || errors.As(err, &t) && t.Timeout()
}
