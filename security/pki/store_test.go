package pki

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

var clientCheck = Check{ApplicationURI: testURI, Policy: security.Basic256Sha256}

func wantCode(t *testing.T, s *Store, sent []byte, want ua.StatusCode) {
	t.Helper()
	_, err := s.Validate(sent, clientCheck)
	if got := uastatus.Code(err); got != want {
		t.Errorf("got %s (%v), want %s", uastatus.Name(got), err, uastatus.Name(want))
	}
}

func TestOpenCreatesTheUsualFolders(t *testing.T) {
	s, _ := openStore(t, Options{})
	for _, f := range []string{"own/certs", "own/private", "trusted/certs", "trusted/crl", "issuers/certs", "issuers/crl", "rejected"} {
		if info, err := os.Stat(filepath.Join(s.Dir(), f)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", f, err)
		}
	}
	if info, _ := os.Stat(s.path(FolderPrivate)); runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
		t.Errorf("own/private has mode %v", info.Mode())
	}
	if _, err := Open(s.Dir(), Options{MaxChain: -1}); err == nil {
		t.Error("a negative MaxChain is accepted")
	}
	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, nil, 0o644)
	if _, err := Open(file, Options{}); err == nil {
		t.Error("a file is accepted as folder")
	}
}

func TestTrustAllWarnsLoudly(t *testing.T) {
	s, log := openStore(t, Options{TrustAll: true})
	if !s.TrustAll() || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "ALL CERTIFICATES ARE TRUSTED") {
		t.Errorf("log: %s", log)
	}
}

// X23, D11: what was remembered under one trust list is forgotten with it.
func TestX23_D11_ValidationFollowsTheTrustList(t *testing.T) {
	s, _ := openStore(t, Options{})
	leaf := selfSignedLeaf(t)
	wantCode(t, s, leaf.Raw, ua.StatusBadCertificateUntrusted)
	for range 3 { // fast, so that modification times may repeat
		v := s.Version()
		path := s.put(t, FolderTrusted, leaf.Raw)
		wantCode(t, s, leaf.Raw, ua.StatusGood)
		wantCode(t, s, leaf.Raw, ua.StatusGood) // remembered
		if s.Version() == v {
			t.Error("the version did not move with an addition")
		}
		v = s.Version()
		if s.Version() != v {
			t.Error("the version moves by itself")
		}
		os.Remove(path)
		wantCode(t, s, leaf.Raw, ua.StatusBadCertificateUntrusted)
		if s.Version() == v {
			t.Error("the version did not move with a removal")
		}
	}
}

// A second change within the granularity of the file system's time stamps leaves the same
// time; a young time is therefore not taken for "unchanged".
func TestChangeWithinTheSameTick(t *testing.T) {
	s, _ := openStore(t, Options{})
	tick := time.Now()
	freeze := func() {
		for _, f := range scanned {
			os.Chtimes(s.path(f), tick, tick)
		}
	}
	freeze()
	first, second := selfSignedLeaf(t), selfSignedLeaf(t)
	s.put(t, FolderTrusted, first.Raw)
	freeze()
	wantCode(t, s, first.Raw, ua.StatusGood)
	if !s.scan.unsettled && time.Since(tick) < settle {
		t.Error("a young time stamp is believed")
	}
	s.put(t, FolderTrusted, second.Raw)
	freeze()
	if time.Since(tick) > settle {
		t.Skip("too slow")
	}
	wantCode(t, s, second.Raw, ua.StatusGood)
}

