//go:build !linux

package uatcp

import (
	"errors"
	"net"
	"syscall"
)

// rawWrite is empty where there is no raw path.
type rawWrite struct{}

func (c *conn) read() { c.readConn() }

// TryWrite implements transport.Socket: the goroutine for slow peers writes.
func (c *conn) TryWrite([]byte) (int, error) { return 0, nil }

func (c *conn) initSocket() {}

func rawConn(net.Conn) syscall.RawConn { return nil }

func writeOnce(syscall.RawConn, []byte) (int, error) { return 0, errors.ErrUnsupported }

func readOnce(syscall.RawConn, []byte) (int, bool) { return 0, false }
