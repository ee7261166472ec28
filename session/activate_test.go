package session

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// Every policy × mode × identity that is offered works (OPC 10000-4 §5.7.3).
func TestActivateMatrix(t *testing.T) {
	st := newStore(t, secureOptions(t))
	sign, both := ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt
	for _, ch := range []*fakeChannel{
		noneChannel(),
		newChannel(security.Basic128Rsa15, sign, clientParty()),
		newChannel(security.Basic256, both, clientParty()),
		newChannel(security.Basic256Sha256, sign, clientParty()),
		newChannel(security.Basic256Sha256, both, clientParty()),
		newChannel(security.Aes128Sha256RsaOaep, both, clientParty()),
		newChannel(security.Aes256Sha256RsaPss, sign, clientParty()),
		newChannel(security.Aes256Sha256RsaPss, both, clientParty()),
	} {
		for kind, l := range map[string]login{"anonymous": anonymous, "user": asUser("alice", "secret"), "certificate": asCertificate(userParty())} {
			t.Run(fmt.Sprintf("%s/%d/%s", ch.policy.Name, ch.mode, kind), func(t *testing.T) {
				c := create(t, st, ch)
				c.t = t
				old := c.nonce
				want(t, "ActivateSession", c.activate(ch, l), ua.StatusOK)
				want(t, "Lookup", c.lookup(ch), ua.StatusOK)
				caller := c.session().Caller()
				if caller.Anonymous != (kind == "anonymous") || (caller.User == "alice") == caller.Anonymous || !caller.SessionID.Equal(c.id) {
					t.Errorf("caller %+v", caller)
				}
				if len(c.nonce) != 32 || bytes.Equal(c.nonce, old) {
					t.Error("Part 4 5.7.3: each ActivateSession brings a new nonce")
				}
				want(t, "again", c.activate(ch, l), ua.StatusOK)
				want(t, "CloseSession", st.Close(ch, c.token, true), ua.StatusOK)
			})
		}
	}
	nothingLeft(t, st)
}

// On an endpoint without security each protection that is announced works.
func TestNoneEndpointProtectsPasswordsWithEachPolicy(t *testing.T) {
	st := newStore(t, secureOptions(t))
	ch := noneChannel()
	for _, tp := range TokenPolicies(security.None, ch.mode, []ua.UserTokenType{ua.UserTokenTypeUserName}) {
		p := security.PolicyByURI(tp.SecurityPolicyURI)
		c := create(t, st, ch)
		secret, err := p.EncryptSecret(&serverParty().key.PublicKey, []byte("pw"), c.nonce)
		if err != nil {
			t.Fatal(err)
		}
		rq := &ua.ActivateSessionRequest{UserIdentityToken: ua.NewExtensionObject(&ua.UserNameIdentityToken{
			PolicyID: tp.PolicyID, UserName: "bob", Password: secret, EncryptionAlgorithm: p.EncryptionURI()})}
		want(t, tp.PolicyID, c.send(ch, rq), ua.StatusOK)
	}
}

func TestActivateChecksTheApplicationSignature(t *testing.T) {
	st := newStore(t, secureOptions(t))
	ch := secureChannel()
	c := create(t, st, ch)
	stale := c.nonce
	want(t, "first", c.activate(ch, anonymous), ua.StatusOK)
	for name, change := range map[string]func(*ua.ActivateSessionRequest){
		"missing":           func(r *ua.ActivateSessionRequest) { r.ClientSignature = nil },
		"empty":             func(r *ua.ActivateSessionRequest) { r.ClientSignature.Signature = nil },
		"one bit":           func(r *ua.ActivateSessionRequest) { r.ClientSignature.Signature[9] ^= 1 },
		"huge":              func(r *ua.ActivateSessionRequest) { r.ClientSignature.Signature = make([]byte, 1<<20) },
		"another algorithm": func(r *ua.ActivateSessionRequest) { r.ClientSignature.Algorithm = security.Basic256.SignatureURI() },
		"another's key": func(r *ua.ActivateSessionRequest) {
			r.ClientSignature = otherParty().sign(t, ch.policy, serverParty().cert, c.nonce)
		},
		"used nonce": func(r *ua.ActivateSessionRequest) {
			r.ClientSignature = clientParty().sign(t, ch.policy, serverParty().cert, stale)
		},
	} {
		rq := c.request(ch, anonymous)
		change(rq)
		want(t, name, c.send(ch, rq), ua.StatusBadApplicationSignatureInvalid)
		want(t, name+": the session lives on", c.lookup(ch), ua.StatusOK)
	}
	want(t, "a failure leaves the nonce in force", c.activate(ch, anonymous), ua.StatusOK)
}

