package conformance

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Case is one check.
type Case struct {
	// Unit is the conformance unit it belongs to ("Attribute Read").
	Unit string
	// Name says what must hold.
	Name string
	// Clause cites the specification.
	Clause string
	// Run performs the check and reports through t.
	Run func(t *T)
}

// ID is the name under which a case stands in the ledger.
func (c Case) ID() string { return c.Unit + "/" + c.Name }

// Cases returns all cases in the order in which they run.
func Cases() []Case {
	var all []Case
	for _, set := range [][]Case{
		discoveryCases, protocolCases, binaryCases, jsonCases, securityCases, sessionCases, readCases, writeCases,
		browseCases, translateCases, methodCases, informationCases, subscriptionCases, monitoredItemCases, transferCases,
	} {
		all = append(all, set...)
	}
	return all
}

// Outcome of a case.
type Outcome string

// The outcomes.
const (
	Pass          Outcome = "pass"
	Fail          Outcome = "fail"
	NotApplicable Outcome = "not applicable"
)

// Result is what a case came to.
type Result struct {
	Outcome Outcome
	// Log says why it failed or does not apply.
	Log string
}

// Timeout bounds one case.
const Timeout = 60 * time.Second

// Check runs one case against a target.
func Check(ctx context.Context, target *Target, c Case) Result {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	t := &T{Context: ctx, Target: target}
	done := make(chan struct{})
	// The case runs on a goroutine of its own so that Fatalf can end it.
	go func() {
		defer close(done)
		defer t.cleanup()
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		c.Run(t)
	}()
	<-done
	switch {
	case t.failed:
		return Result{Fail, strings.Join(t.log, "\n")}
	case t.na:
		return Result{NotApplicable, strings.Join(t.log, "\n")}
	}
	return Result{Pass, strings.Join(t.log, "\n")}
}

// Run runs every case against the target as a subtest and holds the outcomes
// against the ledger.
func Run(t *testing.T, target *Target, ledger Ledger) {
	t.Helper()
	if target.Key == nil {
		gate := security.NewCryptoGate(1)
		t.Cleanup(gate.Close)
		key, err := probe.NewKey(gate, probe.ApplicationURI, "Breakwater probe")
		if err != nil {
			t.Fatal(err)
		}
		target.Key = key
	}
	seen := map[string]bool{}
	counts := map[Outcome]int{}
	for _, c := range Cases() {
		if seen[c.ID()] {
			t.Errorf("two cases are named %q", c.ID())
		}
		seen[c.ID()] = true
		t.Run(c.ID(), func(t *testing.T) {
			r := Check(t.Context(), target, c)
			counts[r.Outcome]++
			if err := ledger.Judge(c.ID(), r); err != nil {
				t.Errorf("%s: %v\n%s", c.Clause, err, r.Log)
			}
		})
	}
	for id := range ledger {
		if !seen[id] {
			t.Errorf("the ledger names %q, which is no case", id)
		}
	}
	t.Logf("conformance: %d passed, %d failed, %d not applicable", counts[Pass], counts[Fail], counts[NotApplicable])
}

// T is what a case works with: the target, a context that ends with the case,
// and a record of what went wrong.
type T struct {
	context.Context
	Target *Target

	mu       sync.Mutex
	failed   bool
	na       bool
	log      []string
	cleanups []func()
}

func (t *T) cleanup() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
}

// Cleanup runs f when the case has ended.
func (t *T) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Logf records something worth knowing about the outcome.
func (t *T) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

// Errorf records a failure and goes on.
func (t *T) Errorf(format string, args ...any) {
	t.Logf(format, args...)
	t.failed = true
}

// Fatalf records a failure and ends the case.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// NotApplicable ends the case: the target lacks what it needs.
func (t *T) NotApplicable(format string, args ...any) {
	t.Logf(format, args...)
	t.na = true
	runtime.Goexit()
}

// OK ends the case when err is not nil.
func (t *T) OK(err error, doing string) {
	if err != nil {
		t.Fatalf("%s: %v", doing, err)
	}
}

// Status fails the case unless err carries one of the codes.
func (t *T) Status(err error, doing string, want ...ua.StatusCode) {
	got := uastatus.Code(err)
	for _, w := range want {
		if got == w {
			return
		}
	}
	t.Errorf("%s: got %s (%v), want %s", doing, uastatus.Name(got), err, names(want))
}

