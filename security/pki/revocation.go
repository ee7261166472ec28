package pki

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/gopcua/opcua/ua"
)

// revocationList is a parsed CRL with its serial numbers indexed.
type revocationList struct {
	*x509.RevocationList
	serials map[string]bool // big-endian magnitudes
}

func newRevocationList(l *x509.RevocationList) *revocationList {
	r := &revocationList{RevocationList: l, serials: make(map[string]bool, len(l.RevokedCertificateEntries))}
	for _, e := range l.RevokedCertificateEntries {
		r.serials[string(e.SerialNumber.Bytes())] = true
	}
	l.RevokedCertificateEntries = nil // the index replaces them
	return r
}

// usable reports why a list says nothing about certificates of issuer at that time.
func (r *revocationList) usable(issuer *x509.Certificate, now time.Time) error {
	if now.Before(r.ThisUpdate) {
		return fmt.Errorf("the revocation list is from the future, %s", r.ThisUpdate.Format(time.RFC3339))
	}
	if !r.NextUpdate.IsZero() && now.After(r.NextUpdate) {
		return fmt.Errorf("the revocation list is out of date since %s", r.NextUpdate.Format(time.RFC3339))
	}
	for _, e := range r.Extensions {
		if e.Critical { // a delta or partial list: absence from it proves nothing
			return fmt.Errorf("the revocation list has the critical extension %v", e.Id)
		}
	}
	if len(r.AuthorityKeyId) > 0 && len(issuer.SubjectKeyId) > 0 && !bytes.Equal(r.AuthorityKeyId, issuer.SubjectKeyId) {
		return fmt.Errorf("the revocation list is of another key")
	}
	if issuer.KeyUsage != 0 && issuer.KeyUsage&x509.KeyUsageCRLSign == 0 {
		return fmt.Errorf("the issuer may not sign revocation lists")
	}
	if err := issuer.CheckSignature(r.SignatureAlgorithm, r.RawTBSRevocationList, r.Signature); err != nil {
		return fmt.Errorf("the revocation list's signature: %w", err)
	}
	return nil
}

// checkRevocation is the steps Find Revocation List and Revocation Check, certificate by
// certificate from the leaf on; the root answers for itself. until is when the lists used
// go out of date; zero when they do not. suppressed counts certificates without list.
func (t *trustList) checkRevocation(chain []*x509.Certificate, now time.Time, suppress bool) (until time.Time, suppressed int, err error) {
	for i := range len(chain) - 1 {
		unknown, revoked := ua.StatusBadCertificateRevocationUnknown, ua.StatusBadCertificateRevoked
		if i > 0 {
			unknown, revoked = ua.StatusBadCertificateIssuerRevocationUnknown, ua.StatusBadCertificateIssuerRevoked
		}
		found := false
		cause := fmt.Errorf("there is none in trusted/crl or issuers/crl")
		for _, l := range t.crls[string(chain[i].RawIssuer)] {
			if e := l.usable(chain[i+1], now); e != nil {
				cause = e
				continue
			}
			if l.serials[string(chain[i].SerialNumber.Bytes())] {
				return until, suppressed, refuse(revoked, "%s has been revoked", name(chain[i]))
			}
			found = true
			if !l.NextUpdate.IsZero() && (until.IsZero() || l.NextUpdate.Before(until)) {
				until = l.NextUpdate
			}
		}
		if !found {
			if !suppress {
				return until, suppressed, refuse(unknown, "no revocation list of %s: %w", name(chain[i+1]), cause)
			}
			suppressed++
		}
	}
	return until, suppressed, nil
}
