package session

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gopcua/opcua/ua"
	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// Create is the CreateSession service (OPC 10000-4 §5.7.2 CreateSession). The
// response's header is the caller's to fill in.
//
// BadNonceInvalid: under a policy other than None the client nonce is not 32 to
// 128 bytes. BadCertificateInvalid: the client certificate is not the channel's.
// BadCertificateUriInvalid: it does not carry the client's ApplicationUri.
// BadServerUriInvalid: the client wants another server. BadServerTooBusy: the
// Gate refused. BadTooManySessions: no place, and none that could be taken from
// a never-activated session. BadSecureChannelClosed: the channel went away.
func (st *Store) Create(ctx context.Context, ch Channel, rq *ua.CreateSessionRequest) (*ua.CreateSessionResponse, ua.StatusCode) {
	rs, s, err := st.create(ctx, ch, rq)
	if err != nil {
		return nil, st.refused(ch, "CreateSession", s, err)
	}
	st.summary.cumulated.Add(1)
	st.auditCreated(ch, s)
	return rs, ua.StatusOK
}

func (st *Store) create(ctx context.Context, ch Channel, rq *ua.CreateSessionRequest) (*ua.CreateSessionResponse, *Session, error) {
	policy := ch.SecurityPolicy()
	endpoints, own := st.endpoints(ch, rq.EndpointURL)
	if err := st.checkCreate(ch, rq, own); err != nil {
		return nil, nil, err
	}
	release, code := st.opts.Gate(ctx, ch)
	if code != ua.StatusOK {
		return nil, nil, uastatus.New(code, "establishment gate", nil)
	}
	defer release()
	if i, ok := ch.(Introduced); ok && !policy.IsNone() {
		if err := i.TakeCertificate(ctx, rq.ClientCertificate); err != nil {
			return nil, nil, uastatus.New(uastatus.Code(err), "client certificate", err)
		}
	}
	// The certificate is parsed behind the gate: cheap beside a signature, but not free.
	if err := checkApplicationURI(ch, rq.ClientDescription); err != nil {
		return nil, nil, err
	}

	s := st.newSession(ch, rq)
	if err := st.place(s, ch); err != nil {
		return nil, s, err
	}
	signature, err := st.serverSignature(ctx, policy, ch.PeerCertificate(), rq.ClientNonce)
	if err != nil {
		st.end(s, ClosedCreateFailed, false)
		return nil, s, err
	}
	// The client has its 30 s from now, however long the signature waited.
	st.mu.Lock()
	alive := s.state.Load() != stateClosed
	if alive {
		st.setDueLocked(s, st.since(time.Now())+int64(st.opts.ActivationTimeout))
	}
	nonce := bytes.Clone(s.nonce[:])
	st.mu.Unlock()
	if !alive {
		code := ua.StatusBadTooManySessions
		if s.Reason() != ClosedEvicted {
			code = ua.StatusBadSecureChannelClosed
		}
		return nil, s, uastatus.New(code, "session ended while it was created: "+s.Reason().String(), nil)
	}

	if k, ok := ch.(interface{ KeepUntil(time.Time) }); ok {
		k.KeepUntil(time.Now().Add(keepAfterCreate))
	}
	rs := &ua.CreateSessionResponse{
		SessionID:                  s.id.UA(),
		AuthenticationToken:        uabinary.NodeID{Type: uabinary.IDOpaque, Bytes: s.token[:]}.UA(),
		RevisedSessionTimeout:      milliseconds(s.timeout),
		ServerNonce:                nonce,
		ServerCertificate:          st.serverCertificate(own),
		ServerEndpoints:            endpoints,
		ServerSoftwareCertificates: []*ua.SignedSoftwareCertificate{},
		ServerSignature:            signature,
		MaxRequestMessageSize:      st.opts.MaxRequestMessageSize,
	}
	return rs, s, nil
}

// endpoints returns what the client may see and, of that, the endpoint it uses;
// nil when there is none.
func (st *Store) endpoints(ch Channel, url string) (all []*ua.EndpointDescription, own *ua.EndpointDescription) {
	if st.opts.Endpoints == nil {
		return nil, nil
	}
	all = st.opts.Endpoints(ch, url)
	for _, e := range all {
		if e.SecurityMode == ch.SecurityMode() && e.SecurityPolicyURI == ch.SecurityPolicy().URI {
			return all, e
		}
	}
	return all, nil
}

