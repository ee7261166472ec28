package pki

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	certificateFile = "application.der"
	keyFile         = "application.pem"

	defaultBits     = 2048
	defaultValidity = 5 * 365 * 24 * time.Hour
	backdate        = time.Hour           // peers' clocks are not ours
	soon            = 30 * 24 * time.Hour // from when on a start warns of the end of validity
)

// AppInfo says for whom an application certificate is made.
type AppInfo struct {
	// ApplicationURI goes into the SubjectAltName; required.
	ApplicationURI string
	// ApplicationName becomes the common name; required.
	ApplicationName string
	// Organization becomes the organization name; "" = ApplicationName.
	Organization string
	// Hosts are DNS names and addresses for the SubjectAltName; empty = LocalHosts().
	Hosts []string
	// Bits is the length of a new RSA key: 2048 to 4096. 0 = 2048.
	Bits int
	// Validity of a new certificate. 0 = 5 years.
	Validity time.Duration
}

// LoadOrCreate returns the application's certificate chain (DER, leaf first) and private key
// from own/certs and own/private. When both folders hold nothing it creates a key and a
// self-signed certificate and says created. A certificate without its key, or the other way
// round, is an error rather than a reason to make new ones: peers trust the old.
//
// It warns about an expired certificate, one for another ApplicationURI, and a key file that
// others can read.
func (s *Store) LoadOrCreate(info AppInfo) (chain [][]byte, key *rsa.PrivateKey, created bool, err error) {
	chain, key, err = s.loadOwn()
	if err != nil {
		return nil, nil, false, err
	}
	if chain != nil {
		s.warnOwn(chain[0], info)
		return chain, key, false, nil
	}
	if err := info.check(); err != nil {
		return nil, nil, false, err
	}
	if key, err = generateKey(info.Bits); err != nil {
		return nil, nil, false, err
	}
	der, err := selfSigned(info, key)
	if err != nil {
		return nil, nil, false, err
	}
	if err := s.writeOwn(der, key); err != nil {
		return nil, nil, false, err
	}
	return [][]byte{der}, key, true, nil
}

// Renew makes a new self-signed application certificate, with the present key or with a new
// one, and puts the old files aside under names that end in .old. Peers have to trust the
// new certificate. A server that runs goes on with the old one until it is restarted.
func (s *Store) Renew(info AppInfo, newKey bool) (Entry, error) {
	chain, key, err := s.loadOwn()
	if err != nil {
		return Entry{}, err
	}
	if chain != nil { // what the caller does not say stays as it was
		if old, err := x509.ParseCertificate(chain[0]); err == nil {
			info = info.filledFrom(old)
		}
	}
	if err := info.check(); err != nil {
		return Entry{}, err
	}
	if key == nil || newKey {
		if key, err = generateKey(info.Bits); err != nil {
			return Entry{}, err
		}
	}
	der, err := selfSigned(info, key)
	if err != nil {
		return Entry{}, err
	}
	restore, err := s.putAside()
	if err == nil {
		err = s.writeOwn(der, key)
	}
	if err != nil {
		return Entry{}, errors.Join(err, restore())
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return Entry{}, fmt.Errorf("pki: %w", err)
	}
	return newEntry(FolderOwn, s.path(FolderOwn, certificateFile), c), nil
}

func (info AppInfo) filledFrom(old *x509.Certificate) AppInfo {
	if info.ApplicationURI == "" {
		info.ApplicationURI = ApplicationURI(old)
	}
	if info.ApplicationName == "" {
		info.ApplicationName = old.Subject.CommonName
	}
	if info.Organization == "" && len(old.Subject.Organization) > 0 {
		info.Organization = old.Subject.Organization[0]
	}
	if len(info.Hosts) == 0 {
		info.Hosts = slices.Clone(old.DNSNames)
		for _, ip := range old.IPAddresses {
			info.Hosts = append(info.Hosts, ip.String())
		}
	}
	return info
}

