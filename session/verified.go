package session

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// verified remembers which passwords were found right, so that a storm of known
// users does not pay for argon2id again. What it keeps is
// HMAC-SHA256(process key, user ‖ stored hash ‖ password): useless outside this
// process and void as soon as the stored hash changes.
type verified struct {
	key     [32]byte
	maximum int

	mu    sync.Mutex
	known map[[sha256.Size]byte]struct{}
	order [][sha256.Size]byte // ring: the entry that goes next is at next
	next  int
}

func newVerified() *verified {
	v := &verified{maximum: 10_000, known: make(map[[sha256.Size]byte]struct{})}
	rand.Read(v.key[:])
	return v
}

func (v *verified) tag(user, storedHash string, password []byte) (sum [sha256.Size]byte) {
	m := hmac.New(sha256.New, v.key[:])
	var n [4]byte
	for _, part := range [][]byte{[]byte(user), []byte(storedHash), password} {
		binary.LittleEndian.PutUint32(n[:], uint32(len(part)))
		m.Write(n[:])
		m.Write(part)
	}
	m.Sum(sum[:0])
	return sum
}

func (v *verified) has(tag [sha256.Size]byte) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.known[tag]
	return ok
}

func (v *verified) add(tag [sha256.Size]byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.known[tag]; ok {
		return
	}
	if len(v.order) < v.maximum {
		v.order = append(v.order, tag)
	} else {
		delete(v.known, v.order[v.next])
		v.order[v.next] = tag
		v.next = (v.next + 1) % len(v.order)
	}
	v.known[tag] = struct{}{}
}

func (v *verified) clear() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.known)
	v.order, v.next = nil, 0
}
