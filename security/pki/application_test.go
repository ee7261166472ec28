package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/security"
)

var testInfo = AppInfo{
	ApplicationURI: "urn:host:refserver", ApplicationName: "Breakwater", Organization: "Plant",
	Hosts: []string{"host.example", "192.0.2.7", "2001:db8::7"},
}

func TestFirstStartCreatesACertificate_Part6_6_2_2(t *testing.T) {
	s, _ := openStore(t, Options{})
	chain, key, created, err := s.LoadOrCreate(testInfo)
	if err != nil || !created || len(chain) != 1 {
		t.Fatalf("%d certificates, created %v, %v", len(chain), created, err)
	}
	c, err := x509.ParseCertificate(chain[0])
	if err != nil {
		t.Fatal(err)
	}
	if c.Version != 3 || c.SignatureAlgorithm != x509.SHA256WithRSA || !key.PublicKey.Equal(c.PublicKey) || key.N.BitLen() != 2048 {
		t.Errorf("version %d, %s, %d bits", c.Version, c.SignatureAlgorithm, key.N.BitLen())
	}
	if checkSignature(c, c) != nil || !selfIssued(c) {
		t.Error("not self-signed")
	}
	want := x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment | x509.KeyUsageKeyEncipherment | x509.KeyUsageDataEncipherment | x509.KeyUsageCertSign
	if c.KeyUsage != want || !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}) {
		t.Errorf("keyUsage %b, extended %v", c.KeyUsage, c.ExtKeyUsage)
	}
	if !c.BasicConstraintsValid || c.IsCA {
		t.Error("basicConstraints should say cA FALSE")
	}
	if ApplicationURI(c) != testInfo.ApplicationURI || len(c.URIs) != 1 || !slices.Equal(c.DNSNames, []string{"host.example"}) || len(c.IPAddresses) != 2 {
		t.Errorf("SAN %v %v %v", c.URIs, c.DNSNames, c.IPAddresses)
	}
	if c.Subject.CommonName != "Breakwater" || !slices.Equal(c.Subject.Organization, []string{"Plant"}) {
		t.Errorf("subject %s", c.Subject)
	}
	if c.SerialNumber.BitLen() < 100 || len(c.SubjectKeyId) == 0 || string(c.AuthorityKeyId) != string(c.SubjectKeyId) {
		t.Error("serial number or key identifiers")
	}
	if now := time.Now(); now.Before(c.NotBefore.Add(time.Minute)) || c.NotAfter.Before(now.AddDate(4, 11, 0)) {
		t.Errorf("valid from %v to %v", c.NotBefore, c.NotAfter)
	}
	if info, err := os.Stat(s.path(FolderPrivate, keyFile)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("private key file: %v, %v", info.Mode(), err)
	}

	again, key2, created, err := s.LoadOrCreate(testInfo)
	if err != nil || created || string(again[0]) != string(chain[0]) || !key2.Equal(key) {
		t.Errorf("second start: created %v, %v", created, err)
	}

	// A peer that trusts it accepts it, as a server and as a client, with every modern policy.
	peer, _ := openStore(t, Options{})
	peer.put(t, FolderTrusted, chain[0])
	for _, p := range []*security.Policy{security.Basic256Sha256, security.Aes128Sha256RsaOaep, security.Aes256Sha256RsaPss} {
		for _, v := range []Check{
			{ApplicationURI: testInfo.ApplicationURI, HostName: "HOST.example", Server: true, Policy: p},
			{ApplicationURI: testInfo.ApplicationURI, HostName: "2001:db8::7", Server: true, Policy: p},
			{ApplicationURI: testInfo.ApplicationURI, Policy: p},
		} {
			if _, err := peer.Validate(chain[0], v); err != nil {
				t.Errorf("%+v: %v", v, err)
			}
		}
	}
	gate := security.NewCryptoGate(1)
	defer gate.Close()
	if _, err := security.NewKey(chain, key, key, gate); err != nil {
		t.Error(err)
	}
}

