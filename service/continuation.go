package service

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// continuationSize is the length of a continuation point on the wire.
const continuationSize = 8

// continuations keeps the continuation points of Browse (OPC 10000-4 §7.9
// ContinuationPoint) by session: at most a given number each, the oldest gives
// way. A point means nothing in another session.
type continuations struct {
	mu   sync.Mutex
	last uint64
	of   map[*session.Session][]continuation
}

type continuation struct {
	key uint64
	// request and at name the Browse that made the point: points of one request
	// never push out each other, or its answer would name points that are gone.
	request uint32
	at      uabinary.DateTime
	b       *browsing
}

// keep stores a copy of b under a new key. It reports false when all points of
// the session belong to the request itself, which is BadNoContinuationPoints.
func (c *continuations) keep(r *Request, b *browsing, limit int) (key [continuationSize]byte, ok bool) {
	if r.Session == nil { // nobody whom the point could belong to
		return key, false
	}
	kept := *b
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-r.Session.Done(): // its points have been dropped
		return key, false
	default:
	}
	if c.of == nil {
		c.of = make(map[*session.Session][]continuation)
	}
	points := c.of[r.Session]
	if limit > 0 && len(points) >= limit {
		if p := &points[0]; p.request == r.RequestID && p.at == r.Now {
			return key, false
		}
		points = slices.Delete(points, 0, 1)
	}
	c.last++
	c.of[r.Session] = append(points, continuation{key: c.last, request: r.RequestID, at: r.Now, b: &kept})
	binary.BigEndian.PutUint64(key[:], c.last)
	return key, true
}

// take removes the point and gives what it stands for, nil when the session has
// no such point.
func (c *continuations) take(s *session.Session, point []byte) *browsing {
	if len(point) != continuationSize {
		return nil
	}
	key := binary.BigEndian.Uint64(point)
	c.mu.Lock()
	defer c.mu.Unlock()
	points := c.of[s]
	for i := range points {
		if points[i].key == key {
			b := points[i].b
			c.of[s] = slices.Delete(points, i, i+1)
			return b
		}
	}
	return nil
}

// drop forgets all points of a session that has ended.
func (c *continuations) drop(s *session.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, s)
}
