// Package measure counts and times what a load test does, cheaply enough for
// the counting not to become the load: events go to one of a few shards under a
// lock of their own and allocate nothing; once a second the shards are emptied
// into a [Sample], which goes to the observers, and into the totals of the
// [Phase] that runs.
//
// # Latency
//
// An operation has three times: when the schedule wanted it begun, when it
// began, and when it ended. Latency is ended − scheduled, so that a server that
// stalls is charged for every operation that should have begun meanwhile
// (coordinated omission corrected); service time is ended − begun. Both are kept
// in HdrHistograms of microseconds, three significant digits, 10 minutes at
// most. An operation belongs to the phase in which it was scheduled, however
// late it ends. One that failed counts as an error and is not timed, because a
// refusal is quick and would flatter the percentiles; one that ran into its
// timeout is both.
//
// # When a generator is saturated
//
// A generator that is short of processor time measures itself. A phase is
// saturated when either
//
//   - the 99th percentile of its schedule lateness (how long after the time it
//     had asked for the load engine woke) is over MaxLateness, or
//   - the process used more than MaxCPU of the processors that it may use in
//     more than a tenth of the phase's seconds, three at least.
//
// The result is saturated when one of its phases is. A load test that is
// saturated says so and fails.
package measure
