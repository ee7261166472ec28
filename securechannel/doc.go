// Package securechannel implements OPC UA Secure Conversation, OPC 10000-6 §6.7
// (OPC UA Secure Conversation): opening and renewing channels, the security of
// chunks, cutting and assembling of messages. The server half sits on a
// transport.Conn; the client half shares framing, cryptography, tokens and
// sequence numbers with it.
//
// # Route of a request
//
// The transport hands whole chunks to a Channel on the connection's reading
// goroutine. There the chunk is verified, decrypted in place and, when it is a
// complete message, handed to the Handler. Private-key work, hence all of
// OpenSecureChannel, runs on a goroutine of its own through
// security.CryptoGate while the reading goes on.
//
// # Locks
//
// The receiving side belongs to the reading goroutine. The sending side
// (sequence number, sending token) is guarded by the connection's Outbox. New
// tokens go from the opening goroutine to the reader through an atomic pointer.
package securechannel
