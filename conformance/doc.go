// Package conformance is a suite of checks for OPC UA servers, named after the
// conformance units of the OPC UA profiles that they check. It runs in process
// against our own server with every "go test ./...", and against any other:
//
//	go test ./conformance -target opc.tcp://host:4840 -target-file nodes.json -ledger ledger.json
//
// A [Ledger] says which cases are known to fail or do not apply and why; a
// case that fails without standing in it, and one that stands in it and
// passes, both fail the run. The suite only proves what it names: a client of
// ours against a server of ours is no proof of interoperability, for which see
// conformance/interop.
package conformance
