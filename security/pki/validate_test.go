package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// world is a root, an intermediate CA below it and a client certificate below that, with
// current revocation lists; cases change what they need before it goes into a store.
type world struct {
	t                 *testing.T
	root, inter, leaf *authority
	trusted, issuers  [][]byte
	crls              [][]byte
	sent              []byte
	check             Check
	opts              Options
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, check: Check{ApplicationURI: testURI, Policy: security.Basic256Sha256}}
	w.root = (*authority)(nil).issue(t, fixedKey(t, 3072), caTemplate("root"))
	w.inter = w.root.issue(t, namedKey(t, "inter"), caTemplate("intermediate"))
	w.leaf = w.inter.issue(t, fixedKey(t, 2048), leafTemplate())
	return w
}

// reissue makes the leaf anew.
func (w *world) reissue(edit ...func(*x509.Certificate)) {
	w.leaf = w.inter.issue(w.t, fixedKey(w.t, 2048), leafTemplate(), edit...)
}

// reissueInter makes the intermediate anew, and the leaf under it.
func (w *world) reissueInter(edit ...func(*x509.Certificate)) {
	w.inter = w.root.issue(w.t, namedKey(w.t, "inter"), caTemplate("intermediate"), edit...)
	w.reissue()
}

// selfSigned replaces the hierarchy by a trusted self-signed certificate.
func (w *world) selfSigned(edit ...func(*x509.Certificate)) {
	w.leaf = selfSignedLeaf(w.t, edit...)
	w.trusted, w.issuers, w.crls = [][]byte{w.leaf.Raw}, [][]byte{}, [][]byte{}
}

func (w *world) validate() (*x509.Certificate, error) {
	s, _ := openStore(w.t, w.opts)
	if w.trusted == nil {
		w.trusted = [][]byte{w.root.Raw}
	}
	if w.issuers == nil {
		w.issuers = [][]byte{w.inter.Raw}
	}
	if w.crls == nil {
		w.crls = [][]byte{w.root.crl(w.t, nil), w.inter.crl(w.t, nil)}
	}
	if w.sent == nil {
		w.sent = w.leaf.Raw
	}
	s.put(w.t, FolderTrusted, w.trusted...)
	s.put(w.t, FolderIssuers, w.issuers...)
	s.put(w.t, FolderTrustedCRL, w.crls...)
	return s.Validate(w.sent, w.check)
}

func critical(c *x509.Certificate) {
	c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: []byte{5, 0}})
}

func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
}

func usage(u x509.KeyUsage) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.KeyUsage = u }
}

func extUsage(u ...x509.ExtKeyUsage) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.ExtKeyUsage = u }
}

func sha1Signed(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA1WithRSA }