func TestDefaultHosts(t *testing.T) {
	s, _ := openStore(t, Options{})
	info := testInfo
	info.Hosts = nil
	chain, _, _, err := s.LoadOrCreate(info)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := x509.ParseCertificate(chain[0])
	for _, h := range []string{"localhost", "127.0.0.1", "::1"} {
		if !hasHost(c, h) {
			t.Errorf("%s is missing from %v", h, hostsOf(c))
		}
	}
	if h, err := os.Hostname(); err == nil && !hasHost(c, h) {
		t.Errorf("%s is missing from %v", h, hostsOf(c))
	}
}

func TestLoadOrCreateRefuses(t *testing.T) {
	for name, edit := range map[string]func(*AppInfo){
		"no name":        func(i *AppInfo) { i.ApplicationName = "" },
		"no URI":         func(i *AppInfo) { i.ApplicationURI = "" },
		"URI with space": func(i *AppInfo) { i.ApplicationURI = "http://host/a b" },
		"short key":      func(i *AppInfo) { i.Bits = 1024 },
		"long key":       func(i *AppInfo) { i.Bits = 8192 },
	} {
		s, _ := openStore(t, Options{})
		info := testInfo
		edit(&info)
		if _, _, created, err := s.LoadOrCreate(info); err == nil || created {
			t.Errorf("%s: accepted", name)
		}
		if list, _ := s.List(); len(list) != 0 {
			t.Errorf("%s: left %v", name, list)
		}
	}
}

// Half a pair is never replaced: peers trust the certificate that is there.
func TestHalfAPairIsAnError(t *testing.T) {
	leaf := selfSignedLeaf(t)
	other := namedKey(t, "other")
	for name, prepare := range map[string]func(*Store){
		"certificate only": func(s *Store) { s.put(t, FolderOwn, leaf.Raw) },
		"key only":         func(s *Store) { s.put(t, FolderPrivate, x509.MarshalPKCS1PrivateKey(other)) },
		"foreign key": func(s *Store) {
			s.put(t, FolderOwn, leaf.Raw)
			s.put(t, FolderPrivate, x509.MarshalPKCS1PrivateKey(other))
		},
		"broken key":         func(s *Store) { s.put(t, FolderPrivate, []byte("garbage")) },
		"broken certificate": func(s *Store) { s.put(t, FolderOwn, []byte("garbage")) },
		"encrypted key": func(s *Store) {
			s.put(t, FolderOwn, leaf.Raw)
			s.put(t, FolderPrivate, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{1}}))
		},
	} {
		s, _ := openStore(t, Options{})
		prepare(s)
		if _, _, created, err := s.LoadOrCreate(testInfo); err == nil || created {
			t.Errorf("%s: created %v, %v", name, created, err)
		} else if !strings.Contains(err.Error(), s.Dir()) {
			t.Errorf("%s: the error does not say where: %v", name, err)
		}
	}
}

