// Package hostile holds one test for each scenario that broke other OPC UA
// servers, against a whole server over loopback. A test's name carries the
// scenario's number; what it sends and what a robust server does stands at the
// test. Behind each, the same checks: a healthy client on the same server lost
// nothing, and nothing is left behind: budget, sessions, channels, subscriptions,
// goroutines and descriptors are back where they started.
package hostile