func TestRememberedValidationsAreForTheSameQuestion(t *testing.T) {
	s, _ := openStore(t, Options{})
	leaf := selfSignedLeaf(t)
	s.put(t, FolderTrusted, leaf.Raw)
	for _, c := range []struct {
		check Check
		want  ua.StatusCode
	}{
		{clientCheck, ua.StatusGood},
		{Check{ApplicationURI: "urn:other", Policy: security.Basic256Sha256}, ua.StatusBadCertificateURIInvalid},
		{Check{ApplicationURI: testURI, HostName: "other", Policy: security.Basic256Sha256}, ua.StatusBadCertificateHostNameInvalid},
		{Check{ApplicationURI: testURI, Server: true, Policy: security.Basic256Sha256}, ua.StatusBadCertificateUseNotAllowed},
		{Check{User: true}, ua.StatusGood},
		{clientCheck, ua.StatusGood},
	} {
		if _, err := s.Validate(leaf.Raw, c.check); uastatus.Code(err) != c.want {
			t.Errorf("%+v: %v", c.check, err)
		}
	}
	// A remembered success ends with the certificate.
	list := s.current()
	if list.recall(clientCheck.key(leaf.Raw), leaf.NotAfter.Add(-time.Second)) == nil {
		t.Error("nothing is remembered")
	}
	if list.recall(clientCheck.key(leaf.Raw), leaf.NotAfter) != nil {
		t.Error("remembered beyond the end of validity")
	}
	for i := range cacheLimit + 10 {
		list.remember([32]byte{byte(i), byte(i >> 8), 1}, leaf.Certificate, leaf.NotAfter)
	}
	if len(list.cache) > cacheLimit {
		t.Errorf("%d validations remembered", len(list.cache))
	}
}

// A certificate outlives the message that brought it, whose buffer is used again.
func TestRememberedCertificateIsACopy(t *testing.T) {
	s, _ := openStore(t, Options{})
	leaf := selfSignedLeaf(t)
	s.put(t, FolderTrusted, leaf.Raw)
	frame := bytes.Clone(leaf.Raw)
	first, err := s.Validate(frame, clientCheck)
	if err != nil {
		t.Fatal(err)
	}
	clear(frame)
	again, err := s.Validate(leaf.Raw, clientCheck)
	if err != nil || !bytes.Equal(first.Raw, leaf.Raw) || !bytes.Equal(again.Raw, leaf.Raw) {
		t.Errorf("%v, the certificate has changed with the buffer", err)
	}
}

func TestRememberedUntilTheRevocationListEnds(t *testing.T) {
	s, _ := openStore(t, Options{})
	root := (*authority)(nil).issue(t, fixedKey(t, 3072), caTemplate("root"))
	leaf := root.issue(t, fixedKey(t, 2048), leafTemplate(), func(c *x509.Certificate) { c.NotAfter = time.Now().Add(24 * time.Hour) })
	s.put(t, FolderTrusted, root.Raw)
	s.put(t, FolderIssuersCRL, root.crl(t, func(l *x509.RevocationList) { l.NextUpdate = time.Now().Add(time.Minute) }))
	wantCode(t, s, leaf.Raw, ua.StatusGood)
	list, key := s.current(), clientCheck.key(leaf.Raw)
	if list.recall(key, time.Now().Add(50*time.Second)) == nil || list.recall(key, time.Now().Add(61*time.Second)) != nil {
		t.Error("the success does not end with the revocation list")
	}
}

