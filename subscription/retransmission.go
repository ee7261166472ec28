package subscription

import "slices"

// retransmission is the retransmission queue of a Subscription (OPC 10000-4 §5.14.1.1): the NotificationMessages that have
// been sent and not been acknowledged, encoded. It is bounded by number and bytes; the oldest goes first (hostile.md A26).
type retransmission struct {
	messages  []message
	bytes     int
	discarded uint32 // messages that went without having been acknowledged
}

// smallMessage is kept also when the total is used up.
const smallMessage = 64 << 10

type message struct {
	sequence uint32
	encoded  []byte // never changes
}

// add keeps m. others is what all other subscriptions keep, in bytes.
func (r *retransmission) add(m message, l *Limits, others int) {
	n := len(m.encoded)
	for len(r.messages) > 0 && (len(r.messages) >= l.MaxRetransmissionMessages || r.bytes+n > l.MaxRetransmissionBytes ||
		others+r.bytes+n > l.MaxTotalRetransmissionBytes) {
		r.discardOldest()
	}
	if n > smallMessage && others+n > l.MaxTotalRetransmissionBytes {
		r.discarded++
		return
	}
	r.messages = append(r.messages, m)
	r.bytes += len(m.encoded)
}

func (r *retransmission) discardOldest() {
	r.removeAt(0)
	r.discarded++
}

func (r *retransmission) removeAt(i int) {
	r.bytes -= len(r.messages[i].encoded)
	r.messages = slices.Delete(r.messages, i, i+1)
}

// acknowledge removes a message and reports whether it was there.
func (r *retransmission) acknowledge(sequence uint32) bool {
	for i := range r.messages {
		if r.messages[i].sequence == sequence {
			r.removeAt(i)
			return true
		}
	}
	return false
}

// find returns the encoded message, nil when it is not there.
func (r *retransmission) find(sequence uint32) []byte {
	for i := range r.messages {
		if r.messages[i].sequence == sequence {
			return r.messages[i].encoded
		}
	}
	return nil
}

// sequences returns what is available, oldest first.
func (r *retransmission) sequences() []uint32 {
	out := make([]uint32, len(r.messages))
	for i := range r.messages {
		out[i] = r.messages[i].sequence
	}
	return out
}