// checkCreate makes the checks that need no cryptography.
func (st *Store) checkCreate(ch Channel, rq *ua.CreateSessionRequest, own *ua.EndpointDescription) error {
	if st.opts.Endpoints != nil && own == nil {
		return uastatus.New(ua.StatusBadSecurityPolicyRejected, "no endpoint with the channel's policy and mode", nil)
	}
	if uri := st.applicationURI(own); rq.ServerURI != "" && uri != "" && rq.ServerURI != uri {
		return uastatus.New(ua.StatusBadServerURIInvalid, "serverUri", nil)
	}
	if ch.SecurityPolicy().IsNone() {
		return nil // certificate, nonce and ApplicationUri are ignored
	}
	if n := len(rq.ClientNonce); n < nonceLength || n > maxClientNonce {
		return uastatus.New(ua.StatusBadNonceInvalid, "client nonce of "+strconv.Itoa(n)+" bytes", nil)
	}
	if _, ok := ch.(Introduced); ok {
		return nil // the channel knows no certificate yet
	}
	// The leaf comes first when the client sends its chain. DER delimits itself,
	// so a prefix is the whole leaf.
	if leaf := ch.PeerCertificate(); len(leaf) == 0 || !bytes.HasPrefix(rq.ClientCertificate, leaf) {
		return uastatus.New(ua.StatusBadCertificateInvalid, "client certificate is not the channel's", nil)
	}
	return nil
}

func (st *Store) applicationURI(own *ua.EndpointDescription) string {
	if st.opts.ApplicationURI == "" && own != nil && own.Server != nil {
		return own.Server.ApplicationURI
	}
	return st.opts.ApplicationURI
}

var (
	errURIMismatch = errors.New("certificate does not carry the client's ApplicationUri")
	oidSubjectAlt  = asn1.ObjectIdentifier{2, 5, 29, 17}
)

// checkApplicationURI compares ClientDescription.applicationUri with the URIs of
// the certificate (OPC 10000-4 §5.7.2 CreateSession).
func checkApplicationURI(ch Channel, client *ua.ApplicationDescription) error {
	if ch.SecurityPolicy().IsNone() {
		return nil
	}
	cert, err := x509.ParseCertificate(ch.PeerCertificate())
	if err != nil {
		return uastatus.New(ua.StatusBadCertificateInvalid, "parse client certificate", err)
	}
	if client != nil && client.ApplicationURI != "" && carriesURI(cert, client.ApplicationURI) {
		return nil
	}
	return uastatus.New(ua.StatusBadCertificateURIInvalid, "create session", errURIMismatch)
}

// carriesURI looks for uri in the certificate's subjectAltName as it stands
// there: url.URL would rewrite URNs with unusual characters.
func carriesURI(cert *x509.Certificate, uri string) bool {
	const tagURI = cryptobyteasn1.Tag(6) | 0x80 // [6] IMPLICIT IA5String
	for _, ext := range cert.Extensions {
		if !ext.Id.Equal(oidSubjectAlt) {
			continue
		}
		in := cryptobyte.String(ext.Value)
		var names cryptobyte.String
		if !in.ReadASN1(&names, cryptobyteasn1.SEQUENCE) {
			return false
		}
		for !names.Empty() {
			var name cryptobyte.String
			var tag cryptobyteasn1.Tag
			if !names.ReadAnyASN1(&name, &tag) {
				return false
			}
			if tag == tagURI && string(name) == uri {
				return true
			}
		}
	}
	return false
}

// newSession makes a session that is in no structure yet.
func (st *Store) newSession(ch Channel, rq *ua.CreateSessionRequest) *Session {
	var random [secretLength + nonceLength + 16]byte
	rand.Read(random[:]) // crypto/rand: never fails, never short
	s := &Session{
		store:     st,
		endpoint:  truncate(rq.EndpointURL, maxURILength),
		server:    truncate(rq.ServerURI, maxURILength),
		client:    describe(rq.ClientDescription),
		timeout:   st.revise(rq.RequestedSessionTimeout),
		maxReply:  rq.MaxResponseMessageSize,
		owner:     st.opts.Owner(ch),
		created:   time.Now(),
		done:      make(chan struct{}),
		heapIndex: -1,
	}
	copy(s.token[placeLength:], random[:])
	copy(s.nonce[:], random[secretLength:])
	guid := random[secretLength+nonceLength:]
	guid[7] = guid[7]&0x0F | 0x40 // version 4: Data3's high byte, little-endian on the wire
	guid[8] = guid[8]&0x3F | 0x80
	s.id = uabinary.NodeID{Namespace: 1, Type: uabinary.IDGUID, Bytes: bytes.Clone(guid)}
	if s.name = truncate(rq.SessionName, maxNameLength); s.name == "" {
		s.name = "Session " + s.id.String()
	}
	s.bindFacts(ch)
	s.application, s.chain = applicationOf(ch), chainOf(ch)
	s.lastContact.Store(st.since(s.created))
	s.caller.Store(&addressspace.Caller{SessionID: s.id, Anonymous: true})
	return s
}

// bindFacts notes what a later channel is compared with.
func (s *Session) bindFacts(ch Channel) {
	s.policy, s.mode, s.remote = ch.SecurityPolicy(), ch.SecurityMode(), ch.RemoteAddr().Addr().Unmap()
}

