package client

import (
	"context"
	"iter"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// operationLimits are the OperationLimits of a server (OPC 10000-5 §6.3.11,
// OperationLimitsType), at most maxOperations: what a server says never raises
// our own limits.
type operationLimits struct {
	read, write, browse, call, monitored, translate, register int
}

// maxOperations is how many operations one request gets at most, also when the
// server has no limit or does not tell.
const maxOperations = 10_000

func limitNodes(l *operationLimits) map[uint32]*int {
	return map[uint32]*int{
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead:                          &l.read,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerWrite:                         &l.write,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerBrowse:                        &l.browse,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerMethodCall:                    &l.call,
		id.Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall:                 &l.monitored,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerTranslateBrowsePathsToNodeIDs: &l.translate,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRegisterNodes:                 &l.register,
	}
}

// operations returns the server's limits; they are read once per session.
func (s *Session) operations(ctx context.Context, l *link) *operationLimits {
	return s.operationsBy(ctx, l.do, l.server)
}

func (s *Session) operationsBy(ctx context.Context, do caller, server *serverSession) *operationLimits {
	if l := server.limits.Load(); l != nil {
		return l
	}
	l := &operationLimits{}
	var fields []*int
	rq := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnNeither}
	for node, field := range limitNodes(l) {
		*field = maxOperations
		fields = append(fields, field)
		rq.NodesToRead = append(rq.NodesToRead, &ua.ReadValueID{NodeID: ua.NewNumericNodeID(0, node), AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}})
	}
	msg, err := do(ctx, rq)
	if err != nil {
		return l // asked again next time
	}
	if rs, ok := msg.(*ua.ReadResponse); ok && len(rs.Results) == len(fields) {
		for i, r := range rs.Results {
			if r == nil || r.Value == nil || isBad(r.Status) {
				continue
			}
			if n, ok := r.Value.Value().(uint32); ok && n > 0 {
				*fields[i] = int(min(n, maxOperations))
			}
		}
	}
	server.limits.Store(l)
	return l
}

// chunks yields a slice in parts of at most n.
func chunks[T any](all []T, n int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(all) > 0 {
			k := min(max(n, 1), len(all))
			if !yield(all[:k:k]) {
				return
			}
			all = all[k:]
		}
	}
}
