package overloadtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"

	"github.com/breakwater-ua/breakwater/client"
	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/gopcua/opcua/ua"
)

// callTimeout bounds one step of a client: the handshake, or one call.
const callTimeout = 30 * time.Second

// sessionTimeout is what sessions ask for: longer than any run.
const sessionTimeout = 10 * time.Minute

// address is where clients connect to, by a URL of any scheme that package client
// knows.
type address struct {
	URL         string            // opc.tcp, unless via chose another
	URLs        map[string]string // by scheme
	Certificate []byte            // of the server; nil: policy None
	Namespace   uint16
}

// via is the address by the i-th of some schemes, in turn; without any as it is.
func (a address) via(schemes []string, i int) address {
	if len(schemes) > 0 {
		a.URL = a.URLs[schemes[i%len(schemes)]]
	}
	return a
}

// newKeys makes n application certificates. They share one RSA key, which costs
// far less than n keys; to the server they are n applications.
func newKeys(n int, name string, gate *security.CryptoGate) ([]*security.Key, error) {
	priv, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	uri, err := url.Parse(probe.ApplicationURI)
	if err != nil {
		return nil, err
	}
	keys := make([]*security.Key, n)
	for i := range keys {
		tpl := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i) + 1), Subject: pkix.Name{CommonName: fmt.Sprintf("%s %d", name, i), Organization: []string{"Breakwater"}},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment | x509.KeyUsageKeyEncipherment |
				x509.KeyUsageDataEncipherment | x509.KeyUsageCertSign,
			ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			BasicConstraintsValid: true, URIs: []*url.URL{uri}, DNSNames: []string{"localhost"},
		}
		der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, priv.Public(), priv)
		if err != nil {
			return nil, err
		}
		if keys[i], err = security.NewKey([][]byte{der}, priv, priv, gate); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// source returns the i-th source address of a group of clients.
func source(group byte, i int) net.IP { return net.IPv4(127, group, byte(i>>8), byte(i)) }

// dialFrom connects from a source address.
func dialFrom(from net.IP) func(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, KeepAlive: -1}
	return func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
}

// A channel is a SecureChannel and the session on it, of a client that does one
// thing at a time and so needs no goroutine to read.
type channel struct {
	address
	c     client.Channel
	key   *security.Key
	token *ua.NodeID
	nonce []byte
	// anonymous is the endpoint's policy id for anonymous users.
	anonymous string
}

func openChannel(ctx context.Context, to address, key *security.Key, from net.IP) (*channel, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errNoAnswer)
	defer cancel()
	u, err := url.Parse(to.URL)
	if err != nil {
		return nil, err
	}
	cfg := client.ChannelConfig{URL: u, Policy: security.None, Mode: ua.MessageSecurityModeNone, Lifetime: time.Hour,
		TLS: client.TLSOptions{InsecureSkipVerify: true}} // a load test has no secrets
	if to.Certificate != nil {
		cfg.Policy, cfg.Mode = security.Basic256Sha256, ua.MessageSecurityModeSignAndEncrypt
		cfg.Key, cfg.ServerCertificate = key, to.Certificate
	}
	c, err := client.ByScheme{Dial: dialFrom(from)}.Open(ctx, cfg)
	if err != nil {
		return nil, inTime(ctx, err)
	}
	return &channel{address: to, c: c, key: key}, nil
}

var errNoAnswer = errors.New("overloadtest: no answer in time")

// inTime tells an error that the end of ctx has caused by that cause.
func inTime(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// until closes the channel when ctx ends; stop takes that back.
func (ch *channel) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = ch.c.Close() })
}

// close ends the channel; a session on it is left behind.
func (ch *channel) close() {
	_ = ch.c.Close()
	ch.c.Release()
}

// call sends a request and waits for its answer. A bad answer is an error with
// its code and hint.
func (ch *channel) call(ctx context.Context, rq ua.Request) (any, error) {
	rq.SetHeader(probe.Header(ch.token))
	body, err := probe.Encode(rq)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errNoAnswer)
	defer cancel()
	defer ch.until(ctx)()
	id := ch.c.NextRequestID()
	if err := ch.c.Send(id, body); err != nil {
		return nil, inTime(ctx, err)
	}
	for {
		got, body, err := ch.c.Receive()
		if err != nil {
			return nil, inTime(ctx, err)
		}
		if got != id {
			continue
		}
		msg, err := probe.Decode(bytes.Clone(body))
		if r, ok := msg.(ua.Response); ok && err != nil {
			err = reconnect.ResponseError(r.Header())
		}
		return msg, err
	}
}

