package stack

import "github.com/breakwater-ua/breakwater/transport"

// CallHandler is what transports without a SecureChannel hand their calls to.
func (s *Server) CallHandler() transport.CallHandler { return s.calls }
