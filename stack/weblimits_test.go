package stack_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/stack"
)

// overload.md §16: the limits of the governors and of HTTPS change while the
// server runs, all or none.
func TestApplyWebLimits(t *testing.T) {
	o := everywhere()
	o.Governors.Commands = &admission.CommandOptions{MaxCommands: 10}
	srv := start(t, o)
	w := newWebClient(t, srv)
	w.must(&ua.GetEndpointsRequest{RequestHeader: w.header()})

	next := srv.LimitsInForce()
	next.Governors.Commands.MaxCommands = 20
	next.HTTP.RequestsPerSecond, next.HTTP.RequestBurst, next.HTTP.MaxSessionless = 0.001, 1, 5
	r, err := srv.ApplyLimits(next, true)
	if err != nil {
		t.Fatal(err)
	}
	const want = "[HTTP.RequestsPerSecond HTTP.RequestBurst HTTP.MaxSessionless Governors.Commands.MaxCommands]"
	if got := fmt.Sprint(r.Changed); got != want {
		t.Errorf("would change %s, want %s", got, want)
	}
	if n := srv.AdmissionStatus().Commands.Limits.MaxCommands; n != 10 {
		t.Errorf("a dry run changed MaxCommands to %d", n)
	}
	if _, err := srv.ApplyLimits(next, false); err != nil {
		t.Fatal(err)
	}
	if n := srv.AdmissionStatus().Commands.Limits.MaxCommands; n != 20 {
		t.Errorf("MaxCommands is %d", n)
	}
	w.must(&ua.GetEndpointsRequest{RequestHeader: w.header()})
	w.status(&ua.GetEndpointsRequest{RequestHeader: w.header()}, http.StatusTooManyRequests, true)

	for _, change := range []func(*stack.Options){
		func(o *stack.Options) { o.Governors.HTTP = &admission.HTTPOptions{} }, // was off
		func(o *stack.Options) { o.Governors.Commands.MaxCommands = -1 },
		func(o *stack.Options) { o.HTTP.RequestsPerSecond = -1 },
	} {
		o := srv.LimitsInForce()
		change(&o)
		var e *stack.OptionError
		if _, err := srv.ApplyLimits(o, false); !errors.As(err, &e) {
			t.Errorf("%v", err)
		}
	}
	if n := srv.AdmissionStatus().Commands.Limits.MaxCommands; n != 20 {
		t.Errorf("a refused change is in force: %d", n)
	}
}
