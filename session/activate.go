package session

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

var (
	errUnknownSession   = errors.New("unknown session")
	errForeignChannel   = errors.New("first activation on another channel than CreateSession")
	errOtherApplication = errors.New("new channel belongs to another application")
	errWeakerChannel    = errors.New("new channel is weaker than the old one")
	errTakeOver         = errors.New("an anonymous session without security moves only from a channel that has gone, to the same address")
	errOtherIdentity    = errors.New("a session that moves to another channel keeps its identity")
	errNoSignature      = errors.New("signature is missing")
	errAlgorithm        = errors.New("signature algorithm is not the policy's")
	errKindNotOffered   = errors.New("this kind of identity is not offered")
)

// Activate is the ActivateSession service (OPC 10000-4 §5.7.3 ActivateSession).
// The response's header is the caller's to fill in. Each success gives the
// session a new server nonce and uses up the old one; a failure, which cannot
// carry a nonce to the client, changes nothing.
//
// BadSessionIdInvalid: the session is unknown or timed out, is not this
// channel's to activate first, or is anonymous and unsecured and may not move.
// BadSecurityChecksFailed: the new channel belongs to another application, or,
// where only the signature says whose it is, the session's certificate is not
// trusted any more.
// BadSecurityModeInsufficient: the new channel is weaker.
// BadApplicationSignatureInvalid, BadUserSignatureInvalid: a signature is
// missing or wrong. BadIdentityTokenInvalid: the token is malformed or names no
// offered policy. BadIdentityTokenRejected: it is refused. BadUserAccessDenied:
// wrong password or locked. BadIdentityChangeNotSupported: another identity on
// another channel. BadServerTooBusy: the Gate refused.
func (st *Store) Activate(ctx context.Context, ch Channel, token uabinary.NodeID, rq *ua.ActivateSessionRequest) (*ua.ActivateSessionResponse, ua.StatusCode) {
	s := st.table.find(&token)
	if s == nil {
		return nil, st.refused(ch, "ActivateSession", nil,
			uastatus.New(ua.StatusBadSessionIDInvalid, "activate", errUnknownSession))
	}
	s.activating.Lock()
	defer s.activating.Unlock()
	rs, err := st.activate(ctx, ch, s, rq)
	if err != nil {
		return nil, st.refused(ch, "ActivateSession", s, err)
	}
	return rs, ua.StatusOK
}

// activation is one ActivateSession in progress.
type activation struct {
	ctx      context.Context
	st       *Store
	ch       Channel
	s        *Session
	rq       *ua.ActivateSessionRequest
	first    bool // never activated so far
	moves    bool // to another channel
	borrows  bool // the channel knows no certificate: the client is to sign for the session's
	nonce    [nonceLength]byte
	priority security.Priority
}

func (st *Store) activate(ctx context.Context, ch Channel, s *Session, rq *ua.ActivateSessionRequest) (*ua.ActivateSessionResponse, error) {
	a := &activation{ctx: ctx, st: st, ch: ch, s: s, rq: rq, priority: security.PriorityActivate}
	if err := a.checkBinding(); err != nil {
		return nil, err
	}
	if a.first {
		a.priority = security.PrioritySession
	}
	a.priority = a.priority.Preferred(st.opts.Preference(ctx))
	token, err := a.identityToken()
	if err != nil {
		return nil, err
	}
	release, code := st.opts.Gate(ctx, ch)
	if code != ua.StatusOK {
		return nil, uastatus.New(code, "establishment gate", nil)
	}
	defer release()
	if a.borrows {
		if err := ch.(Introduced).TakeCertificate(ctx, s.chain); err != nil {
			return nil, uastatus.New(uastatus.Code(err), "client certificate", err)
		}
	}
	if err := a.checkClientSignature(); err != nil {
		return nil, err
	}
	id, err := a.authenticate(token)
	if err != nil {
		return nil, err
	}
	if old := s.identity.Load(); a.moves && !id.same(old) {
		return nil, uastatus.New(ua.StatusBadIdentityChangeNotSupported, "move session", errOtherIdentity)
	}
	return a.commit(id)
}

// checkBinding decides whether this channel may activate the session at all.
func (a *activation) checkBinding() error {
	st, s, ch := a.st, a.s, a.ch
	now := st.since(time.Now())
	st.mu.Lock()
	state := s.state.Load()
	timedOut := state == stateActive && now-s.lastContact.Load() >= int64(s.timeout)
	var old Channel
	if b := s.bound.Load(); b != nil {
		old = b.ch
	}
	a.nonce = s.nonce
	policy, mode, remote := s.policy, s.mode, s.remote
	st.mu.Unlock()

	switch {
	case timedOut:
		st.end(s, ClosedTimeout, false)
		return uastatus.New(ua.StatusBadSessionIDInvalid, "activate", errUnknownSession)
	case state == stateClosed:
		return uastatus.New(ua.StatusBadSessionIDInvalid, "activate", errUnknownSession)
	case state == stateCreated:
		if old != ch {
			return uastatus.New(ua.StatusBadSessionIDInvalid, "activate", errForeignChannel)
		}
		a.first = true
		return nil
	case old == ch:
		return nil
	}
	a.moves = true
	// ActivateSession has no certificate. Where the transport has none either, the
	// client proves by its signature that it has the key of the one that created
	// the session, and that one is asked for trust again.
	_, introduced := ch.(Introduced)
	a.borrows = introduced && !ch.SecurityPolicy().IsNone() && len(ch.PeerCertificate()) == 0 && len(s.chain) > 0
	if !a.borrows && s.application != applicationOf(ch) {
		return uastatus.New(ua.StatusBadSecurityChecksFailed, "move session", errOtherApplication)
	}
	if ch.SecurityPolicy().Strength() < policy.Strength() || ch.SecurityMode() < mode {
		return uastatus.New(ua.StatusBadSecurityModeInsufficient, "move session", errWeakerChannel)
	}
	// Under None an anonymous session has no owner who could prove anything: the
	// token alone, which everybody on the path has seen, must not be enough.
	if ch.SecurityPolicy().IsNone() && s.identity.Load().Kind == ua.UserTokenTypeAnonymous &&
		(old != nil || ch.RemoteAddr().Addr().Unmap() != remote) {
		return uastatus.New(ua.StatusBadSessionIDInvalid, "move session", errTakeOver)
	}
	return nil
}

