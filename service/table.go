package service

import (
	"github.com/breakwater-ua/breakwater/session"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// A Handler answers one request: it appends the response body to r.Out, behind
// the header, or returns the service result with which the request failed.
type Handler func(s *Set, r *Request) ua.StatusCode

// Kind says what admission must know about a service.
type Kind uint8

const (
	KindOther     Kind = iota
	KindEstablish      // CreateSession, ActivateSession: private-key work, establishment limits
	KindClose          // Cancel, CloseSession: frees what others wait for
)

// An Entry describes one service. The dispatcher checks in the order of the
// fields: channel, session, activation, admission.
type Entry struct {
	Name               string // without "Request", as in OPC 10000-4
	Index              int    // place in Table, for counters
	TypeID, ResponseID uint32 // DefaultBinary encodings of request and response
	OnDiscoveryChannel bool   // allowed on a channel of mode None that no endpoint offers
	NeedsSession       bool   // an authentication token of a session on this channel
	NeedsActivation    bool   // … that has been activated
	MayPark            bool   // keeps the request until there is something to answer
	Sessionless        bool   // may be used without a session where the server allows it
	MayBlock           bool   // always runs on a goroutine of its own
	Changes            bool   // a command: Write, Call, HistoryUpdate, NodeManagement
	Continues          bool   // continuity work: acknowledgements, transfers, what ends sessions and subscriptions
	Kind               Kind
	Counter            session.Service // of the session's diagnostics
	Handle             Handler
}

// Supported reports whether the service is built; the others answer
// BadServiceUnsupported.
func (e *Entry) Supported() bool { return e.Handle != nil }

// Flags for the rows below.
const (
	discovery = 1 << iota // allowed on discovery-only channels
	inSession             // needs an activated session
	parks
	blocks
	establish
	closes
	sessionless // may be used without a session where the server allows it
	changes     // changes the server's state: a command
	continues   // keeps what clients have alive, or frees it
)

// rows is the service table. A row without a handler is a service that exists
// in OPC 10000-4 and is not built.
func rows() []row {
	return []row{
		// §5.5 Discovery
		{"FindServers", id.FindServersRequest_Encoding_DefaultBinary, id.FindServersResponse_Encoding_DefaultBinary, discovery, findServers, session.ServiceOther},
		{"FindServersOnNetwork", id.FindServersOnNetworkRequest_Encoding_DefaultBinary, id.FindServersOnNetworkResponse_Encoding_DefaultBinary, 0, nil, session.ServiceOther},
		{"GetEndpoints", id.GetEndpointsRequest_Encoding_DefaultBinary, id.GetEndpointsResponse_Encoding_DefaultBinary, discovery, getEndpoints, session.ServiceOther},
		{"RegisterServer", id.RegisterServerRequest_Encoding_DefaultBinary, id.RegisterServerResponse_Encoding_DefaultBinary, 0, nil, session.ServiceOther},
		{"RegisterServer2", id.RegisterServer2Request_Encoding_DefaultBinary, id.RegisterServer2Response_Encoding_DefaultBinary, 0, nil, session.ServiceOther},
		// §5.7 Session. The store checks their tokens: they work on sessions that
		// are not activated yet or bound to another channel.
		{"CreateSession", id.CreateSessionRequest_Encoding_DefaultBinary, id.CreateSessionResponse_Encoding_DefaultBinary, blocks | establish, createSession, session.ServiceOther},
		{"ActivateSession", id.ActivateSessionRequest_Encoding_DefaultBinary, id.ActivateSessionResponse_Encoding_DefaultBinary, blocks | establish, activateSession, session.ServiceOther},
		{"CloseSession", id.CloseSessionRequest_Encoding_DefaultBinary, id.CloseSessionResponse_Encoding_DefaultBinary, closes | continues, closeSession, session.ServiceOther},
		{"Cancel", id.CancelRequest_Encoding_DefaultBinary, id.CancelResponse_Encoding_DefaultBinary, inSession | closes | continues, cancel, session.ServiceOther},
		// §5.8 NodeManagement
		{"AddNodes", id.AddNodesRequest_Encoding_DefaultBinary, id.AddNodesResponse_Encoding_DefaultBinary, inSession | changes, nil, session.ServiceAddNodes},
		{"AddReferences", id.AddReferencesRequest_Encoding_DefaultBinary, id.AddReferencesResponse_Encoding_DefaultBinary, inSession | changes, nil, session.ServiceAddReferences},
		{"DeleteNodes", id.DeleteNodesRequest_Encoding_DefaultBinary, id.DeleteNodesResponse_Encoding_DefaultBinary, inSession | changes, nil, session.ServiceDeleteNodes},
		{"DeleteReferences", id.DeleteReferencesRequest_Encoding_DefaultBinary, id.DeleteReferencesResponse_Encoding_DefaultBinary, inSession | changes, nil, session.ServiceDeleteReferences},
		// §5.9 View
		{"Browse", id.BrowseRequest_Encoding_DefaultBinary, id.BrowseResponse_Encoding_DefaultBinary, inSession | sessionless, browse, session.ServiceBrowse},
		{"BrowseNext", id.BrowseNextRequest_Encoding_DefaultBinary, id.BrowseNextResponse_Encoding_DefaultBinary, inSession, browseNext, session.ServiceBrowseNext},
		{"TranslateBrowsePathsToNodeIds", id.TranslateBrowsePathsToNodeIDsRequest_Encoding_DefaultBinary, id.TranslateBrowsePathsToNodeIDsResponse_Encoding_DefaultBinary, inSession, translateBrowsePaths, session.ServiceTranslateBrowsePaths},
		{"RegisterNodes", id.RegisterNodesRequest_Encoding_DefaultBinary, id.RegisterNodesResponse_Encoding_DefaultBinary, inSession, registerNodes, session.ServiceRegisterNodes},
		{"UnregisterNodes", id.UnregisterNodesRequest_Encoding_DefaultBinary, id.UnregisterNodesResponse_Encoding_DefaultBinary, inSession, unregisterNodes, session.ServiceUnregisterNodes},
		// §5.10 Query
		{"QueryFirst", id.QueryFirstRequest_Encoding_DefaultBinary, id.QueryFirstResponse_Encoding_DefaultBinary, inSession, nil, session.ServiceQueryFirst},
		{"QueryNext", id.QueryNextRequest_Encoding_DefaultBinary, id.QueryNextResponse_Encoding_DefaultBinary, inSession, nil, session.ServiceQueryNext},
		// §5.11 Attribute
		{"Read", id.ReadRequest_Encoding_DefaultBinary, id.ReadResponse_Encoding_DefaultBinary, inSession | sessionless, read, session.ServiceRead},
		{"HistoryRead", id.HistoryReadRequest_Encoding_DefaultBinary, id.HistoryReadResponse_Encoding_DefaultBinary, inSession, nil, session.ServiceHistoryRead},
		{"Write", id.WriteRequest_Encoding_DefaultBinary, id.WriteResponse_Encoding_DefaultBinary, inSession | sessionless | changes, write, session.ServiceWrite},
		{"HistoryUpdate", id.HistoryUpdateRequest_Encoding_DefaultBinary, id.HistoryUpdateResponse_Encoding_DefaultBinary, inSession | changes, nil, session.ServiceHistoryUpdate},
		// §5.12 Method
		{"Call", id.CallRequest_Encoding_DefaultBinary, id.CallResponse_Encoding_DefaultBinary, inSession | blocks | changes, call, session.ServiceCall},
		// §5.13 MonitoredItem
		{"CreateMonitoredItems", id.CreateMonitoredItemsRequest_Encoding_DefaultBinary, id.CreateMonitoredItemsResponse_Encoding_DefaultBinary, inSession, createMonitoredItems, session.ServiceCreateMonitoredItems},
		{"ModifyMonitoredItems", id.ModifyMonitoredItemsRequest_Encoding_DefaultBinary, id.ModifyMonitoredItemsResponse_Encoding_DefaultBinary, inSession, modifyMonitoredItems, session.ServiceModifyMonitoredItems},
		{"SetMonitoringMode", id.SetMonitoringModeRequest_Encoding_DefaultBinary, id.SetMonitoringModeResponse_Encoding_DefaultBinary, inSession, setMonitoringMode, session.ServiceSetMonitoringMode},
		{"SetTriggering", id.SetTriggeringRequest_Encoding_DefaultBinary, id.SetTriggeringResponse_Encoding_DefaultBinary, inSession, setTriggering, session.ServiceSetTriggering},
		{"DeleteMonitoredItems", id.DeleteMonitoredItemsRequest_Encoding_DefaultBinary, id.DeleteMonitoredItemsResponse_Encoding_DefaultBinary, inSession, deleteMonitoredItems, session.ServiceDeleteMonitoredItems},
		// §5.14 Subscription
		{"CreateSubscription", id.CreateSubscriptionRequest_Encoding_DefaultBinary, id.CreateSubscriptionResponse_Encoding_DefaultBinary, inSession, createSubscription, session.ServiceCreateSubscription},
		{"ModifySubscription", id.ModifySubscriptionRequest_Encoding_DefaultBinary, id.ModifySubscriptionResponse_Encoding_DefaultBinary, inSession, modifySubscription, session.ServiceModifySubscription},
		{"SetPublishingMode", id.SetPublishingModeRequest_Encoding_DefaultBinary, id.SetPublishingModeResponse_Encoding_DefaultBinary, inSession | continues, setPublishingMode, session.ServiceSetPublishingMode},
		{"Publish", id.PublishRequest_Encoding_DefaultBinary, id.PublishResponse_Encoding_DefaultBinary, inSession | parks | continues, publish, session.ServicePublish},
		{"Republish", id.RepublishRequest_Encoding_DefaultBinary, id.RepublishResponse_Encoding_DefaultBinary, inSession | continues, republish, session.ServiceRepublish},
		{"TransferSubscriptions", id.TransferSubscriptionsRequest_Encoding_DefaultBinary, id.TransferSubscriptionsResponse_Encoding_DefaultBinary, inSession | continues, transferSubscriptions, session.ServiceTransferSubscriptions},
		{"DeleteSubscriptions", id.DeleteSubscriptionsRequest_Encoding_DefaultBinary, id.DeleteSubscriptionsResponse_Encoding_DefaultBinary, inSession | continues, deleteSubscriptions, session.ServiceDeleteSubscriptions},
	}
}

type row struct {
	name              string
	request, response uint32
	flags             int
	handle            Handler
	counter           session.Service
}

// A Table finds the entry of a request by its type id. Build one with NewTable;
// it never changes.
type Table struct {
	entries []Entry
	byID    []uint8 // type id → index + 1 of an entry, for ids below its length
}

// NewTable builds the table of all services.
func NewTable() *Table {
	rs := rows()
	t := &Table{entries: make([]Entry, len(rs))}
	var top uint32
	for i, row := range rs {
		e := Entry{
			Name: row.name, Index: i, TypeID: row.request, ResponseID: row.response,
			OnDiscoveryChannel: row.flags&discovery != 0,
			NeedsSession:       row.flags&inSession != 0,
			NeedsActivation:    row.flags&inSession != 0,
			MayPark:            row.flags&parks != 0,
			MayBlock:           row.flags&blocks != 0,
			Sessionless:        row.flags&sessionless != 0,
			Changes:            row.flags&changes != 0,
			Continues:          row.flags&continues != 0,
			Counter:            row.counter,
			Handle:             row.handle,
		}
		switch {
		case row.flags&establish != 0:
			e.Kind = KindEstablish
		case row.flags&closes != 0:
			e.Kind = KindClose
		}
		t.entries[i] = e
		top = max(top, row.request)
	}
	t.byID = make([]uint8, top+1)
	for i := range t.entries {
		t.byID[t.entries[i].TypeID] = uint8(i + 1)
	}
	return t
}

// Lookup returns the entry of a request's type id, nil when OPC 10000-4 has no
// such service.
func (t *Table) Lookup(typeID uint32) *Entry {
	if typeID >= uint32(len(t.byID)) {
		return nil
	}
	if i := t.byID[typeID]; i != 0 {
		return &t.entries[i-1]
	}
	return nil
}

// Entries returns all services in the order of OPC 10000-4.
func (t *Table) Entries() []Entry { return t.entries }
