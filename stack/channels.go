package stack

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"time"

	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

func (s *Server) channelConfig() securechannel.ServerConfig {
	o := &s.opts
	c := securechannel.ServerConfig{
		Handler: s.dispatch,
		Key:     s.key,
		Validate: func(_ context.Context, ch *securechannel.Channel, chain []byte, p *security.Policy) (*x509.Certificate, error) {
			return s.validatePeer(ch, chain, p)
		},
		WireCode:         pki.WireCode,
		Limits:           o.Limits.transport(),
		LiveLimits:       s.transport,
		Budget:           s.budget,
		Isolation:        s.provider,
		AssemblyOwner:    s.dispatch.owners.assembly(),
		Hint:             s.planner.Slot,
		MinTokenLifetime: o.Limits.MinTokenLifetime,
		MaxTokenLifetime: o.Limits.MaxTokenLifetime,
		MaxCryptoWait:    o.RateLimits.MaxCryptoWait,
		Logger:           s.log,
	}
	for _, of := range o.offers() {
		c.Offers = append(c.Offers, securechannel.Offer{Policy: of.policy, Mode: of.mode})
	}
	return c
}

// validatePeer decides about client application certificates. ch is where it was
// shown, for the log.
func (s *Server) validatePeer(ch session.Channel, chain []byte, policy *security.Policy) (*x509.Certificate, error) {
	if s.pki != nil {
		return s.pki.Validate(chain, pki.Check{Policy: policy, Remote: ch.RemoteAddr(), ChannelID: ch.ID()})
	}
	return s.wellFormed(chain, policy)
}

var errNoPKI = errors.New("there is no PKI folder to trust it by")

// wellFormed is what is left to check without a PKI folder: with
// Security.TrustAll a certificate need only be one, of the right strength and
// not expired.
func (s *Server) wellFormed(chain []byte, policy *security.Policy) (*x509.Certificate, error) {
	certs, err := pki.ParseChain(chain)
	if err != nil {
		return nil, err
	}
	leaf := certs[0]
	now := time.Now()
	switch {
	case !s.opts.Security.TrustAll:
		return nil, uastatus.New(ua.StatusBadCertificateUntrusted, "certificate", errNoPKI)
	case now.Before(leaf.NotBefore) || now.After(leaf.NotAfter):
		return nil, uastatus.New(ua.StatusBadCertificateTimeInvalid, "certificate", nil)
	}
	pub, ok := leaf.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, uastatus.New(ua.StatusBadCertificateInvalid, "certificate", errors.New("not an RSA key"))
	}
	if err := policy.CheckKey(pub); err != nil {
		return nil, err
	}
	return leaf, nil
}

// validateUser decides about X.509 user certificates, which have a trust list of
// their own: an application that may connect is no user.
func (s *Server) validateUser(_ context.Context, ch session.Channel, chain []byte, policy *security.Policy) error {
	if s.users != nil {
		_, err := s.users.Validate(chain, pki.Check{Policy: policy, User: true, Remote: ch.RemoteAddr(), ChannelID: ch.ID()})
		return err
	}
	_, err := s.wellFormed(chain, policy)
	return err
}