// checkClientSignature makes the client prove that it is the application that
// created the session.
func (a *activation) checkClientSignature() error {
	policy := a.ch.SecurityPolicy()
	if policy.IsNone() {
		return nil
	}
	cert, err := x509.ParseCertificate(a.ch.PeerCertificate())
	if err == nil {
		err = a.verify(policy, cert, a.rq.ClientSignature)
	}
	if err != nil {
		return uastatus.New(ua.StatusBadApplicationSignatureInvalid, "client signature", err)
	}
	return nil
}

// verify checks a signature over the server's certificate and last nonce. When
// it does not fit the leaf the whole chain is tried, as OPC 10000-4 §5.7.3
// (ActivateSession) asks for the sake of old clients.
func (a *activation) verify(policy *security.Policy, cert *x509.Certificate, sig *ua.SignatureData) error {
	key := a.st.opts.Key
	pub, isRSA := cert.PublicKey.(*rsa.PublicKey)
	switch {
	case key == nil:
		return errors.New("server has no certificate to sign over")
	case sig == nil || len(sig.Signature) == 0:
		return errNoSignature
	case len(sig.Signature) > maxSignature:
		return errors.New("signature is too long")
	case sig.Algorithm != policy.SignatureURI():
		return errAlgorithm
	case !isRSA:
		return errors.New("not an RSA certificate")
	}
	if err := policy.CheckKey(pub); err != nil {
		return err
	}
	leaf, chain := key.Certificate(), key.Chain()
	data := append(append(make([]byte, 0, len(chain)+len(a.nonce)), leaf...), a.nonce[:]...)
	err := policy.Verify(pub, data, sig.Signature)
	if err != nil && len(chain) != len(leaf) {
		data = append(append(data[:0], chain...), a.nonce[:]...)
		err = policy.Verify(pub, data, sig.Signature)
	}
	return err
}

// commit makes the activation true: all of it or nothing.
func (a *activation) commit(id *Identity) (*ua.ActivateSessionResponse, error) {
	st, s, ch := a.st, a.s, a.ch
	caller := &addressspace.Caller{
		SessionID: s.id,
		User:      id.User,
		Anonymous: id.Kind == ua.UserTokenTypeAnonymous,
		Admin:     id.Admin,
		Locales:   a.locales(),
	}
	nonce := security.Nonce(nonceLength)
	from, abandoned, err := a.apply(id, caller, nonce)
	if abandoned != nil {
		st.finish(abandoned, false)
	}
	if err != nil {
		return nil, err
	}
	if st.opts.OnActivate != nil {
		st.opts.OnActivate(s, from, a.first)
	}
	st.auditActivated(ch, s, id, a.first, a.moves)
	return &ua.ActivateSessionResponse{ServerNonce: nonce}, nil
}

// apply changes the session under the lock. from is the channel it left,
// abandoned another session that had to make room for it, or this one when
// there was none any more.
func (a *activation) apply(id *Identity, caller *addressspace.Caller, nonce []byte) (from Channel, abandoned *Session, err error) {
	st, s, ch := a.st, a.s, a.ch
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.state.Load() == stateClosed {
		return nil, nil, uastatus.New(ua.StatusBadSessionIDInvalid, "session ended while it was activated: "+s.Reason().String(), nil)
	}
	if ended(ch) {
		return nil, nil, uastatus.New(ua.StatusBadSecureChannelClosed, "channel gone", nil)
	}
	if s.provisional && st.live > st.opts.MaxSessions {
		if abandoned = st.giveUpLocked(st.since(time.Now()), id); abandoned == nil {
			st.removeLocked(s, ClosedEvicted)
			return nil, s, uastatus.New(ua.StatusBadTooManySessions, "the session whose place it was promised came back", nil)
		}
	}
	if a.first {
		st.settleLocked(s)
		st.leaveQueueLocked(s)
		st.channels[ch].inactive--
		s.state.Store(stateActive)
		st.activated.Add(1)
		ch.SessionAttached()
	}
	if a.moves {
		if b := s.bound.Load(); b != nil {
			from = b.ch
		}
		if from == nil {
			st.gone.remove(s)
		}
		st.detachLocked(s)
		st.attachLocked(s, ch)
	}
	s.bindFacts(ch)
	copy(s.nonce[:], nonce)
	s.identity.Store(id)
	s.caller.Store(caller)
	now := st.since(time.Now())
	s.lastContact.Store(now)
	st.setDueLocked(s, now+int64(s.timeout))
	return from, abandoned, nil
}

// locales are the session's LocaleIds after this activation: an empty list keeps
// what it has.
func (a *activation) locales() []string {
	if len(a.rq.LocaleIDs) == 0 {
		return a.s.LocaleIDs()
	}
	out := make([]string, 0, min(len(a.rq.LocaleIDs), maxLocales))
	for _, l := range a.rq.LocaleIDs {
		if len(out) == maxLocales {
			break
		}
		if len(l) <= maxLocaleLength {
			out = append(out, truncate(l, maxLocaleLength))
		}
	}
	return out
}
