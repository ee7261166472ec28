package session

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// Rows of hostile.md about tokens, identities, closing and taking sessions over.
// The others carry their row's name in lifecycle_test.go (B6, B7, B8, I6, X28),
// create_test.go (I16, X11) and users_test.go (C13, X32).

// hostile.md B18: a client that crashes again and again takes its session over;
// one that does not finds room once the dead ones timed out.
func TestB18CrashingClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := NewStore(Options{MaxSessions: 5, Key: serverKey(t), Authenticator: allowAll{}})
		defer st.Shutdown()
		ch := secureChannel()
		c := create(t, st, ch)
		want(t, "first", c.activate(ch, asUser("bob", "x")), ua.StatusOK)
		for i := range 20 {
			if i%2 == 0 { // every other crash is one the server does not notice
				ch.closeIn(st)
			}
			ch = secureChannel()
			want(t, "takes its session over", c.activate(ch, asUser("bob", "x")), ua.StatusOK)
		}
		if st.Len() != 1 {
			t.Errorf("%d sessions", st.Len())
		}
		for range 4 {
			ch := secureChannel()
			c := create(t, st, ch)
			want(t, "activate", c.activate(ch, asUser("bob", "x")), ua.StatusOK)
			ch.closeIn(st)
		}
		_, code := tryCreate(t, st, secureChannel())
		want(t, "table full of dead sessions", code, ua.StatusBadTooManySessions)
		time.Sleep(time.Minute)
		synctest.Wait()
		_, code = tryCreate(t, st, secureChannel())
		want(t, "after their timeout", code, ua.StatusOK)
	})
}

// hostile.md B19: 101 sessions are no more than 100 that time out.
func TestB19SessionsNeverClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := NewStore(Options{MaxSessions: 100})
		defer st.Shutdown()
		for range 10 {
			for range 100 {
				ch := noneChannel()
				c := create(t, st, ch)
				want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
				ch.closeIn(st)
			}
			_, code := tryCreate(t, st, noneChannel())
			want(t, "the 101st", code, ua.StatusBadTooManySessions)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		nothingLeft(t, st)
	})
}

// hostile.md I14, OPC 10000-4 §5.7.4 CloseSession: an unknown or foreign token
// is BadSessionIdInvalid, the flag is passed on, twice is an error.
func TestI14CloseSession(t *testing.T) {
	var closed closings
	st := newStore(t, Options{OnClose: closed.note})
	ch, other := noneChannel(), noneChannel()
	want(t, "null token", st.Close(ch, uabinary.NodeID{}, true), ua.StatusBadSessionIDInvalid)
	for _, flag := range []bool{true, false} {
		c := named(t, st, ch, "s", time.Hour)
		want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
		s := c.session()
		want(t, "foreign channel", st.Close(other, c.token, flag), ua.StatusBadSessionIDInvalid)
		want(t, "still there", c.lookup(ch), ua.StatusOK)
		want(t, "close", st.Close(ch, c.token, flag), ua.StatusOK)
		if got := closed.take(); got != fmt.Sprintf("s client %t", flag) {
			t.Errorf("OnClose: %q", got)
		}
		want(t, "again", st.Close(ch, c.token, flag), ua.StatusBadSessionIDInvalid)
		want(t, "lookup", c.lookup(ch), ua.StatusBadSessionIDInvalid)
		want(t, "activate", c.activate(ch, anonymous), ua.StatusBadSessionIDInvalid)
		if <-s.Done(); s.Channel() != nil || s.Activated() {
			t.Error("a closed session is bound")
		}
	}
	c := create(t, st, ch)
	want(t, "never activated, its own channel", st.Close(ch, c.token, true), ua.StatusOK)
	nothingLeft(t, st)
}

// hostile.md I12, X40: tokens are 32 random bytes, worth nothing on another
// channel, and guessing near one finds nothing.
func TestI12X40Tokens(t *testing.T) {
	st := newStore(t, Options{})
	ch, other := noneChannel(), noneChannel()
	seen := map[string]bool{}
	var bits [tokenLength * 8]int
	const n = 256
	for range n {
		c := create(t, st, ch)
		want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
		if c.token.Type != uabinary.IDOpaque || len(c.token.Bytes) < 32 || seen[string(c.token.Bytes)] {
			t.Fatalf("token %v", c.token)
		}
		if strings.Contains(c.id.String(), c.token.String()) {
			t.Error("SessionId shows the token")
		}
		seen[string(c.token.Bytes)] = true
		for i := range bits {
			bits[i] += int(c.token.Bytes[i/8] >> (i % 8) & 1)
		}
		want(t, "another channel", c.lookup(other), ua.StatusBadSessionIDInvalid)
		if st.Peek(other, c.token) != nil || st.Peek(ch, c.token) == nil {
			t.Error("Peek")
		}
	}
	for i, ones := range bits[placeLength*8:] {
		if ones < n/4 || ones > n*3/4 {
			t.Errorf("bit %d of the secret is set in %d of %d tokens", i, ones, n)
		}
	}
	c := create(t, st, ch)
	want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
	for i := range c.token.Bytes {
		guess := c.token.Clone()
		guess.Bytes[i] ^= 1
		_, code := st.Lookup(ch, guess, time.Now())
		want(t, "one bit off", code, ua.StatusBadSessionIDInvalid)
	}
	for _, guess := range []uabinary.NodeID{
		{Type: uabinary.IDOpaque, Bytes: c.token.Bytes[:tokenLength-1]},
		{Type: uabinary.IDOpaque, Bytes: append(c.token.Clone().Bytes, 0)},
		{Type: uabinary.IDOpaque, Namespace: 1, Bytes: c.token.Bytes},
		{Type: uabinary.IDString, Bytes: c.token.Bytes},
		c.id, {}, uabinary.NumericID(0, 7),
	} {
		_, code := st.Lookup(ch, guess, time.Now())
		want(t, guess.String(), code, ua.StatusBadSessionIDInvalid)
	}
}

