package stack

import (
	"sync"
	"sync/atomic"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
)

// kinds is the number of isolation.ServiceKinds.
const kinds = 3

// A binding is what the owners of requests were found for: a channel, and the
// identity of the session on it, if any. ActivateSession makes a new Caller
// each time, so a new identity or channel is a new binding. It is kept with the
// session (or by channel, where there is none), so that a request costs no
// hashing and no allocation: the classifier is asked once for each binding, and
// again for a request that has waited.
type binding struct {
	ch     channel
	caller *addressspace.Caller // nil without a session
	facts  isolation.ChannelFacts
	owners [kinds]*isolation.Owner // nil: isolation refused to issue it
}

// owners finds out who requests belong to.
type owners struct {
	provider   *isolation.Provider
	classifier isolation.Classifier
	shared     *isolation.Owner // of everybody in SharedOnly; else nil

	mu       sync.RWMutex
	channels map[channel]*binding // for requests without a session

	unprovisioned func(error) // told of claims that isolation did not accept
}

func newOwners(p *isolation.Provider, c isolation.Classifier) *owners {
	o := &owners{provider: p, classifier: c, channels: make(map[channel]*binding)}
	if p.Plan().Mode == isolation.SharedOnly {
		o.shared, _ = p.Issue("shared", isolation.Established)
	}
	return o
}

func (o *owners) opened(ch channel) {
	b := o.bind(ch, nil)
	o.mu.Lock()
	o.channels[ch] = b
	o.mu.Unlock()
}

func (o *owners) closed(ch channel) {
	o.mu.Lock()
	delete(o.channels, ch)
	o.mu.Unlock()
}

// of returns whose request this is. sess must be bound to ch, or nil.
func (o *owners) of(ch channel, sess *session.Session, kind isolation.ServiceKind) *isolation.Owner {
	if o.shared != nil {
		return o.shared
	}
	if sess == nil {
		o.mu.RLock()
		b := o.channels[ch]
		o.mu.RUnlock()
		if b == nil {
			return nil // closed meanwhile
		}
		return b.owners[kind]
	}
	b := bound(&sess.Running, ch, sess.Caller())
	if b == nil {
		b = o.bind(ch, sess)
		sess.Running.Store(b)
	}
	return b.owners[kind]
}

// bound returns the binding that is kept in a session, if it still holds.
func bound(slot *atomic.Value, ch channel, c *addressspace.Caller) *binding {
	if b, _ := slot.Load().(*binding); b != nil && b.ch == ch && b.caller == c {
		return b
	}
	return nil
}

// forget makes the next request of a session ask the classifier again.
func (o *owners) forget(sess *session.Session) { sess.Running.Store((*binding)(nil)) }

// assembly is what securechannel asks for the owner of a partial message; nil
// leaves that to its default, which is right where no classifier looks at
// channels.
func (o *owners) assembly() func(*securechannel.Channel) (owner, continuity *isolation.Owner) {
	if o.classifier == nil || o.shared != nil {
		return nil
	}
	return func(ch *securechannel.Channel) (owner, continuity *isolation.Owner) {
		facts := channelFacts(ch)
		claim, mapped := o.classifier.Classify(isolation.Other, &facts, nil)
		if !mapped {
			claim = isolation.Classify(nil, isolation.Other, &facts, nil)
			mapped = facts.Ingress.Key != ""
		}
		var err error
		if owner, err = o.provider.Issue(claim.Key, claim.Class); err == nil && !mapped && ch.HasSession() {
			// the continuity rule: it may use the reconnect floor, of this stage only
			continuity, err = o.provider.IssueFor(claim.Key, isolation.Reconnect, isolation.ReassemblyBytes)
		}
		if err != nil && o.unprovisioned != nil {
			o.unprovisioned(err)
		}
		return owner, continuity
	}
}

// unchanged reports whether a request that has waited still belongs to the
// owner it was admitted for.
func (o *owners) unchanged(r *request) bool {
	if o.classifier == nil || o.shared != nil {
		return true
	}
	facts := channelFacts(r.ch)
	claim := isolation.Classify(o.classifier, kindOf(r.Entry), &facts, bindingFacts(r.Session))
	return claim.Key == r.owner.Key() && claim.Class == r.owner.Class()
}

func (o *owners) bind(ch channel, sess *session.Session) *binding {
	b := &binding{ch: ch, facts: channelFacts(ch)}
	if o.shared != nil {
		return b
	}
	if sess != nil {
		b.caller = sess.Caller()
	}
	facts := bindingFacts(sess)
	for kind := range isolation.ServiceKind(kinds) {
		claim := isolation.Classify(o.classifier, kind, &b.facts, facts)
		for k := range kind { // the usual case: all the same
			if have := b.owners[k]; have != nil && have.Key() == claim.Key && have.Class() == claim.Class {
				b.owners[kind] = have
			}
		}
		if b.owners[kind] != nil {
			continue
		}
		owner, err := o.provider.Issue(claim.Key, claim.Class)
		if err != nil {
			if o.unprovisioned != nil {
				o.unprovisioned(err)
			}
			continue
		}
		b.owners[kind] = owner
	}
	return b
}

// channelFacts says what a classifier may know of a channel. Without security a
// certificate proves nothing; such channels have none.
func channelFacts(ch channel) isolation.ChannelFacts {
	f := isolation.ChannelFacts{ID: ch.ID(), Remote: ch.RemoteAddr(), Local: ch.LocalAddr(), Ingress: ch.Ingress()}
	if l, ok := ch.(*logicalChannel); ok {
		f.Certificate = l.provenCertificate()
	} else if !ch.SecurityPolicy().IsNone() {
		f.Certificate = ch.PeerCertificate()
	}
	return f
}

func bindingFacts(sess *session.Session) *isolation.BindingFacts {
	if sess == nil {
		return nil
	}
	return &isolation.BindingFacts{User: sess.Caller().User, SessionID: sess.ID().String()}
}

// kindOf is what isolation knows of a service.
func kindOf(e *service.Entry) isolation.ServiceKind {
	switch e.Kind {
	case service.KindEstablish:
		return isolation.Establish
	case service.KindClose:
		return isolation.Close
	}
	return isolation.Other
}

func keyOf(o *isolation.Owner) string {
	if o == nil {
		return ""
	}
	return o.Key()
}

// preference orders owners within a class of the crypto gate.
func preference(o *isolation.Owner) int {
	if o == nil {
		return 0
	}
	switch o.Class() {
	case isolation.Reconnect, isolation.Trusted:
		return 2
	case isolation.Bootstrap:
		return 1
	}
	return 0
}
