//go:build !linux

package security

// lowerThreadPriority does nothing here: only Linux gives each thread its own nice value.
func lowerThreadPriority() {}