// OPC 10000-4 §5.7.3: old clients sign over the server's whole chain.
func TestActivateAcceptsASignatureOverTheChain(t *testing.T) {
	o := secureOptions(t)
	gate := security.NewCryptoGate(1)
	defer gate.Close()
	p := serverParty()
	var err error
	if o.Key, err = security.NewKey([][]byte{p.cert, otherParty().cert}, p.key, p.key, gate); err != nil {
		t.Fatal(err)
	}
	st := newStore(t, o)
	ch := secureChannel()
	for name, cert := range map[string][]byte{"leaf": o.Key.Certificate(), "chain": o.Key.Chain()} {
		c := create(t, st, ch)
		rq := &ua.ActivateSessionRequest{ClientSignature: clientParty().sign(t, ch.policy, cert, c.nonce)}
		want(t, name, c.send(ch, rq), ua.StatusOK)
	}
}

func TestActivateChecksTheIdentityToken(t *testing.T) {
	o := secureOptions(t)
	o.Authenticator = allowAll{password: "right"}
	st := newStore(t, o)
	key := &serverParty().key.PublicKey
	user := func(change func(*client, *ua.UserNameIdentityToken)) login {
		return func(c *client, ch *fakeChannel, rq *ua.ActivateSessionRequest) {
			asUser("alice", "right")(c, ch, rq)
			change(c, rq.UserIdentityToken.Value.(*ua.UserNameIdentityToken))
		}
	}
	cert := func(change func(*client, *ua.X509IdentityToken, *ua.ActivateSessionRequest)) login {
		return func(c *client, ch *fakeChannel, rq *ua.ActivateSessionRequest) {
			asCertificate(userParty())(c, ch, rq)
			change(c, rq.UserIdentityToken.Value.(*ua.X509IdentityToken), rq)
		}
	}
	token := func(v any) login {
		return func(_ *client, _ *fakeChannel, rq *ua.ActivateSessionRequest) {
			rq.UserIdentityToken = ua.NewExtensionObject(v)
		}
	}
	for _, tc := range []struct {
		name string
		l    login
		want ua.StatusCode
	}{
		{"user", user(func(*client, *ua.UserNameIdentityToken) {}), ua.StatusOK},
		{"user, wrong password", asUser("alice", "wrong"), ua.StatusBadUserAccessDenied},
		{"user, empty password", asUser("alice", ""), ua.StatusBadIdentityTokenRejected},
		{"user, no name", asUser("", "right"), ua.StatusBadIdentityTokenInvalid},
		{"user, name too long", asUser(strings.Repeat("x", 257), "right"), ua.StatusBadIdentityTokenInvalid},
		{"user, password too long", asUser("alice", strings.Repeat("x", 513)), ua.StatusBadIdentityTokenRejected},
		{"user, ciphertext of 16 blocks", user(func(_ *client, k *ua.UserNameIdentityToken) { k.Password = make([]byte, 16*256) }), ua.StatusBadIdentityTokenInvalid},
		{"user, no ciphertext", user(func(_ *client, k *ua.UserNameIdentityToken) { k.Password = nil }), ua.StatusBadIdentityTokenInvalid},
		{"user, ciphertext broken", user(func(_ *client, k *ua.UserNameIdentityToken) { k.Password[3] ^= 1 }), ua.StatusBadIdentityTokenRejected},
		{"user, ciphertext cut", user(func(_ *client, k *ua.UserNameIdentityToken) { k.Password = k.Password[:100] }), ua.StatusBadIdentityTokenRejected},
		{"user, nonce of another session", user(func(_ *client, k *ua.UserNameIdentityToken) {
			k.Password, _ = security.Basic256Sha256.EncryptSecret(key, []byte("right"), security.Nonce(32))
		}), ua.StatusBadIdentityTokenRejected},
		{"user, not encrypted", user(func(_ *client, k *ua.UserNameIdentityToken) {
			k.Password, k.EncryptionAlgorithm = []byte("right"), ""
		}), ua.StatusBadIdentityTokenRejected},
		{"user, another algorithm", user(func(_ *client, k *ua.UserNameIdentityToken) {
			k.EncryptionAlgorithm = security.Basic128Rsa15.EncryptionURI()
		}), ua.StatusBadIdentityTokenInvalid},
		{"user, unknown policyId", user(func(_ *client, k *ua.UserNameIdentityToken) { k.PolicyID = "x" }), ua.StatusBadIdentityTokenInvalid},
		{"user, policyId empty", user(func(_ *client, k *ua.UserNameIdentityToken) { k.PolicyID = "" }), ua.StatusBadIdentityTokenInvalid},
		{"user, policyId of another kind", user(func(_ *client, k *ua.UserNameIdentityToken) { k.PolicyID = "certificate-Basic256Sha256" }), ua.StatusBadIdentityTokenInvalid},
		{"certificate", cert(func(*client, *ua.X509IdentityToken, *ua.ActivateSessionRequest) {}), ua.StatusOK},
		{"certificate, no signature", cert(func(_ *client, _ *ua.X509IdentityToken, r *ua.ActivateSessionRequest) { r.UserTokenSignature = nil }), ua.StatusBadUserSignatureInvalid},
		{"certificate, broken signature", cert(func(_ *client, _ *ua.X509IdentityToken, r *ua.ActivateSessionRequest) {
			r.UserTokenSignature.Signature[0] ^= 1
		}), ua.StatusBadUserSignatureInvalid},
		{"certificate, another algorithm", cert(func(_ *client, _ *ua.X509IdentityToken, r *ua.ActivateSessionRequest) {
			r.UserTokenSignature.Algorithm = security.Aes256Sha256RsaPss.SignatureURI()
		}), ua.StatusBadUserSignatureInvalid},
		{"certificate, another's signature", cert(func(c *client, _ *ua.X509IdentityToken, r *ua.ActivateSessionRequest) {
			r.UserTokenSignature = otherParty().sign(t, security.Basic256Sha256, serverParty().cert, c.nonce)
		}), ua.StatusBadUserSignatureInvalid},
		{"certificate, junk", cert(func(_ *client, k *ua.X509IdentityToken, _ *ua.ActivateSessionRequest) {
			k.CertificateData = []byte("junk")
		}), ua.StatusBadIdentityTokenInvalid},
		{"certificate, empty", cert(func(_ *client, k *ua.X509IdentityToken, _ *ua.ActivateSessionRequest) { k.CertificateData = nil }), ua.StatusBadIdentityTokenInvalid},
		{"certificate, huge", cert(func(_ *client, k *ua.X509IdentityToken, _ *ua.ActivateSessionRequest) {
			k.CertificateData = make([]byte, 1<<20)
		}), ua.StatusBadIdentityTokenInvalid},
		{"anonymous, null token", anonymous, ua.StatusOK},
		{"anonymous, its policyId", token(&ua.AnonymousIdentityToken{PolicyID: "anonymous"}), ua.StatusOK},
		{"anonymous, unknown policyId", token(&ua.AnonymousIdentityToken{PolicyID: "x"}), ua.StatusBadIdentityTokenInvalid},
		{"issued, not offered", token(&ua.IssuedIdentityToken{PolicyID: "issued"}), ua.StatusBadIdentityTokenInvalid},
		{"some other structure", token(&ua.ReadRequest{}), ua.StatusBadIdentityTokenInvalid},
		{"body left out", func(_ *client, _ *fakeChannel, rq *ua.ActivateSessionRequest) {
			rq.UserIdentityToken = &ua.ExtensionObject{TypeID: ua.NewFourByteExpandedNodeID(0, 324)}
		}, ua.StatusBadIdentityTokenInvalid},
		{"null extension object", func(_ *client, _ *fakeChannel, rq *ua.ActivateSessionRequest) {
			rq.UserIdentityToken = &ua.ExtensionObject{TypeID: ua.NewTwoByteExpandedNodeID(0)}
		}, ua.StatusOK},
	} {
		for _, ch := range []*fakeChannel{noneChannel(), secureChannel()} {
			t.Run("Part 4 7.40 "+tc.name+"/"+ch.policy.Name, func(t *testing.T) {
				c := create(t, st, ch)
				c.t = t
				want(t, "ActivateSession", c.activate(ch, tc.l), tc.want)
				if tc.want != ua.StatusOK {
					if s := c.session(); s == nil || s.Activated() || !s.Caller().Anonymous || s.Identity() != nil {
						t.Error("a failed ActivateSession changed the session")
					}
				}
			})
		}
	}
}

