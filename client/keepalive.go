package client

import (
	"context"
	"errors"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

const minKeepAlive = time.Second

// period is the time between two signs of life: half the timeout that the server
// grants, so that one may get lost, but no less than a second (hostile.md C16).
func (s *Session) period(timeout time.Duration) time.Duration {
	p := timeout / 2
	if s.opts.KeepAlive > 0 {
		p = min(p, s.opts.KeepAlive)
	}
	return max(p, minKeepAlive)
}

// keepAlive reads the server's state for as long as the link lasts. A server
// that does not answer in time has lost the connection, whatever TCP thinks.
func (s *Session) keepAlive(l *link) {
	period := s.period(l.server.timeout)
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-l.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(l.ctx, min(s.opts.RequestTimeout, max(period, minKeepAlive)))
		_, err := l.do(ctx, &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnNeither, NodesToRead: []*ua.ReadValueID{
			{NodeID: ua.NewNumericNodeID(0, id.Server_ServerStatus_State), AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}},
		}})
		cancel()
		var refused *reconnect.Error
		switch {
		case err == nil || l.ctx.Err() != nil || errors.As(err, &refused): // it lives
		case errors.Is(err, context.DeadlineExceeded):
			l.conn.fail(errors.Join(ua.StatusBadConnectionClosed, errors.New("client: the server does not answer"), err))
		}
		if s.expired(time.Now()) {
			l.fault(event{outcome: outcomeSubscriptionsLost, code: ua.StatusBadTimeout})
		}
	}
}