// hostile.md I14: ActivateSession looks at the token, and without a session
// there is no service.
func TestI14ActivateLooksAtTheToken(t *testing.T) {
	st := newStore(t, Options{Key: serverKey(t), Authenticator: &Identities{Certificates: true}, ValidateUserCertificate: trustAll})
	ch := secureChannel()
	c := create(t, st, ch)
	want(t, "no identity", c.activate(ch, anonymous), ua.StatusBadIdentityTokenRejected)
	_, code := st.Lookup(ch, uabinary.NodeID{}, time.Now())
	want(t, "no session", code, ua.StatusBadSessionIDInvalid)
	want(t, "certificate", c.activate(ch, asCertificate(userParty())), ua.StatusOK)
}

// hostile.md X24, D11: a user token without its signature.
func TestX24D11UserTokenWithoutSignature(t *testing.T) {
	st := newStore(t, secureOptions(t))
	for _, ch := range []*fakeChannel{noneChannel(), secureChannel()} {
		c := create(t, st, ch)
		for name, sig := range map[string]*ua.SignatureData{"none": nil, "empty": {}, "algorithm only": {Algorithm: tokenSecurity(ch).SignatureURI()},
			"zeros": {Algorithm: tokenSecurity(ch).SignatureURI(), Signature: make([]byte, 256)}} {
			rq := c.request(ch, asCertificate(userParty()))
			rq.UserTokenSignature = sig
			want(t, name, c.send(ch, rq), ua.StatusBadUserSignatureInvalid)
		}
		if c.session().Activated() {
			t.Error("activated")
		}
	}
}

// hostile.md C16: the revised timeout is what is enforced, and the client is
// told it.
func TestC16ShortRevisedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := NewStore(Options{MinTimeout: time.Second, MaxTimeout: 2 * time.Second})
		defer st.Shutdown()
		ch := noneChannel()
		rs, _ := st.Create(context.Background(), ch, createRequest(ch))
		if rs.RevisedSessionTimeout != 2000 {
			t.Errorf("revised %v", rs.RevisedSessionTimeout)
		}
		c := &client{t: t, st: st, token: uabinary.NodeIDOf(rs.AuthenticationToken), id: uabinary.NodeIDOf(rs.SessionID)}
		want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
		for range 10 {
			time.Sleep(time.Second) // half the revised timeout keeps it alive
			want(t, "keep-alive", c.lookup(ch), ua.StatusOK)
		}
		time.Sleep(5 * time.Second)
		want(t, "5 s", c.lookup(ch), ua.StatusBadSessionIDInvalid)
	})
}

// hostile.md D12: what a careful client verifies is there to be verified.
func TestD12ServerProof(t *testing.T) {
	o := secureOptions(t)
	o.Endpoints = func(ch Channel, _ string) []*ua.EndpointDescription {
		return []*ua.EndpointDescription{{SecurityMode: ch.SecurityMode(), SecurityPolicyURI: ch.SecurityPolicy().URI,
			UserIdentityTokens: TokenPolicies(ch.SecurityPolicy(), ch.SecurityMode(), allowAll{}.TokenTypes())}}
	}
	st := newStore(t, o)
	a, b := secureChannel(), secureChannel()
	first, _ := st.Create(context.Background(), a, createRequest(a))
	second, _ := st.Create(context.Background(), b, createRequest(b))
	if string(first.ServerNonce) == string(second.ServerNonce) || string(first.ServerSignature.Signature) == string(second.ServerSignature.Signature) {
		t.Error("nonce or signature repeats")
	}
	if len(first.ServerEndpoints) != 1 || len(first.ServerEndpoints[0].UserIdentityTokens) != 3 {
		t.Error("endpoint list is not echoed")
	}
	if string(first.ServerCertificate) != string(serverParty().cert) {
		t.Error("certificate")
	}
	ch := newChannel(security.Aes256Sha256RsaPss, ua.MessageSecurityModeSign, clientParty())
	o.Endpoints = func(Channel, string) []*ua.EndpointDescription { return nil }
	st = newStore(t, o)
	_, code := tryCreate(t, st, ch)
	want(t, "no endpoint for the channel", code, ua.StatusBadSecurityPolicyRejected)
}

// hostile.md D11: what was trusted once is asked again; a user certificate taken
// off the trust list does not move a session, nor renew its activation.
func TestD11TrustIsAskedAgain(t *testing.T) {
	o := secureOptions(t)
	trusted := true
	o.ValidateUserCertificate = func(context.Context, Channel, []byte, *security.Policy) error {
		if trusted {
			return nil
		}
		return ua.StatusBadCertificateUntrusted
	}
	st := newStore(t, o)
	a, b := secureChannel(), secureChannel()
	c := create(t, st, a)
	want(t, "trusted", c.activate(a, asCertificate(userParty())), ua.StatusOK)
	trusted = false
	want(t, "same channel", c.activate(a, asCertificate(userParty())), ua.StatusBadIdentityTokenRejected)
	want(t, "another channel", c.activate(b, asCertificate(userParty())), ua.StatusBadIdentityTokenRejected)
}
