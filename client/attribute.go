package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopcua/opcua/ua"
)

// tooMuch says whether an error means that the same in smaller pieces may work.
func tooMuch(err error) bool {
	for _, code := range []ua.StatusCode{ua.StatusBadTooManyOperations, ua.StatusBadRequestTooLarge, ua.StatusBadResponseTooLarge, ua.StatusBadEncodingLimitsExceeded} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// unexecuted says whether an error means that smaller pieces may work and that
// nothing of this one was done: it was not sent, or refused before its first
// operation. What the other errors of tooMuch are about may be the answer.
func unexecuted(err error) bool {
	return errors.Is(err, ua.StatusBadTooManyOperations) || errors.Is(err, ua.StatusBadRequestTooLarge)
}

// split runs f over parts of all, of at most n, and halves a part that is too
// much for the server until single operations are.
func split[T, R any](all []T, n int, f func([]T) ([]R, error)) ([]R, error) {
	return splitWhen(tooMuch, all, n, f)
}

// splitWhen is split that halves a part when smaller says so of its error.
func splitWhen[T, R any](smaller func(error) bool, all []T, n int, f func([]T) ([]R, error)) ([]R, error) {
	out := make([]R, 0, len(all))
	n = max(n, 1)
	for len(all) > 0 {
		k := min(n, len(all))
		got, err := f(all[:k:k])
		switch {
		case err == nil:
			out, all = append(out, got...), all[k:]
		case k > 1 && smaller(err):
			n = (k + 1) / 2
		default:
			return out, err
		}
	}
	return out, nil
}

// Read reads attributes (OPC 10000-4 §5.11.2, Read) and returns one DataValue
// for each, none of them nil; a value that cannot be read has a bad Status. It
// takes as many requests as the server's OperationLimits want. With an error come
// the values that were read before it.
func (s *Session) Read(ctx context.Context, nodes ...*ua.ReadValueID) ([]*ua.DataValue, error) {
	return s.ReadWith(ctx, 0, ua.TimestampsToReturnBoth, nodes...)
}

// ReadWith is Read with a maximum age of cached values and a choice of timestamps.
func (s *Session) ReadWith(ctx context.Context, maxAge time.Duration, ts ua.TimestampsToReturn, nodes ...*ua.ReadValueID) ([]*ua.DataValue, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	n, err := s.limit(ctx, len(nodes), func(l *operationLimits) int { return l.read })
	if err != nil {
		return nil, err
	}
	return split(nodes, n, func(part []*ua.ReadValueID) ([]*ua.DataValue, error) {
		rq := &ua.ReadRequest{MaxAge: float64(maxAge.Milliseconds()), TimestampsToReturn: ts, NodesToRead: part}
		rs, err := call[*ua.ReadResponse](ctx, s, rq)
		if err != nil {
			return nil, err
		}
		for i, v := range rs.Results {
			if v == nil {
				rs.Results[i] = &ua.DataValue{Status: ua.StatusBadUnexpectedError, EncodingMask: ua.DataValueStatusCode}
			}
		}
		return rs.Results, results(rq, rs.Results, len(part))
	})
}

// limit asks for the server's limits when there is more than one operation.
func (s *Session) limit(ctx context.Context, operations int, which func(*operationLimits) int) (int, error) {
	if operations <= 1 {
		return 1, nil
	}
	l, err := s.online(ctx)
	if err != nil {
		return 0, err
	}
	return which(s.operations(ctx, l)), nil
}

// ReadValues reads the Value attributes of nodes, as Read does.
func (s *Session) ReadValues(ctx context.Context, ids ...*ua.NodeID) ([]*ua.DataValue, error) {
	nodes := make([]*ua.ReadValueID, len(ids))
	for i, id := range ids {
		nodes[i] = &ua.ReadValueID{NodeID: id, AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}}
	}
	return s.Read(ctx, nodes...)
}

// ReadValue reads one value. A bad status is an error, beside the DataValue.
func (s *Session) ReadValue(ctx context.Context, id *ua.NodeID) (*ua.DataValue, error) {
	vs, err := s.ReadValues(ctx, id)
	if err != nil {
		return nil, err
	}
	v := vs[0]
	if isBad(v.Status) {
		return v, fmt.Errorf("client: read %v: %w", id, v.Status)
	}
	return v, nil
}

// Write writes attributes (OPC 10000-4 §5.11.4, Write) and returns the status of
// each. It takes as many requests as the server's OperationLimits want; with an
// error come the results of those that were written before it.
func (s *Session) Write(ctx context.Context, nodes ...*ua.WriteValue) ([]ua.StatusCode, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	n, err := s.limit(ctx, len(nodes), func(l *operationLimits) int { return l.write })
	if err != nil {
		return nil, err
	}
	return split(nodes, n, func(part []*ua.WriteValue) ([]ua.StatusCode, error) {
		rq := &ua.WriteRequest{NodesToWrite: part}
		rs, err := call[*ua.WriteResponse](ctx, s, rq)
		if err != nil {
			return nil, err
		}
		return rs.Results, results(rq, rs.Results, len(part))
	})
}

// WriteValue writes the Value attribute of a node; value is anything that
// ua.NewVariant takes, or a *ua.Variant or *ua.DataValue. A bad status is an error.
func (s *Session) WriteValue(ctx context.Context, id *ua.NodeID, value any) error {
	var dv *ua.DataValue
	switch v := value.(type) {
	case *ua.DataValue:
		dv = v
	case *ua.Variant:
		dv = &ua.DataValue{EncodingMask: ua.DataValueValue, Value: v}
	default:
		variant, err := ua.NewVariant(value)
		if err != nil {
			return fmt.Errorf("client: write %v: %w", id, err)
		}
		dv = &ua.DataValue{EncodingMask: ua.DataValueValue, Value: variant}
	}
	codes, err := s.Write(ctx, &ua.WriteValue{NodeID: id, AttributeID: ua.AttributeIDValue, Value: dv})
	if err != nil {
		return err
	}
	if isBad(codes[0]) {
		return fmt.Errorf("client: write %v: %w", id, codes[0])
	}
	return nil
}