// Code fails the case unless got is one of the codes.
func (t *T) Code(got ua.StatusCode, doing string, want ...ua.StatusCode) {
	for _, w := range want {
		if got == w {
			return
		}
	}
	t.Errorf("%s: got %s, want %s", doing, uastatus.Name(got), names(want))
}

func names(codes []ua.StatusCode) string {
	s := make([]string, len(codes))
	for i, c := range codes {
		s[i] = uastatus.Name(c)
	}
	return strings.Join(s, " or ")
}

// Node parses a NodeId of the target's Nodes; an empty one makes the case not applicable.
func (t *T) Node(text, what string) *ua.NodeID {
	if text == "" {
		t.NotApplicable("the target names no node for %s", what)
	}
	id, err := ua.ParseNodeID(text)
	t.OK(err, "parse the NodeId for "+what)
	return id
}

// Endpoint returns the endpoint that cases use which do not test security: the
// unsecured one when it is offered, else the strongest.
func (t *T) Endpoint() *ua.EndpointDescription {
	all, err := probe.Endpoints(t, t.Target.options())
	t.OK(err, "GetEndpoints")
	var best *ua.EndpointDescription
	for _, e := range all {
		p := security.PolicyByURI(e.SecurityPolicyURI)
		switch {
		case p == nil || !t.ours(e):
		case e.SecurityMode == ua.MessageSecurityModeNone:
			return e
		case best == nil || e.SecurityLevel > best.SecurityLevel:
			best = e
		}
	}
	if best == nil {
		t.Fatalf("no usable endpoint among %d", len(all))
	}
	return best
}

// ours tells whether an endpoint is one of the transport under test.
func (t *T) ours(e *ua.EndpointDescription) bool {
	return e.TransportProfileURI == t.Target.Transport().Profile()
}

// OptionsFor returns how to open a channel to an endpoint.
func (t *T) OptionsFor(e *ua.EndpointDescription) probe.Options {
	o := t.Target.options()
	o.Policy, o.Mode, o.ServerCertificate = security.PolicyByURI(e.SecurityPolicyURI), e.SecurityMode, e.ServerCertificate
	return o
}

// Open opens a channel on the usual endpoint.
func (t *T) Open() *probe.Conn { return t.OpenWith(t.OptionsFor(t.Endpoint())) }

// OpenWith opens a channel and closes it with the case.
func (t *T) OpenWith(o probe.Options) *probe.Conn {
	c, err := probe.Open(t, o)
	t.OK(err, "open a SecureChannel")
	t.Cleanup(func() { c.Close() })
	return c
}

// Identity returns the identity that the usual session has on an endpoint.
func (t *T) Identity(e *ua.EndpointDescription) probe.Identity {
	for _, p := range e.UserIdentityTokens {
		if p.TokenType == ua.UserTokenTypeAnonymous {
			return probe.Anonymous
		}
	}
	if t.Target.User == "" {
		t.NotApplicable("the endpoint does not offer Anonymous and the target names no user")
	}
	return probe.Identity{Kind: ua.UserTokenTypeUserName, User: t.Target.User, Password: t.Target.Password}
}

// Session opens a channel and an activated session on the usual endpoint.
func (t *T) Session() *probe.Session {
	e := t.Endpoint()
	c := t.OpenWith(t.OptionsFor(e))
	s := t.Create(c)
	t.OK(s.Activate(t, t.Identity(e)), "ActivateSession")
	return s
}

// Create creates a session and closes it with the case.
func (t *T) Create(c *probe.Conn) *probe.Session {
	s, err := c.Create(t, nil)
	t.OK(err, "CreateSession")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Call(ctx, &ua.CloseSessionRequest{DeleteSubscriptions: true}) // it may have been closed by the case
	})
	return s
}

// caller is a session or a bare channel.
type caller interface {
	Call(context.Context, ua.Request) (any, error)
}

// call sends a request that must succeed.
func call[R any](t *T, c caller, rq ua.Request) R {
	rs, err := probe.Call[R](t, c, rq)
	t.OK(err, fmt.Sprintf("%T", rq))
	return rs
}

// refuse sends a request that must be refused as a whole with one of the codes.
func refuse(t *T, c caller, rq ua.Request, want ...ua.StatusCode) {
	_, err := c.Call(t, rq)
	t.Status(err, fmt.Sprintf("%T", rq), want...)
}