// A revocation list overwritten in place changes no folder: it is found by the look at the
// files, once a second.
func TestFileOverwrittenInPlace(t *testing.T) {
	s, _ := openStore(t, Options{})
	root := (*authority)(nil).issue(t, fixedKey(t, 3072), caTemplate("root"))
	leaf := root.issue(t, fixedKey(t, 2048), leafTemplate())
	old := time.Now().Add(-time.Hour)
	cert := s.put(t, FolderTrusted, root.Raw)
	list := s.put(t, FolderTrustedCRL, root.crl(t, nil))
	settled := func() { // as if all this had happened long ago
		for _, p := range []string{cert, list, s.path(FolderTrusted), s.path(FolderTrustedCRL), s.path(FolderIssuers), s.path(FolderIssuersCRL)} {
			if err := os.Chtimes(p, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	settled()
	wantCode(t, s, leaf.Raw, ua.StatusGood)
	if s.scan.unsettled {
		t.Fatal("an hour is not enough")
	}
	f, err := os.OpenFile(list, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Write(root.crl(t, nil, leaf))
	f.Close()
	s.mu.Lock()
	s.scan.lastFiles = s.scan.lastFiles.Add(-fileCheckInterval) // a second later
	s.mu.Unlock()
	wantCode(t, s, leaf.Raw, ua.StatusBadCertificateRevoked)

	// And a look that finds nothing new reads nothing anew.
	settled()
	s.Version()
	before := s.list.Load()
	s.mu.Lock()
	s.scan.lastFiles = time.Time{}
	s.mu.Unlock()
	if s.current() != before {
		t.Error("an unchanged folder made a new trust list")
	}
}

func TestUnchangedFolderCostsNoReading(t *testing.T) {
	s, _ := openStore(t, Options{})
	s.put(t, FolderTrusted, selfSignedLeaf(t).Raw)
	old := time.Now().Add(-time.Hour)
	filepath.WalkDir(s.Dir(), func(p string, _ os.DirEntry, _ error) error { return os.Chtimes(p, old, old) })
	s.Version()
	files := s.scan.lastFiles
	for range 100 {
		s.Version()
	}
	if s.scan.lastFiles != files && time.Since(files) < fileCheckInterval {
		t.Error("the files were looked at again within the interval")
	}
}

func TestUnreadableFolderKeepsTheLastState(t *testing.T) {
	if os.Getuid() == 0 || runtime.GOOS == "windows" {
		// root reads everything: make the folder a file instead
		s, log := openStore(t, Options{})
		leaf := selfSignedLeaf(t)
		s.put(t, FolderTrusted, leaf.Raw)
		wantCode(t, s, leaf.Raw, ua.StatusGood)
		os.RemoveAll(s.path(FolderIssuers))
		os.WriteFile(s.path(FolderIssuers), nil, 0o644)
		v := s.list.Load().version
		wantCode(t, s, leaf.Raw, ua.StatusGood)
		if s.Version() != v || !strings.Contains(log.String(), "last known state") {
			t.Errorf("version %d after %d; log: %s", s.Version(), v, log)
		}
		return
	}
	s, _ := openStore(t, Options{})
	leaf := selfSignedLeaf(t)
	s.put(t, FolderTrusted, leaf.Raw)
	wantCode(t, s, leaf.Raw, ua.StatusGood)
	os.Chmod(s.path(FolderTrusted), 0)
	defer os.Chmod(s.path(FolderTrusted), 0o755)
	wantCode(t, s, leaf.Raw, ua.StatusGood)
}

func TestRemovedFolderTrustsNothing(t *testing.T) {
	s, _ := openStore(t, Options{})
	leaf := selfSignedLeaf(t)
	s.put(t, FolderTrusted, leaf.Raw)
	wantCode(t, s, leaf.Raw, ua.StatusGood)
	os.RemoveAll(filepath.Join(s.Dir(), "trusted"))
	wantCode(t, s, leaf.Raw, ua.StatusBadCertificateUntrusted)
}

func TestFileFormats(t *testing.T) {
	root := (*authority)(nil).issue(t, fixedKey(t, 3072), caTemplate("root"))
	leaf := root.issue(t, fixedKey(t, 2048), leafTemplate())
	pemOf := func(typ string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der})
	}
	stranger := (*authority)(nil).issue(t, namedKey(t, "other"), caTemplate("stranger"))
	for _, c := range []struct {
		name, cert, list string
		certData         []byte
		pemList          bool
		want             ua.StatusCode
	}{
		{"DER", "ca.der", "ca.crl", root.Raw, false, ua.StatusGood},
		{"upper case", "CA.CER", "CA.CRL", root.Raw, false, ua.StatusGood},
		{"PEM", "ca.pem", "ca.pem", pemOf("CERTIFICATE", root.Raw), true, ua.StatusGood},
		{"PEM, second of two and text around", "ca.crt", "ca.crl", bytes.Join([][]byte{[]byte("subject=x\n"), pemOf("CERTIFICATE", stranger.Raw), []byte("\n# root\n"), pemOf("CERTIFICATE", root.Raw)}, nil), true, ua.StatusGood},
		{"other extension", "ca.txt", "ca.crl", root.Raw, false, ua.StatusBadCertificateChainIncomplete},
		{"put aside", "ca.der.old", "ca.crl", root.Raw, false, ua.StatusBadCertificateChainIncomplete},
		{"empty", "ca.der", "ca.crl", nil, false, ua.StatusBadCertificateChainIncomplete},
		{"garbage", "ca.der", "ca.crl", []byte("garbage"), false, ua.StatusBadCertificateChainIncomplete},
		{"PEM without certificate", "ca.pem", "ca.crl", pemOf("PRIVATE KEY", root.Raw), false, ua.StatusBadCertificateChainIncomplete},
		{"list in the wrong format", "ca.der", "ca.txt", root.Raw, false, ua.StatusBadCertificateRevocationUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := openStore(t, Options{})
			list := root.crl(t, nil)
			if c.pemList {
				list = pemOf("X509 CRL", list)
			}
			os.WriteFile(s.path(FolderTrusted, c.cert), c.certData, 0o644)
			os.WriteFile(s.path(FolderTrustedCRL, c.list), list, 0o644)
			wantCode(t, s, leaf.Raw, c.want)
		})
	}
}

func TestBadFileIsNamedOnce(t *testing.T) {
	s, log := openStore(t, Options{})
	os.WriteFile(s.path(FolderTrusted, "bad.der"), []byte("garbage"), 0o644)
	for range 5 {
		s.refresh(true)
	}
	if n := strings.Count(log.String(), "bad.der"); n != 1 {
		t.Errorf("named %d times: %s", n, log)
	}
}

var trustCommand = regexp.MustCompile(`refserver pki trust ([0-9A-F]{40}) --pki (\S+)`)

// The way of a new client: refused, found in the log and in rejected/, trusted by the command
// that the log line holds.
func TestRefusedCertificateNamesTheCommandThatTrustsIt(t *testing.T) {
	s, log := openStore(t, Options{})
	leaf := selfSignedLeaf(t)
	wantCode(t, s, leaf.Raw, ua.StatusBadCertificateUntrusted)
	m := trustCommand.FindStringSubmatch(log.String())
	if m == nil || m[1] != thumbprint(leaf.Certificate) || strings.Trim(m[2], `"`) != s.Dir() {
		t.Fatalf("log: %s", log)
	}
	if !strings.Contains(log.String(), "code=BadCertificateUntrusted") || !strings.Contains(log.String(), "applicationUri="+testURI) {
		t.Errorf("log: %s", log)
	}
	if _, err := s.Trust(m[1]); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s, leaf.Raw, ua.StatusGood)
	if rest, _ := os.ReadDir(s.path(FolderRejected)); len(rest) != 0 {
		t.Errorf("%v is left in rejected", rest)
	}
	// Refusals for another reason do not ask for trust and leave nothing.
	if _, err := s.Validate(leaf.Raw, Check{ApplicationURI: "urn:other"}); err == nil {
		t.Error("accepted")
	}
	if n := len(trustCommand.FindAllString(log.String(), -1)); n != 1 {
		t.Errorf("%d commands in the log", n)
	}
	if rest, _ := os.ReadDir(s.path(FolderRejected)); len(rest) != 0 {
		t.Errorf("%v is in rejected", rest)
	}
}

