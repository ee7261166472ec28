//go:build unix

package transport

import (
	"math"
	"syscall"
)

// descriptorLimit is the number of files that the process may have open; 0 =
// unknown or without bound. (The Go runtime has raised the soft limit to the
// hard one.)
func descriptorLimit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || uint64(l.Cur) > math.MaxInt32 {
		return 0
	}
	return int(l.Cur)
}