// OPC 10000-4 §6.1.3, Certificate validation steps: every step, its code and what the peer sees.
func TestValidate_Part4_6_1_3(t *testing.T) {
	secret := ua.StatusBadSecurityChecksFailed // what strangers are told
	for _, c := range []struct {
		name       string
		edit       func(*world)
		want, wire ua.StatusCode
	}{
		{"accepted/trusted root, issuer in issuers", func(w *world) {}, 0, 0},
		{"accepted/issuer sent along", func(w *world) { w.issuers = [][]byte{}; w.sent = blob(w.leaf, w.inter) }, 0, 0},
		{"accepted/whole chain sent, issuer trusted", func(w *world) {
			w.trusted, w.issuers, w.sent = [][]byte{w.inter.Raw}, [][]byte{}, blob(w.leaf, w.inter, w.root)
		}, 0, 0},
		{"accepted/chain sent out of order", func(w *world) {
			w.trusted, w.issuers, w.sent = [][]byte{w.leaf.Raw}, [][]byte{}, blob(w.leaf, w.root, w.inter)
		}, 0, 0},
		{"accepted/leaf trusted, CAs in issuers", func(w *world) {
			w.trusted, w.issuers = [][]byte{w.leaf.Raw}, [][]byte{w.inter.Raw, w.root.Raw}
		}, 0, 0},
		{"accepted/self-signed", func(w *world) { w.selfSigned() }, 0, 0},
		{"accepted/self-signed, all key usages of Part 6 6.2.2", func(w *world) {
			w.selfSigned(usage(x509.KeyUsageDigitalSignature|x509.KeyUsageContentCommitment|x509.KeyUsageKeyEncipherment|x509.KeyUsageDataEncipherment|x509.KeyUsageCertSign),
				extUsage(x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth))
		}, 0, 0},
		{"accepted/no extendedKeyUsage", func(w *world) { w.selfSigned(extUsage()) }, 0, 0},
		{"accepted/no policy", func(w *world) { w.check.Policy = nil }, 0, 0},
		{"accepted/namesake of the issuer beside it", func(w *world) {
			other := (*authority)(nil).issue(w.t, namedKey(w.t, "other"), caTemplate("intermediate"), func(c *x509.Certificate) { c.SubjectKeyId = w.inter.SubjectKeyId })
			w.issuers = [][]byte{other.Raw, w.inter.Raw}
		}, 0, 0},

		{"Certificate Structure/no bytes", func(w *world) { w.sent = []byte{} }, ua.StatusBadCertificateInvalid, secret},
		{"Certificate Structure/no DER", func(w *world) { w.sent = []byte("certificate") }, ua.StatusBadCertificateInvalid, secret},
		{"Certificate Structure/cut off", func(w *world) { w.sent = w.leaf.Raw[:len(w.leaf.Raw)-1] }, ua.StatusBadCertificateInvalid, secret},
		{"Certificate Structure/bytes behind", func(w *world) { w.sent = append(bytes.Clone(w.leaf.Raw), 0) }, ua.StatusBadCertificateInvalid, secret},
		{"Certificate Structure/no certificate", func(w *world) { w.sent = []byte{0x30, 0} }, ua.StatusBadCertificateInvalid, secret},
		{"Certificate Structure/X3 too many", func(w *world) { w.sent = bytes.Repeat(w.leaf.Raw, MaxChainCertificates+1) }, ua.StatusBadCertificateInvalid, secret},
		{"Certificate Structure/X3 too large", func(w *world) { w.sent = append(bytes.Clone(w.leaf.Raw), make([]byte, MaxChainBytes)...) }, ua.StatusBadCertificateInvalid, secret},
		{"Certificate Structure/unknown critical extension", func(w *world) { w.selfSigned(critical) }, ua.StatusBadCertificateInvalid, secret},
		{"Certificate Structure/elliptic key", func(w *world) {
			k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			w.leaf = w.inter.issue(w.t, k, leafTemplate())
		}, ua.StatusBadCertificateInvalid, secret},

		{"Certificate Structure/X22 key that encrypts nothing", func(w *world) {
			w.check.Policy, w.opts.TrustAll = nil, true
			identity := &rsa.PublicKey{N: fixedKey(w.t, 2048).N, E: 1}
			w.leaf = w.inter.issue(w.t, publicOnly{identity}, leafTemplate())
		}, ua.StatusBadCertificateInvalid, secret},

		{"Build Certificate Chain/issuer missing", func(w *world) { w.issuers = [][]byte{} }, ua.StatusBadCertificateChainIncomplete, secret},
		{"Build Certificate Chain/root missing", func(w *world) { w.trusted, w.issuers = [][]byte{w.inter.Raw}, [][]byte{} }, ua.StatusBadCertificateChainIncomplete, secret},
		{"Build Certificate Chain/leaf trusted, issuer missing", func(w *world) { w.trusted, w.issuers = [][]byte{w.leaf.Raw}, [][]byte{} }, ua.StatusBadCertificateChainIncomplete, secret},
		{"Build Certificate Chain/X3 A signed by B signed by A", func(w *world) {
			keyA, keyB := namedKey(w.t, "inter"), namedKey(w.t, "other")
			a0 := (*authority)(nil).issue(w.t, keyA, caTemplate("A"))
			b := a0.issue(w.t, keyB, caTemplate("B"))
			a := b.issue(w.t, keyA, caTemplate("A"))
			w.leaf = a.issue(w.t, fixedKey(w.t, 2048), leafTemplate())
			w.sent = blob(w.leaf, a, b)
			w.trusted = [][]byte{a.Raw, b.Raw}
		}, ua.StatusBadCertificateChainIncomplete, secret},
		{"Build Certificate Chain/longer than MaxChain", func(w *world) { w.opts.MaxChain = 2 }, ua.StatusBadCertificateChainIncomplete, secret},

		{"Signature/self-signed, broken", func(w *world) {
			w.selfSigned()
			w.sent = bytes.Clone(w.leaf.Raw)
			w.sent[len(w.sent)-1] ^= 1
		}, ua.StatusBadCertificateInvalid, secret},
		{"Signature/issuer has the name but not the key", func(w *world) {
			impostor := (*authority)(nil).issue(w.t, namedKey(w.t, "other"), caTemplate("root"), func(c *x509.Certificate) { c.SubjectKeyId = w.root.SubjectKeyId })
			w.leaf = impostor.issue(w.t, fixedKey(w.t, 2048), leafTemplate())
		}, ua.StatusBadCertificateInvalid, secret},

		{"Security Policy Check/key too short", func(w *world) {
			w.leaf = w.inter.issue(w.t, fixedKey(w.t, 1024), leafTemplate())
		}, ua.StatusBadCertificatePolicyCheckFailed, secret},
		{"Security Policy Check/key too long", func(w *world) {
			w.check.Policy = security.Basic256
			w.leaf = w.inter.issue(w.t, fixedKey(w.t, 3072), leafTemplate())
		}, ua.StatusBadCertificatePolicyCheckFailed, secret},
		{"Security Policy Check/short key, old policy", func(w *world) {
			w.check.Policy = security.Basic128Rsa15
			w.leaf = w.inter.issue(w.t, fixedKey(w.t, 1024), leafTemplate())
		}, 0, 0},
		{"Security Policy Check/issuer's key too short", func(w *world) {
			w.root = (*authority)(nil).issue(w.t, fixedKey(w.t, 1024), caTemplate("root"))
			w.reissueInter()
		}, ua.StatusBadCertificatePolicyCheckFailed, secret},
		{"Security Policy Check/SHA-1", func(w *world) { w.reissue(sha1Signed) }, ua.StatusBadCertificatePolicyCheckFailed, secret},
		{"Security Policy Check/SHA-1 of the issuer", func(w *world) { w.reissueInter(sha1Signed) }, ua.StatusBadCertificatePolicyCheckFailed, secret},
		{"Security Policy Check/SHA-1, self-signed", func(w *world) { w.selfSigned(sha1Signed) }, ua.StatusBadCertificatePolicyCheckFailed, secret},
		{"Security Policy Check/SHA-1, no policy", func(w *world) { w.selfSigned(sha1Signed); w.check.Policy = nil }, ua.StatusBadCertificatePolicyCheckFailed, secret},
		{"Security Policy Check/SHA-1, old policy", func(w *world) { w.check.Policy = security.Basic256; w.reissueInter(sha1Signed); w.reissue(sha1Signed) }, 0, 0},
		{"Security Policy Check/SHA-1 of the root itself", func(w *world) {
			w.root = (*authority)(nil).issue(w.t, fixedKey(w.t, 3072), caTemplate("root"), sha1Signed)
			w.reissueInter()
		}, 0, 0},

		{"Trust List Check/nobody trusted", func(w *world) { w.trusted, w.issuers = [][]byte{}, [][]byte{w.root.Raw, w.inter.Raw} }, ua.StatusBadCertificateUntrusted, secret},
		{"Trust List Check/self-signed", func(w *world) { w.selfSigned(); w.trusted = [][]byte{} }, ua.StatusBadCertificateUntrusted, secret},
		{"Trust List Check/self-signed in issuers", func(w *world) {
			w.selfSigned()
			w.trusted, w.issuers = [][]byte{}, [][]byte{w.leaf.Raw}
		}, ua.StatusBadCertificateUntrusted, secret},
		{"Trust List Check/stranger under the trusted root's name", func(w *world) {
			impostor := (*authority)(nil).issue(w.t, namedKey(w.t, "other"), caTemplate("root"))
			w.leaf = impostor.issue(w.t, fixedKey(w.t, 2048), leafTemplate())
			w.sent = blob(w.leaf, impostor)
		}, ua.StatusBadCertificateUntrusted, secret},
		{"Trust List Check/TrustAll, self-signed", func(w *world) { w.selfSigned(); w.trusted = [][]byte{}; w.opts.TrustAll = true }, 0, 0},
		{"Trust List Check/TrustAll, issuer missing", func(w *world) { w.issuers = [][]byte{}; w.opts.TrustAll = true }, 0, 0},
		{"Trust List Check/TrustAll still wants a signature", func(w *world) {
			w.opts.TrustAll = true
			w.sent = bytes.Clone(w.leaf.Raw)
			w.sent[len(w.sent)-1] ^= 1
		}, ua.StatusBadCertificateInvalid, secret},
		{"Trust List Check/TrustAll still wants the URI", func(w *world) { w.opts.TrustAll = true; w.check.ApplicationURI = "urn:other" }, ua.StatusBadCertificateURIInvalid, ua.StatusBadCertificateURIInvalid},

		{"Validity Period/expired", func(w *world) { w.reissue(expired) }, ua.StatusBadCertificateTimeInvalid, ua.StatusBadCertificateTimeInvalid},
		{"Validity Period/not yet", func(w *world) {
			w.reissue(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
		}, ua.StatusBadCertificateTimeInvalid, ua.StatusBadCertificateTimeInvalid},
		{"Validity Period/issuer expired", func(w *world) { w.reissueInter(expired) }, ua.StatusBadCertificateIssuerTimeInvalid, ua.StatusBadCertificateIssuerTimeInvalid},

		{"Host Name/DNS", func(w *world) { w.check.HostName = "HOST.example." }, 0, 0},
		{"Host Name/address", func(w *world) { w.check.HostName = "192.0.2.1" }, 0, 0},
		{"Host Name/other DNS", func(w *world) { w.check.HostName = "sub.host.example" }, ua.StatusBadCertificateHostNameInvalid, ua.StatusBadCertificateHostNameInvalid},
		{"Host Name/other address", func(w *world) { w.check.HostName = "[2001:db8::1]" }, ua.StatusBadCertificateHostNameInvalid, ua.StatusBadCertificateHostNameInvalid},

		{"URI/other", func(w *world) { w.check.ApplicationURI = "urn:host:Client" }, ua.StatusBadCertificateURIInvalid, ua.StatusBadCertificateURIInvalid},
		{"URI/none", func(w *world) { w.reissue(func(c *x509.Certificate) { c.URIs = nil }) }, ua.StatusBadCertificateURIInvalid, ua.StatusBadCertificateURIInvalid},
		{"URI/second one", func(w *world) {
			w.reissue(func(c *x509.Certificate) {
				c.URIs = append([]*url.URL{{Scheme: "urn", Opaque: "first"}}, c.URIs...)
			})
		}, 0, 0},

		{"Certificate Usage/no digitalSignature", func(w *world) {
			w.reissue(usage(x509.KeyUsageKeyEncipherment | x509.KeyUsageDataEncipherment))
		}, ua.StatusBadCertificateUseNotAllowed, ua.StatusBadCertificateUseNotAllowed},
		{"Certificate Usage/no dataEncipherment", func(w *world) {
			w.reissue(usage(x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature))
		}, ua.StatusBadCertificateUseNotAllowed, ua.StatusBadCertificateUseNotAllowed},
		{"Certificate Usage/no keyUsage", func(w *world) { w.reissue(usage(0)) }, ua.StatusBadCertificateUseNotAllowed, ua.StatusBadCertificateUseNotAllowed},
		{"Certificate Usage/client as server", func(w *world) { w.check.Server = true }, ua.StatusBadCertificateUseNotAllowed, ua.StatusBadCertificateUseNotAllowed},
		{"Certificate Usage/server as client", func(w *world) { w.reissue(extUsage(x509.ExtKeyUsageServerAuth)) }, ua.StatusBadCertificateUseNotAllowed, ua.StatusBadCertificateUseNotAllowed},
		{"Certificate Usage/code signing", func(w *world) { w.reissue(extUsage(x509.ExtKeyUsageCodeSigning)) }, ua.StatusBadCertificateUseNotAllowed, ua.StatusBadCertificateUseNotAllowed},
		{"Certificate Usage/issuer is no CA", func(w *world) {
			w.reissueInter(func(c *x509.Certificate) { c.IsCA, c.SubjectKeyId = false, []byte("no CA") })
		}, ua.StatusBadCertificateIssuerUseNotAllowed, ua.StatusBadCertificateIssuerUseNotAllowed},
		{"Certificate Usage/issuer may not sign certificates", func(w *world) {
			w.reissueInter(usage(x509.KeyUsageCRLSign))
		}, ua.StatusBadCertificateIssuerUseNotAllowed, ua.StatusBadCertificateIssuerUseNotAllowed},
		{"Certificate Usage/path too long", func(w *world) {
			w.root = (*authority)(nil).issue(w.t, fixedKey(w.t, 3072), caTemplate("root"), func(c *x509.Certificate) { c.MaxPathLenZero = true })
			w.reissueInter()
		}, ua.StatusBadCertificateIssuerUseNotAllowed, ua.StatusBadCertificateIssuerUseNotAllowed},
		{"Certificate Usage/path just long enough", func(w *world) {
			w.root = (*authority)(nil).issue(w.t, fixedKey(w.t, 3072), caTemplate("root"), func(c *x509.Certificate) { c.MaxPathLen = 1 })
			w.reissueInter(func(c *x509.Certificate) { c.MaxPathLenZero = true })
		}, 0, 0},
		{"Certificate Usage/unknown critical extension of the issuer", func(w *world) { w.reissueInter(critical) }, ua.StatusBadCertificateIssuerUseNotAllowed, ua.StatusBadCertificateIssuerUseNotAllowed},
		{"Certificate Usage/outside of the name constraints", func(w *world) {
			w.reissueInter(func(c *x509.Certificate) {
				c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"other.example"}, true
			})
		}, ua.StatusBadCertificateIssuerUseNotAllowed, ua.StatusBadCertificateIssuerUseNotAllowed},
		{"Certificate Usage/excluded address", func(w *world) {
			w.reissueInter(func(c *x509.Certificate) {
				c.ExcludedIPRanges = []*net.IPNet{{IP: net.IPv4(192, 0, 2, 0).To4(), Mask: net.CIDRMask(24, 32)}}
			})
		}, ua.StatusBadCertificateIssuerUseNotAllowed, ua.StatusBadCertificateIssuerUseNotAllowed},
		{"Certificate Usage/constraint on URIs", func(w *world) {
			w.reissueInter(func(c *x509.Certificate) { c.PermittedURIDomains = []string{"example"} })
		}, ua.StatusBadCertificateIssuerUseNotAllowed, ua.StatusBadCertificateIssuerUseNotAllowed},
		{"Certificate Usage/inside of the name constraints", func(w *world) {
			w.reissueInter(func(c *x509.Certificate) {
				c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"example"}, true
			})
		}, 0, 0},

		{"Find Revocation List/none", func(w *world) { w.crls = [][]byte{w.root.crl(w.t, nil)} }, ua.StatusBadCertificateRevocationUnknown, ua.StatusBadCertificateRevocationUnknown},
		{"Find Revocation List/none, suppressed", func(w *world) { w.crls = [][]byte{}; w.opts.SuppressRevocationUnknown = true }, 0, 0},
		{"Find Revocation List/none of the issuer's issuer", func(w *world) { w.crls = [][]byte{w.inter.crl(w.t, nil)} }, ua.StatusBadCertificateIssuerRevocationUnknown, secret},
		{"Find Revocation List/out of date", func(w *world) {
			w.crls = [][]byte{w.root.crl(w.t, nil), w.inter.crl(w.t, func(l *x509.RevocationList) {
				l.ThisUpdate, l.NextUpdate = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
			})}
		}, ua.StatusBadCertificateRevocationUnknown, ua.StatusBadCertificateRevocationUnknown},
		{"Find Revocation List/from the future", func(w *world) {
			w.crls = [][]byte{w.root.crl(w.t, nil), w.inter.crl(w.t, func(l *x509.RevocationList) { l.ThisUpdate = time.Now().Add(time.Minute) })}
		}, ua.StatusBadCertificateRevocationUnknown, ua.StatusBadCertificateRevocationUnknown},
		{"Find Revocation List/forged", func(w *world) {
			forger := (*authority)(nil).issue(w.t, namedKey(w.t, "other"), caTemplate("intermediate"), func(c *x509.Certificate) { c.SubjectKeyId = w.inter.SubjectKeyId })
			w.crls = [][]byte{w.root.crl(w.t, nil), forger.crl(w.t, nil)}
		}, ua.StatusBadCertificateRevocationUnknown, ua.StatusBadCertificateRevocationUnknown},
		{"Find Revocation List/partial", func(w *world) {
			w.crls = [][]byte{w.root.crl(w.t, nil), w.inter.crl(w.t, func(l *x509.RevocationList) {
				l.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 28}, Critical: true, Value: []byte{0x30, 0}}}
			})}
		}, ua.StatusBadCertificateRevocationUnknown, ua.StatusBadCertificateRevocationUnknown},
		{"Find Revocation List/self-signed needs none", func(w *world) { w.selfSigned() }, 0, 0},

		{"Revocation Check/revoked", func(w *world) {
			w.crls = [][]byte{w.root.crl(w.t, nil), w.inter.crl(w.t, nil, w.leaf)}
		}, ua.StatusBadCertificateRevoked, secret},
		{"Revocation Check/revoked, on one list of two", func(w *world) {
			w.crls = [][]byte{w.root.crl(w.t, nil), w.inter.crl(w.t, nil), w.inter.crl(w.t, nil, w.leaf)}
		}, ua.StatusBadCertificateRevoked, secret},
		{"Revocation Check/revoked although directly trusted", func(w *world) {
			w.trusted = [][]byte{w.leaf.Raw, w.root.Raw}
			w.crls = [][]byte{w.root.crl(w.t, nil), w.inter.crl(w.t, nil, w.leaf)}
		}, ua.StatusBadCertificateRevoked, secret},
		{"Revocation Check/revoked, TrustAll", func(w *world) {
			w.opts.TrustAll = true
			w.crls = [][]byte{w.inter.crl(w.t, nil, w.leaf)}
		}, ua.StatusBadCertificateRevoked, secret},
		{"Revocation Check/issuer revoked", func(w *world) {
			w.crls = [][]byte{w.root.crl(w.t, nil, w.inter), w.inter.crl(w.t, nil)}
		}, ua.StatusBadCertificateIssuerRevoked, secret},

		{"user/no URI, only signing", func(w *world) {
			w.check = Check{User: true, Policy: security.Basic256Sha256, ApplicationURI: "urn:ignored", HostName: "ignored"}
			w.reissue(usage(x509.KeyUsageDigitalSignature), extUsage(x509.ExtKeyUsageEmailProtection), func(c *x509.Certificate) { c.URIs = nil })
		}, 0, 0},
		{"user/no signing", func(w *world) {
			w.check.User = true
			w.reissue(usage(x509.KeyUsageKeyEncipherment | x509.KeyUsageDataEncipherment))
		}, ua.StatusBadCertificateUseNotAllowed, ua.StatusBadCertificateUseNotAllowed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.edit(w)
			leaf, err := w.validate()
			if got := uastatus.Code(err); got != c.want {
				t.Errorf("got %s (%v), want %s", uastatus.Name(got), err, uastatus.Name(c.want))
			}
			if got := WireCode(err); got != c.wire {
				t.Errorf("the peer sees %s, want %s", uastatus.Name(got), uastatus.Name(c.wire))
			}
			var typed *uastatus.Error
			if err != nil && (!errors.As(err, &typed) || leaf != nil) {
				t.Errorf("%T with certificate %v", err, leaf)
			}
			if err == nil && !bytes.Equal(leaf.Raw, w.leaf.Raw) {
				t.Error("another certificate came back")
			}
		})
	}
}

