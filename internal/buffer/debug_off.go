//go:build !bufdebug

package buffer

type debugInfo struct{}

func (debugInfo) taken(*Buffer)    {}
func (debugInfo) returned(*Buffer) {}

// Debug reports whether the bufdebug build tag is set.
const Debug = false

// Outstanding is the number of buffers taken and not released; always 0
// without the build tag bufdebug.
func Outstanding() int { return 0 }

// Leaks describes where the outstanding buffers were taken; empty without the
// build tag bufdebug.
func Leaks() string { return "" }
