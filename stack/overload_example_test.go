package stack_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
)

// plantClassifier names two owners: what comes in at the control room's own
// address is trusted, and everybody who is logged in as "historian" is one owner,
// from however many machines.
type plantClassifier struct{ controlRoom netip.AddrPort }

func (c plantClassifier) ClassifyIngress(_, local netip.AddrPort) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{Key: "control-room", Class: isolation.Trusted}, local == c.controlRoom
}

func (plantClassifier) Classify(_ isolation.ServiceKind, _ *isolation.ChannelFacts, b *isolation.BindingFacts) (isolation.OwnerClaim, bool) {
	if b != nil && b.User == "historian" {
		return isolation.OwnerClaim{Key: "historian", Class: isolation.Established}, true
	}
	return isolation.OwnerClaim{}, false // by ingress, else by user, certificate or address
}

// A Classifier of one's own: the control room keeps room at every stage, however
// busy the others are.
func ExampleOptions_classifier() {
	srv, err := stack.NewServer(stack.Options{
		Security:   example,
		Logger:     quiet,
		Budget:     stack.Budget{MaxBytes: 128 << 20}, // each trusted owner keeps room for a message
		Classifier: plantClassifier{netip.MustParseAddrPort("10.99.0.1:4840")},
		Isolation: isolation.Options{
			Mode: isolation.TrustedReservations,
			TrustedOwners: []isolation.TrustedOwner{{Key: "control-room", Weight: 4, Reservations: []isolation.Reservation{
				{Stage: isolation.RequestExecution, Reserved: 10},
			}}},
		},
	})
	if err != nil {
		panic(err)
	}
	defer srv.Shutdown(context.Background())
	st := srv.Plan().Stages[isolation.RequestExecution]
	fmt.Println(st.Stage, "of", st.Capacity, "keeps", st.Trusted, "for trusted owners and leaves", st.Shared)
	// Output: RequestExecution of 100 keeps 10 for trusted owners and leaves 87
}

// quiet hours limit new connections to one a second.
type nightly struct{ l *rate.Limiter }

func (n nightly) AllowConnection(netip.Addr) (ok bool, wait time.Duration) {
	if n.l.Allow() {
		return true, 0
	}
	return false, time.Second
}

// A connection limiter of one's own takes the place of RateLimits'.
func ExampleOptions_connectionLimiter() {
	srv, err := stack.NewServer(stack.Options{Security: example, Logger: quiet, ConnectionLimiter: nightly{rate.NewLimiter(1, 10)}})
	if err != nil {
		panic(err)
	}
	fmt.Println(srv.Shutdown(context.Background()))
	// Output: <nil>
}

// Two servers of one process share the memory for partial messages, so that
// both together hold no more than that.
func ExampleBudget_shared() {
	shared, err := budget.New(128 << 20)
	if err != nil {
		panic(err)
	}
	for range 2 {
		srv, err := stack.NewServer(stack.Options{Security: example, Logger: quiet, Budget: stack.Budget{Shared: shared}})
		if err != nil {
			panic(err)
		}
		fmt.Println(srv.Plan().Stages[isolation.ReassemblyBytes].Total>>20, "MiB")
		_ = srv.Shutdown(context.Background())
	}
	// Output:
	// 128 MiB
	// 128 MiB
}

// The plan of options can be looked at without a server, and says what is wrong
// with them.
func ExampleOptions_Plan() {
	o := stack.Options{Limits: stack.Limits{MaxSessions: 100, MaxChannels: 101}}
	_, err := o.Plan()
	fmt.Println(err)
	o.Limits.MaxChannels = 0 // 2 × MaxSessions + 10
	p, err := o.Plan()
	st := p.Stages[isolation.Connection]
	fmt.Printf("%v: %d in all, %d for everybody; when full: %s\n", st.Stage, st.Total, st.Shared, stack.WhenFull(st.Stage)[:25])
	fmt.Println(err)
	// Output:
	// stack: Options.Limits.MaxChannels: is 101: every session and one newcomer must fit beside the floors; the smallest value that works is 103
	// Connection: 210 in all, 208 for everybody; when full: the oldest idle connectio
	// <nil>
}
