package stack

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
)

// TLSOptions are for the endpoints opc.wss and opc.https.
type TLSOptions struct {
	// CertificateFile and KeyFile hold the server's certificate, with its issuers
	// behind it, and its private key, as PEM. They are read again when they
	// change; a pair that cannot be used is logged and the last good one stays.
	// Both empty: the pair in the folder "tls" below the PKI folder (without one:
	// in memory), an ECDSA P-256 key with a certificate signed by itself, which is
	// made when it is not there and again before it expires.
	CertificateFile, KeyFile string
	// ClientCAs is a PEM file of the authorities whose certificates clients may
	// show in the TLS handshake. It is read again when it changes, for handshakes
	// from then on; a file without a certificate is logged and the last good one
	// stays. Empty: clients are not asked.
	ClientCAs string
	// RequireClientCertificate refuses clients that show none. It needs ClientCAs.
	RequireClientCertificate bool
}

// Life of a certificate that the server makes for itself, and how long before
// its end another one is made.
const (
	ownTLSLife  = 5 * 365 * 24 * time.Hour
	ownTLSRenew = 30 * 24 * time.Hour
)

// tlsInterval is how soon a change of the files is noticed.
const tlsInterval = 2 * time.Second

// tlsMaterial is the certificate that TLS handshakes use now.
type tlsMaterial struct {
	opts  TLSOptions // files resolved
	own   bool       // the pair is the server's to make
	name  string     // of the application
	hosts []string
	log   *slog.Logger

	pair        atomic.Pointer[tls.Certificate]
	seen        [2]fileVersion             // of the files that pair, or a refused one, came from; only of watch
	again       time.Time                  // not before that, after a new pair could not be made
	clients     atomic.Pointer[tls.Config] // with the pool of ClientCAs; nil = clients are not asked
	seenClients fileVersion                // of the file that clients, or a refused pool, came from; only of watch
}

// fileVersion tells one content of a file from the next.
type fileVersion struct {
	size     int64
	modified time.Time
}

func versionOf(path string) fileVersion {
	info, err := os.Stat(path)
	if err != nil {
		return fileVersion{size: -1}
	}
	return fileVersion{info.Size(), info.ModTime()}
}

// openTLS reads or makes the certificate.
func (s *Server) openTLS() error {
	m := &tlsMaterial{opts: s.opts.TLS, name: s.opts.ApplicationName, hosts: s.hosts(), log: s.log}
	if m.opts.CertificateFile == "" {
		m.own = true
		if s.pki != nil {
			dir := filepath.Join(s.pki.Dir(), "tls")
			m.opts.CertificateFile, m.opts.KeyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		}
	}
	if m.opts.ClientCAs != "" {
		if err := m.loadClients(); err != nil {
			return &OptionError{Field: "TLS.ClientCAs", Reason: err.Error()}
		}
	}
	if err := m.load(); err != nil {
		if m.own {
			return fmt.Errorf("stack: TLS certificate: %w", err)
		}
		return &OptionError{Field: "TLS.CertificateFile", Reason: err.Error()}
	}
	s.tls = m
	return nil
}

// config is what listeners use. Certificates, the server's and those of the
// clients' authorities, are asked for at each handshake.
func (m *tlsMaterial) config() *tls.Config {
	if m.clients.Load() == nil {
		return m.withClients(nil)
	}
	c := m.clients.Load().Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return m.clients.Load(), nil }
	return c
}

func (m *tlsMaterial) withClients(authorities *x509.CertPool) *tls.Config {
	c := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return m.pair.Load(), nil },
	}
	if authorities != nil {
		c.ClientCAs, c.ClientAuth = authorities, tls.VerifyClientCertIfGiven
		if m.opts.RequireClientCertificate {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
	return c
}

// loadClients takes the clients' authorities from their file.
func (m *tlsMaterial) loadClients() error {
	m.seenClients = versionOf(m.opts.ClientCAs)
	b, err := os.ReadFile(m.opts.ClientCAs)
	if err != nil {
		return err
	}
	pool, err := authorities(b)
	if err != nil {
		return fmt.Errorf("%s: %w", m.opts.ClientCAs, err)
	}
	m.clients.Store(m.withClients(pool))
	return nil
}

// authorities reads the certificates of a PEM file. Half a file, as another
// process may be writing it, is an error.
func authorities(b []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	found := false
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(cert)
		found = true
	}
	switch {
	case bytes.Contains(b, []byte("-----BEGIN")):
		return nil, errors.New("is cut off")
	case !found:
		return nil, errors.New("holds no certificate")
	}
	return pool, nil
}

