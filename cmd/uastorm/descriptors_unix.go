//go:build unix

package main

import "syscall"

// descriptors is how many files and sockets this process may have open; 0: unknown.
// Go has raised the soft limit to the hard one by itself.
func descriptors() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return uint64(l.Cur)
}
