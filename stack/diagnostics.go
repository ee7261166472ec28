package stack

import (
	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// bindDiagnostics binds the ServerDiagnostics object (OPC 10000-5 §6.3.3). The
// summary is everybody's; the arrays that show who else is there are for
// administrators.
func (s *Server) bindDiagnostics(b *binder) {
	b.set(id.Server_ServerDiagnostics_EnabledFlag, true)
	bindRows(b, id.Server_ServerDiagnostics_SubscriptionDiagnosticsArray, func(add func(any)) {
		for _, d := range s.engine.Diagnostics() {
			add(d)
		}
	})
	bindRows(b, id.Server_ServerDiagnostics_SessionsDiagnosticsSummary_SessionDiagnosticsArray, func(add func(any)) {
		s.sessions.Each(func(sess *session.Session) bool {
			add(s.sessionDiagnostics(sess))
			return true
		})
	})
	bindRows(b, id.Server_ServerDiagnostics_SessionsDiagnosticsSummary_SessionSecurityDiagnosticsArray, func(add func(any)) {
		s.sessions.Each(func(sess *session.Session) bool {
			add(securityDiagnostics(sess))
			return true
		})
	})

	type summary = ua.ServerDiagnosticsSummaryDataType
	for node, field := range map[uint32]func(*summary) uint32{
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_ServerViewCount:               func(d *summary) uint32 { return d.ServerViewCount },
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_CurrentSessionCount:           func(d *summary) uint32 { return d.CurrentSessionCount },
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_CumulatedSessionCount:         func(d *summary) uint32 { return d.CumulatedSessionCount },
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_SecurityRejectedSessionCount:  func(d *summary) uint32 { return d.SecurityRejectedSessionCount },
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_RejectedSessionCount:          func(d *summary) uint32 { return d.RejectedSessionCount },
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_SessionTimeoutCount:           func(d *summary) uint32 { return d.SessionTimeoutCount },
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_SessionAbortCount:             func(d *summary) uint32 { return d.SessionAbortCount },
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_PublishingIntervalCount:       func(d *summary) uint32 { return d.PublishingIntervalCount },
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_CurrentSubscriptionCount:      func(d *summary) uint32 { return d.CurrentSubscriptionCount },
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_CumulatedSubscriptionCount:    func(d *summary) uint32 { return d.CumulatedSubscriptionCount },
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_SecurityRejectedRequestsCount: func(d *summary) uint32 { return d.SecurityRejectedRequestsCount },
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_RejectedRequestsCount:         func(d *summary) uint32 { return d.RejectedRequestsCount },
	} {
		b.live(node, func() uabinary.Variant { return uabinary.UInt32(field(s.summary())) })
	}
	b.live(id.Server_ServerDiagnostics_ServerDiagnosticsSummary, func() uabinary.Variant {
		v, err := uabinary.NewVariant(s.summary())
		if err != nil {
			return uabinary.Variant{}
		}
		return v
	})
}

func (s *Server) summary() *ua.ServerDiagnosticsSummaryDataType {
	sessions, subscriptions := s.sessions.Summary(), s.engine.Counts()
	c := s.dispatch.counters
	return &ua.ServerDiagnosticsSummaryDataType{
		CurrentSessionCount:           sessions.Current,
		CumulatedSessionCount:         sessions.Cumulated,
		SecurityRejectedSessionCount:  sessions.SecurityRejected,
		RejectedSessionCount:          sessions.Rejected,
		SessionTimeoutCount:           sessions.Timeouts,
		SessionAbortCount:             sessions.Aborts,
		CurrentSubscriptionCount:      uint32(subscriptions.Subscriptions),
		CumulatedSubscriptionCount:    uint32(subscriptions.Created),
		SecurityRejectedRequestsCount: uint32(c.security.Load()),
		RejectedRequestsCount:         uint32(c.rejected()),
	}
}

// bindRows binds an array of structures that only administrators see.
func bindRows(b *binder, node uint32, rows func(add func(row any))) {
	v := b.variable(node)
	if v == nil {
		return
	}
	v.OnReadDataValue(func(c *addressspace.Caller) uabinary.DataValue {
		if !c.Admin {
			return uabinary.DataValue{Mask: ua.DataValueStatusCode, Status: ua.StatusBadUserAccessDenied}
		}
		all := []*ua.ExtensionObject{}
		rows(func(row any) { all = append(all, ua.NewExtensionObject(row)) })
		value, err := uabinary.NewVariant(all)
		if err != nil {
			return uabinary.DataValue{Mask: ua.DataValueStatusCode, Status: ua.StatusBadInternalError}
		}
		return uabinary.DataValue{Mask: ua.DataValueValue | ua.DataValueSourceTimestamp, Value: value, SourceTimestamp: uabinary.Now()}
	})
}

// sessionDiagnostics is the session's row of SessionDiagnosticsArray.
func (s *Server) sessionDiagnostics(sess *session.Session) *ua.SessionDiagnosticsDataType {
	d := sess.Diagnostics()
	subscriptions, items, parked := s.engine.SessionCounts(sess)
	d.CurrentSubscriptionsCount, d.CurrentMonitoredItemsCount, d.CurrentPublishRequestsInQueue = uint32(subscriptions), uint32(items), uint32(parked)
	return d
}

// securityDiagnostics is the session's row of SessionSecurityDiagnosticsArray.
func securityDiagnostics(s *session.Session) *ua.SessionSecurityDiagnosticsDataType {
	d := &ua.SessionSecurityDiagnosticsDataType{
		SessionID: s.ID().UA(), ClientUserIDOfSession: s.Caller().User, ClientUserIDHistory: []string{},
		Encoding: "UA Binary", TransportProtocol: "opc.tcp",
	}
	if id := s.Identity(); id != nil {
		d.AuthenticationMechanism = id.Kind.String()
	}
	if ch := s.Channel(); ch != nil {
		profile := profileOf(ch)
		d.TransportProtocol = schemeFor(profile)
		if profile == profileHTTPSJSON || profile == profileWSSJSON {
			d.Encoding = "UA JSON"
		}
		d.SecurityMode, d.SecurityPolicyURI, d.ClientCertificate = ch.SecurityMode(), ch.SecurityPolicy().URI, ch.PeerCertificate()
	}
	return d
}
