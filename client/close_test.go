package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"
)

// Close from a callback returns, and the session ends when the callback has.
func TestCloseFromCallback(t *testing.T) {
	inSecuredRogue(t, func(r *rogue, o Options) {
		var s *Session
		inside := make(chan error, 1)
		o.VerifyServer = func(context.Context, Server) error {
			if s != nil {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				defer cancel()
				inside <- s.Close(ctx)
			}
			return nil
		}
		s = r.connect(o)
		r.cut()
		if err := <-inside; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		<-s.Done()
		if !errors.Is(s.Err(), ErrClosed) {
			t.Error(s.Err())
		}
		if err := s.Close(r.ctx); err != nil {
			t.Error(err)
		}
	})
}

// A session that is made when the context of Connect ends does not stay behind.
func TestConnectThatEndsLateClosesItsSession(t *testing.T) {
	for _, answered := range []bool{true, false} {
		inRogue(t, func(r *rogue) {
			ctx, cancel := context.WithCancel(r.ctx)
			defer cancel()
			r.on("CloseSession", nil)
			r.on("ActivateSession", func(int, ua.Request) any {
				cancel()
				if answered {
					return behaved{}
				}
				return silent{}
			})
			s, err := Connect(ctx, plantURL, r.opts())
			if s != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("%v, %v", s, err)
			}
			synctest.Wait()
			if n := r.asked("CloseSession"); n != 1 {
				t.Errorf("answered %v: CloseSession %d times", answered, n)
			}
		})
	}
}

// Close while a server does not answer ActivateSession takes a second at most.
func TestCloseDuringActivation(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s := r.connect(r.opts())
		time.Sleep(time.Minute)
		quiet := func(int, ua.Request) any { return silent{} }
		r.on("ActivateSession", quiet)
		r.on("CloseSession", quiet)
		r.cut()
		time.Sleep(5 * time.Second)
		if r.asked("ActivateSession") != 1 {
			t.Fatal("not at ActivateSession")
		}
		begin := time.Now()
		if err := s.Close(r.ctx); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("took %v", d)
		}
	})
}