// check finds what no certificate can be made of, before a key is.
func (info AppInfo) check() error {
	if info.ApplicationName == "" {
		return errors.New("pki: AppInfo.ApplicationName is empty")
	}
	uri, err := url.Parse(info.ApplicationURI)
	if err != nil || info.ApplicationURI == "" || uri.String() != info.ApplicationURI {
		return fmt.Errorf("pki: AppInfo.ApplicationURI %q is no URI in plain form", info.ApplicationURI)
	}
	if info.Bits != 0 && (info.Bits < 2048 || info.Bits > 4096) {
		return fmt.Errorf("pki: AppInfo.Bits is %d, it must be 2048 to 4096", info.Bits)
	}
	return nil
}

func generateKey(bits int) (*rsa.PrivateKey, error) {
	if bits == 0 {
		bits = defaultBits
	}
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return key, nil
}

// selfSigned makes a certificate as OPC 10000-6 §6.2.2 (Application Instance Certificate) asks
// for it.
func selfSigned(info AppInfo, key *rsa.PrivateKey) ([]byte, error) {
	uri, err := url.Parse(info.ApplicationURI)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	serial := make([]byte, 16)
	rand.Read(serial)
	serial[0] = serial[0]&0x7f | 0x40 // positive, and always 16 bytes long
	now := time.Now()
	if info.Validity <= 0 {
		info.Validity = defaultValidity
	}
	if info.Organization == "" {
		info.Organization = info.ApplicationName
	}
	template := &x509.Certificate{
		SerialNumber:       new(big.Int).SetBytes(serial),
		SignatureAlgorithm: x509.SHA256WithRSA,
		Subject:            pkix.Name{CommonName: info.ApplicationName, Organization: []string{info.Organization}},
		NotBefore:          now.Add(-backdate),
		NotAfter:           now.Add(info.Validity),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment |
			x509.KeyUsageKeyEncipherment | x509.KeyUsageDataEncipherment | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, // with cA FALSE: nobody can be certified by an application
		URIs:                  []*url.URL{uri},
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	id := sha1Sum(pub)
	template.SubjectKeyId, template.AuthorityKeyId = id, id
	hosts := info.Hosts
	if len(hosts) == 0 {
		hosts = LocalHosts()
	}
	for _, h := range hosts {
		if ip := net.ParseIP(strings.Trim(h, "[]")); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if h != "" {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return der, nil
}

// LocalHosts returns the names and addresses under which this machine is likely to be reached:
// its host name, localhost, and the addresses of its interfaces (32 at most, no link-local ones).
func LocalHosts() []string {
	hosts := []string{"localhost"}
	if h, err := os.Hostname(); err == nil && h != "" && h != "localhost" {
		hosts = []string{h, "localhost"}
	}
	hosts = append(hosts, "127.0.0.1", "::1")
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return hosts
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLoopback() || n.IP.IsLinkLocalUnicast() || len(hosts) >= 32 {
			continue
		}
		hosts = append(hosts, n.IP.String())
	}
	return hosts
}

// loadOwn finds the certificate in own/certs that belongs to a key in own/private; of several
// the one that is valid longest. All nil when there is neither certificate nor key.
func (s *Store) loadOwn() ([][]byte, *rsa.PrivateKey, error) {
	keys, keyErr := s.readKeys()
	files, err := os.ReadDir(s.path(FolderOwn))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("pki: %w", err)
	}
	var best []*x509.Certificate
	var bestKey *rsa.PrivateKey
	seen := 0
	for _, e := range files {
		if !hasExtension(e.Name(), false) {
			continue
		}
		seen++
		data, err := readLimited(s.path(FolderOwn, e.Name()))
		if err != nil {
			return nil, nil, fmt.Errorf("pki: %w", err)
		}
		certs, err := parseCertificates(data)
		if err != nil {
			return nil, nil, fmt.Errorf("pki: %s: %w", s.path(FolderOwn, e.Name()), err)
		}
		for _, k := range keys {
			if k.PublicKey.Equal(certs[0].PublicKey) && (best == nil || certs[0].NotAfter.After(best[0].NotAfter)) {
				best, bestKey = certs, k
			}
		}
	}
	switch {
	case best != nil:
		chain := make([][]byte, len(best))
		for i, c := range best {
			chain[i] = c.Raw
		}
		return chain, bestKey, nil
	case keyErr != nil:
		return nil, nil, keyErr
	case seen > 0 || len(keys) > 0:
		return nil, nil, fmt.Errorf("pki: no certificate in %s belongs to a key in %s: complete the pair or move both away", s.path(FolderOwn), s.path(FolderPrivate))
	}
	return nil, nil, nil
}

// readKeys reads the RSA keys in own/private; keys it cannot use are an error unless others
// are found.
func (s *Store) readKeys() ([]*rsa.PrivateKey, error) {
	entries, err := os.ReadDir(s.path(FolderPrivate))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("pki: %w", err)
	}
	var keys []*rsa.PrivateKey
	var failed error
	for _, e := range entries {
		switch strings.ToLower(filepath.Ext(e.Name())) {
		case ".pem", ".key", ".der":
		default:
			continue
		}
		path := s.path(FolderPrivate, e.Name())
		data, err := readLimited(path)
		if err != nil {
			return nil, fmt.Errorf("pki: %w", err)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			s.log.Warn("private key file can be read by others", "file", path, "mode", info.Mode().Perm().String())
		}
		k, err := parseKey(data)
		if err != nil {
			failed = fmt.Errorf("pki: %s: %w", path, err)
			continue
		}
		keys = append(keys, k)
	}
	return keys, failed
}