// load takes the pair from its files. One of the server's own that is missing or
// about to expire is made.
func (m *tlsMaterial) load() error {
	if m.opts.CertificateFile == "" { // no folder to keep it in
		pair, _, _, err := m.generate()
		if err == nil {
			m.pair.Store(pair)
		}
		return err
	}
	m.seen = [2]fileVersion{versionOf(m.opts.CertificateFile), versionOf(m.opts.KeyFile)}
	pair, err := tls.LoadX509KeyPair(m.opts.CertificateFile, m.opts.KeyFile)
	if m.own && (errors.Is(err, fs.ErrNotExist) || err == nil && m.expires(&pair)) {
		return m.make()
	}
	if err != nil {
		return err
	}
	m.pair.Store(&pair)
	return nil
}

// expires reports whether a pair of the server's own must be replaced.
func (m *tlsMaterial) expires(pair *tls.Certificate) bool {
	return m.own && pair.Leaf != nil && time.Until(pair.Leaf.NotAfter) < ownTLSRenew
}

// make writes a new pair into its files; only their owner may read the key.
func (m *tlsMaterial) make() error {
	pair, cert, key, err := m.generate()
	if err != nil {
		return err
	}
	dir := filepath.Dir(m.opts.KeyFile)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := errors.Join(replaceFile(m.opts.KeyFile, key), replaceFile(m.opts.CertificateFile, cert)); err != nil {
		return err
	}
	m.seen = [2]fileVersion{versionOf(m.opts.CertificateFile), versionOf(m.opts.KeyFile)}
	m.pair.Store(pair)
	m.log.Info("TLS certificate created", "folder", dir)
	return nil
}

// replaceFile writes a file, mode 0600, so that readers see the old or the new one.
func replaceFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// generate makes an ECDSA P-256 key and a certificate for it.
func (m *tlsMaterial) generate() (pair *tls.Certificate, certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, nil, err
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: m.name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(ownTLSLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, h := range m.hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	for _, ip := range []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback} {
		if !slices.ContainsFunc(tmpl.IPAddresses, ip.Equal) {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, nil, err
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	p, err := tls.X509KeyPair(certPEM, keyPEM)
	return &p, certPEM, keyPEM, err
}

// watch reads the files again when they have changed.
func (m *tlsMaterial) watch(ctx context.Context) {
	tick := time.NewTicker(tlsInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.refresh()
		case <-ctx.Done():
			return
		}
	}
}

func (m *tlsMaterial) refresh() {
	m.refreshClients()
	changed := m.opts.CertificateFile != "" &&
		m.seen != [2]fileVersion{versionOf(m.opts.CertificateFile), versionOf(m.opts.KeyFile)}
	if !changed && (!m.expires(m.pair.Load()) || time.Now().Before(m.again)) {
		return
	}
	if err := m.load(); err != nil {
		m.again = time.Now().Add(time.Hour)
		m.log.Error("TLS certificate cannot be used, the last good one stays in force", "error", err)
		return
	}
	m.log.Info("TLS certificate in use", "notAfter", m.pair.Load().Leaf.NotAfter)
}

func (m *tlsMaterial) refreshClients() {
	if m.opts.ClientCAs == "" || m.seenClients == versionOf(m.opts.ClientCAs) {
		return
	}
	if err := m.loadClients(); err != nil {
		m.log.Error("authorities of TLS clients cannot be used, the last good ones stay in force", "error", err)
		return
	}
	m.log.Info("authorities of TLS clients in use", "file", m.opts.ClientCAs)
}
