package client

import (
	"context"
	"fmt"

	"github.com/gopcua/opcua/ua"
)

// Call calls a method (OPC 10000-4 §5.12.2, Call) and returns its output
// arguments. A bad status of the call is an error that errors.Is finds it in.
// Arguments are what ua.NewVariant takes.
func (s *Session) Call(ctx context.Context, object, method *ua.NodeID, arguments ...any) ([]any, error) {
	rq := &ua.CallMethodRequest{ObjectID: object, MethodID: method}
	for i, a := range arguments {
		v, err := ua.NewVariant(a)
		if err != nil {
			return nil, fmt.Errorf("client: call %v: argument %d: %w", method, i, err)
		}
		rq.InputArguments = append(rq.InputArguments, v)
	}
	rs, err := s.CallMethods(ctx, rq)
	if err != nil {
		return nil, err
	}
	r := rs[0]
	if isBad(r.StatusCode) {
		return nil, fmt.Errorf("client: call %v: %w", method, r.StatusCode)
	}
	out := make([]any, len(r.OutputArguments))
	for i, v := range r.OutputArguments {
		if v != nil {
			out[i] = v.Value()
		}
	}
	return out, nil
}

// CallMethods calls methods and returns one result for each, none of them nil. It
// takes as many requests as the server's OperationLimits and message size want, and
// calls no method twice: only what was not sent, or was refused as a whole with
// BadRequestTooLarge or BadTooManyOperations, is sent in smaller pieces. With an
// error come the results of what was called before it.
func (s *Session) CallMethods(ctx context.Context, methods ...*ua.CallMethodRequest) ([]*ua.CallMethodResult, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	n, err := s.limit(ctx, len(methods), func(l *operationLimits) int { return l.call })
	if err != nil {
		return nil, err
	}
	return splitWhen(unexecuted, methods, n, func(part []*ua.CallMethodRequest) ([]*ua.CallMethodResult, error) {
		rq := &ua.CallRequest{MethodsToCall: part}
		rs, err := call[*ua.CallResponse](ctx, s, rq)
		if err != nil {
			return nil, err
		}
		if err := results(rq, rs.Results, len(part)); err != nil {
			return nil, err
		}
		for i, r := range rs.Results {
			if r == nil {
				rs.Results[i] = &ua.CallMethodResult{StatusCode: ua.StatusBadUnexpectedError}
			}
		}
		return rs.Results, nil
	})
}
