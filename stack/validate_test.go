package stack

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/gopcua/opcua/ua"
)

func TestZeroOptionsAreValidAndStrict(t *testing.T) {
	if err := (Options{}).Validate(); err != nil {
		t.Fatal(err)
	}
	o := Options{}.resolved()
	for _, of := range o.offers() {
		if of.policy.IsNone() || of.policy.Deprecated() {
			t.Errorf("the zero value offers %s", of.policy)
		}
	}
	if n := len(o.offers()); n != 6 {
		t.Errorf("%d ways to secure a channel, want 6", n)
	}
	if kinds := (authenticator{}).TokenTypes(); len(kinds) != 0 {
		t.Errorf("the zero value lets in %v", kinds)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	shared, err := budget.New(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		field string
		o     Options
	}{
		{"Endpoints", Options{Endpoints: []string{"http://localhost"}}},
		{"Endpoints", Options{Endpoints: []string{"opc.tcp://user@localhost:4840"}}},
		{"Endpoints", Options{Endpoints: []string{"opc.tcp://localhost:4840", "opc.tcp://localhost:4840/x"}}},
		{"Endpoints", Options{Endpoints: []string{"opc.tcp://localhost:99999999999"}}},
		{"Security.Policies", Options{Security: Security{Policies: []*security.Policy{nil}}}},
		{"Security.Policies", Options{Security: Security{Policies: []*security.Policy{security.None}}}},
		{"Security.Policies", Options{Security: Security{Policies: []*security.Policy{security.Basic256}}}},
		{"Security.Modes", Options{Security: Security{Modes: []ua.MessageSecurityMode{ua.MessageSecurityModeNone}}}},
		{"Security", Options{Security: Security{Policies: NoPolicies}}},
		{"Limits.ReceiveBufferSize", Options{Limits: Limits{ReceiveBufferSize: 100}}},
		{"Limits.HandshakeTimeout", Options{Limits: Limits{HandshakeTimeout: time.Hour}}},
		{"Limits.MaxChannels", Options{Limits: Limits{MaxSessions: 100, MaxChannels: 100}}},
		{"Limits.MinSessionTimeout", Options{Limits: Limits{MinSessionTimeout: time.Hour, MaxSessionTimeout: time.Minute}}},
		{"Limits.MinTokenLifetime", Options{Limits: Limits{MinTokenLifetime: time.Hour, MaxTokenLifetime: time.Minute}}},
		{"Limits.MinPublishingInterval", Options{Limits: Limits{MinPublishingInterval: time.Hour, MaxPublishingInterval: time.Minute}}},
		{"ProxyPeers", Options{ProxyPeers: make([]netip.Prefix, 1)}},
		{"ProxyPeers", Options{ProxyPeers: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}}},
		{"Budget", Options{Budget: Budget{MaxBytes: -1}}},
		{"Budget.SessionlessBytes", Options{Budget: Budget{MaxBytes: 1, SessionlessBytes: 2}}},
		{"Budget.Shared", Options{Budget: Budget{MaxBytes: 1, Shared: shared}}},
	} {
		err := tc.o.Validate()
		var oe *OptionError
		if !errors.As(err, &oe) || oe.Field != tc.field {
			t.Errorf("%+v: %v, want an error about %s", tc.o, err, tc.field)
		}
		if _, again := NewServer(tc.o); again == nil {
			t.Errorf("NewServer took %s", tc.field)
		}
	}
}

// Overload defaults, overload.md §0.
func TestDefaultLimits(t *testing.T) {
	l := Options{}.resolved().Limits
	for _, tc := range []struct {
		name      string
		got, want int
	}{
		{"MaxSessions", l.MaxSessions, 1000},
		{"MaxChannels", l.MaxChannels, 2010},
		{"MaxMessageSize", l.MaxMessageSize, 4 << 20},
		{"MaxChunkCount", l.MaxChunkCount, 512},
		{"ReceiveBufferSize", l.ReceiveBufferSize, 65535},
		{"MaxQueuedRequests", l.MaxQueuedRequests, 200},
		{"MaxExecutingRequests", l.MaxExecutingRequests, 100},
		{"MaxPublishRequests", l.MaxPublishRequests, 20},
		{"MaxParkedRequests", l.MaxParkedRequests, 20_000},
		{"MaxOutstandingPerConnection", l.MaxOutstandingPerConnection, 64},
		{"WriteQueueBytes", l.WriteQueueBytes, 4 << 20},
		{"MaxSubscriptionsPerSession", l.MaxSubscriptionsPerSession, 100},
		{"MaxMonitoredItemsPerSubscription", l.MaxMonitoredItemsPerSubscription, 10_000},
		{"MaxMonitoredItemQueueSize", l.MaxMonitoredItemQueueSize, 1000},
		{"MaxRetransmissionQueueSize", l.MaxRetransmissionQueueSize, 20},
	} {
		if tc.got != tc.want {
			t.Errorf("%s is %d, want %d", tc.name, tc.got, tc.want)
		}
	}
	ops := l.Operations.WithDefaults()
	if ops.MaxNodesPerRead != 10_000 || ops.MaxNodesPerMethodCall != 1000 || ops.MaxBrowseContinuationPoints != 50 {
		t.Errorf("operation limits %+v", ops)
	}
}

func TestOptionsAreNotWrittenBack(t *testing.T) {
	o := Options{Endpoints: []string{"opc.tcp://localhost:0"}, Security: Security{Policies: NoPolicies, AllowNone: true}}
	srv, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Shutdown(t.Context())
	if o.ApplicationName != "" || o.Limits.MaxSessions != 0 || o.Logger != nil {
		t.Errorf("%+v", o)
	}
}
