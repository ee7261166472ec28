// Package probe is the low-level client of the conformance suite and of the
// hostile tests: it sends any request, well or ill formed, over a SecureChannel
// or over a bare connection, and returns exactly what the server answered. It
// never retries, repairs or hides anything; programs want package client.
package probe