// A certificate with every fault gets the code of the earliest step; mended step by step it
// meets them in the order of the table.
func TestValidationOrder_Part4_6_1_3(t *testing.T) {
	w := newWorld(t)
	w.inter = w.root.issue(t, fixedKey(t, 1024), caTemplate("intermediate"))
	w.reissue(expired, usage(x509.KeyUsageKeyEncipherment), critical)
	w.trusted, w.issuers, w.crls = [][]byte{}, [][]byte{}, [][]byte{}
	w.check.HostName, w.check.ApplicationURI = "elsewhere", "urn:elsewhere"
	for _, step := range []struct {
		want ua.StatusCode
		mend func()
	}{
		{ua.StatusBadCertificateInvalid, func() { w.reissue(expired, usage(x509.KeyUsageKeyEncipherment)) }},
		{ua.StatusBadCertificateChainIncomplete, func() {
			w.issuers = [][]byte{w.inter.Raw, w.root.Raw}
			w.sent = bytes.Clone(w.leaf.Raw)
			w.sent[len(w.sent)-1] ^= 1
		}},
		{ua.StatusBadCertificateInvalid, func() { w.sent = nil }},
		{ua.StatusBadCertificatePolicyCheckFailed, func() {
			w.inter = w.root.issue(t, namedKey(t, "inter"), caTemplate("intermediate"), usage(x509.KeyUsageCRLSign))
			w.reissue(expired, usage(x509.KeyUsageKeyEncipherment))
			w.issuers = [][]byte{w.inter.Raw, w.root.Raw}
		}},
		{ua.StatusBadCertificateUntrusted, func() { w.trusted = [][]byte{w.root.Raw} }},
		{ua.StatusBadCertificateTimeInvalid, func() { w.reissue(usage(x509.KeyUsageKeyEncipherment)) }},
		{ua.StatusBadCertificateHostNameInvalid, func() { w.check.HostName = "" }},
		{ua.StatusBadCertificateURIInvalid, func() { w.check.ApplicationURI = "" }},
		{ua.StatusBadCertificateUseNotAllowed, func() { w.reissue() }},
		{ua.StatusBadCertificateIssuerUseNotAllowed, func() {
			w.reissueInter()
			w.issuers = [][]byte{w.inter.Raw}
		}},
		{ua.StatusBadCertificateRevocationUnknown, func() { w.crls = [][]byte{w.inter.crl(t, nil, w.leaf)} }},
		{ua.StatusBadCertificateRevoked, func() { w.crls = [][]byte{w.inter.crl(t, nil)} }},
		{ua.StatusBadCertificateIssuerRevocationUnknown, func() { w.crls = append(w.crls, w.root.crl(t, nil, w.inter)) }},
		{ua.StatusBadCertificateIssuerRevoked, func() { w.crls = [][]byte{w.inter.crl(t, nil), w.root.crl(t, nil)} }},
		{ua.StatusGood, func() {}},
	} {
		sent := w.sent
		_, err := w.validate()
		if got := uastatus.Code(err); got != step.want {
			t.Fatalf("got %s (%v), want %s", uastatus.Name(got), err, uastatus.Name(step.want))
		}
		w.sent = sent
		step.mend()
	}
}

