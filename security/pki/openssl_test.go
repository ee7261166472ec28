package pki

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gopcua/opcua/ua"
)

// A hierarchy made by OpenSSL (openssl req, openssl ca -gencrl), not by the library that reads it.
func TestHierarchyOfOpenSSL(t *testing.T) {
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join("testdata", "openssl", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	s, _ := openStore(t, Options{})
	wantCode(t, s, read("good.der"), ua.StatusBadCertificateChainIncomplete)
	os.WriteFile(s.path(FolderTrusted, "root.pem"), read("root.pem"), 0o644)
	wantCode(t, s, read("good.der"), ua.StatusBadCertificateRevocationUnknown)
	os.WriteFile(s.path(FolderTrustedCRL, "root.crl"), read("root.crl"), 0o644)
	wantCode(t, s, read("good.der"), ua.StatusGood)
	wantCode(t, s, read("revoked.der"), ua.StatusBadCertificateRevoked)
}