func TestRejectedIsBounded(t *testing.T) {
	s, _ := openStore(t, Options{RejectedLimit: 3})
	var leaves []*authority
	for i := range 5 {
		leaf := selfSignedLeaf(t)
		leaves = append(leaves, leaf)
		wantCode(t, s, leaf.Raw, ua.StatusBadCertificateUntrusted)
		then := time.Now().Add(time.Duration(i-100) * time.Second) // the earlier the older
		os.Chtimes(s.path(FolderRejected, fileName(leaf.Certificate)), then, then)
		if i == 3 { // the second one comes again and is the newest
			wantCode(t, s, leaves[1].Raw, ua.StatusBadCertificateUntrusted)
		}
	}
	list, err := s.List()
	if err != nil || len(list) != 3 {
		t.Fatalf("%d files, %v", len(list), err)
	}
	for i, want := range []bool{false, true, false, true, true} {
		_, err := os.Stat(s.path(FolderRejected, fileName(leaves[i].Certificate)))
		if (err == nil) != want {
			t.Errorf("certificate %d: %v, want kept = %v", i, err, want)
		}
	}
	none, _ := openStore(t, Options{RejectedLimit: -1})
	wantCode(t, none, leaves[0].Raw, ua.StatusBadCertificateUntrusted)
	if list, _ := none.List(); len(list) != 0 {
		t.Error("kept although the limit is none")
	}
}

