// Package progress shows a load test while it runs: on a terminal a block of
// lines that is redrawn in place once a second, elsewhere a line every few
// seconds. It is a [measure.Observer] and has no goroutine of its own.
package progress
