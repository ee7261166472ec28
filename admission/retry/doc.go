// Package retry plans when refused callers should come back.
//
// A hint is not a constant but a place in a virtual queue: the server's
// estimated capacity, in establishments per second, is handed out as slots, one
// owner's beside the others', and the hint is the time until the caller's slot.
// Who comes back at its slot finds capacity, so a storm drains at the rate the
// server has and not in waves.
package retry
