package transport

import (
	"errors"

	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/isolation"
)

// ErrMemory says that the bytes of a body do not fit what its owner, or all
// together, may keep of unfinished messages.
var ErrMemory = errors.New("transport: no room for the body")

// Memory accounts for the bodies that transports without a SecureChannel read,
// in what partial messages of SecureChannels are counted in as well
// (overload.md §6, §7).
type Memory struct {
	Isolation *isolation.Provider           // stage ReassemblyBytes; nil = none
	Budget    *budget.ChunkReassemblyBudget // nil = none
}

// MemoryLease is what a body holds of a Memory; the zero value holds nothing. It
// is for one goroutine at a time.
type MemoryLease struct {
	lease  isolation.Lease
	budget *budget.ChunkReassemblyBudget
	bytes  int64
}

// Take holds so many bytes, at least one, instead of what l held before. With
// ErrMemory l holds nothing. Nobody knows yet whether the sender has a session:
// without classes of owners the budget is asked as for one that has none.
func (m *Memory) Take(l *MemoryLease, owner *isolation.Owner, bytes int64) error {
	l.Release()
	byOwner := false
	if m.Isolation != nil {
		if owner == nil || m.Isolation.TryAcquire(&l.lease, isolation.ReassemblyBytes, owner, bytes) != isolation.Granted {
			return ErrMemory
		}
		byOwner = m.Isolation.Plan().Mode != isolation.SharedOnly
	}
	if m.Budget != nil {
		if m.Budget.Reserve(bytes, byOwner) != nil {
			l.lease.Release()
			return ErrMemory
		}
		l.budget, l.bytes = m.Budget, bytes
	}
	return nil
}

// Release gives back what is held.
func (l *MemoryLease) Release() {
	l.lease.Release()
	if l.bytes > 0 {
		_ = l.budget.Release(l.bytes) // cannot be more than was reserved
		l.bytes = 0
	}
}
