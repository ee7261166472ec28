package service

import (
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

const minNodeID = 2

// registerNodes is the RegisterNodes service, OPC 10000-4 §5.9.5. Looking a node
// up by its own id is already cheap, so every id is its own alias. Ids are not
// checked: a later operation does that.
func registerNodes(s *Set, r *Request) ua.StatusCode {
	n, code := r.operations(minNodeID, s.limits.Load().MaxNodesPerRegisterNodes)
	if code != ua.StatusOK {
		return code
	}
	r.putCount(n)
	for range n {
		id := r.Body.NodeID()
		if code := r.decoded(); code != ua.StatusOK {
			return code
		}
		r.Out = uabinary.AppendNodeID(r.Out, id)
		if r.Full() {
			return ua.StatusBadResponseTooLarge
		}
	}
	return ua.StatusOK
}

// unregisterNodes is the UnregisterNodes service, OPC 10000-4 §5.9.6.
func unregisterNodes(s *Set, r *Request) ua.StatusCode {
	n, code := r.operations(minNodeID, s.limits.Load().MaxNodesPerRegisterNodes)
	if code != ua.StatusOK {
		return code
	}
	for range n {
		r.Body.NodeID()
	}
	return r.decoded()
}
