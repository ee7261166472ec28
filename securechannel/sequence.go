package securechannel

import (
	"fmt"
	"math"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Limits of legacy sequence numbers, OPC 10000-6 §6.7.2.4 (Sequence header):
// numbers must not wrap before they are greater than wrapAfter, and the first
// one after the wrap is below wrapBelow.
const (
	wrapAfter = math.MaxUint32 - 1024
	wrapBelow = 1024
)

// sequence is the numbering of one direction of a channel. It goes on over
// renewals (hostile.md D4). All RSA policies use legacy numbers: the first one
// may be any (D6), each following is one more, and the wrap is early. The newer
// policies (legacy false) start at 0 and use the whole range.
type sequence struct {
	last   uint32
	legacy bool
	begun  bool
}

// next returns the number for the next chunk to be sent.
func (s *sequence) next() uint32 {
	switch {
	case !s.begun:
		s.begun = true
		s.last = 0
		if s.legacy {
			s.last = 1
		}
	case s.legacy && s.last > wrapAfter:
		s.last = 1
	default:
		s.last++
	}
	return s.last
}

// accept checks the number of a received chunk.
func (s *sequence) accept(n uint32) error {
	switch {
	case !s.begun:
		s.begun = true
		if !s.legacy && n != 0 {
			return sequenceError(n, s.last)
		}
	case n == s.last+1:
	case s.legacy && s.last > wrapAfter && n < wrapBelow:
	default:
		return sequenceError(n, s.last)
	}
	s.last = n
	return nil
}

// certain reports whether only one number can come next.
func (s *sequence) certain() bool { return s.begun && (!s.legacy || s.last <= wrapAfter) }

func sequenceError(got, last uint32) error {
	return uastatus.New(ua.StatusBadSequenceNumberInvalid, "sequence header", fmt.Errorf("number %d after %d", got, last))
}
