package stack

import (
	"context"
	"time"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// drainRetry is when clients that are refused while the server drains may ask
// whether another one has taken its place.
const drainRetry = 5 * time.Second

// Shutdown ends the server: ServerStatus says Shutdown, newcomers are refused
// as busy, requests that could take long with BadServerHalted; those that run
// may finish until ctx ends, then they are answered with BadServerHalted and
// their contexts end. Parked Publish requests are answered, sessions, channels
// and listeners are closed. It returns when no
// goroutine of the server is left, which includes callbacks of the host: those
// must mind their context. The result is ctx's error when requests had to be
// cut short. Later calls wait for the first and return its result.
func (s *Server) Shutdown(ctx context.Context) error {
	s.once.Do(func() {
		s.shutdown = s.end(ctx)
		close(s.closed)
	})
	<-s.closed
	return s.shutdown
}

func (s *Server) end(ctx context.Context) error {
	close(s.closing)
	s.announceShutdown(ctx)
	s.refuseConnections(drainRetry)
	s.dispatch.draining.Store(true)
	err := s.dispatch.blocking.Wait(ctx)
	s.dispatch.halt(uastatus.New(ua.StatusBadServerHalted, "shutdown", nil))
	if err != nil {
		// cut short: answered by now, and ending as fast as their callbacks do
		_ = s.dispatch.blocking.Wait(context.WithoutCancel(ctx))
	}
	s.engine.Close() // answers what is parked
	s.sessions.Shutdown()
	s.closeListening()
	// A request that was read before the drain may have started since.
	_ = s.dispatch.blocking.Wait(context.WithoutCancel(ctx))
	s.provider.Close()
	if s.ownGate {
		s.gate.Close()
	}
	return err
}

// announceShutdown tells subscribers of ServerStatus and ServiceLevel.
func (s *Server) announceShutdown(ctx context.Context) {
	s.state.Store(int32(ua.ServerStateShutdown))
	if at, ok := ctx.Deadline(); ok {
		s.shutdownAt.Store(at.UnixNano())
	}
	if v := s.space.Variable(uabinary.NumericID(0, id.Server_ServerStatus_State)); v != nil {
		_ = v.Set(int32(ua.ServerStateShutdown))
	}
	s.published.end(s)
}
