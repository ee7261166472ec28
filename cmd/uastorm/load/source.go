package load

import (
	"net"
	"net/netip"
	"runtime"
)

// Sources gives clients their source addresses. On loopback each client has one of
// its own out of 127.64.0.0 to 127.255.255.254, as it would have on a site: one
// address alone has some 28,000 ports towards one listener, and to a server that
// divides itself between addresses one address is one client.
type Sources struct {
	rotate bool
	n      int
}

// NewSources is for connections to a host. n bounds the number of addresses; 0 =
// one for each client.
func NewSources(host netip.Addr, n int) Sources {
	// Elsewhere only 127.0.0.1 is there.
	return Sources{rotate: runtime.GOOS == "linux" && host.Is4() && host.IsLoopback(), n: n}
}

// Rotate says whether clients have addresses of their own: on Linux, to IPv4
// loopback.
func (s Sources) Rotate() bool { return s.rotate }

const sourceAddresses = 192 << 16

// MaxSources is how many source addresses there are on loopback.
const MaxSources = sourceAddresses / 256 * 250

// at is the address of client i of a group (storm, readers, …); nil: the system's choice.
func (s Sources) at(group, i int) net.IP {
	if !s.rotate {
		return nil
	}
	if s.n > 0 {
		i, group = i%s.n, 0
	}
	// Last bytes 1 to 250: no network or broadcast address of any mask.
	slot := (group<<20 + i) % MaxSources
	high, low := slot/250, slot%250
	return net.IPv4(127, byte(64+high>>8), byte(high), byte(1+low))
}

// String says what the addresses are.
func (s Sources) String() string {
	switch {
	case !s.rotate:
		return "this machine's address"
	case s.n == 1:
		return "one loopback address"
	case s.n > 0:
		return "a few loopback addresses"
	}
	return "a loopback address for each client"
}
