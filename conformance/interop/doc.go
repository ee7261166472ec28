// Package interop proves the reference server against clients that others
// wrote: its test starts refserver and lets a real program of each third-party
// stack run one scenario against it. Own client to own server proves nothing
// about the wire; this does.
//
// # The programs
//
// Each folder holds one peer with its versions pinned: gopcua (Go, in the main
// module), nodeopcua (npm, package-lock.json), asyncua (PyPI,
// requirements.txt), open62541 (o6 from PyPI, requirements.txt), milo and miloweb
// (Maven Central, pom.xml). The test installs them into the ignored folder .interop,
// keyed by a hash of those files, so that an unchanged peer installs once.
//
// # opc.wss and opc.https
//
// Few clients speak them. What was found in December 2026, by looking and, where
// it can be installed from a package registry, by trying:
//
//	Eclipse Milo 0.6.16       opc.https (binary): every policy and identity, values,
//	                          Browse, Call, subscriptions. opc.wss: the same, behind a
//	                          proxy (web_test.go) that corrects two mistakes of it. Runs
//	                          here as miloweb.
//	Eclipse Milo 1.1.0        opc.tcp only: 1.0 left both transports out
//	node-opcua 2.186.4        opc.tcp only; pull request 827 for WebSockets was closed
//	asyncua 2.1.0             opc.tcp only
//	gopcua 0.8.0              opc.tcp only
//	open62541                 the library has opc.wss since August 2026 (pull request
//	                          8259); o6 2.2.0 from PyPI is built without it
//	opc-ua-stack (Java)       the OPC Foundation's has opc.https; neither 1.3.346 nor
//	                          1.4.1.1 is on Maven Central
//	UA-.NETStandard           opc.https, and opc.wss since 2026; needs .NET and NuGet,
//	                          which could not be reached: untried
//	wsopcua, opcjs            opc.wss in browsers; not on npm: untried
//
// Also examples/browser (opcua+uajson in Chromium) and examples/curl (HTTPS with
// JSON), which are clients but not of other stacks.
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
