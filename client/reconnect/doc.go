// Package reconnect decides when a client may try again. It understands the
// signals of a busy server: a status code that says "too busy" multiplies the
// delay, and a retry-after hint, being a place in the server's line, replaces
// the guess.
//
// [Policy] computes delays and [State] counts attempts; neither sleeps nor
// looks at a clock, so both can be driven by any client. [Do] is the loop for
// those who have none:
//
//	err := reconnect.Do(ctx, reconnect.Policy{}, func(ctx context.Context) error {
//		return client.Connect(ctx)
//	})
//
// Hints come out of ResponseHeaders ([HeaderHint]), ERR messages and texts
// ([ParseHint]), HTTP responses ([HTTPError]), or any error that has a
// RetryAfter method ([Signal]).
package reconnect
