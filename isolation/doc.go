// Package isolation shares a server's bounded resources among owners, so that
// none can take what others need and those who must get in find room kept for
// them.
//
// A [Plan] fixes, for each [Stage] of a request's way through the server, how
// much there is, how much of it is kept as floors for a [Class] or a trusted
// owner, and what one owner may hold. [CreatePlan] computes it from [Options]
// and refuses what cannot work, naming the field and the least value that does.
// A [Provider] hands out leases under the plan. Nothing waits here, and no
// lease is ever revoked: what is full refuses at once.
//
// The package knows nothing of OPC UA. Owners are keys, classes, counts and
// bytes; callers map its Reasons to their own answers.
package isolation
