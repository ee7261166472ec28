package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// PROXY protocol version 2, as balancers speak it: a header before the first
// byte of the connection carries the address of the client behind them.
const (
	proxyPrefix = 16 // signature, version and command, family, length
	// MaxProxyHeader is the longest header in bytes that is read.
	MaxProxyHeader = 536

	proxyLocal = 0x20 // version 2, command LOCAL
	proxyProxy = 0x21 // version 2, command PROXY
	proxyTCP4  = 0x11
	proxyTCP6  = 0x21
	addrTCP4   = 4 + 4 + 2 + 2
	addrTCP6   = 16 + 16 + 2 + 2
)

const proxySignature = "\r\n\r\n\x00\r\nQUIT\n"

// ReadProxyHeader reads one header of PROXY protocol version 2 and not a byte
// more. remote is the client's address, IPv4-mapped ones as IPv4; the zero
// AddrPort for command LOCAL, a connection of the balancer itself. Anything but
// TCP over IPv4 or IPv6 is an error, as is a header over MaxProxyHeader bytes;
// additional fields (TLVs) are skipped unread.
func ReadProxyHeader(r io.Reader) (remote netip.AddrPort, err error) {
	var b [MaxProxyHeader]byte
	if _, err := io.ReadFull(r, b[:proxyPrefix]); err != nil {
		return remote, err
	}
	if string(b[:len(proxySignature)]) != proxySignature {
		return remote, errors.New("transport: no PROXY protocol signature")
	}
	size := proxyPrefix + int(binary.BigEndian.Uint16(b[14:]))
	if size > MaxProxyHeader {
		return remote, fmt.Errorf("transport: PROXY header of %d bytes, at most %d", size, MaxProxyHeader)
	}
	command, family := b[12], b[13]
	want := 0
	switch {
	case command == proxyLocal: // whatever the family
	case command != proxyProxy:
		return remote, fmt.Errorf("transport: PROXY version and command %#x", command)
	case family == proxyTCP4:
		want = addrTCP4
	case family == proxyTCP6:
		want = addrTCP6
	default:
		return remote, fmt.Errorf("transport: PROXY family and protocol %#x", family)
	}
	if size < proxyPrefix+want {
		return remote, fmt.Errorf("transport: PROXY header of %d bytes, need %d", size, proxyPrefix+want)
	}
	if _, err := io.ReadFull(r, b[proxyPrefix:size]); err != nil {
		return remote, err
	}
	body := b[proxyPrefix:size]
	switch want {
	case addrTCP4:
		remote = netip.AddrPortFrom(netip.AddrFrom4([4]byte(body)), binary.BigEndian.Uint16(body[8:]))
	case addrTCP6:
		remote = netip.AddrPortFrom(netip.AddrFrom16([16]byte(body)).Unmap(), binary.BigEndian.Uint16(body[32:]))
	}
	return remote, nil
}