// A token policy that names no security, on an endpoint without, is a
// configuration that must not leak passwords.
func TestPasswordIsNeverTakenInTheClear(t *testing.T) {
	o := secureOptions(t)
	o.Endpoints = func(ch Channel, _ string) []*ua.EndpointDescription {
		return []*ua.EndpointDescription{{SecurityMode: ch.SecurityMode(), SecurityPolicyURI: ch.SecurityPolicy().URI,
			UserIdentityTokens: []*ua.UserTokenPolicy{{PolicyID: "u", TokenType: ua.UserTokenTypeUserName},
				{PolicyID: "n", TokenType: ua.UserTokenTypeUserName, SecurityPolicyURI: security.None.URI},
				{PolicyID: "c", TokenType: ua.UserTokenTypeCertificate},
				{PolicyID: "i", TokenType: ua.UserTokenTypeIssuedToken}}}}
	}
	st := newStore(t, o)
	ch := noneChannel()
	c := create(t, st, ch)
	for _, id := range []string{"u", "n"} {
		rq := &ua.ActivateSessionRequest{UserIdentityToken: ua.NewExtensionObject(
			&ua.UserNameIdentityToken{PolicyID: id, UserName: "bob", Password: []byte("pw")})}
		want(t, id, c.send(ch, rq), ua.StatusBadIdentityTokenRejected)
	}
	rq := &ua.ActivateSessionRequest{
		UserIdentityToken:  ua.NewExtensionObject(&ua.X509IdentityToken{PolicyID: "c", CertificateData: userParty().cert}),
		UserTokenSignature: &ua.SignatureData{Signature: []byte("anything")},
	}
	want(t, "a certificate without a policy to sign with", c.send(ch, rq), ua.StatusBadIdentityTokenRejected)
	rq = &ua.ActivateSessionRequest{UserIdentityToken: ua.NewExtensionObject(&ua.IssuedIdentityToken{PolicyID: "i"})}
	want(t, "issued tokens are refused", c.send(ch, rq), ua.StatusBadIdentityTokenRejected)
	want(t, "anonymous is not offered", c.activate(ch, anonymous), ua.StatusBadIdentityTokenRejected)
}

