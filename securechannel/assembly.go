package securechannel

import (
	"fmt"

	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// assembly is the one partial message of a channel (hostile.md X39: request ids
// without bound never hold anything). Bodies of intermediate chunks are packed
// into pooled segments; what is charged to the budget is the segments' backing
// arrays. The final chunk is never charged, so a message that has got so far
// can always finish.
type assembly struct {
	budget   *budget.ChunkReassemblyBudget // nil = not charged (clients)
	segments []*buffer.Buffer
	request  uint32
	chunks   int
	size     int   // body bytes
	charged  int64 // to the budget
}

// active reports whether there is a partial message.
func (a *assembly) active() bool { return a.chunks > 0 }

// check refuses a chunk that makes the message larger than it may be. It comes
// before anything is kept.
func (a *assembly) check(n, maxSize, maxChunks int) error {
	if a.size+n > maxSize {
		return uastatus.New(ua.StatusBadTCPMessageTooLarge, "message", fmt.Errorf("over %d bytes", maxSize))
	}
	if a.chunks+1 > maxChunks {
		return uastatus.New(ua.StatusBadTCPMessageTooLarge, "message", fmt.Errorf("over %d chunks", maxChunks))
	}
	return nil
}

// add keeps the body of an intermediate chunk.
func (a *assembly) add(request uint32, body []byte, hasSession bool) error {
	var tail *buffer.Buffer
	if n := len(a.segments); n > 0 {
		tail = a.segments[n-1]
	}
	if room := tail; room != nil && len(room.B)+len(body) <= cap(room.B) {
		room.B = append(room.B, body...)
	} else {
		// An empty chunk is charged, too: it is a message begun.
		size := buffer.ClassSize(len(body))
		if a.budget != nil {
			if err := a.budget.Reserve(int64(size), hasSession); err != nil {
				return uastatus.New(ua.StatusBadTCPNotEnoughResources, "message", err)
			}
			a.charged += int64(size)
		}
		b := buffer.Get(len(body))
		b.B = append(b.B, body...)
		a.segments = append(a.segments, b)
	}
	a.request = request
	a.chunks++
	a.size += len(body)
	return nil
}

// finish joins what was kept with the final chunk's body in one pooled buffer,
// which is the caller's, and forgets the message.
func (a *assembly) finish(body []byte) *buffer.Buffer {
	b := buffer.Get(a.size + len(body))
	for _, s := range a.segments {
		b.B = append(b.B, s.B...)
	}
	b.B = append(b.B, body...)
	a.drop()
	return b
}

// drop forgets the message and gives back its memory and its charge.
func (a *assembly) drop() {
	for _, s := range a.segments {
		s.Release()
	}
	a.segments = nil
	a.chunks, a.size = 0, 0
	if a.charged > 0 {
		_ = a.budget.Release(a.charged) // cannot be more than was reserved
		a.charged = 0
	}
}
