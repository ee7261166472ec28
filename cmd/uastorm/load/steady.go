package load

import (
	"context"
	"fmt"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Nodes that every server has (OPC 10000-5 §6.3.1, ServerType).
const (
	currentTimeNode = "i=2258" // Server_ServerStatus_CurrentTime
	stateNode       = "i=2259" // Server_ServerStatus_State
)

// maxInFlight bounds the requests of one reader that are not answered. At it the
// reader waits, and what is due meanwhile is late: its latency says so.
const maxInFlight = 64

func nodeID(text string) (*ua.NodeID, error) {
	id, err := uabinary.ParseNodeID(text)
	if err != nil {
		return nil, err
	}
	if id.IsNull() {
		return nil, fmt.Errorf("%q is no NodeId", text)
	}
	return id.UA(), nil
}

// valueOf is the Value of a node whose text was checked.
func valueOf(text string) *ua.ReadValueID {
	id, _ := nodeID(text)
	return &ua.ReadValueID{NodeID: id, AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}}
}

func orDefault(nodes []string) []string {
	if len(nodes) == 0 {
		return []string{currentTimeNode}
	}
	return nodes
}

// read makes the request of readers.
func (s *Steady) read() *ua.ReadRequest {
	nodes := orDefault(s.ReadNodes)
	rq := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth}
	for i := range max(1, s.NodesPerRead) {
		rq.NodesToRead = append(rq.NodesToRead, valueOf(nodes[i%len(nodes)]))
	}
	return rq
}

// operandError is what a request fails with whose ServiceResult is good and of
// whose results one is not.
func operandError(codes ...ua.StatusCode) error {
	for _, c := range codes {
		if uint32(c)>>31 == 1 {
			return uastatus.New(c, "operand", nil)
		}
	}
	return nil
}

// An operation is what a reader or a writer does again and again.
type operation struct {
	kind    measure.Kind
	request func() ua.Request
	// check looks at a response whose ServiceResult is good.
	check func(ua.Response) error
}

func (s *Steady) reading() operation {
	nodes := s.read().NodesToRead
	return operation{kind: measure.Read,
		request: func() ua.Request {
			return &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth, NodesToRead: nodes}
		},
		check: func(rs ua.Response) error {
			r, ok := rs.(*ua.ReadResponse)
			if !ok || len(r.Results) != len(nodes) {
				return uastatus.New(ua.StatusBadUnknownResponse, "read", nil)
			}
			for _, v := range r.Results {
				if err := operandError(v.Status); err != nil {
					return err
				}
			}
			return nil
		}}
}

// writing writes a value to the node that was read from it: whatever the type, it
// fits, and the plant behind the server stays as it was.
func (s *Steady) writing(value *ua.Variant) operation {
	return operation{kind: measure.Write,
		request: func() ua.Request {
			return &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{{NodeID: valueOf(s.WriteNode).NodeID, AttributeID: ua.AttributeIDValue,
				Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: value}}}}
		},
		check: func(rs ua.Response) error {
			r, ok := rs.(*ua.WriteResponse)
			if !ok || len(r.Results) != 1 {
				return uastatus.New(ua.StatusBadUnknownResponse, "write", nil)
			}
			return operandError(r.Results...)
		}}
}

// pace runs an operation of a member by the clock until ctx ends, then waits for
// what is under way. The first is due at start.
func (e *Engine) pace(ctx context.Context, m *member, start time.Time, period time.Duration, op operation) {
	slots := make(chan struct{}, maxInFlight)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for due := start; ; due = due.Add(period) {
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
			case <-timer.C:
				e.rec.Woke(due, time.Now())
			}
		}
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{} // answers, or the sweeper, make room
		begun := time.Now()
		done := func(body []byte, at time.Time, err error) {
			if err == nil {
				var rs ua.Response
				if rs, err = decode(body); err == nil {
					err = op.check(rs)
				}
			}
			e.rec.Operation(op.kind, due, begun, at, codeOf(err))
			<-slots
		}
		c := m.cur.Load()
		if c == nil {
			done(nil, begun, errNoSession)
			continue
		}
		if err := c.send(op.request(), e.target.timeout, done); err != nil {
			done(nil, time.Now(), err)
		}
	}
	for range maxInFlight { // every request is answered, by the sweeper if by nobody else
		slots <- struct{}{}
	}
}