func TestUntrustedUserCertificate(t *testing.T) {
	o := secureOptions(t)
	out := &logBuffer{}
	o.Logger = out.logger(slog.LevelWarn)
	asked := 0
	ch := secureChannel()
	o.ValidateUserCertificate = func(_ context.Context, on Channel, chain []byte, p *security.Policy) error {
		asked++
		if on != ch {
			t.Error("told of another channel")
		}
		if !bytes.Equal(chain, userParty().cert) || p != security.Basic256Sha256 {
			t.Error("validated something else")
		}
		return uastatus.New(ua.StatusBadCertificateUntrusted, "test", nil)
	}
	st := newStore(t, o)
	c := create(t, st, ch)
	want(t, "untrusted", c.activate(ch, asCertificate(userParty())), ua.StatusBadIdentityTokenRejected)
	for _, part := range []string{"session refused", "code=BadIdentityTokenRejected", fmt.Sprintf("channel=%d ", ch.ID()), "remote=" + ch.RemoteAddr().String()} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%s is missing in %s", part, out)
		}
	}
	rq := c.request(ch, asCertificate(userParty()))
	rq.UserTokenSignature = nil
	want(t, "unsigned", c.send(ch, rq), ua.StatusBadUserSignatureInvalid)
	if asked != 1 {
		t.Error("a certificate nobody proved to own was looked up")
	}
	o.ValidateUserCertificate = nil
	st = newStore(t, o)
	c = create(t, st, ch)
	want(t, "no validation", c.activate(ch, asCertificate(userParty())), ua.StatusBadIdentityTokenRejected)
}

