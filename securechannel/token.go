package securechannel

import (
	"time"

	"github.com/breakwater-ua/breakwater/security"
)

// token is a SecurityToken with the keys of both directions.
type token struct {
	id       uint32
	created  time.Time
	lifetime time.Duration
	in, out  *security.Symmetric // nil without security

	// sequence is the number of the OpenSecureChannel that it came with, for a
	// reader that could not foresee it.
	sequence uint32
}

// expires is the end of the token's lifetime.
func (t *token) expires() time.Time { return t.created.Add(t.lifetime) }

// dead is the end of the quarter of its lifetime for which an expired token is
// still taken while there is no newer one (OPC 10000-4 §5.6.2,
// OpenSecureChannel); then the channel is closed.
func (t *token) dead() time.Time { return t.created.Add(t.lifetime + t.lifetime/4) }

// serverKeys and clientKeys derive the keys of a token, OPC 10000-6 §6.7.5
// (Deriving keys): each side's keys come from the other side's nonce as secret
// and its own as seed.
func (t *token) serverKeys(p *security.Policy, client, server []byte) {
	t.in, t.out = p.Derive(server, client), p.Derive(client, server)
}

func (t *token) clientKeys(p *security.Policy, client, server []byte) {
	t.in, t.out = p.Derive(client, server), p.Derive(server, client)
}
