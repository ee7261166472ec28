// Package admission bounds the work that a server has taken on: commands that
// change state, and HTTP requests.
//
// A governor counts what was admitted and the bytes it models as held, for the
// node, for each tenant and for each principal, in two lanes that share
// nothing: data, and control for the work that keeps a system going when data
// fills its lane. What does not fit is refused at once with
// [ErrResourceExhausted]; nothing waits for room, and nothing admitted is ever
// taken back. The [CommandGovernor] admits commands before they are queued; an
// [Inbox] queues them for one worker. The [HTTPGovernor] admits requests before
// their body is read, and settles them with their kind and sender once these
// are known.
//
// Principals come from the caller's verified catalogue and never from the
// request. The bytes are a model of what a request makes a server hold, not a
// measurement. The package knows nothing of OPC UA.
package admission
