package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const testURI = "urn:host:client"

var (
	keysMu sync.Mutex
	keys   = map[string]*rsa.PrivateKey{}
	serial atomic.Int64
)

// fixedKey returns the RSA key of that length from security/testdata.
func fixedKey(t testing.TB, bits int) *rsa.PrivateKey {
	return cachedKey(t, fmt.Sprint(bits), func() *rsa.PrivateKey {
		data, err := os.ReadFile(fmt.Sprintf("../testdata/rsa%d.pem", bits))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(data)
		k, err := x509.ParsePKCS1PrivateKey(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return k
	})
}

// namedKey returns a 2048-bit key, the same for the same name in one run.
func namedKey(t testing.TB, name string) *rsa.PrivateKey {
	return cachedKey(t, name, func() *rsa.PrivateKey {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		return k
	})
}

func cachedKey(t testing.TB, name string, make func() *rsa.PrivateKey) *rsa.PrivateKey {
	t.Helper()
	keysMu.Lock()
	defer keysMu.Unlock()
	if keys[name] == nil {
		keys[name] = make()
	}
	return keys[name]
}

// authority is a certificate with its key.
type authority struct {
	*x509.Certificate
	key crypto.Signer
}

// issue makes a certificate for key, changed by edit and signed by a; a nil a signs itself.
func (a *authority) issue(t testing.TB, key crypto.Signer, template *x509.Certificate, edit ...func(*x509.Certificate)) *authority {
	t.Helper()
	c := *template
	c.SerialNumber = big.NewInt(1000 + serial.Add(1))
	if c.NotBefore.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	for _, e := range edit {
		e(&c)
	}
	parent, signer := &c, key
	if a != nil {
		parent, signer = a.Certificate, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, &c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{parsed, key}
}

// caTemplate and leafTemplate are flawless.
func caTemplate(cn string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: cn}, BasicConstraintsValid: true, IsCA: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

func leafTemplate() *x509.Certificate {
	uri, _ := url.Parse(testURI)
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: "client"}, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment |
			x509.KeyUsageKeyEncipherment | x509.KeyUsageDataEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{uri}, DNSNames: []string{"host.example"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)},
	}
}

func selfSignedLeaf(t testing.TB, edit ...func(*x509.Certificate)) *authority {
	return (*authority)(nil).issue(t, fixedKey(t, 2048), leafTemplate(), edit...)
}

// crl makes a revocation list of a with these certificates on it.
func (a *authority) crl(t testing.TB, edit func(*x509.RevocationList), revoked ...*authority) []byte {
	t.Helper()
	l := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour)}
	for _, r := range revoked {
		l.RevokedCertificateEntries = append(l.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: r.SerialNumber, RevocationTime: time.Now()})
	}
	if edit != nil {
		edit(l)
	}
	der, err := x509.CreateRevocationList(rand.Reader, l, a.Certificate, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// logBuffer collects log lines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func openStore(t testing.TB, opts Options) (*Store, *logBuffer) {
	t.Helper()
	log := &logBuffer{}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	s, err := Open(filepath.Join(t.TempDir(), "pki"), opts)
	if err != nil {
		t.Fatal(err)
	}
	return s, log
}

var fileNumber atomic.Int64

// put writes files into a folder of the store.
func (s *Store) put(t testing.TB, folder string, ders ...[]byte) (path string) {
	t.Helper()
	for _, der := range ders {
		path = s.path(folder, fmt.Sprintf("file%d.der", fileNumber.Add(1)))
		if err := os.WriteFile(path, der, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func blob(certs ...*authority) []byte {
	var b []byte
	for _, c := range certs {
		b = append(b, c.Raw...)
	}
	return b
}

// publicOnly is a subject whose private key nobody has.
type publicOnly struct{ pub crypto.PublicKey }

func (p publicOnly) Public() crypto.PublicKey { return p.pub }

func (publicOnly) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, errors.New("no private key")
}
