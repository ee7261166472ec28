// Package addressspace holds the nodes of a server: namespace 0, which is
// compiled in, the nodes a program adds through [Namespace], and those of
// imported NodeSet2 files.
//
// A [Space] is safe for concurrent use. Lookups, reads and browsing take no
// lock that a structural change holds: node tables, reference lists and values
// are published through atomic pointers and never change once published, so a
// caller that holds a snapshot keeps a consistent one while nodes come and go.
//
// Lock order: Space.mu (structure) → Node.writing (one client write at a time
// where a callback is bound) → Node.mu (one change of the value at a time).
// Watchers are called under Node.mu; user callbacks only under Node.writing or
// under no lock at all.
//
//	space, err := addressspace.New(addressspace.Options{ApplicationURI: "urn:plant:server"})
//	temperature := space.Namespace("urn:plant").Variable("Boiler.Temperature", 21.5)
//	temperature.Set(22.0) // every subscriber sees it
package addressspace