// The loop is noticed when it closes, not when the chain has grown to its cap.
func TestX3_LoopEndsAtOnce(t *testing.T) {
	w := newWorld(t)
	keyA, keyB := namedKey(t, "inter"), namedKey(t, "other")
	a0 := (*authority)(nil).issue(t, keyA, caTemplate("A"))
	b := a0.issue(t, keyB, caTemplate("B"))
	a := b.issue(t, keyA, caTemplate("A"))
	leaf := a.issue(t, fixedKey(t, 2048), leafTemplate())
	w.sent, w.trusted = blob(leaf, a, b), [][]byte{a.Raw, b.Raw}
	if _, err := w.validate(); err == nil || !strings.Contains(err.Error(), "is not known") {
		t.Errorf("got %v", err)
	}
}

// Work per validation is bounded however many namesakes are offered.
func TestX3_SignatureChecksAreBounded(t *testing.T) {
	s, _ := openStore(t, Options{})
	ghost := (*authority)(nil).issue(t, namedKey(t, "other"), caTemplate("root"))
	leaf := ghost.issue(t, fixedKey(t, 2048), leafTemplate(), func(c *x509.Certificate) { c.AuthorityKeyId = nil })
	key := namedKey(t, "inter")
	for range maxSignatureChecks + 5 {
		s.put(t, FolderIssuers, (*authority)(nil).issue(t, key, caTemplate("root"), func(c *x509.Certificate) { c.SubjectKeyId = ghost.SubjectKeyId }).Raw)
	}
	_, err := s.Validate(leaf.Raw, Check{})
	if uastatus.Code(err) != ua.StatusBadCertificateChainIncomplete || !bytes.Contains([]byte(err.Error()), []byte("signature checks")) {
		t.Errorf("got %v", err)
	}
}

