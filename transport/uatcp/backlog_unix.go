//go:build unix

package uatcp

import (
	"net"
	"syscall"
)

// setBacklog calls listen(2) again, which changes the length of the queue of
// connections that nobody has accepted yet; package net always takes the
// system's default.
func setBacklog(ln *net.TCPListener, backlog int) error {
	raw, err := ln.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.Listen(int(fd), backlog) }); err != nil {
		return err
	}
	return failed
}
