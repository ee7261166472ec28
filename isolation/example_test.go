package isolation_test

import (
	"fmt"
	"net/netip"

	"github.com/breakwater-ua/breakwater/isolation"
)

// controlRoom trusts what arrives at an address of its own, which only the
// plant's control network can reach: the proof is the path, not the peer's
// address.
type controlRoom struct{ local netip.AddrPort }

func (c controlRoom) ClassifyIngress(remote, local netip.AddrPort) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{Key: "control-room", Class: isolation.Trusted}, local == c.local
}

func (controlRoom) Classify(isolation.ServiceKind, *isolation.ChannelFacts, *isolation.BindingFacts) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{}, false // requests go with the connection they come on
}

// A dedicated trusted ingress: however full the server is of others, the
// control room finds the room that was kept for it.
func Example_trustedIngress() {
	plan, err := isolation.CreatePlan(isolation.Options{
		Mode:          isolation.TrustedReservations,
		TrustedOwners: []isolation.TrustedOwner{{Key: "control-room"}},
	}, isolation.Totals{MaxMessageSize: 1 << 20, MaxBufferSize: 65535, MaxSessions: 2, MaxChannels: 6, Budget: 64 << 20,
		MaxEstablishment: 128, HasClassifier: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	provider := isolation.NewProvider(plan)
	classifier := controlRoom{netip.MustParseAddrPort("10.99.0.1:4841")}
	connect := func(remote, local string) isolation.Reason {
		claim, _ := isolation.ClassifyIngress(classifier, netip.MustParseAddrPort(remote), netip.MustParseAddrPort(local))
		owner, err := provider.Issue(claim.Key, claim.Class)
		if err != nil {
			return isolation.InvalidOwner
		}
		return provider.TryAcquire(new(isolation.Lease), isolation.Connection, owner, 1)
	}
	for i := range 4 {
		fmt.Println("somebody:", connect(fmt.Sprintf("192.0.2.%d:50000", i), "192.0.2.100:4840"))
	}
	fmt.Println("control room:", connect("10.99.0.7:50000", "10.99.0.1:4841"))
	// Output:
	// somebody: granted
	// somebody: granted
	// somebody: granted
	// somebody: capacity
	// control room: granted
}

// A plan can be looked at before any server starts.
func ExampleCreatePlan() {
	plan, err := isolation.CreatePlan(isolation.Options{}, isolation.Totals{MaxMessageSize: 4 << 20, MaxBufferSize: 65535,
		MaxSessions: 100, MaxChannels: 101, Budget: 64 << 20, MaxEstablishment: 128})
	fmt.Println(plan != nil, err)
	plan, err = isolation.CreatePlan(isolation.Options{}, isolation.Totals{MaxMessageSize: 4 << 20, MaxBufferSize: 65535,
		MaxSessions: 100, MaxChannels: 103, Budget: 64 << 20, MaxEstablishment: 128})
	fmt.Println(plan.Stages[isolation.Connection].Shared, "of", plan.Stages[isolation.Connection].Capacity, "connections are shared", err)
	// Output:
	// false isolation: MaxChannels is 101: every session and one newcomer must fit beside the floors; the smallest value that works is 103
	// 101 of 103 connections are shared <nil>
}
