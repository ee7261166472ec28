package stack

import (
	"context"
	"math"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// serverProfile is the profile of OPC 10000-7 the server announces.
const serverProfile = "http://opcfoundation.org/UA-Profile/Server/EmbeddedUA2017"

// bindServerObject fills the Server object (OPC 10000-5 §8.3.2): what never
// changes is stored, what lives is bound to callbacks that only read memory.
func (s *Server) bindServerObject() error {
	o, l := &s.opts, &s.opts.Limits
	b := &binder{space: s.space}

	b.set(id.Server_ServerArray, []string{o.ApplicationURI})
	s.published.set(s, fullService)
	b.set(id.Server_Auditing, false)
	b.set(id.Server_ServerRedundancy_RedundancySupport, int32(ua.RedundancySupportNone))

	b.set(id.Server_ServerCapabilities_ServerProfileArray, []string{serverProfile})
	b.set(id.Server_ServerCapabilities_LocaleIDArray, []string{"en"})
	b.set(id.Server_ServerCapabilities_SoftwareCertificates, []*ua.ExtensionObject{})
	b.set(id.Server_ServerCapabilities_MaxQueryContinuationPoints, uint16(0))
	b.set(id.Server_ServerCapabilities_MaxHistoryContinuationPoints, uint16(0))
	b.set(id.Server_ServerCapabilities_MaxArrayLength, uint32(l.MaxArrayLength))
	b.set(id.Server_ServerCapabilities_MaxStringLength, uint32(l.MaxStringLength))
	b.set(id.Server_ServerCapabilities_MaxByteStringLength, uint32(l.MaxByteStringLength))
	s.showLimits(b, l)

	s.bindStatus(b)
	s.bindDiagnostics(b)
	s.bindMethods(b)
	if b.err == nil {
		b.err = s.addAdmissionStatus()
	}
	return b.err
}

// bindStatus binds ServerStatus and its components.
func (s *Server) bindStatus(b *binder) {
	build := s.buildInfo()
	b.set(id.Server_ServerStatus_StartTime, s.started)
	b.set(id.Server_ServerStatus_BuildInfo, build)
	b.set(id.Server_ServerStatus_BuildInfo_ProductName, build.ProductName)
	b.set(id.Server_ServerStatus_BuildInfo_ProductURI, build.ProductURI)
	b.set(id.Server_ServerStatus_BuildInfo_ManufacturerName, build.ManufacturerName)
	b.set(id.Server_ServerStatus_BuildInfo_SoftwareVersion, build.SoftwareVersion)
	b.set(id.Server_ServerStatus_BuildInfo_BuildNumber, build.BuildNumber)
	b.set(id.Server_ServerStatus_BuildInfo_BuildDate, build.BuildDate)
	b.set(id.Server_ServerStatus_SecondsTillShutdown, uint32(0))
	b.set(id.Server_ServerStatus_ShutdownReason, ua.NewLocalizedText(""))
	b.set(id.Server_ServerStatus_State, int32(ua.ServerStateRunning))
	b.live(id.Server_ServerStatus_CurrentTime, func() uabinary.Variant { return uabinary.DateTimeVariant(uabinary.Now()) })
	b.live(id.Server_ServerStatus_SecondsTillShutdown, func() uabinary.Variant { return uabinary.UInt32(s.secondsTillShutdown()) })
	b.live(id.Server_ServerStatus, func() uabinary.Variant {
		v, err := uabinary.NewVariant(&ua.ServerStatusDataType{
			StartTime:           s.started,
			CurrentTime:         time.Now(),
			State:               ua.ServerState(s.state.Load()),
			BuildInfo:           build,
			SecondsTillShutdown: s.secondsTillShutdown(),
			ShutdownReason:      ua.NewLocalizedText(""),
		})
		if err != nil {
			return uabinary.Variant{}
		}
		return v
	})
}

func (s *Server) buildInfo() *ua.BuildInfo {
	b := s.opts.Build
	if b.ProductName == "" {
		b.ProductName = s.opts.ApplicationName
	}
	return &ua.BuildInfo{
		ProductURI:       s.opts.ProductURI,
		ManufacturerName: b.ManufacturerName,
		ProductName:      b.ProductName,
		SoftwareVersion:  b.SoftwareVersion,
		BuildNumber:      b.BuildNumber,
		BuildDate:        b.Date,
	}
}

// bindMethods binds the methods of the Server object, OPC 10000-5 §9.1 and §9.2.
func (s *Server) bindMethods(b *binder) {
	b.method(id.Server_GetMonitoredItems, func(_ context.Context, c *addressspace.Call) ([]any, error) {
		sub, ok := c.Args[0].Uint64()
		if !ok {
			return nil, uastatus.New(ua.StatusBadInvalidArgument, "GetMonitoredItems", nil)
		}
		server, client, code := s.engine.GetMonitoredItems(c.Caller.SessionID, uint32(sub))
		if code != ua.StatusOK {
			return nil, uastatus.New(code, "GetMonitoredItems", nil)
		}
		return []any{server, client}, nil
	})
	b.method(id.Server_ResendData, func(_ context.Context, c *addressspace.Call) ([]any, error) {
		sub, ok := c.Args[0].Uint64()
		if !ok {
			return nil, uastatus.New(ua.StatusBadInvalidArgument, "ResendData", nil)
		}
		if code := s.engine.ResendData(c.Caller.SessionID, uint32(sub)); code != ua.StatusOK {
			return nil, uastatus.New(code, "ResendData", nil)
		}
		return nil, nil
	})
}

// A binder fills nodes of namespace 0 and keeps the first error.
type binder struct {
	space *addressspace.Space
	err   error
}

func (b *binder) variable(n uint32) *addressspace.Variable {
	v := b.space.Variable(uabinary.NumericID(0, n))
	if v == nil {
		b.fail(n, ua.StatusBadNodeIDUnknown)
	}
	return v
}

func (b *binder) fail(n uint32, err error) {
	if b.err == nil && err != nil {
		b.err = uastatus.New(ua.StatusBadInternalError, "Server object "+id.Name(n), err)
	}
}

// showLimits sets the nodes that tell clients of limits which may change.
func (s *Server) showLimits(b *binder, l *Limits) {
	limits, ops := s.engine.Limits(), s.set.Limits()
	b.set(id.Server_ServerCapabilities_MinSupportedSampleRate, float64(l.MinPublishingInterval)/float64(time.Millisecond))
	b.set(id.Server_ServerCapabilities_MaxBrowseContinuationPoints, uint16(min(ops.MaxBrowseContinuationPoints, math.MaxUint16)))
	b.set(id.Server_ServerCapabilities_MaxSessions, uint32(l.MaxSessions))
	b.set(id.Server_ServerCapabilities_MaxSubscriptions, uint32(limits.MaxSubscriptions))
	b.set(id.Server_ServerCapabilities_MaxMonitoredItems, uint32(limits.MaxMonitoredItems))
	b.set(id.Server_ServerCapabilities_MaxSubscriptionsPerSession, uint32(l.MaxSubscriptionsPerSession))
	b.set(id.Server_ServerCapabilities_MaxMonitoredItemsPerSubscription, uint32(l.MaxMonitoredItemsPerSubscription))
	b.set(id.Server_ServerCapabilities_MaxMonitoredItemsQueueSize, uint32(l.MaxMonitoredItemQueueSize))

	b.set(id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead, uint32(ops.MaxNodesPerRead))
	b.set(id.Server_ServerCapabilities_OperationLimits_MaxNodesPerWrite, uint32(ops.MaxNodesPerWrite))
	b.set(id.Server_ServerCapabilities_OperationLimits_MaxNodesPerMethodCall, uint32(ops.MaxNodesPerMethodCall))
	b.set(id.Server_ServerCapabilities_OperationLimits_MaxNodesPerBrowse, uint32(ops.MaxNodesPerBrowse))
	b.set(id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRegisterNodes, uint32(ops.MaxNodesPerRegisterNodes))
	b.set(id.Server_ServerCapabilities_OperationLimits_MaxNodesPerTranslateBrowsePathsToNodeIDs, uint32(ops.MaxNodesPerTranslateBrowsePathsToNodeIDs))
	b.set(id.Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall, uint32(ops.MaxMonitoredItemsPerCall))
}

func (b *binder) set(n uint32, value any) {
	if v := b.variable(n); v != nil {
		b.fail(n, v.Set(value))
	}
}

func (b *binder) live(n uint32, f func() uabinary.Variant) {
	if v := b.variable(n); v != nil {
		v.OnReadDataValue(func(*addressspace.Caller) uabinary.DataValue {
			return uabinary.DataValue{Mask: ua.DataValueValue | ua.DataValueSourceTimestamp, Value: f(), SourceTimestamp: uabinary.Now()}
		})
	}
}

func (b *binder) method(n uint32, f addressspace.MethodFunc) {
	if !b.space.BindMethod(uabinary.NumericID(0, n), f) {
		b.fail(n, ua.StatusBadMethodInvalid)
	}
}

var _ service.Discovery = (*announcer)(nil)
