// Package budget bounds the memory that unfinished messages hold, over all
// connections of a server together.
package budget

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// ErrExhausted is returned by Reserve when the bytes do not fit; callers
// answer BadTcpNotEnoughResources.
var ErrExhausted = errors.New("budget: chunk reassembly budget exhausted")

// ErrOverRelease is returned by Release for more bytes than are reserved, a
// programming error that changes nothing.
var ErrOverRelease = errors.New("budget: release of more bytes than reserved")

// ChunkReassemblyBudget counts the bytes of retained intermediate chunks. All
// listeners of a server, and several servers if wanted, share one. Its methods
// never wait, never evict and are safe for concurrent use.
//
// Charged is the capacity of the backing array of what is retained, not the
// payload. The final chunk of a message is never charged, so single-chunk
// requests work while the budget is full.
type ChunkReassemblyBudget struct {
	bounds   atomic.Pointer[bounds]
	reserved atomic.Int64
	refused  atomic.Uint64
}

type bounds struct{ max, sessionless int64 }

// New returns a budget of maxBytes whose sessionless threshold is half of it.
func New(maxBytes int64) (*ChunkReassemblyBudget, error) {
	return NewWithThreshold(maxBytes, maxBytes/2)
}

// NewWithThreshold returns a budget of maxBytes > 0. Channels without an
// activated session can only reserve while the total occupancy stays at or
// below sessionless, 0 ≤ sessionless ≤ maxBytes: a threshold, not a partition.
func NewWithThreshold(maxBytes, sessionless int64) (*ChunkReassemblyBudget, error) {
	b := new(ChunkReassemblyBudget)
	if err := b.Resize(maxBytes, sessionless); err != nil {
		return nil, err
	}
	return b, nil
}

// Resize puts another maximum and threshold in force, within the bounds of
// NewWithThreshold. What is reserved stays so; above the new maximum nothing is
// reserved until enough was released. On an error nothing changes.
func (b *ChunkReassemblyBudget) Resize(maxBytes, sessionless int64) error {
	if maxBytes <= 0 {
		return fmt.Errorf("budget: maximum %d bytes, need more than 0", maxBytes)
	}
	if sessionless < 0 || sessionless > maxBytes {
		return fmt.Errorf("budget: sessionless threshold %d bytes, need 0 to %d", sessionless, maxBytes)
	}
	b.bounds.Store(&bounds{maxBytes, sessionless})
	return nil
}

// DefaultMaxBytes is the default budget for a maximum message size in bytes:
// room for sixteen messages between 64 MiB and 1 GiB, never less than four. A
// size ≤ 0 stands for unlimited and gets 1 GiB.
func DefaultMaxBytes(maxMessageSize int64) int64 {
	if maxMessageSize <= 0 {
		return gib
	}
	if maxMessageSize > math.MaxInt64/16 {
		return math.MaxInt64
	}
	return max(min(max(16*maxMessageSize, 64*mib), gib), 4*maxMessageSize)
}

// Reserve takes bytes ≥ 0, or fails with ErrExhausted when they would lift the
// total occupancy above the maximum, for callers without a session above the
// threshold.
func (b *ChunkReassemblyBudget) Reserve(bytes int64, hasSession bool) error {
	if bytes < 0 {
		return fmt.Errorf("budget: reserve of %d bytes", bytes)
	}
	in := b.bounds.Load()
	limit := in.sessionless
	if hasSession {
		limit = in.max
	}
	for {
		r := b.reserved.Load()
		if bytes > limit-r { // also when r > limit: the difference is negative
			b.refused.Add(1)
			return ErrExhausted
		}
		if b.reserved.CompareAndSwap(r, r+bytes) {
			return nil
		}
	}
}

// Release gives back bytes ≥ 0 that Reserve took.
func (b *ChunkReassemblyBudget) Release(bytes int64) error {
	if bytes < 0 {
		return fmt.Errorf("budget: release of %d bytes", bytes)
	}
	for {
		r := b.reserved.Load()
		if bytes > r {
			return ErrOverRelease
		}
		if b.reserved.CompareAndSwap(r, r-bytes) {
			return nil
		}
	}
}

// Reserved is the number of bytes reserved now.
func (b *ChunkReassemblyBudget) Reserved() int64 { return b.reserved.Load() }

// Max is the maximum in bytes.
func (b *ChunkReassemblyBudget) Max() int64 { return b.bounds.Load().max }

// SessionlessThreshold is the occupancy in bytes above which channels without
// an activated session are refused.
func (b *ChunkReassemblyBudget) SessionlessThreshold() int64 { return b.bounds.Load().sessionless }

// Refused is the number of reservations refused since the start.
func (b *ChunkReassemblyBudget) Refused() uint64 { return b.refused.Load() }