func TestParseChain(t *testing.T) {
	a, b := selfSignedLeaf(t), (*authority)(nil).issue(t, namedKey(t, "other"), caTemplate("root"))
	chain, err := ParseChain(blob(a, b))
	if err != nil || len(chain) != 2 || !bytes.Equal(chain[1].Raw, b.Raw) {
		t.Errorf("%d certificates, %v", len(chain), err)
	}
	if !bytes.Equal(Leaf(blob(a, b)), a.Raw) || Leaf(nil) != nil || Leaf([]byte{1}) != nil {
		t.Error("Leaf differs")
	}
	if ApplicationURI(a.Certificate) != testURI || ApplicationURI(b.Certificate) != "" {
		t.Error("ApplicationURI differs")
	}
}

func FuzzParseChain(f *testing.F) {
	leaf := selfSignedLeaf(f)
	f.Add(leaf.Raw)
	f.Add(bytes.Repeat(leaf.Raw, 2))
	f.Add(leaf.Raw[:100])
	f.Add([]byte{0x30, 0x84, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		chain, err := ParseChain(b)
		if (err == nil) != (len(chain) > 0) || len(chain) > MaxChainCertificates {
			t.Errorf("%d certificates, %v", len(chain), err)
		}
		if err != nil && WireCode(err) != ua.StatusBadSecurityChecksFailed {
			t.Errorf("the peer sees %v", WireCode(err))
		}
		for _, c := range chain {
			ApplicationURI(c)
			fileName(c)
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	s, _ := openStore(b, Options{})
	leaf := selfSignedLeaf(b)
	s.put(b, FolderTrusted, leaf.Raw)
	check := Check{ApplicationURI: testURI, Policy: security.Basic256Sha256}
	b.Run("remembered", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Validate(leaf.Raw, check); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t := s.current()
			clear(t.cache)
			if _, err := s.Validate(leaf.Raw, check); err != nil {
				b.Fatal(err)
			}
		}
	})
}