// OPC 10000-4 §5.7.3: on its own channel a session may change its user.
func TestActivateChangesTheUserOnTheSameChannel(t *testing.T) {
	st := newStore(t, secureOptions(t))
	ch := secureChannel()
	c := create(t, st, ch)
	want(t, "anonymous", c.activate(ch, anonymous), ua.StatusOK)
	before := c.session().Caller()
	want(t, "user", c.activate(ch, asUser("bob", "x")), ua.StatusOK)
	if after := c.session().Caller(); after.User != "bob" || !before.Anonymous {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func TestActivateLocales(t *testing.T) {
	st := newStore(t, Options{})
	ch := noneChannel()
	c := create(t, st, ch)
	set := func(locales ...string) []string {
		want(t, "ActivateSession", c.send(ch, &ua.ActivateSessionRequest{LocaleIDs: locales}), ua.StatusOK)
		return c.session().LocaleIDs()
	}
	if got := set("de", "en"); !slices.Equal(got, []string{"de", "en"}) {
		t.Error(got)
	}
	if got := set(); !slices.Equal(got, []string{"de", "en"}) {
		t.Error("Part 4 5.7.3: an empty list keeps the locales:", got)
	}
	if got := set(slices.Repeat([]string{"fr", strings.Repeat("x", 100)}, 1000)...); len(got) != maxLocales || got[1] != "fr" {
		t.Error("locales are not bounded:", len(got))
	}
}

func TestFirstActivationOnAnotherChannel(t *testing.T) {
	st := newStore(t, secureOptions(t))
	a, b := secureChannel(), secureChannel()
	c := create(t, st, a)
	want(t, "Part 4 5.7.3 first activation elsewhere", c.activate(b, anonymous), ua.StatusBadSessionIDInvalid)
	want(t, "still works where it was created", c.activate(a, anonymous), ua.StatusOK)
}

// Rules of a move to another channel; none of the failures disturbs the session
// on its old channel.
func TestMoveToAnotherChannel(t *testing.T) {
	sign, both := ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt
	b256, pss := security.Basic256Sha256, security.Aes256Sha256RsaPss
	for _, tc := range []struct {
		name     string
		from, to *fakeChannel
		fromGone bool
		was, is  login
		want     ua.StatusCode
	}{
		{"same everything", secureChannel(), secureChannel(), false, anonymous, anonymous, ua.StatusOK},
		{"old channel gone", secureChannel(), secureChannel(), true, anonymous, anonymous, ua.StatusOK},
		{"another address", secureChannel(), secureChannel().from("198.51.100.9:1"), false, anonymous, anonymous, ua.StatusOK},
		{"another application", secureChannel(), newChannel(b256, both, otherParty()), true, anonymous, anonymous, ua.StatusBadSecurityChecksFailed},
		{"to None", secureChannel(), noneChannel(), true, anonymous, anonymous, ua.StatusBadSecurityChecksFailed},
		{"from None", noneChannel(), secureChannel(), true, anonymous, anonymous, ua.StatusBadSecurityChecksFailed},
		{"weaker mode", secureChannel(), newChannel(b256, sign, clientParty()), true, anonymous, anonymous, ua.StatusBadSecurityModeInsufficient},
		{"weaker policy", newChannel(pss, both, clientParty()), secureChannel(), true, anonymous, anonymous, ua.StatusBadSecurityModeInsufficient},
		{"stronger mode", newChannel(b256, sign, clientParty()), secureChannel(), false, anonymous, anonymous, ua.StatusOK},
		{"stronger policy", secureChannel(), newChannel(pss, both, clientParty()), false, asUser("bob", "x"), asUser("bob", "x"), ua.StatusOK},
		{"same user", secureChannel(), secureChannel(), false, asUser("bob", "x"), asUser("bob", "x"), ua.StatusOK},
		{"another user", secureChannel(), secureChannel(), true, asUser("bob", "x"), asUser("eve", "x"), ua.StatusBadIdentityChangeNotSupported},
		{"user becomes anonymous", secureChannel(), secureChannel(), true, asUser("bob", "x"), anonymous, ua.StatusBadIdentityChangeNotSupported},
		{"anonymous becomes user", secureChannel(), secureChannel(), true, anonymous, asUser("bob", "x"), ua.StatusBadIdentityChangeNotSupported},
		{"same certificate", secureChannel(), secureChannel(), false, asCertificate(userParty()), asCertificate(userParty()), ua.StatusOK},
		{"another certificate", secureChannel(), secureChannel(), true, asCertificate(userParty()), asCertificate(otherParty()), ua.StatusBadIdentityChangeNotSupported},
		{"None, same user", noneChannel(), noneChannel().from("198.51.100.9:1"), false, asUser("bob", "x"), asUser("bob", "x"), ua.StatusOK},
		{"None, anonymous, old channel gone", noneChannel(), noneChannel().from("192.0.2.7:1234"), true, anonymous, anonymous, ua.StatusOK},
		{"None, anonymous, same address IPv4-mapped", noneChannel(), noneChannel().from("[::ffff:192.0.2.7]:1234"), true, anonymous, anonymous, ua.StatusOK},
		{"None, anonymous, old channel alive", noneChannel(), noneChannel(), false, anonymous, anonymous, ua.StatusBadSessionIDInvalid},
		{"None, anonymous, another address", noneChannel(), noneChannel().from("192.0.2.8:1234"), true, anonymous, anonymous, ua.StatusBadSessionIDInvalid},
		{"None, anonymous becomes user on a living channel", noneChannel(), noneChannel(), false, anonymous, asUser("bob", "x"), ua.StatusBadSessionIDInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := secureOptions(t)
			var left Channel
			moves := 0
			o.OnActivate = func(_ *Session, from Channel, first bool) {
				if !first {
					left = from
					moves++
				}
			}
			st := newStore(t, o)
			c := create(t, st, tc.from)
			want(t, "first", c.activate(tc.from, tc.was), ua.StatusOK)
			want(t, "not on the new channel yet", c.lookup(tc.to), ua.StatusBadSessionIDInvalid)
			caller, nonce := c.session().Caller(), c.nonce
			if tc.fromGone {
				tc.from.closeIn(st)
			}
			want(t, "move", c.activate(tc.to, tc.is), tc.want)
			if tc.want == ua.StatusOK {
				want(t, "new channel", c.lookup(tc.to), ua.StatusOK)
				want(t, "old channel is refused", c.lookup(tc.from), ua.StatusBadSessionIDInvalid)
				want(t, "also for CloseSession", st.Close(tc.from, c.token, true), ua.StatusBadSessionIDInvalid)
				want(t, "and for ActivateSession, once weaker", c.activate(tc.to, tc.is), ua.StatusOK)
				if tc.from.attached.Load() != 0 || tc.to.attached.Load() != 1 {
					t.Error("channels count wrong", tc.from.attached.Load(), tc.to.attached.Load())
				}
				if !tc.fromGone && left == Channel(tc.to) || moves != 2 {
					t.Errorf("OnActivate: left %v after %d calls", left, moves)
				}
				return
			}
			s := c.session()
			if s == nil || s.Caller() != caller || tc.to.attached.Load() != 0 {
				t.Fatal("a failed move changed the session")
			}
			want(t, "not on the new channel", c.lookup(tc.to), ua.StatusBadSessionIDInvalid)
			if !tc.fromGone {
				want(t, "old channel", c.lookup(tc.from), ua.StatusOK)
				c.nonce = nonce
				want(t, "the old nonce is still the one", c.activate(tc.from, tc.was), ua.StatusOK)
			}
		})
	}
}

// The strength a session has reached is what the next move is compared with.
func TestMoveIsARatchet(t *testing.T) {
	st := newStore(t, secureOptions(t))
	weak := newChannel(security.Basic256Sha256, ua.MessageSecurityModeSign, clientParty())
	strong := newChannel(security.Aes256Sha256RsaPss, ua.MessageSecurityModeSignAndEncrypt, clientParty())
	c := create(t, st, weak)
	want(t, "first", c.activate(weak, anonymous), ua.StatusOK)
	want(t, "stronger", c.activate(strong, anonymous), ua.StatusOK)
	want(t, "back", c.activate(weak, anonymous), ua.StatusBadSecurityModeInsufficient)
}

// A channel that ends while its session is being activated gets no session.
func TestChannelEndsDuringActivation(t *testing.T) {
	o := Options{}
	ch := noneChannel()
	var st *Store
	closing := false
	o.Gate = func(context.Context, Channel) (func(), ua.StatusCode) {
		if closing {
			ch.closeIn(st)
		}
		return func() {}, ua.StatusOK
	}
	st = newStore(t, o)
	c := create(t, st, ch)
	closing = true
	want(t, "first activation", c.activate(ch, anonymous), ua.StatusBadSessionIDInvalid)
	nothingLeft(t, st)

	closing = false
	ch = noneChannel()
	c = create(t, st, ch)
	want(t, "first activation", c.activate(ch, anonymous), ua.StatusOK)
	closing = true
	want(t, "second", c.activate(ch, anonymous), ua.StatusBadSecureChannelClosed)
	if s := c.session(); s == nil || s.Channel() != nil {
		t.Error("the session should wait without a channel")
	}
}

// An Authenticator's own errors do not reach the wire.
func TestWireGetsFixedCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want ua.StatusCode
	}{
		{fmt.Errorf("database is down"), ua.StatusBadUserAccessDenied},
		{ua.StatusBadOutOfMemory, ua.StatusBadUserAccessDenied},
		{ua.StatusBadIdentityTokenRejected, ua.StatusBadIdentityTokenRejected},
		{uastatus.New(uastatus.BadServerTooBusy, "x", nil), uastatus.BadServerTooBusy},
		{nil, ua.StatusBadUserAccessDenied}, // neither identity nor error
	} {
		st := newStore(t, Options{Authenticator: failing{tc.err}})
		ch := noneChannel()
		want(t, fmt.Sprint(tc.err), create(t, st, ch).activate(ch, anonymous), tc.want)
	}
}