// The operator learns who was refused, and why.
func TestRefusalsNameThePeer(t *testing.T) {
	s, log := openStore(t, Options{})
	check := Check{Policy: security.Basic256Sha256, Remote: netip.MustParseAddrPort("192.0.2.7:50123"), ChannelID: 17, User: true}
	s.Validate([]byte("garbage"), check)
	for _, part := range []string{"certificate refused", "code=BadCertificateInvalid", "remote=192.0.2.7:50123", "channel=17", "kind=user"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("%s is missing in %s", part, log)
		}
	}
}

// A flood of unknown certificates writes neither log nor disk full.
func TestRefusalsAreReportedAtABoundedRate(t *testing.T) {
	s, log := openStore(t, Options{})
	for range 3 * reportBurst {
		s.Validate([]byte("garbage"), clientCheck)
	}
	if n := strings.Count(log.String(), "certificate refused"); n < reportBurst || n > 2*reportBurst {
		t.Errorf("%d log lines for %d refusals", n, 3*reportBurst)
	}
	if s.quiet.Load() == 0 {
		t.Error("the unlogged ones are not counted")
	}
}

func TestCertificateContentMakesNoPath(t *testing.T) {
	for _, cn := range []string{"../../etc/passwd", "/etc/passwd", "..", ".", "", "\x00", "C:\\x", "ä/ö", strings.Repeat("x", 500), "-rf", "a b@c.d:e", ".hidden"} {
		name := fileName(&x509.Certificate{Subject: pkix.Name{CommonName: cn}, Raw: []byte(cn)})
		if filepath.Base(name) != name || !filepath.IsLocal(name) || !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*-[0-9A-F]{40}\.der$`).MatchString(name) || len(name) > 100 {
			t.Errorf("%q becomes %q", cn, name)
		}
	}
	s, _ := openStore(t, Options{})
	leaf := selfSignedLeaf(t, func(c *x509.Certificate) { c.Subject.CommonName = "../../../evil" })
	wantCode(t, s, leaf.Raw, ua.StatusBadCertificateUntrusted)
	list, _ := s.List()
	if len(list) != 1 || filepath.Dir(list[0].File) != s.path(FolderRejected) {
		t.Errorf("%+v", list)
	}
}

func TestH4_FlatDescriptors(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc")
		}
		return len(entries)
	}
	s, _ := openStore(t, Options{RejectedLimit: 5})
	trusted, unknown := selfSignedLeaf(t), selfSignedLeaf(t)
	s.put(t, FolderTrusted, trusted.Raw)
	before := count()
	for i := range 10_000 {
		if _, err := s.Validate(trusted.Raw, clientCheck); err != nil {
			t.Fatal(err)
		}
		if i%20 == 0 {
			if _, err := s.Validate(unknown.Raw, clientCheck); err == nil {
				t.Fatal("accepted")
			}
			os.Chtimes(s.path(FolderTrusted), time.Now(), time.Now())
		}
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestConcurrentUse(t *testing.T) {
	s, _ := openStore(t, Options{RejectedLimit: 2})
	leaves := []*authority{selfSignedLeaf(t), selfSignedLeaf(t), selfSignedLeaf(t)}
	for _, l := range leaves {
		s.put(t, FolderTrusted, l.Raw)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 50 {
				leaf := leaves[(i+j)%3]
				_, err := s.Validate(leaf.Raw, clientCheck)
				if c := uastatus.Code(err); c != ua.StatusGood && c != ua.StatusBadCertificateUntrusted {
					t.Errorf("got %v", err)
				}
				s.Version()
			}
		})
	}
	wg.Go(func() {
		for j := range 20 {
			ref := thumbprint(leaves[j%3].Certificate)
			if _, err := s.Reject(ref); err != nil {
				t.Errorf("reject: %v", err)
			}
			// With two places in rejected the file may be gone again: trust from a copy.
			path := filepath.Join(t.TempDir(), "c.der")
			os.WriteFile(path, leaves[j%3].Raw, 0o644)
			if _, err := s.Trust(path); err != nil {
				t.Errorf("trust: %v", err)
			}
			if _, err := s.List(); err != nil && !strings.Contains(fmt.Sprint(err), "no such file") {
				t.Errorf("list: %v", err)
			}
		}
	})
	wg.Wait()
	for _, l := range leaves {
		wantCode(t, s, l.Raw, ua.StatusGood)
	}
}
