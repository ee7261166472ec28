package securechannel

import (
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
)

// claim is whose the channel is before anybody has looked at a session: the
// ingress claim, else the verified certificate, else the address.
func (ch *Channel) claim() isolation.OwnerClaim {
	return isolation.Classify(nil, isolation.Other, &isolation.ChannelFacts{
		ID: ch.id, Remote: ch.RemoteAddr(), Local: ch.LocalAddr(), Certificate: ch.peerCert, Ingress: ch.Ingress(),
	}, nil)
}

// assemblyOwner decides whose bytes a partial message takes; nil refuses it.
// The continuity rule (overload.md §7): work of class Established that nobody
// has mapped may use the reconnect floor while its channel carries an activated
// session, so that a working client gets its large request through a flood.
func (s *Server) assemblyOwner(ch *Channel) *isolation.Owner {
	if s.cfg.AssemblyOwner != nil {
		owner, continuity := s.cfg.AssemblyOwner(ch)
		if continuity != nil {
			return continuity
		}
		return owner
	}
	p, claim := s.cfg.Isolation, ch.claim()
	var owner *isolation.Owner
	var err error
	switch {
	case !s.byOwner: // SharedOnly knows no classes
		owner, err = p.Issue(claim.Key, isolation.Established)
	case ch.active.Load() && ch.Ingress().Key == "":
		owner, err = p.IssueFor(claim.Key, isolation.Reconnect, isolation.ReassemblyBytes)
	default:
		owner, err = p.Issue(claim.Key, claim.Class)
	}
	if err != nil {
		s.alarm("partial message without an owner", "remote", ch.RemoteAddr(), "channel", ch.id, "error", err)
		return nil
	}
	return owner
}

// HasSession reports whether an activated session uses the channel.
func (ch *Channel) HasSession() bool { return ch.active.Load() }

// preferred is the place of the channel's owner within a class of the crypto
// gate (overload.md §8a).
func (ch *Channel) preferred() int {
	switch ch.Ingress().Class {
	case isolation.Reconnect, isolation.Trusted:
		return 2
	case isolation.Bootstrap:
		return 1
	}
	return 0
}

// issuePriority is that of the private-key operations of a new channel.
func (ch *Channel) issuePriority() security.Priority {
	return security.PriorityIssue.Preferred(ch.preferred())
}
