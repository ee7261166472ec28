package stack

import (
	"sync"
	"sync/atomic"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// calls takes requests from the transports that carry whole messages, and finds
// or makes the logical channel of each. It implements transport.CallHandler.
type calls struct {
	srv      *Server
	dispatch *dispatcher
	policies []*security.Policy // that may be named
	ids      atomic.Uint32

	mu      sync.Mutex
	lasting map[*transport.Peer]*logicalChannel // of WebSockets
}

func (s *Server) newCalls() *calls {
	c := &calls{srv: s, dispatch: s.dispatch, lasting: make(map[*transport.Peer]*logicalChannel)}
	for _, of := range s.opts.tlsOffers() {
		c.policies = append(c.policies, of.policy)
	}
	return c
}

// Call implements transport.CallHandler.
func (c *calls) Call(in transport.Call) {
	body := in.Body()
	own := c.place(in, body)
	c.dispatch.take(own.ch, carrier{c: own}, own.id, body, in.Received())
}

// place puts a call on its channel.
func (c *calls) place(in transport.Call, body []byte) *call {
	peer := in.Peer()
	if peer.Lasting {
		if own := c.ofPeer(peer).add(in); own != nil {
			return own
		}
	} else if ch, entry := c.ofSession(body); ch != nil {
		if own := ch.add(in); own != nil {
			if entry != nil && entry.Kind == service.KindEstablish {
				ch.meet(peer) // who shows an identity, and is locked out, is who calls now
			}
			return own
		}
	}
	ch := c.channel(peer, in.Policy())
	own := ch.add(in)
	ch.release() // the call has it now
	return own
}

// channel makes a logical channel, held once.
func (c *calls) channel(peer *transport.Peer, policy *security.Policy) *logicalChannel {
	ch := &logicalChannel{calls: c, id: logicalID | c.ids.Add(1), policy: policy, lasting: peer.Lasting, held: 1, done: make(chan struct{})}
	ch.discovery = !c.offered(policy)
	if ch.policy == nil {
		ch.policy = security.None
	}
	ch.meet(peer)
	c.dispatch.opened(ch)
	return ch
}

// logicalID marks the ids of logical channels.
const logicalID = 1 << 31

func (c *calls) offered(p *security.Policy) bool {
	for _, have := range c.policies {
		if have == p {
			return true
		}
	}
	return false
}

// ofPeer is the channel of a WebSocket.
func (c *calls) ofPeer(p *transport.Peer) *logicalChannel {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.lasting[p]
	if ch == nil {
		ch = c.channel(p, security.None)
		c.lasting[p] = ch
	}
	return ch
}

// ofSession is the channel of the session that a request names, nil unless that
// session is used over HTTPS.
func (c *calls) ofSession(body []byte) (*logicalChannel, *service.Entry) {
	var d uabinary.Decoder
	d.Reset(body, &c.dispatch.decoding)
	typeID := d.TypeID()
	h := d.RequestHeader()
	if d.Err() != nil || h.AuthenticationToken.IsNull() {
		return nil, nil
	}
	ch, _ := c.dispatch.set.Sessions.Bound(h.AuthenticationToken).(*logicalChannel)
	if ch == nil || ch.lasting {
		return nil, nil
	}
	return ch, c.dispatch.table.Lookup(typeID)
}

// Live reports whether a request in OPC UA Binary carries the token of an
// activated session that is used over HTTPS: such requests are not counted by
// the rate limiter.
func (c *calls) Live(body []byte) bool {
	var d uabinary.Decoder
	d.Reset(body, &c.dispatch.decoding)
	d.TypeID()
	h := d.RequestHeader()
	if d.Err() != nil || h.AuthenticationToken.IsNull() {
		return false
	}
	ch, _ := c.dispatch.set.Sessions.Bound(h.AuthenticationToken).(*logicalChannel)
	return ch != nil && c.dispatch.set.Sessions.Peek(ch, h.AuthenticationToken) != nil
}

// Gone implements transport.CallHandler.
func (c *calls) Gone(p *transport.Peer) {
	c.mu.Lock()
	ch := c.lasting[p]
	delete(c.lasting, p)
	c.mu.Unlock()
	if ch == nil {
		return
	}
	ch.cut()
}

// cut ends a channel whose client has gone, whatever still holds it.
func (ch *logicalChannel) cut() {
	ch.sever()
	ch.release()
}

// sever ends a channel although something holds it: its sessions wait for
// ActivateSession on another one.
func (ch *logicalChannel) sever() {
	ch.mu.Lock()
	ended := ch.ended
	ch.ended = true
	ch.mu.Unlock()
	if !ended {
		ch.end()
		ch.calls.dispatch.set.Sessions.ChannelClosed(ch)
	}
}

// activated notes that the client of a session has shown to have the key of its certificate.
func (c *calls) activated(s *session.Session) {
	if ch, ok := s.Channel().(*logicalChannel); ok && !ch.policy.IsNone() {
		ch.proven.Store(true)
	}
}
