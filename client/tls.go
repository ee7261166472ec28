package client

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// TLSOptions say whom opc.wss and opc.https connections believe. The zero value
// verifies the server's certificate against the system's authorities and the
// URL's host name. TLS 1.2 is the oldest version.
//
// The certificate of TLS is not the one of the OPC UA application: that one is
// checked on top of it whenever the security policy is not None.
type TLSOptions struct {
	// RootCAs are the authorities that are believed. nil: the system's.
	RootCAs *x509.CertPool
	// Pins are SHA-256 sums of certificates in DER. When there are any, the
	// server's own certificate must be one of them, and nothing else about it
	// counts: for servers that have made theirs themselves.
	Pins [][sha256.Size]byte
	// Certificate of this client, for servers that want one. nil: none.
	Certificate *tls.Certificate
	// InsecureSkipVerify accepts any certificate, so anybody in between may read
	// and change everything. Pins still count.
	InsecureSkipVerify bool
}

// verified says whether the far end of a connection is known, so that what is
// sent is hidden from everybody else.
func (t *TLSOptions) verified() bool { return !t.InsecureSkipVerify || len(t.Pins) > 0 }

func (t *TLSOptions) config(host string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, RootCAs: t.RootCAs,
		InsecureSkipVerify: t.InsecureSkipVerify || len(t.Pins) > 0} //nolint:gosec // by name, or replaced by the pins
	if t.Certificate != nil {
		c.Certificates = []tls.Certificate{*t.Certificate}
	}
	if pins := slices.Clone(t.Pins); len(pins) > 0 {
		c.VerifyConnection = func(s tls.ConnectionState) error { // resumed ones too
			if len(s.PeerCertificates) > 0 {
				sum := sha256.Sum256(s.PeerCertificates[0].Raw)
				if slices.Contains(pins, sum) {
					return nil
				}
				return uastatus.New(ua.StatusBadCertificateUntrusted, "client", fmt.Errorf("TLS certificate %x is not pinned", sum))
			}
			return uastatus.New(ua.StatusBadCertificateUntrusted, "client", errors.New("no TLS certificate"))
		}
	}
	return c
}

// tlsError gives what is wrong with a certificate its StatusCode: waiting does
// not heal it.
func tlsError(err error) error {
	var code ua.StatusCode
	if err == nil || errors.As(err, &code) {
		return err
	}
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		alert     tls.AlertError
		verify    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &authority):
		code = ua.StatusBadCertificateUntrusted
	case errors.As(err, &host):
		code = ua.StatusBadCertificateHostNameInvalid
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		code = ua.StatusBadCertificateTimeInvalid
	case errors.As(err, &invalid), errors.As(err, &verify):
		code = ua.StatusBadCertificateInvalid
	case errors.As(err, &alert): // the server's: our certificate, or no common version
		code = ua.StatusBadSecurityChecksFailed
	default:
		return err
	}
	return errors.Join(code, err)
}
