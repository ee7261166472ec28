package session

import (
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"
)

// Service names a service counted per session, in the order of
// SessionDiagnosticsDataType (OPC 10000-5 §12.11 SessionDiagnosticsDataType).
type Service uint8

// The services a session counts. ServiceOther counts in the total only.
const (
	ServiceOther Service = iota
	ServiceRead
	ServiceHistoryRead
	ServiceWrite
	ServiceHistoryUpdate
	ServiceCall
	ServiceCreateMonitoredItems
	ServiceModifyMonitoredItems
	ServiceSetMonitoringMode
	ServiceSetTriggering
	ServiceDeleteMonitoredItems
	ServiceCreateSubscription
	ServiceModifySubscription
	ServiceSetPublishingMode
	ServicePublish
	ServiceRepublish
	ServiceTransferSubscriptions
	ServiceDeleteSubscriptions
	ServiceAddNodes
	ServiceAddReferences
	ServiceDeleteNodes
	ServiceDeleteReferences
	ServiceBrowse
	ServiceBrowseNext
	ServiceTranslateBrowsePaths
	ServiceQueryFirst
	ServiceQueryNext
	ServiceRegisterNodes
	ServiceUnregisterNodes
	serviceCount
)

type counter struct{ total, errors atomic.Uint32 }

func (c *counter) data() *ua.ServiceCounterDataType {
	return &ua.ServiceCounterDataType{TotalCount: c.total.Load(), ErrorCount: c.errors.Load()}
}

// Count counts one request of the session and whether it failed. An unknown
// service counts as ServiceOther.
func (s *Session) Count(service Service, failed bool) {
	if service >= serviceCount {
		service = ServiceOther
	}
	c := &s.counters[service]
	c.total.Add(1)
	if failed {
		c.errors.Add(1)
	}
}

// Diagnostics is the session's row of SessionDiagnosticsArray. The subscription,
// item and publish counts belong to the subscription engine and are zero.
func (s *Session) Diagnostics() *ua.SessionDiagnosticsDataType {
	var all ua.ServiceCounterDataType
	for i := range s.counters {
		all.TotalCount += s.counters[i].total.Load()
		all.ErrorCount += s.counters[i].errors.Load()
	}
	c := func(sv Service) *ua.ServiceCounterDataType { return s.counters[sv].data() }
	return &ua.SessionDiagnosticsDataType{
		SessionID:                          s.id.UA(),
		SessionName:                        s.name,
		ClientDescription:                  s.client,
		ServerURI:                          s.server,
		EndpointURL:                        s.endpoint,
		LocaleIDs:                          s.LocaleIDs(),
		ActualSessionTimeout:               milliseconds(s.timeout),
		MaxResponseMessageSize:             s.maxReply,
		ClientConnectionTime:               s.created,
		ClientLastContactTime:              s.LastContact(),
		TotalRequestCount:                  &all,
		ReadCount:                          c(ServiceRead),
		HistoryReadCount:                   c(ServiceHistoryRead),
		WriteCount:                         c(ServiceWrite),
		HistoryUpdateCount:                 c(ServiceHistoryUpdate),
		CallCount:                          c(ServiceCall),
		CreateMonitoredItemsCount:          c(ServiceCreateMonitoredItems),
		ModifyMonitoredItemsCount:          c(ServiceModifyMonitoredItems),
		SetMonitoringModeCount:             c(ServiceSetMonitoringMode),
		SetTriggeringCount:                 c(ServiceSetTriggering),
		DeleteMonitoredItemsCount:          c(ServiceDeleteMonitoredItems),
		CreateSubscriptionCount:            c(ServiceCreateSubscription),
		ModifySubscriptionCount:            c(ServiceModifySubscription),
		SetPublishingModeCount:             c(ServiceSetPublishingMode),
		PublishCount:                       c(ServicePublish),
		RepublishCount:                     c(ServiceRepublish),
		TransferSubscriptionsCount:         c(ServiceTransferSubscriptions),
		DeleteSubscriptionsCount:           c(ServiceDeleteSubscriptions),
		AddNodesCount:                      c(ServiceAddNodes),
		AddReferencesCount:                 c(ServiceAddReferences),
		DeleteNodesCount:                   c(ServiceDeleteNodes),
		DeleteReferencesCount:              c(ServiceDeleteReferences),
		BrowseCount:                        c(ServiceBrowse),
		BrowseNextCount:                    c(ServiceBrowseNext),
		TranslateBrowsePathsToNodeIDsCount: c(ServiceTranslateBrowsePaths),
		QueryFirstCount:                    c(ServiceQueryFirst),
		QueryNextCount:                     c(ServiceQueryNext),
		RegisterNodesCount:                 c(ServiceRegisterNodes),
		UnregisterNodesCount:               c(ServiceUnregisterNodes),
	}
}

// summary counts what ServerDiagnosticsSummary shows of sessions.
type summary struct {
	cumulated, rejected, securityRejected, timeouts, aborts atomic.Uint32
}

// Summary is the session part of ServerDiagnosticsSummaryDataType (OPC 10000-5
// §12.9 ServerDiagnosticsSummaryDataType).
type Summary struct {
	Current          uint32 // sessions now, activated or not
	Cumulated        uint32 // sessions created since start
	SecurityRejected uint32 // CreateSession and ActivateSession refused for security
	Rejected         uint32 // … refused for any reason
	Timeouts         uint32 // sessions that ended by a timeout
	Aborts           uint32 // sessions that ended by anything but CloseSession, timeout and shutdown
}

// Summary returns the counts.
func (st *Store) Summary() Summary {
	return Summary{
		Current:          uint32(st.Len()),
		Cumulated:        st.summary.cumulated.Load(),
		SecurityRejected: st.summary.securityRejected.Load(),
		Rejected:         st.summary.rejected.Load(),
		Timeouts:         st.summary.timeouts.Load(),
		Aborts:           st.summary.aborts.Load(),
	}
}

// milliseconds is a Duration as OPC UA carries it: a Double in milliseconds.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
