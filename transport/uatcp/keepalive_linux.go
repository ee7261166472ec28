package uatcp

import (
	"net"
	"syscall"
)

// Keep-alive probes end connections whose peer has vanished, with the values
// that package net uses.
const (
	keepAliveSeconds = 15
	keepAliveProbes  = 9
)

// listenConfig sets keep-alive once, on the listening socket, from which Linux
// lets accepted ones inherit it: that spares each connection four system calls.
func listenConfig() net.ListenConfig {
	return net.ListenConfig{
		KeepAlive: -1, // not again for each
		Control: func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) {
				for _, o := range [...]struct{ level, name, value int }{
					{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
					{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, keepAliveSeconds},
					{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, keepAliveSeconds},
					{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, keepAliveProbes},
				} {
					if err := syscall.SetsockoptInt(int(fd), o.level, o.name, o.value); err != nil && failed == nil {
						failed = err
					}
				}
			})
			if err != nil {
				return err
			}
			return failed
		},
	}
}