type failing struct{ err error }

func (failing) TokenTypes() []ua.UserTokenType {
	return []ua.UserTokenType{ua.UserTokenTypeAnonymous}
}
func (f failing) Authenticate(context.Context, *Attempt) (*Identity, error) { return nil, f.err }

func TestTokenPolicies(t *testing.T) {
	kinds := []ua.UserTokenType{ua.UserTokenTypeAnonymous, ua.UserTokenTypeUserName, ua.UserTokenTypeCertificate,
		ua.UserTokenTypeIssuedToken, ua.UserTokenTypeUserName}
	for _, p := range security.Policies() {
		seen := map[string]bool{}
		users := 0
		for _, tp := range TokenPolicies(p, 0, kinds) {
			if seen[tp.PolicyID] {
				t.Errorf("%s: policyId %q twice", p, tp.PolicyID)
			}
			seen[tp.PolicyID] = true
			if tp.TokenType == ua.UserTokenTypeIssuedToken {
				t.Error("issued tokens are offered")
			}
			if tp.TokenType == ua.UserTokenTypeAnonymous {
				continue
			}
			users++
			if sp := security.PolicyByURI(tp.SecurityPolicyURI); sp == nil || sp.IsNone() || p.IsNone() && sp.Deprecated() {
				t.Errorf("%s: %s is protected by %q", p, tp.PolicyID, tp.SecurityPolicyURI)
			}
		}
		if users == 0 {
			t.Errorf("%s offers no users", p)
		}
	}
}

