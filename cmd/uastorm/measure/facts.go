package measure

// ClientFacts are what the clients that a phase has to do with met there; those
// of the steady load do not count.
type ClientFacts struct {
	Phase string `json:"phase"`
	// Clients that are there, and how many of them hold a session at its end.
	Clients int `json:"clients"`
	Holding int `json:"holding"`
	// HeldAfter is when all of them held one, in milliseconds since the phase
	// began; 0: they never did.
	HeldAfter float64 `json:"heldAfter,omitempty"`
	// Attempts are connects of all clients, and of the one that made most.
	Attempts     int `json:"attempts"`
	MostAttempts int `json:"mostAttempts"`
	// Refused attempts; Hinted were told when to come back, Unhinted no more than
	// no, Silent nothing at all. Unreached is what the operating system refused,
	// such as a port where nobody listens, TimedOut what had no answer.
	Refused   int `json:"refused"`
	Hinted    int `json:"hinted"`
	Unhinted  int `json:"unhinted"`
	Silent    int `json:"silent"`
	Unreached int `json:"unreached"`
	TimedOut  int `json:"timedOut"`
	// Lost are sessions that ended without their client's or uastorm's doing.
	Lost int `json:"lost"`
}

// FloodFacts are what one kind of flood in a phase got.
type FloodFacts struct {
	Phase string `json:"phase"`
	Kind  string `json:"kind"`
	// Connections are those asked for, at once.
	Connections int `json:"connections"`
	// Opened are connections, or what the kind opens on them, that the server
	// took; Refused those that it did not.
	Opened  int `json:"opened"`
	Refused int `json:"refused"`
	// Held are those that lived at the phase's end, Peak the most there were.
	Held int `json:"held"`
	Peak int `json:"peak"`
	// Longest is how long the server has borne one of them, in milliseconds.
	Longest float64 `json:"longest"`
	// Bytes sent in chunks, requests, headers or bodies.
	Bytes int64 `json:"bytes"`
	// Ended counts what ended or refused connections, by StatusCode's name or
	// HTTP's status; "silence" for a close without a word, "nothing" for no answer
	// in time.
	Ended map[string]int `json:"ended,omitempty"`
}
