package conformance

import (
	"strings"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// Nodes of namespace 0 that cases use.
var (
	serverStatus   = ua.NewNumericNodeID(0, id.Server_ServerStatus)
	namespaceArray = ua.NewNumericNodeID(0, id.Server_NamespaceArray)
	longNodeID     = ua.NewStringNodeID(1, strings.Repeat("no such node ", 20))
)

const (
	operationLimitRead      = id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead
	operationLimitWrite     = id.Server_ServerCapabilities_OperationLimits_MaxNodesPerWrite
	operationLimitBrowse    = id.Server_ServerCapabilities_OperationLimits_MaxNodesPerBrowse
	operationLimitCall      = id.Server_ServerCapabilities_OperationLimits_MaxNodesPerMethodCall
	operationLimitRegister  = id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRegisterNodes
	operationLimitTranslate = id.Server_ServerCapabilities_OperationLimits_MaxNodesPerTranslateBrowsePathsToNodeIDs
	operationLimitItems     = id.Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall
)

func item(attr ua.AttributeID, node *ua.NodeID) *ua.ReadValueID {
	return &ua.ReadValueID{NodeID: node, AttributeID: attr, DataEncoding: &ua.QualifiedName{}}
}

func readOf(attr ua.AttributeID, nodes ...*ua.NodeID) *ua.ReadRequest {
	rq := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth}
	for _, n := range nodes {
		rq.NodesToRead = append(rq.NodesToRead, item(attr, n))
	}
	return rq
}

func ns0(n uint32) *ua.NodeID { return ua.NewNumericNodeID(0, n) }

// limit reads one of the server's OperationLimits; 0 or absent is no limit, for
// which the fallback is returned.
func (t *T) limit(node uint32, fallback int) int {
	rs := call[*ua.ReadResponse](t, t.Session(), readOf(ua.AttributeIDValue, ns0(node)))
	if v, ok := value(rs.Results[0]).(uint32); ok && v > 0 {
		return int(v)
	}
	return fallback
}

// value returns the Go value in a DataValue, nil when there is none.
func value(dv *ua.DataValue) any {
	if dv == nil || dv.Value == nil {
		return nil
	}
	return dv.Value.Value()
}
