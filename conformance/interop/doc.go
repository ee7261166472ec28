// Package interop proves the reference server against clients that others
// wrote: its test starts refserver and lets a real program of each third-party
// stack run one scenario against it. Own client to own server proves nothing
// about the wire; this does.
//
// # The programs
//
// Each folder holds one peer with its versions pinned: gopcua (Go, in the main
// module), nodeopcua (npm, package-lock.json), asyncua (PyPI,
// requirements.txt), open62541 (o6 from PyPI, requirements.txt) and milo (Maven
// Central, pom.xml). The test installs them into the ignored folder .interop,
// keyed by a hash of those files, so that an unchanged peer installs once.
//
// # The contract between test and program
//
// Flags:
//
//	--endpoint URL            where to connect (a proxy in front of refserver)
//	--application-uri URI     in the SAN of the application certificate
//	--cert FILE --key FILE    application certificate (DER) and key (PKCS #8 PEM)
//	--server-cert FILE        the server's certificate (DER)
//	--user NAME --password PW an account of the server
//	--user-cert --user-key    an X.509 identity the server trusts (DER, PEM)
//	--namespace URI           of the demo address space
//	--types LIST              the built-in types to read and write
//	--token-lifetime MS       lifetime to ask for in the step renewal
//	--steps LIST              which steps, in this order
//
// Output is JSON lines: one per step with step, ok, detail and items, what the
// step covered. The line {"step":"reconnect","event":"cut"} asks the test to
// cut every connection. The exit code is 0 only when every step was ok.
//
// Steps:
//
//	discovery     FindServers and GetEndpoints; items: policy/mode
//	security      every endpoint with every identity it offers, and a wrong
//	              password; items: policy/mode/identity
//	values        read, write, read back and restore each type of the demo space
//	              as scalar, array and matrix; items: Scalar.Boolean, …
//	browse        everything reachable from Root
//	calls         a method without arguments, with all argument types, failing
//	subscription  values arrive, are modified, stop
//	renewal       short token lifetimes under traffic
//	reconnect     values go on after the socket was cut
//
// Everything a program sends without security passes a recorder, and tshark's
// OPC UA dissector must read it without one malformed packet.
//
// A missing toolchain skips its peer. With CI=true or BREAKWATER_INTEROP=required
// it fails instead; BREAKWATER_INTEROP=off leaves the whole test out.
package interop
