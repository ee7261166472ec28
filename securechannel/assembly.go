package securechannel

import (
	"fmt"

	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/isolation"
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
	byOwner  bool                          // budget's threshold does not count: isolation does
	provider *isolation.Provider           // nil = none
	owner    *isolation.Owner              // of this message, decided with its first chunk
	segments []*buffer.Buffer
	leases   []isolation.Lease // of segments; moved when it grows, never shared
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
		if err := a.charge(int64(size), hasSession); err != nil {
			return uastatus.New(ua.StatusBadTCPNotEnoughResources, "message", err)
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

// charge reserves the bytes of one more segment. By owner, the byte classes of
// isolation decide and the budget is asked as for a channel with a session;
// else its threshold decides, with the session asked live (overload.md §6).
func (a *assembly) charge(bytes int64, hasSession bool) error {
	if a.provider != nil {
		var l isolation.Lease
		if r := a.provider.TryAcquire(&l, isolation.ReassemblyBytes, a.owner, bytes); r != isolation.Granted {
			return fmt.Errorf("reassembly bytes: %v", r)
		}
		a.leases = append(a.leases, l)
	}
	if a.budget == nil {
		return nil
	}
	if err := a.budget.Reserve(bytes, hasSession || a.byOwner); err != nil {
		if n := len(a.leases); a.provider != nil {
			a.leases[n-1].Release()
			a.leases = a.leases[:n-1]
		}
		return err
	}
	a.charged += bytes
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
	for i := range a.leases {
		a.leases[i].Release()
	}
	a.leases, a.owner = nil, nil
	a.chunks, a.size = 0, 0
	if a.charged > 0 {
		_ = a.budget.Release(a.charged) // cannot be more than was reserved
		a.charged = 0
	}
}
