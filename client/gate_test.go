package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"
)

func TestConnectGateServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 2
		g := NewConnectGate(places)
		var mu sync.Mutex
		var order []int
		inside, most := 0, 0
		for i := range 200 {
			go func() {
				release, err := g.Acquire(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				inside++
				most = max(most, inside)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				inside--
				mu.Unlock()
				release()
				release() // once is enough
			}()
			synctest.Wait() // they come one after the other
		}
		if n := g.Waiting(); n != 198 {
			t.Errorf("%d wait", n)
		}
		time.Sleep(101 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		for i := 0; i < len(order); i += places { // those of the same moment have no order
			slices.Sort(order[i : i+places])
		}
		if most != places || !slices.IsSorted(order) || len(order) != 200 {
			t.Errorf("at most %d at once, order %v", most, order)
		}
	})
}

func TestConnectGateForgetsWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewConnectGate(0) // at least one
		release, _ := g.Acquire(context.Background())
		ctx, cancel := context.WithCancelCause(context.Background())
		left := make(chan error)
		go func() { _, err := g.Acquire(ctx); left <- err }()
		synctest.Wait()
		gone := errors.New("gone")
		cancel(gone)
		if err := <-left; !errors.Is(err, gone) {
			t.Error(err)
		}
		if _, err := g.Acquire(ctx); !errors.Is(err, gone) {
			t.Error(err)
		}
		release()
		again, err := g.Acquire(context.Background())
		if err != nil || g.Waiting() != 0 {
			t.Error(err, g.Waiting())
		}
		again()
		var none *ConnectGate
		if r, err := none.Acquire(ctx); err != nil {
			t.Error(err)
		} else {
			r()
		}
	})
}

// One that is given its place in the moment in which it leaves hands it on.
func TestConnectGateLosesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewConnectGate(1)
		for range 200 {
			release, err := g.Acquire(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			waited := make(chan struct{})
			go func() {
				if r, err := g.Acquire(ctx); err == nil {
					r()
				}
				close(waited)
			}()
			synctest.Wait()
			cancel()
			release()
			<-waited
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if r, err := g.Acquire(ctx); err != nil {
			t.Error("a place was lost")
		} else {
			r()
		}
	})
}

// Sessions that share a gate: at most so many connect at once, and one that waits
// for its next attempt holds nobody up.
func TestGateOfSessions(t *testing.T) {
	inRogue(t, func(r *rogue) {
		o := r.opts()
		o.Gate = NewConnectGate(3)
		var mu sync.Mutex
		now, most := 0, 0
		r.on("CreateSession", func(n int, rq ua.Request) any {
			if n == 1 {
				return busy(20 * time.Second)
			}
			return behaved{}
		})
		o.VerifyServer = nil
		dial := o.Transport.(TCP).Dial
		o.Transport = slow{TCP{Dial: dial}, func(d int) {
			mu.Lock()
			now += d
			most = max(most, now)
			mu.Unlock()
		}}
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				s, err := Connect(r.ctx, plantURL, o)
				if err != nil {
					t.Error(i, err)
					return
				}
				defer s.Close(r.ctx)
			})
		}
		wg.Wait()
		if most != 3 {
			t.Errorf("%d connected at once", most)
		}
		if took := time.Since(begun); took < 20*time.Second || took > 30*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// slow takes a second to open a channel.
type slow struct {
	TCP
	count func(int)
}

func (s slow) Open(ctx context.Context, c ChannelConfig) (Channel, error) {
	s.count(1)
	defer s.count(-1)
	time.Sleep(time.Second)
	return s.TCP.Open(ctx, c)
}

func TestStateNames(t *testing.T) {
	for s := Connecting; s <= Closed; s++ {
		if fmt.Sprint(s) == "Invalid" {
			t.Error(uint8(s))
		}
	}
}