// create creates the session.
func (ch *channel) create(ctx context.Context) error {
	rq := &ua.CreateSessionRequest{
		ClientDescription: &ua.ApplicationDescription{
			ApplicationURI: probe.ApplicationURI, ProductURI: probe.ApplicationURI,
			ApplicationName: ua.NewLocalizedText("overloadtest"), ApplicationType: ua.ApplicationTypeClient,
		},
		EndpointURL: ch.URL, SessionName: "overloadtest", ClientNonce: security.Nonce(32),
		RequestedSessionTimeout: float64(sessionTimeout.Milliseconds()),
	}
	policy := security.None
	if ch.Certificate != nil {
		policy, rq.ClientCertificate = security.Basic256Sha256, ch.key.Certificate()
	}
	msg, err := ch.call(ctx, rq)
	if err != nil {
		return err
	}
	rs, ok := msg.(*ua.CreateSessionResponse)
	if !ok {
		return fmt.Errorf("CreateSession: got %T", msg)
	}
	if ch.Certificate != nil {
		if rs.ServerSignature == nil {
			return errors.New("CreateSession without a server signature")
		}
		cert, err := x509.ParseCertificate(ch.Certificate)
		if err != nil {
			return err
		}
		pub, _ := cert.PublicKey.(*rsa.PublicKey)
		if err := policy.Verify(pub, append(bytes.Clone(rq.ClientCertificate), rq.ClientNonce...), rs.ServerSignature.Signature); err != nil {
			return err
		}
	}
	ch.token, ch.nonce = rs.AuthenticationToken, rs.ServerNonce
	for _, e := range rs.ServerEndpoints {
		if e.SecurityPolicyURI != policy.URI {
			continue
		}
		for _, t := range e.UserIdentityTokens {
			if t.TokenType == ua.UserTokenTypeAnonymous {
				ch.anonymous = t.PolicyID
			}
		}
	}
	return nil
}

// activate activates the session for an anonymous user.
func (ch *channel) activate(ctx context.Context) error {
	rq := &ua.ActivateSessionRequest{ClientSignature: &ua.SignatureData{}, UserTokenSignature: &ua.SignatureData{},
		UserIdentityToken: ua.NewExtensionObject(&ua.AnonymousIdentityToken{PolicyID: ch.anonymous})}
	if ch.Certificate != nil {
		// The priority of OpenSecureChannel, so that the clients of this process,
		// who share a gate, do not overtake each other.
		p := security.Basic256Sha256
		sig, err := p.Sign(ctx, ch.key, security.PriorityRenew, append(bytes.Clone(ch.Certificate), ch.nonce...))
		if err != nil {
			return err
		}
		rq.ClientSignature = &ua.SignatureData{Algorithm: p.SignatureURI(), Signature: sig}
	}
	msg, err := ch.call(ctx, rq)
	if err != nil {
		return err
	}
	rs, ok := msg.(*ua.ActivateSessionResponse)
	if !ok {
		return fmt.Errorf("ActivateSession: got %T", msg)
	}
	ch.nonce = rs.ServerNonce
	return nil
}

// end closes the session and the channel. A busy server is asked again when it
// says.
func (ch *channel) end(ctx context.Context) error {
	defer ch.close()
	state := reconnect.NewState(reconnect.Policy{MaxRetries: 10})
	for {
		_, err := ch.call(ctx, &ua.CloseSessionRequest{DeleteSubscriptions: true})
		if err == nil {
			return nil
		}
		code, hint := reconnect.Signal(err)
		if !reconnect.IsBusy(code) {
			return err
		}
		if delay, more := state.Failed(code, hint); !more || !pause(ctx, delay) {
			return err
		}
	}
}

// connect opens a channel and a session on it.
func connect(ctx context.Context, to address, key *security.Key, from net.IP) (*channel, error) {
	ch, err := openChannel(ctx, to, key, from)
	if err != nil {
		return nil, err
	}
	if err = ch.create(ctx); err == nil {
		err = ch.activate(ctx)
	}
	if err != nil {
		ch.close()
		return nil, err
	}
	return ch, nil
}
