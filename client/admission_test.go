package client

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
)

// administrator takes everybody for one.
type administrator struct{ operator }

func (administrator) Authenticate(context.Context, *session.Attempt) (*session.Identity, error) {
	return &session.Identity{Kind: ua.UserTokenTypeUserName, User: "ada", Tenant: "north", Admin: true}, nil
}

// overload.md §17 (AdmissionStatus): administrators read both governors as the
// server has them, and which are off.
func TestAdmissionStatus(t *testing.T) {
	if want := ua.NewStringNodeID(1, admissionStatusMethod).String(); want != stack.AdmissionStatusMethod {
		t.Fatalf("%s, the server has %s", want, stack.AdmissionStatusMethod)
	}
	both := stack.Governors{HTTP: &admission.HTTPOptions{MaxRequests: 77}, Commands: &admission.CommandOptions{MaxCommands: 66}}
	for _, c := range []struct {
		name string
		g    stack.Governors
	}{
		{"both", both},
		{"HTTP", stack.Governors{HTTP: both.HTTP}},
		{"commands", stack.Governors{Commands: both.Commands}},
		{"none", stack.Governors{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inPlant(t, stack.Options{Governors: c.g, Authenticator: administrator{}}, func(p *plant) {
				s := p.connect(p.opts())
				got, err := s.AdmissionStatus(p.ctx)
				if err != nil {
					t.Fatal(err)
				}
				if got.Commands != nil { // the call itself was held
					ps := got.Commands.VerifiedScopes.Data.Principals
					if len(ps) != 1 || ps[0].Tenant != "north" || ps[0].Principal != "ada" || got.Commands.Node.Data.Count != 1 {
						t.Errorf("this very call: %+v, %+v", ps, got.Commands.Node.Data)
					}
				}
				synctest.Wait()
				want := p.srv.AdmissionStatus()
				if (got.HTTP == nil) != (want.HTTP == nil) || (got.Commands == nil) != (want.Commands == nil) {
					t.Fatalf("%+v, the server says %+v", got, want)
				}
				if want.HTTP != nil && !reflect.DeepEqual(got.HTTP.Limits, want.HTTP.Limits) {
					t.Errorf("%+v, the server says %+v", got.HTTP.Limits, want.HTTP.Limits)
				}
				if want.Commands != nil && !reflect.DeepEqual(got.Commands.Limits, want.Commands.Limits) {
					t.Errorf("%+v, the server says %+v", got.Commands.Limits, want.Commands.Limits)
				}
				p.close(s)
			})
		})
	}
}

// overload.md §17: others are refused.
func TestAdmissionStatusIsForAdministrators(t *testing.T) {
	inPlant(t, stack.Options{Authenticator: operator{}}, func(p *plant) {
		s := p.connect(p.opts())
		if st, err := s.AdmissionStatus(p.ctx); !errors.Is(err, ua.StatusBadUserAccessDenied) || st != nil {
			t.Errorf("%+v, %v", st, err)
		}
		p.close(s)
	})
}

// What other servers answer: a code of theirs, or nonsense.
func TestAdmissionStatusOfOthers(t *testing.T) {
	values := func(v ...any) *ua.CallMethodResult {
		r := &ua.CallMethodResult{}
		for _, v := range v {
			r.OutputArguments = append(r.OutputArguments, ua.MustVariant(v))
		}
		return r
	}
	for _, c := range []struct {
		name   string
		answer any
		want   ua.StatusCode
	}{
		{"no Call service", ua.StatusBadServiceUnsupported, ua.StatusBadServiceUnsupported},
		{"no method", &ua.CallMethodResult{StatusCode: ua.StatusBadMethodInvalid}, ua.StatusBadMethodInvalid},
		{"no node", &ua.CallMethodResult{StatusCode: ua.StatusBadNodeIDUnknown}, ua.StatusBadNodeIDUnknown},
		{"no output", values(), ua.StatusBadDecodingError},
		{"two outputs", values("{}", "{}"), ua.StatusBadDecodingError},
		{"a number", values(int32(1)), ua.StatusBadDecodingError},
		{"no JSON", values("<admission/>"), ua.StatusBadDecodingError},
		{"JSON of another kind", values(`{"http":[]}`), ua.StatusBadDecodingError},
		{"null", values("null"), ua.StatusBadDecodingError},
	} {
		t.Run(c.name, func(t *testing.T) {
			inRogue(t, func(r *rogue) {
				r.on("Call", func(_ int, rq ua.Request) any {
					m := rq.(*ua.CallRequest).MethodsToCall[0]
					if m.ObjectID.String() != "i=2253" || m.MethodID.String() != stack.AdmissionStatusMethod || len(m.InputArguments) != 0 {
						t.Errorf("%+v", m)
					}
					if res, ok := c.answer.(*ua.CallMethodResult); ok {
						return &ua.CallResponse{Results: []*ua.CallMethodResult{res}}
					}
					return c.answer
				})
				s, err := Connect(r.ctx, plantURL, r.opts())
				if err != nil {
					t.Fatal(err)
				}
				if st, err := s.AdmissionStatus(r.ctx); !errors.Is(err, c.want) || st != nil {
					t.Errorf("%+v, %v", st, err)
				}
				s.Close(r.ctx)
			})
		})
	}
}
