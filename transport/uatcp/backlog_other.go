//go:build !unix

package uatcp

import (
	"errors"
	"net"
)

func setBacklog(*net.TCPListener, int) error { return errors.ErrUnsupported }