// parseKey reads a private key: PKCS #8 or PKCS #1, PEM or DER, not encrypted.
func parseKey(data []byte) (*rsa.PrivateKey, error) {
	if b, _ := pem.Decode(data); b != nil {
		if strings.Contains(b.Type, "ENCRYPTED") || strings.Contains(b.Headers["Proc-Type"], "ENCRYPTED") {
			return nil, errors.New("the key is encrypted; store it decrypted, mode 0600")
		}
		data = b.Bytes
	}
	if k, err := x509.ParsePKCS1PrivateKey(data); err == nil {
		return k, nil
	}
	k, err := x509.ParsePKCS8PrivateKey(data)
	if err != nil {
		return nil, err
	}
	rk, ok := k.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("a %T, only RSA is supported", k)
	}
	return rk, nil
}

func (s *Store) writeOwn(der []byte, key *rsa.PrivateKey) error {
	p8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p8})
	if err := os.MkdirAll(s.path(FolderPrivate), 0o700); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	if err := writeFile(s.path(FolderPrivate, keyFile), text, 0o600); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	if err := writeFile(s.path(FolderOwn, certificateFile), der, 0o644); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	return nil
}

// putAside renames all own certificates and keys so that nobody loads them any more; restore
// takes that back.
func (s *Store) putAside() (restore func() error, err error) {
	suffix := "." + time.Now().UTC().Format("20060102T150405.000000000Z") + ".old"
	var renamed []string
	restore = func() error {
		var failed []error
		for _, path := range renamed {
			failed = append(failed, os.Rename(path+suffix, path))
		}
		return errors.Join(failed...)
	}
	for _, folder := range []string{FolderOwn, FolderPrivate} {
		entries, err := os.ReadDir(s.path(folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return restore, fmt.Errorf("pki: %w", err)
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || strings.HasSuffix(e.Name(), ".old") {
				continue
			}
			path := s.path(folder, e.Name())
			if err := os.Rename(path, path+suffix); err != nil {
				return restore, fmt.Errorf("pki: %w", err)
			}
			renamed = append(renamed, path)
		}
	}
	return restore, nil
}

func (s *Store) warnOwn(der []byte, info AppInfo) {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return
	}
	renew := s.opts.Command + " renew --pki " + s.dir
	switch now := time.Now(); {
	case now.After(c.NotAfter):
		s.log.Warn("the application certificate has expired, peers will refuse it", "since", c.NotAfter, "renew", renew)
	case now.Add(soon).After(c.NotAfter):
		s.log.Warn("the application certificate expires soon", "at", c.NotAfter, "renew", renew)
	}
	if uri := ApplicationURI(c); info.ApplicationURI != "" && uri != info.ApplicationURI {
		s.log.Warn("the application certificate is for another ApplicationUri, peers will refuse it", "certificate", uri, "application", info.ApplicationURI, "renew", renew)
	}
}
