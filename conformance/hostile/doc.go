// Package hostile holds the scenarios that broke other OPC UA servers, against a
// whole server over loopback: opc.tcp, opc.wss with opcua+uacp and opcua+uajson,
// opc.https with OPC UA Binary and JSON, each row on every listener that it can
// reach. A test's name carries the scenario's number; what it sends and what a
// robust server does stands at the test. Behind each, the same checks: a healthy
// client on the same listener lost nothing, and nothing is left behind: budget,
// sessions, channels, subscriptions, goroutines and descriptors are back where they
// started.
package hostile
