package stack_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// slowIdentity lets anonymous callers in when it is told to.
type slowIdentity struct{ open chan struct{} }

func (s slowIdentity) Authenticate(ctx context.Context, t *session.Attempt) (*session.Identity, error) {
	select {
	case <-s.open:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return session.Anonymous{}.Authenticate(ctx, t)
}

func (slowIdentity) TokenTypes() []ua.UserTokenType {
	return []ua.UserTokenType{ua.UserTokenTypeAnonymous}
}

// establishing are options with room for n establishments at once and a queue
// of so many.
func establishing(n int64, queue int) (stack.Options, slowIdentity) {
	auth := slowIdentity{make(chan struct{})}
	o := stack.Options{
		Security:      stack.Security{Policies: stack.NoPolicies, AllowNone: true},
		Authenticator: auth,
		Isolation:     isolation.Options{Mode: isolation.FairShare},
	}
	o.RateLimits.MaxConcurrentSessionEstablishment, o.RateLimits.SessionEstablishmentQueueLimit = int(n), queue
	return o, auth
}

// Establishment over its limit is refused at once, with a hint in every carrier
// that a client may look at, and has its place again when others are done.
func TestEstablishmentIsRefusedWithAHint(t *testing.T) {
	for _, tc := range []struct {
		name        string
		diagnostics uint32
	}{{"nothing asked", 0}, {"additional info asked", 0x04}, {"everything asked", 0x3ff}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, auth := establishing(1, 0)
				bubble(t, o, func(s *site) {
					first, second := s.connect(), s.connect()
					first.create(0)
					w := first.start(first.encode(activateOf(first)))
					synctest.Wait()
					rq := createOf(second)
					rq.RequestHeader.ReturnDiagnostics = tc.diagnostics
					r := <-second.start(second.encode(rq))
					f, ok := r.msg.(*ua.ServiceFault)
					if !ok || f.ResponseHeader.ServiceResult != uastatus.BadServerTooBusy {
						t.Fatalf("%T %v", r.msg, r.err)
					}
					hint := reconnect.HeaderHint(f.ResponseHeader)
					if hint < 50*time.Millisecond || hint > 30*time.Second {
						t.Errorf("hint %v", hint)
					}
					info := f.ResponseHeader.ServiceDiagnostics
					if asked := tc.diagnostics&0x04 != 0; asked != (info != nil && reconnect.ParseHint(info.AdditionalInfo) == hint) {
						t.Errorf("diagnostics %+v, hint %v", info, hint)
					}
					// gopcua's own codec finds it, too.
					var e uabinary.Encoder
					uabinary.EncodeMessage(&e, f)
					var theirs ua.ServiceFault
					_, n, err := splitTypeID(e.B)
					if err == nil {
						_, err = ua.Decode(e.B[n:], &theirs)
					}
					if err != nil || reconnect.HeaderHint(theirs.ResponseHeader) != hint {
						t.Errorf("gopcua: %v, %v", err, theirs.ResponseHeader)
					}
					if u := s.stats(); u.EstablishmentRefused != 1 || u.Establishing != 1 {
						t.Errorf("%d refused, %d in flight", u.EstablishmentRefused, u.Establishing)
					}
					close(auth.open)
					first.result(<-w)
					second.login()
				})
			})
		})
	}
}

// overload.md §5: whoever was told to come back finds its channel until five
// seconds after its hint; then it is the first to make room.
func TestRefusedClientKeepsItsChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, auth := establishing(1, 0)
		o.Isolation.Mode, o.Limits.MaxSessions, o.Limits.MaxChannels = isolation.FairShare, 2, 3
		bubble(t, o, func(s *site) {
			first, refused := s.from("192.0.2.10:1"), s.from("192.0.2.11:1")
			first.create(0)
			w := first.start(first.encode(activateOf(first)))
			synctest.Wait()
			r := <-refused.start(refused.encode(createOf(refused)))
			f, ok := r.msg.(*ua.ServiceFault)
			if !ok {
				t.Fatalf("%T, %v", r.msg, r.err)
			}
			hint := reconnect.HeaderHint(f.ResponseHeader)
			younger := s.from("192.0.2.12:1")
			time.Sleep(hint + 4900*time.Millisecond)
			s.from("192.0.2.13:1")
			synctest.Wait()
			if ended(refused) || !ended(younger) {
				t.Errorf("before its time: the refused one ended %v, the younger %v", ended(refused), ended(younger))
			}
			time.Sleep(200 * time.Millisecond)
			s.from("192.0.2.14:1")
			synctest.Wait()
			if !ended(refused) {
				t.Error("it still has its channel after its time")
			}
			close(auth.open)
			first.result(<-w)
		})
	})
}

func ended(p *peer) bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// splitTypeID finds the length of the type id in front of a message.
func splitTypeID(b []byte) (uint32, int, error) {
	var d uabinary.Decoder
	d.Reset(b, nil)
	id := d.TypeID()
	return id, d.Pos(), d.Err()
}

// With a queue the next one waits, and only the one after it is refused.
func TestEstablishmentQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, auth := establishing(1, 1)
		bubble(t, o, func(s *site) {
			first, second, third := s.connect(), s.connect(), s.connect()
			first.create(0)
			w1 := first.start(first.encode(activateOf(first)))
			synctest.Wait()
			w2 := second.start(second.encode(createOf(second)))
			synctest.Wait()
			if u := s.stats(); u.Establishing != 1 || u.EstablishmentWaiting != 1 {
				t.Errorf("%d in flight, %d wait", u.Establishing, u.EstablishmentWaiting)
			}
			third.refused(createOf(third), uastatus.BadServerTooBusy)
			close(auth.open)
			if _, code := first.result(<-w1); code != ua.StatusOK {
				t.Errorf("first: %v", code)
			}
			if _, code := second.result(<-w2); code != ua.StatusOK {
				t.Errorf("second, that had waited: %v", code)
			}
			third.login()
		})
	})
}

// Who waits and goes away gives its place to the next.
func TestEstablishmentWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, auth := establishing(1, 1)
		bubble(t, o, func(s *site) {
			first, second, third := s.connect(), s.connect(), s.connect()
			first.create(0)
			w := first.start(first.encode(activateOf(first)))
			synctest.Wait()
			second.start(second.encode(createOf(second)))
			synctest.Wait()
			second.close()
			synctest.Wait()
			w3 := third.start(third.encode(createOf(third)))
			synctest.Wait()
			close(auth.open)
			first.result(<-w)
			if _, code := third.result(<-w3); code != ua.StatusOK {
				t.Errorf("the place of one that left: %v", code)
			}
		})
	})
}