func TestOwnFilesFromElsewhere(t *testing.T) {
	root := (*authority)(nil).issue(t, fixedKey(t, 3072), caTemplate("root"))
	leaf := root.issue(t, fixedKey(t, 2048), leafTemplate())
	older := root.issue(t, fixedKey(t, 2048), leafTemplate(), func(c *x509.Certificate) { c.NotAfter = c.NotAfter.Add(-time.Minute) })
	p8, _ := x509.MarshalPKCS8PrivateKey(leaf.key)
	p1 := x509.MarshalPKCS1PrivateKey(leaf.key.(*rsa.PrivateKey))
	for name, key := range map[string]struct {
		file string
		data []byte
	}{
		"PKCS8 PEM": {"server.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p8})},
		"PKCS1 PEM": {"server.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: p1})},
		"PKCS8 DER": {"server.der", p8},
		"PKCS1 DER": {"server.der", p1},
	} {
		s, log := openStore(t, Options{})
		s.put(t, FolderOwn, older.Raw, blob(leaf, root))
		os.WriteFile(s.path(FolderPrivate, key.file), key.data, 0o644)
		chain, got, created, err := s.LoadOrCreate(testInfo)
		if err != nil || created || len(chain) != 2 || string(chain[0]) != string(leaf.Raw) || !got.Equal(leaf.key) {
			t.Errorf("%s: %d certificates, created %v, %v", name, len(chain), created, err)
		}
		if runtime.GOOS != "windows" && !strings.Contains(log.String(), "can be read by others") {
			t.Errorf("%s: no warning about mode 0644: %s", name, log)
		}
		if !strings.Contains(log.String(), "another ApplicationUri") {
			t.Errorf("%s: no warning about the URI: %s", name, log)
		}
	}
}

func TestExpiredOwnCertificateIsSaid(t *testing.T) {
	in := func(d time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotAfter = time.Now().Add(d) }
	}
	for want, edit := range map[string]func(*x509.Certificate){"has expired": expired, "expires soon": in(soon - time.Hour), "": in(soon + time.Hour)} {
		s, log := openStore(t, Options{})
		leaf := selfSignedLeaf(t, edit)
		s.put(t, FolderOwn, leaf.Raw)
		s.put(t, FolderPrivate, x509.MarshalPKCS1PrivateKey(leaf.key.(*rsa.PrivateKey)))
		if _, _, _, err := s.LoadOrCreate(AppInfo{}); err != nil || strings.Contains(log.String(), "pki renew") != (want != "") || !strings.Contains(log.String(), want) {
			t.Errorf("%q: %v, log: %s", want, err, log)
		}
	}
}

func TestRenew(t *testing.T) {
	s, _ := openStore(t, Options{})
	chain, key, _, err := s.LoadOrCreate(testInfo)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := x509.ParseCertificate(chain[0])

	e, err := s.Renew(AppInfo{}, false) // everything as it was
	if err != nil {
		t.Fatal(err)
	}
	chain2, key2, created, err := s.LoadOrCreate(testInfo)
	if err != nil || created || !key2.Equal(key) || string(chain2[0]) == string(chain[0]) || e.Thumbprint != Thumbprint(chain2[0]) {
		t.Fatalf("created %v, same key %v, %v", created, key2.Equal(key), err)
	}
	second, _ := x509.ParseCertificate(chain2[0])
	if second.Subject.String() != first.Subject.String() || ApplicationURI(second) != ApplicationURI(first) || !slices.Equal(hostsOf(second), hostsOf(first)) {
		t.Errorf("renewed as %s %s %v", second.Subject, ApplicationURI(second), hostsOf(second))
	}

	info := testInfo
	info.Hosts = []string{"new.example"}
	if _, err := s.Renew(info, true); err != nil {
		t.Fatal(err)
	}
	chain3, key3, _, err := s.LoadOrCreate(testInfo)
	if err != nil || key3.Equal(key) {
		t.Fatalf("same key %v, %v", key3.Equal(key), err)
	}
	third, _ := x509.ParseCertificate(chain3[0])
	if !slices.Equal(hostsOf(third), []string{"new.example"}) {
		t.Errorf("hosts %v", hostsOf(third))
	}
	if info, err := os.Stat(s.path(FolderPrivate, keyFile)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("private key file: %v, %v", info.Mode(), err)
	}

	// Both earlier pairs are aside, byte for byte.
	for _, folder := range []string{FolderOwn, FolderPrivate} {
		old, _ := filepath.Glob(s.path(folder, "*.old"))
		if len(old) != 2 {
			t.Errorf("%s: %v", folder, old)
		}
	}
	old, _ := filepath.Glob(s.path(FolderOwn, "*.old"))
	if data, _ := os.ReadFile(old[0]); string(data) != string(chain[0]) {
		t.Error("the first certificate is not the first put aside")
	}
	if list, _ := s.List(); len(list) != 1 {
		t.Errorf("%d own certificates are listed", len(list))
	}

	if _, err := s.Renew(AppInfo{ApplicationURI: "http://a b"}, false); err == nil {
		t.Error("a bad URI is accepted")
	}
	if chain4, _, _, err := s.LoadOrCreate(testInfo); err != nil || string(chain4[0]) != string(chain3[0]) {
		t.Error("a failed renewal changed the certificate")
	}
}

func TestListTrustRejectShow(t *testing.T) {
	s, _ := openStore(t, Options{})
	if _, _, _, err := s.LoadOrCreate(testInfo); err != nil {
		t.Fatal(err)
	}
	root := (*authority)(nil).issue(t, fixedKey(t, 3072), caTemplate("root"))
	s.put(t, FolderIssuers, root.Raw)
	leaf := selfSignedLeaf(t, func(c *x509.Certificate) { c.Subject.CommonName = "cl\x1b[31mient" })
	s.Validate(leaf.Raw, clientCheck)

	folders := func() (f []string) {
		list, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			f = append(f, e.Folder+" "+e.Subject)
		}
		return f
	}
	if got := folders(); len(got) != 3 || !strings.HasPrefix(got[0], FolderOwn) || !strings.HasPrefix(got[1], FolderIssuers) || !strings.HasPrefix(got[2], FolderRejected) {
		t.Fatalf("%q", got)
	}
	list, _ := s.List()
	e := list[2]
	if e.Thumbprint != thumbprint(leaf.Certificate) || e.ApplicationURI != testURI || !e.NotAfter.Equal(leaf.NotAfter) || e.CA || !list[1].CA {
		t.Errorf("%+v", e)
	}

	text, err := s.Show(e.Thumbprint[:8])
	for _, want := range []string{e.Thumbprint, FolderRejected, testURI, "host.example", "192.0.2.1", "RSA, 2048 bits", "SHA256-RSA", "digitalSignature", "clientAuth"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%q is missing from %v\n%s", want, err, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("control characters reach the terminal: %q", text)
	}

	for _, ref := range []string{"", "ABC", "zzzz", "0000000000", "../x", "12 34 56 78"} {
		if _, err := s.Trust(ref); err == nil {
			t.Errorf("%q is trusted", ref)
		}
	}
	spaced := strings.ToLower(e.Thumbprint[:2] + ":" + e.Thumbprint[2:4] + " " + e.Thumbprint[4:12])
	got, err := s.Trust(spaced)
	if err != nil || got.Folder != FolderTrusted || got.Thumbprint != e.Thumbprint {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := s.Trust(e.Thumbprint); err != nil {
		t.Errorf("trusting again: %v", err)
	}
	if got := folders(); len(got) != 3 || !strings.HasPrefix(got[1], FolderTrusted) {
		t.Errorf("%q", got)
	}
	wantCode(t, s, leaf.Raw, 0)

	if got, err = s.Reject(e.Thumbprint[:6]); err != nil || got.Folder != FolderRejected {
		t.Errorf("%+v, %v", got, err)
	}
	if got := folders(); len(got) != 3 || !strings.HasPrefix(got[2], FolderRejected) {
		t.Errorf("%q", got)
	}
	if _, err := s.Validate(leaf.Raw, clientCheck); WireCode(err) == 0 {
		t.Error("still accepted")
	}

	// By file; a CA in issuers/ can be trusted and stays there.
	if _, err := s.Trust(list[1].Thumbprint); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "x.pem")
	os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}), 0o644)
	if got, err := s.Trust(file); err != nil || got.Thumbprint != e.Thumbprint {
		t.Errorf("%+v, %v", got, err)
	}
	if text, err := s.Show(file); err != nil || !strings.Contains(text, e.Thumbprint) {
		t.Errorf("%s, %v", text, err)
	}
	if got := folders(); len(got) != 4 {
		t.Errorf("%q", got)
	}
	// Never from a file that holds others as well.
	os.WriteFile(s.path(FolderTrusted, "both.der"), blob(leaf, root), 0o644)
	if _, err := s.Reject(e.Thumbprint); err == nil || !strings.Contains(err.Error(), "both.der") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(s.path(FolderTrusted, "both.der")); err != nil {
		t.Error("the shared file was removed")
	}
}

func TestAmbiguousThumbprint(t *testing.T) {
	s, _ := openStore(t, Options{})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]*authority{}
	for { // four hex digits collide after some 300 certificates
		c := (*authority)(nil).issue(t, key, leafTemplate())
		p := thumbprint(c.Certificate)[:minPrefix]
		if other := seen[p]; other != nil {
			s.put(t, FolderTrusted, c.Raw)
			s.put(t, FolderRejected, other.Raw)
			for name, err := range map[string]error{
				"trust": second(s.Trust(p)), "reject": second(s.Reject(p)), "show": second(s.Show(p)),
			} {
				if err == nil || !strings.Contains(err.Error(), "ambiguous") {
					t.Errorf("%s: %v", name, err)
				}
			}
			if _, err := s.Show(thumbprint(c.Certificate)); err != nil {
				t.Error(err)
			}
			return
		}
		seen[p] = c
	}
}

func second[T any](_ T, err error) error { return err }
