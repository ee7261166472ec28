package pki

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// minPrefix is the shortest thumbprint prefix that is taken for one, in hex digits.
const minPrefix = 4

// Entry is one certificate in the PKI folder.
type Entry struct {
	Folder         string // FolderOwn, FolderTrusted, FolderIssuers or FolderRejected
	File           string // absolute path
	Thumbprint     string // SHA-1, 40 upper-case hex digits
	Subject        string
	Issuer         string
	ApplicationURI string
	NotBefore      time.Time
	NotAfter       time.Time
	CA             bool
	Certificate    *x509.Certificate
}

func newEntry(folder, file string, c *x509.Certificate) Entry {
	return Entry{
		Folder: folder, File: file, Thumbprint: thumbprint(c),
		Subject: c.Subject.String(), Issuer: c.Issuer.String(), ApplicationURI: ApplicationURI(c),
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, CA: c.BasicConstraintsValid && c.IsCA, Certificate: c,
	}
}

// List returns the certificates of all folders: own, trusted, issuers, rejected, each by file
// name. Files that hold no certificate are named in the error, beside what could be read.
func (s *Store) List() ([]Entry, error) {
	var list []Entry
	var failed []error
	for _, folder := range []string{FolderOwn, FolderTrusted, FolderIssuers, FolderRejected} {
		entries, err := os.ReadDir(s.path(folder))
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				failed = append(failed, fmt.Errorf("pki: %w", err))
			}
			continue
		}
		for _, e := range entries {
			if !hasExtension(e.Name(), false) || e.IsDir() {
				continue
			}
			path := s.path(folder, e.Name())
			data, err := readLimited(path)
			if err != nil {
				failed = append(failed, fmt.Errorf("pki: %w", err))
				continue
			}
			certs, err := parseCertificates(data)
			if err != nil {
				failed = append(failed, fmt.Errorf("pki: %s: %w", path, err))
				continue
			}
			for _, c := range certs {
				list = append(list, newEntry(folder, path, c))
			}
		}
	}
	return list, errors.Join(failed...)
}

// find resolves what a person typed: the first digits of a thumbprint (4 at least, spaces and
// colons ignored). The same certificate in several folders is found once, in the first of
// folders that holds it.
func (s *Store) find(ref string, folders ...string) (Entry, error) {
	prefix := strings.ToUpper(strings.NewReplacer(" ", "", ":", "").Replace(ref))
	if len(prefix) < minPrefix || strings.Trim(prefix, "0123456789ABCDEF") != "" {
		return Entry{}, fmt.Errorf("pki: %q is neither a file nor a thumbprint (%d hex digits at least)", ref, minPrefix)
	}
	list, err := s.List()
	var found []Entry
	for _, folder := range folders {
		for _, e := range list {
			if e.Folder != folder || !strings.HasPrefix(e.Thumbprint, prefix) {
				continue
			}
			if len(found) > 0 && bytes.Equal(found[0].Certificate.Raw, e.Certificate.Raw) {
				continue
			}
			found = append(found, e)
		}
	}
	switch len(found) {
	case 0:
		return Entry{}, errors.Join(fmt.Errorf("pki: no certificate with thumbprint %s… in %s of %s", prefix, strings.Join(folders, ", "), s.dir), err)
	case 1:
		return found[0], nil
	}
	return Entry{}, fmt.Errorf("pki: thumbprint %s… is ambiguous: %s and %s among others", prefix, found[0].Thumbprint, found[1].Thumbprint)
}

// readFile reads the first certificate of a file.
func readFile(path string) (*x509.Certificate, error) {
	data, err := readLimited(path)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	certs, err := parseCertificates(data)
	if err != nil {
		return nil, fmt.Errorf("pki: %s: %w", path, err)
	}
	return certs[0], nil
}

func isFile(ref string) bool {
	info, err := os.Stat(ref)
	return err == nil && info.Mode().IsRegular()
}

// Trust puts a certificate into trusted/certs: ref is a thumbprint, or the first digits of one,
// of a certificate in rejected/ (which leaves it) or issuers/certs (which keeps it), or a
// file. Running servers notice. Trusting what is trusted already changes nothing.
func (s *Store) Trust(ref string) (Entry, error) {
	var e Entry
	if isFile(ref) {
		c, err := readFile(ref)
		if err != nil {
			return Entry{}, err
		}
		e = newEntry("", ref, c)
	} else {
		var err error
		if e, err = s.find(ref, FolderTrusted, FolderRejected, FolderIssuers); err != nil {
			return Entry{}, err
		}
	}
	c := e.Certificate
	if e.Folder != FolderTrusted {
		path := s.path(FolderTrusted, fileName(c))
		if err := os.MkdirAll(s.path(FolderTrusted), 0o755); err != nil {
			return Entry{}, fmt.Errorf("pki: %w", err)
		}
		if err := writeFile(path, c.Raw, 0o644); err != nil {
			return Entry{}, fmt.Errorf("pki: %w", err)
		}
		e = newEntry(FolderTrusted, path, c)
	}
	return e, s.removeFrom(FolderRejected, c)
}

