package stack

import (
	"context"
	"time"

	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// trustInterval is how soon a change of the trust list reaches clients that are
// connected already. Newcomers meet it at once.
const trustInterval = 2 * time.Second

// watchTrust looks at the open channels, and those of sessions over HTTPS, again
// whenever the trust list has changed, and closes those whose certificate it no
// longer trusts.
func (s *Server) watchTrust(ctx context.Context) {
	tick := time.NewTicker(trustInterval)
	defer tick.Stop()
	version := s.pki.Version()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := s.pki.Version()
		if now == version {
			continue
		}
		version = now
		s.channels.Each(func(ch *securechannel.Channel) bool {
			if ch.SecurityPolicy().IsNone() {
				return true
			}
			if _, err := s.validatePeer(ch, ch.PeerChain(), ch.SecurityPolicy()); err != nil {
				s.log.Warn("channel closed: its certificate is not trusted any more", "remote", ch.RemoteAddr(), "channel", ch.ID(), "code", uastatus.Name(uastatus.Code(err)), "error", err)
				ch.Close(transport.SecurityError, ua.StatusBadSecurityChecksFailed)
			}
			return ctx.Err() == nil
		})
		s.sessions.Each(func(sess *session.Session) bool {
			ch, ok := sess.Channel().(*logicalChannel)
			if !ok {
				return true
			}
			i := ch.introduced.Load()
			if i == nil {
				return true
			}
			if _, err := s.validatePeer(ch, i.chain, ch.policy); err != nil {
				s.log.Warn("session lost its channel: its certificate is not trusted any more", "remote", ch.RemoteAddr(), "channel", ch.ID(), "code", uastatus.Name(uastatus.Code(err)), "error", err)
				ch.sever()
			}
			return ctx.Err() == nil
		})
	}
}