func TestActivateUnknownToken(t *testing.T) {
	st := newStore(t, Options{})
	ch := noneChannel()
	for _, token := range []uabinary.NodeID{{}, uabinary.NumericID(0, 1), uabinary.StringID(1, "x"),
		{Type: uabinary.IDOpaque, Bytes: make([]byte, tokenLength)}} {
		_, code := st.Activate(context.Background(), ch, token, &ua.ActivateSessionRequest{})
		want(t, token.String(), code, ua.StatusBadSessionIDInvalid)
	}
}

func TestSameIdentity(t *testing.T) {
	cert := ua.UserTokenTypeCertificate
	id := Identity{Kind: cert, User: "CN=alice", Certificate: []byte{1}, Admin: true, Tenant: "a"}
	if !id.same(&Identity{Kind: cert, User: "CN=alice", Certificate: []byte{1}, Tenant: "b"}) {
		t.Error("rights and tenant are no part of who it is")
	}
	for _, other := range []Identity{
		{Kind: ua.UserTokenTypeUserName, User: "CN=alice", Certificate: []byte{1}},
		{Kind: cert, User: "CN=bob", Certificate: []byte{1}},
		{Kind: cert, User: "CN=alice", Certificate: []byte{2}}, // a namesake's certificate
	} {
		if id.same(&other) {
			t.Errorf("%+v is the same as %+v", other, id)
		}
	}
}
