package load

import (
	"context"
	"errors"
	"fmt"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// A nodeError says why a node of the plan is not one for what it was named for.
type nodeError struct {
	node, why string
	code      ua.StatusCode
}

// Error names the node, and the StatusCode if the server has given one.
func (e *nodeError) Error() string {
	s := "node " + e.node + " " + e.why
	if e.code != ua.StatusBadTypeMismatch {
		s += ": " + uastatus.Name(e.code)
	}
	return s
}

// Unwrap is the StatusCode.
func (e *nodeError) Unwrap() error { return e.code }

// unfit is the error of a node with a result that is bad; nil: the result is not.
func unfit(node, why string, code ua.StatusCode) error {
	if uint32(code)>>31 == 0 {
		return nil
	}
	return &nodeError{node, why, code}
}

// lasting says that an error will be the same however often one tries.
func lasting(err error) bool {
	code, _ := reconnect.Signal(err)
	switch code {
	case ua.StatusBadNodeIDUnknown, ua.StatusBadNodeIDInvalid, ua.StatusBadAttributeIDInvalid, ua.StatusBadUserAccessDenied,
		ua.StatusBadNotReadable, ua.StatusBadNotWritable, ua.StatusBadWriteNotSupported, ua.StatusBadTypeMismatch, ua.StatusBadNotSupported,
		ua.StatusBadServiceUnsupported, ua.StatusBadIndexRangeInvalid, ua.StatusBadDataEncodingInvalid, ua.StatusBadDataEncodingUnsupported,
		ua.StatusBadMonitoredItemFilterInvalid, ua.StatusBadMonitoredItemFilterUnsupported, ua.StatusBadSecurityModeInsufficient:
		return true
	}
	return false
}

// value reads one node.
func (c *conn) value(ctx context.Context, node string) (*ua.Variant, error) {
	rs, err := as[*ua.ReadResponse](c.call(ctx, &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnNeither,
		NodesToRead: []*ua.ReadValueID{valueOf(node)}}))
	if err != nil {
		return nil, err
	}
	if len(rs.Results) != 1 || rs.Results[0] == nil {
		return nil, uastatus.New(ua.StatusBadUnknownResponse, "read", nil)
	}
	return rs.Results[0].Value, unfit(node, "cannot be read", rs.Results[0].Status)
}

// readable makes the request of readers once and tells of a node that can never be
// read. What is wrong for a while only is the run's business.
func (s *Steady) readable(ctx context.Context, c *conn) error {
	nodes, rq := orDefault(s.ReadNodes), s.read()
	rs, err := as[*ua.ReadResponse](c.call(ctx, rq))
	if errors.Is(err, ua.StatusBadTooManyOperations) {
		return nil // every read of the run will say so
	}
	if err != nil {
		return err
	}
	for i, v := range rs.Results {
		if v == nil {
			continue
		}
		if err := unfit(nodes[i%len(nodes)], "cannot be read", v.Status); lasting(err) {
			return err
		}
	}
	return nil
}

// current reads the value that writers will write, and with first sees that it can
// be written.
func (s *Steady) current(ctx context.Context, c *conn, first bool) (*ua.Variant, error) {
	v, err := c.value(ctx, s.WriteNode)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, fmt.Errorf("node %s has no value that could be written back", s.WriteNode)
	}
	if !first {
		return v, nil
	}
	write := s.writing(v)
	rs, err := as[*ua.WriteResponse](c.call(ctx, write.request()))
	if err != nil {
		return nil, err
	}
	for _, code := range rs.Results {
		if err := unfit(s.WriteNode, "cannot be written", code); lasting(err) {
			return nil, err
		}
	}
	return v, nil
}

// counts sees that a node's value, if there is one by now, is one that can count.
func (c *conn) counts(ctx context.Context, node string) error {
	v, err := c.value(ctx, node)
	if err != nil {
		if lasting(err) || !errors.As(err, new(*nodeError)) {
			return err
		}
		return nil
	}
	if v == nil {
		return nil
	}
	if _, ok := integer(v.Value()); !ok {
		return &nodeError{node, fmt.Sprintf("is no counter: its value %.40v is no whole number", v.Value()), ua.StatusBadTypeMismatch}
	}
	return nil
}
