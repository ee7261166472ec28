package https

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/tls"
	"io"
	"sync/atomic"

	"github.com/breakwater-ua/breakwater/security"
)

// config is what the listener's handshakes use.
func config(o *Options) *tls.Config {
	c := prepare(o.TLS, o)
	ask := o.TLS.GetConfigForClient
	if ask == nil {
		return c
	}
	type prepared struct{ given, c *tls.Config }
	var last atomic.Pointer[prepared]
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		given, err := ask(hello)
		if given == nil || err != nil {
			return nil, err
		}
		p := last.Load()
		if p == nil || p.given != given {
			p = &prepared{given, prepare(given, o)}
			last.Store(p)
		}
		return p.c, nil
	}
	return c
}

// prepare makes of a given Config one for this listener.
func prepare(given *tls.Config, o *Options) *tls.Config {
	c := given.Clone()
	c.GetConfigForClient = nil
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	c.NextProtos = []string{"http/1.1"}
	if o.HTTPS { // a WebSocket over HTTP/2 (RFC 8441) is not for us
		c.NextProtos = []string{"h2", "http/1.1"}
	}
	if o.CryptoGate == nil {
		return c
	}
	ask, own := c.GetCertificate, c.Certificates
	c.Certificates = nil
	c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, err := choose(hello, ask, own)
		if err != nil {
			return nil, err
		}
		key, ok := cert.PrivateKey.(crypto.Signer)
		if !ok {
			return cert, nil
		}
		if _, ok := key.Public().(*rsa.PublicKey); !ok {
			return cert, nil
		}
		through := *cert
		through.PrivateKey = &gated{key, o.CryptoGate, hello.Context()}
		return &through, nil
	}
	return c
}

// choose is crypto/tls's order: GetCertificate, then the first of Certificates
// that the client can use, then the first.
func choose(hello *tls.ClientHelloInfo, ask func(*tls.ClientHelloInfo) (*tls.Certificate, error), own []tls.Certificate) (*tls.Certificate, error) {
	if ask != nil {
		if cert, err := ask(hello); cert != nil || err != nil {
			return cert, err
		}
	}
	for i := range own {
		if hello.SupportsCertificate(&own[i]) == nil {
			return &own[i], nil
		}
	}
	if len(own) > 0 {
		return &own[0], nil
	}
	return nil, errNoCertificate
}

// gated is a private key of one handshake: it works on the CryptoGate, where a
// newcomer waits behind those who are in, and not once the handshake has ended.
// It is a Signer only: the key exchange that decrypts is not for us.
type gated struct {
	crypto.Signer
	gate *security.CryptoGate
	ctx  context.Context
}

// Sign implements crypto.Signer.
func (k *gated) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) (sig []byte, err error) {
	gateErr := k.gate.Do(k.ctx, security.PriorityIssue, func() { sig, err = k.Signer.Sign(rand, digest, opts) })
	if gateErr != nil {
		return nil, gateErr
	}
	return sig, err
}
