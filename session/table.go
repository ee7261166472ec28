package session

import (
	"crypto/subtle"
	"encoding/binary"
	"sync/atomic"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// An authentication token is an opaque NodeId in namespace 0: four bytes that
// say where in the table the session is, then 32 random bytes that are the
// secret. The place is no secret and saves the hot path a hash, a lock and an
// allocation.
const (
	placeLength  = 4
	secretLength = 32
	tokenLength  = placeLength + secretLength
)

// table finds sessions by authentication token. find is lock-free; the rest
// runs under Store.mu.
type table struct {
	places atomic.Pointer[[]atomic.Pointer[Session]]
	free   []uint32
}

// find returns the session that token names, or nil. The secret is compared in
// constant time.
func (t *table) find(token *uabinary.NodeID) *Session {
	if token.Type != uabinary.IDOpaque || token.Namespace != 0 || len(token.Bytes) != tokenLength {
		return nil
	}
	places := t.places.Load()
	if places == nil {
		return nil
	}
	place := binary.LittleEndian.Uint32(token.Bytes)
	if uint64(place) >= uint64(len(*places)) {
		return nil
	}
	s := (*places)[place].Load()
	if s == nil || subtle.ConstantTimeCompare(s.token[:], token.Bytes) != 1 {
		return nil
	}
	return s
}

// add gives s a place and writes it into its token.
func (t *table) add(s *Session) {
	if len(t.free) == 0 {
		t.grow()
	}
	last := len(t.free) - 1
	place := t.free[last]
	t.free = t.free[:last]
	binary.LittleEndian.PutUint32(s.token[:], place)
	(*t.places.Load())[place].Store(s)
}

func (t *table) remove(s *Session) {
	place := binary.LittleEndian.Uint32(s.token[:])
	(*t.places.Load())[place].Store(nil)
	t.free = append(t.free, place)
}

// grow doubles the table. A find that still looks at the old one misses only
// sessions whose tokens no client can know yet.
func (t *table) grow() {
	var old []atomic.Pointer[Session]
	if p := t.places.Load(); p != nil {
		old = *p
	}
	places := make([]atomic.Pointer[Session], max(16, 2*len(old)))
	for i := range old {
		places[i].Store(old[i].Load())
	}
	for i := len(places) - 1; i >= len(old); i-- {
		t.free = append(t.free, uint32(i))
	}
	t.places.Store(&places)
}
