package service

import (
	"context"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

const minCallMethodRequest = 2 + 2 + 4

// call is the Call service, OPC 10000-4 §5.12.2. It runs on a goroutine of its
// own, one method after the other, and stops between methods once its context
// has ended.
func call(s *Set, r *Request) ua.StatusCode {
	n, code := r.operations(minCallMethodRequest, s.limits.Load().MaxNodesPerMethodCall)
	if code != ua.StatusOK {
		return code
	}
	// A request that is cut short calls nothing.
	d := r.Body
	for range n {
		d.NodeID()
		d.NodeID()
		for range d.ArrayLen(1) {
			d.Variant()
			if d.Err() != nil {
				break
			}
		}
		if d.Err() != nil {
			r.Body = d
			return r.decoded()
		}
	}
	r.putCount(n)
	var args []uabinary.Variant
	for range n {
		if r.Context.Err() != nil {
			return uastatus.Code(context.Cause(r.Context))
		}
		object := r.Body.NodeID()
		method := r.Body.NodeID()
		count := max(r.Body.ArrayLen(1), 0)
		args = args[:0]
		tooMany := s.limits.Load().MaxMethodArguments > 0 && count > s.limits.Load().MaxMethodArguments
		for range count {
			if v := r.Body.Variant(); !tooMany {
				args = append(args, v)
			}
		}
		if tooMany {
			r.putCallResult(ua.StatusBadTooManyArguments, nil, nil)
			continue
		}
		out, argResults, code := s.callGuarded(r, object, method, args)
		r.putCallResult(code, argResults, out)
		if r.Full() {
			return ua.StatusBadResponseTooLarge
		}
	}
	r.noDiagnostics()
	return ua.StatusOK
}

func (s *Set) callGuarded(r *Request, object, method uabinary.NodeID, args []uabinary.Variant) (out []uabinary.Variant, argResults []ua.StatusCode, code ua.StatusCode) {
	defer s.caught("Call", &code)
	return s.Space.CallMethod(r.Context, object, method, args, r.Caller)
}

// putCallResult appends a CallMethodResult. Argument results are sent only when
// the arguments were the trouble, output arguments only with success.
func (r *Request) putCallResult(code ua.StatusCode, argResults []ua.StatusCode, out []uabinary.Variant) {
	r.putStatus(code)
	if Failed(code) {
		out = nil
	}
	r.putCount(len(argResults))
	for _, c := range argResults {
		r.putStatus(c)
	}
	r.noDiagnostics()
	r.putCount(len(out))
	for _, v := range out {
		r.Out = uabinary.AppendVariant(r.Out, v)
	}
}