// Reject takes a certificate out of trusted/certs and issuers/certs and keeps it in rejected/;
// ref is as for Trust. Peers that use it are refused from the next handshake on. A file that
// holds other certificates as well is left alone with an error.
func (s *Store) Reject(ref string) (Entry, error) {
	var c *x509.Certificate
	if isFile(ref) {
		var err error
		if c, err = readFile(ref); err != nil {
			return Entry{}, err
		}
	} else {
		e, err := s.find(ref, FolderTrusted, FolderIssuers, FolderRejected)
		if err != nil {
			return Entry{}, err
		}
		c = e.Certificate
	}
	path := s.path(FolderRejected, fileName(c))
	if err := os.MkdirAll(s.path(FolderRejected), 0o755); err != nil {
		return Entry{}, fmt.Errorf("pki: %w", err)
	}
	if err := writeFile(path, c.Raw, 0o644); err != nil {
		return Entry{}, fmt.Errorf("pki: %w", err)
	}
	e := newEntry(FolderRejected, path, c)
	return e, errors.Join(s.removeFrom(FolderTrusted, c), s.removeFrom(FolderIssuers, c))
}

// removeFrom deletes the files of a folder that hold c and nothing else.
func (s *Store) removeFrom(folder string, c *x509.Certificate) error {
	list, err := s.List()
	holds := make(map[string]int)
	for _, e := range list {
		holds[e.File]++
	}
	var failed []error
	for _, e := range list {
		if e.Folder != folder || !bytes.Equal(e.Certificate.Raw, c.Raw) {
			continue
		}
		if holds[e.File] > 1 {
			failed = append(failed, fmt.Errorf("pki: %s holds other certificates too, edit it yourself", e.File))
			continue
		}
		if err := os.Remove(e.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("pki: %w", err))
		}
	}
	if len(failed) > 0 {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// Show returns a description of the certificate with that thumbprint prefix, or in that file,
// for people: several lines, no stable format.
func (s *Store) Show(ref string) (string, error) {
	var e Entry
	var err error
	if isFile(ref) {
		c, err := readFile(ref)
		if err != nil {
			return "", err
		}
		path, _ := filepath.Abs(ref)
		e = newEntry("", path, c)
	} else if e, err = s.find(ref, FolderOwn, FolderTrusted, FolderIssuers, FolderRejected); err != nil {
		return "", err
	}
	return e.describe(time.Now()), nil
}

func (e Entry) describe(now time.Time) string {
	c := e.Certificate
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-16s %s\n", label, fmt.Sprintf(format, args...))
	}
	line("Thumbprint", "%s", e.Thumbprint)
	if e.Folder != "" {
		line("Folder", "%s", e.Folder)
	}
	line("File", "%s", e.File)
	line("Subject", "%q", e.Subject)
	line("Issuer", "%q", e.Issuer)
	line("ApplicationUri", "%q", e.ApplicationURI)
	line("Hosts", "%q", hostsOf(c))
	validity := ""
	switch {
	case now.Before(c.NotBefore):
		validity = " (NOT YET VALID)"
	case now.After(c.NotAfter):
		validity = " (EXPIRED)"
	}
	line("Valid", "%s to %s%s", c.NotBefore.Format(time.RFC3339), c.NotAfter.Format(time.RFC3339), validity)
	if pub, ok := c.PublicKey.(*rsa.PublicKey); ok {
		line("Key", "RSA, %d bits", pub.N.BitLen())
	} else {
		line("Key", "%s", c.PublicKeyAlgorithm)
	}
	line("Signature", "%s", c.SignatureAlgorithm)
	line("Key usage", "%s", strings.Join(keyUsages(c), ", "))
	line("CA", "%v", e.CA)
	line("Serial number", "%s", hex.EncodeToString(c.SerialNumber.Bytes()))
	return b.String()
}

func hostsOf(c *x509.Certificate) []string {
	hosts := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

func keyUsages(c *x509.Certificate) []string {
	var names []string
	for i, n := range []string{"digitalSignature", "nonRepudiation", "keyEncipherment", "dataEncipherment", "keyAgreement", "keyCertSign", "cRLSign", "encipherOnly", "decipherOnly"} {
		if c.KeyUsage&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	for _, u := range c.ExtKeyUsage {
		switch u {
		case x509.ExtKeyUsageServerAuth:
			names = append(names, "serverAuth")
		case x509.ExtKeyUsageClientAuth:
			names = append(names, "clientAuth")
		case x509.ExtKeyUsageAny:
			names = append(names, "anyExtendedKeyUsage")
		}
	}
	return names
}

func sha1Sum(b []byte) []byte {
	d := sha1.Sum(b)
	return d[:]
}