// place gives s its place in the table, evicting where the rules of overload.md
// §5 allow it.
func (st *Store) place(s *Session, ch Channel) error {
	now := st.since(time.Now())
	var evicted [2]*Session
	err := func() error {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.stopped {
			return uastatus.New(ua.StatusBadServerHalted, "server stops", nil)
		}
		if ended(ch) {
			return uastatus.New(ua.StatusBadSecureChannelClosed, "channel gone", nil)
		}
		if at := st.channels[ch]; at != nil && at.inactive >= st.opts.MaxInactivePerChannel {
			if evicted[0] = st.evictFromLocked(at, now); evicted[0] == nil {
				return uastatus.New(ua.StatusBadTooManySessions, "too many never-activated sessions on one channel", nil)
			}
		}
		if st.live >= st.opts.MaxSessions {
			before := st.provisional
			switch evicted[1] = st.evictLocked(now); {
			case evicted[1] != nil && st.provisional == before:
			case evicted[1] != nil || st.promisedLocked(now): // the place it takes was a promise itself
				s.provisional = true
				st.provisional++
			default:
				return uastatus.New(ua.StatusBadTooManySessions, "session table full", nil)
			}
		}
		st.live++
		st.table.add(s)
		st.attachLocked(s, ch)
		st.joinQueueLocked(s)
		st.setDueLocked(s, now+int64(st.opts.ActivationTimeout))
		return nil
	}()
	for _, v := range evicted {
		if v != nil {
			st.finish(v, false)
		}
	}
	return err
}

// revise clamps the requested timeout, which is in milliseconds. What is no
// number, or none above zero, gets the minimum.
func (st *Store) revise(requested float64) time.Duration {
	st.mu.Lock()
	least, most := st.opts.MinTimeout, st.opts.MaxTimeout
	st.mu.Unlock()
	switch {
	case math.IsNaN(requested) || requested <= milliseconds(least):
		return least
	case requested >= milliseconds(most):
		return most
	}
	return time.Duration(requested * float64(time.Millisecond))
}

// serverSignature proves possession of the server's key: a signature over the
// client's leaf certificate and nonce.
func (st *Store) serverSignature(ctx context.Context, policy *security.Policy, certificate, nonce []byte) (*ua.SignatureData, error) {
	if policy.IsNone() {
		return &ua.SignatureData{}, nil
	}
	if st.opts.Key == nil {
		return nil, uastatus.New(ua.StatusBadInternalError, "no server key for a secured channel", nil)
	}
	data := make([]byte, 0, len(certificate)+len(nonce))
	data = append(append(data, certificate...), nonce...)
	sig, err := policy.Sign(ctx, st.opts.Key, security.PrioritySession.Preferred(st.opts.Preference(ctx)), data)
	if err != nil {
		return nil, uastatus.New(uastatus.Code(err), "sign for the client", err)
	}
	return &ua.SignatureData{Algorithm: policy.SignatureURI(), Signature: sig}, nil
}

// serverCertificate is what the endpoint announces, because clients compare.
// Under None it lets clients encrypt passwords.
func (st *Store) serverCertificate(own *ua.EndpointDescription) []byte {
	if own != nil && len(own.ServerCertificate) > 0 {
		return own.ServerCertificate
	}
	if st.opts.Key != nil {
		return st.opts.Key.Certificate()
	}
	return nil
}

// describe copies what is kept of a ClientDescription, bounded: a thousand
// sessions must not hold a thousand messages.
func describe(d *ua.ApplicationDescription) *ua.ApplicationDescription {
	if d == nil {
		return &ua.ApplicationDescription{ApplicationName: &ua.LocalizedText{}}
	}
	c := &ua.ApplicationDescription{
		ApplicationURI:      truncate(d.ApplicationURI, maxURILength),
		ProductURI:          truncate(d.ProductURI, maxURILength),
		ApplicationName:     &ua.LocalizedText{},
		ApplicationType:     d.ApplicationType,
		GatewayServerURI:    truncate(d.GatewayServerURI, maxURILength),
		DiscoveryProfileURI: truncate(d.DiscoveryProfileURI, maxURILength),
	}
	if n := d.ApplicationName; n != nil {
		c.ApplicationName.EncodingMask = n.EncodingMask
		c.ApplicationName.Locale = truncate(n.Locale, maxLocaleLength)
		c.ApplicationName.Text = truncate(n.Text, maxNameLength)
	}
	for _, u := range d.DiscoveryURLs[:min(len(d.DiscoveryURLs), maxDiscoveryURLs)] {
		c.DiscoveryURLs = append(c.DiscoveryURLs, truncate(u, maxURILength))
	}
	return c
}

// truncate copies at most n bytes of s, without splitting a UTF-8 sequence. It
// copies because decoded strings may alias a whole message.
func truncate(s string, n int) string {
	if len(s) > n {
		cut := n
		for cut > 0 && cut > n-4 && s[cut]&0xC0 == 0x80 {
			cut--
		}
		s = s[:cut]
	}
	return strings.Clone(s)
}
