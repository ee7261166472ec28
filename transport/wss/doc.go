// Package wss is the opc.wss transport, OPC 10000-6 §7.5 (WebSockets), over
// HTTP/1.1 connections that package https has accepted.
//
// With the sub-protocol opcua+uacp a binary frame is a chunk, both ways, and all
// that opc.tcp does holds: Hello and Acknowledge, SecureChannels, deadlines and
// queues are the code of package uatcp. With opcua+uajson a text message is a
// request or a response in OPC UA JSON; there is no SecureChannel, and requests
// go to a transport.CallHandler.
//
// Framing, fragmentation, ping and pong are github.com/coder/websocket's.
// Nothing is compressed.
package wss
