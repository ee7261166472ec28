package session

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"
)

// lockout counts wrong passwords per user and remote address, and by nothing
// else: a key made of the client's certificate would let one bad client lock out
// all that share it (hostile.md C13, X32), and a key made of the user alone
// would let strangers lock out anybody.
type lockout struct {
	limit   int // failures that lock; below 1 switches it off
	period  time.Duration
	maximum int // entries

	mu             sync.Mutex
	entries        map[lockKey]*lockEntry
	oldest, newest *lockEntry
}

type lockKey [16]byte

// lockEntry is in a list ordered by the last failure.
type lockEntry struct {
	key        lockKey
	failures   int
	last       time.Time
	prev, next *lockEntry
}

func newLockout(limit int, period time.Duration) *lockout {
	return &lockout{limit: limit, period: period, maximum: 10_000, entries: make(map[lockKey]*lockEntry)}
}

func keyOf(user string, remote netip.Addr) lockKey {
	h := sha256.New()
	var n [4]byte
	binary.LittleEndian.PutUint32(n[:], uint32(len(user)))
	h.Write(n[:])
	h.Write([]byte(user))
	h.Write([]byte(addressKey(remote)))
	return lockKey(h.Sum(nil)[:16])
}

// locked tells whether the pair must wait.
func (l *lockout) locked(k lockKey, now time.Time) bool {
	if l.limit < 1 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	e := l.entries[k]
	return e != nil && e.failures >= l.limit
}

// failed counts a wrong password and tells whether that locked the pair.
func (l *lockout) failed(k lockKey, now time.Time) bool {
	if l.limit < 1 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	e := l.entries[k]
	if e == nil {
		if len(l.entries) >= l.maximum {
			l.drop(l.oldest)
		}
		e = &lockEntry{key: k}
		l.entries[k] = e
	} else {
		l.unlink(e)
	}
	e.failures++
	e.last = now
	l.append(e)
	return e.failures == l.limit
}

// succeeded forgets the pair's failures.
func (l *lockout) succeeded(k lockKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[k]; e != nil {
		l.drop(e)
	}
}

// expire drops entries whose last failure is a period ago.
func (l *lockout) expire(now time.Time) {
	for l.oldest != nil && now.Sub(l.oldest.last) >= l.period {
		l.drop(l.oldest)
	}
}

func (l *lockout) drop(e *lockEntry) {
	l.unlink(e)
	delete(l.entries, e.key)
}

func (l *lockout) append(e *lockEntry) {
	e.prev, e.next = l.newest, nil
	if l.newest != nil {
		l.newest.next = e
	} else {
		l.oldest = e
	}
	l.newest = e
}

func (l *lockout) unlink(e *lockEntry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.oldest = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.newest = e.prev
	}
}
