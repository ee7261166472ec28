// Package overloadtest proves what the server promises under overload: storms of
// clients that connect at once, floods of messages that never end, owners that
// take all they can. The server, its attackers and its active clients are
// processes of their own; everything goes over loopback, with source addresses
// in 127.0.0.0/8, is bounded in number and time, and ends by itself: a child
// ends when its parent's pipe does.
//
// go test runs it small and judges counts, codes and leases only. The command
// below cmd runs it at full size, measures times and gives verdicts; ci/storm
// starts it.
package overloadtest
