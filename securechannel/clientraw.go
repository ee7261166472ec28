package securechannel

import (
	"context"
	"net"

	"github.com/breakwater-ua/breakwater/security"
)

// RawChunk is a chunk as a test wants it. Zero fields take what the client
// would send; the pointers set numbers that it would not.
type RawChunk struct {
	Type           [3]byte // zero = MSG
	Final          byte    // 'F', 'C', 'A' or nonsense; 0 = 'F'
	ChannelID      *uint32
	TokenID        *uint32
	SequenceNumber *uint32
	RequestID      uint32
	Body           []byte
}

// Seal makes a chunk with the client's keys. It is for conformance and hostile
// tests: unless SequenceNumber is set it uses a number up.
func (c *Client) Seal(r RawChunk) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := r.Type
	if kind == ([3]byte{}) {
		kind = kindMSG
	}
	final := r.Final
	if final == 0 {
		final = chunkFinal
	}
	channel, t := c.id, *c.send
	if r.ChannelID != nil {
		channel = *r.ChannelID
	}
	if r.TokenID != nil {
		t.id = *r.TokenID
	}
	var sequence uint32
	if r.SequenceNumber != nil {
		sequence = *r.SequenceNumber
	} else {
		sequence = c.sendSeq.next()
	}
	b := make([]byte, c.layout.chunk(len(r.Body)))
	c.layout.seal(b, kind, final, channel, &t, sequence, r.RequestID, r.Body)
	return b
}

// SealOpen makes an OpenSecureChannel message with a body of the test's choice
// (see OpenRequestBody); channel nil = the client's own id.
func (c *Client) SealOpen(ctx context.Context, channel *uint32, body []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.id
	if channel != nil {
		id = *channel
	}
	return c.server.seal(ctx, security.PriorityRenew, id, c.sendSeq.next(), c.nextID.Add(1), body)
}

// SequenceNumber is the number of the last chunk sent.
func (c *Client) SequenceNumber() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sendSeq.last
}

// SetSequenceNumber makes n the number of the last chunk sent.
func (c *Client) SetSequenceNumber(n uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendSeq.last, c.sendSeq.begun = n, true
}

// Write sends bytes as they are, in order with Send.
func (c *Client) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.Write(b)
}

// Conn is the connection under the channel.
func (c *Client) Conn() net.Conn { return c.conn }
