package client

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"
)

// C12: requests that the server holds stand in nobody's way: with as many Publish
// requests parked as there may be, a hundred callers are served at once, and an
// operation count that is too much for the server's workers is taken down.
func TestC12ParkedRequests(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, _ := subscribed(t, r, 1)
		for range 30 {
			if _, err := s.Subscribe(r.ctx, SubscriptionOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := r.waiting(); n != maxPublishing {
			t.Errorf("%d Publish requests at the server, want %d", n, maxPublishing)
		}
		begun := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(begun); d != 0 {
			t.Errorf("served after %v", d)
		}
		r.on("Read", func(_ int, rq ua.Request) any {
			if len(rq.(*ua.ReadRequest).NodesToRead) > 10 {
				return ua.StatusBadTooManyOperations
			}
			return behaved{}
		})
		ids := make([]*ua.NodeID, 95)
		for i := range ids {
			ids[i] = ua.NewNumericNodeID(1, uint32(i))
		}
		if vs, err := s.ReadValues(r.ctx, ids...); err != nil || len(vs) != len(ids) {
			t.Errorf("%d values, %v", len(vs), err)
		}
		if n := r.asked("Read"); n > 25 {
			t.Errorf("%d requests for 95 operations, ten at a time", n)
		}
		r.on("Publish", func(int, ua.Request) any { return ua.StatusBadTooManyOperations })
		r.push(1, 1, nil, int64(1))
		time.Sleep(10 * time.Minute)
		if n := r.asked("Publish"); n == 0 || n > 50 {
			t.Errorf("%d Publish requests in 10 minutes to a server that refuses them", n)
		}
		s.Close(r.ctx)
	})
}

// C12 over HTTPS with HTTP/1.1, where a parked request holds its connection: there
// is always one more, however few are asked for.
func TestC12ParkedRequestsOverHTTPS(t *testing.T) {
	inGateway(t, false, func(g *gateway) {
		o := g.webOpts()
		o.Transport = HTTPS{Dial: g.reach, MaxConnections: 1}
		s, err := Connect(g.ctx, httpsURL, o)
		if err != nil {
			t.Fatal(err)
		}
		for range maxPublishing {
			if _, err := s.Subscribe(g.ctx, SubscriptionOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if n := g.stats().ParkedPublishes; n != maxPublishing {
			t.Errorf("%d Publish requests are parked, want %d", n, maxPublishing)
		}
		begun := time.Now()
		if _, err := s.ReadValue(g.ctx, g.id()); err != nil || time.Since(begun) != 0 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		g.close(s)
	})
}

// F7: all children come, page by page and in order, and what is left of a loop
// is freed; a server that gives continuation points and has no BrowseNext is an
// error behind the first page, never a short list that looks whole.
func TestF7BrowseNext(t *testing.T) {
	const children, page = 1000, 100
	references := func(from int) (refs []*ua.ReferenceDescription) {
		for i := from; i < min(from+page, children); i++ {
			refs = append(refs, &ua.ReferenceDescription{NodeID: ua.NewExpandedNodeID(ua.NewNumericNodeID(1, uint32(i)), "", 0),
				ReferenceTypeID: ua.NewTwoByteNodeID(35), BrowseName: &ua.QualifiedName{Name: fmt.Sprint(i)}, DisplayName: ua.NewLocalizedText(fmt.Sprint(i)), TypeDefinition: ua.NewExpandedNodeID(ua.NewTwoByteNodeID(0), "", 0)})
		}
		return refs
	}
	pageFrom := func(from int) *ua.BrowseResult {
		b := &ua.BrowseResult{References: references(from)}
		if from+page < children {
			b.ContinuationPoint = fmt.Append(nil, from+page)
		}
		return b
	}
	for _, c := range []struct {
		name     string
		missing  bool // BrowseNext
		stop     int  // leave the loop there; 0: never
		want     int
		requests int // BrowseNext
	}{
		{"all", false, 0, children, 9},
		{"left early", false, 150, 150, 2}, // the second frees the point
		{"no BrowseNext", true, 0, page, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inRogue(t, func(r *rogue) {
				released := 0
				r.on("Browse", func(int, ua.Request) any {
					return &ua.BrowseResponse{Results: []*ua.BrowseResult{pageFrom(0)}}
				})
				r.on("BrowseNext", func(_ int, rq ua.Request) any {
					q := rq.(*ua.BrowseNextRequest)
					var from int
					_, err := fmt.Sscan(string(q.ContinuationPoints[0]), &from)
					switch {
					case c.missing:
						return ua.StatusBadServiceUnsupported
					case err != nil || len(q.ContinuationPoints) != 1:
						return ua.StatusBadContinuationPointInvalid
					case q.ReleaseContinuationPoints:
						r.mu.Lock()
						released++
						r.mu.Unlock()
						return &ua.BrowseNextResponse{Results: []*ua.BrowseResult{{}}}
					}
					return &ua.BrowseNextResponse{Results: []*ua.BrowseResult{pageFrom(from)}}
				})
				s, err := Connect(r.ctx, plantURL, r.opts())
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				var last error
				for ref, err := range s.Browse(r.ctx, Children(ua.NewTwoByteNodeID(85))) {
					if last = err; err != nil {
						break
					}
					if ref.BrowseName.Name != fmt.Sprint(n) {
						t.Fatalf("child %d is %s", n, ref.BrowseName.Name)
					}
					if n++; n == c.stop {
						break
					}
				}
				if n != c.want || r.asked("BrowseNext") != c.requests || c.missing != errors.Is(last, ua.StatusBadServiceUnsupported) || !c.missing && last != nil {
					t.Errorf("%d children, %d BrowseNext requests, %v", n, r.asked("BrowseNext"), last)
				}
				r.mu.Lock()
				if (released == 1) != (c.stop > 0) {
					t.Errorf("%d points freed", released)
				}
				r.mu.Unlock()
				s.Close(r.ctx)
			})
		})
	}
}
