package session

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopcua/opcua/ua"
)

// overload.md §12: several credentials of one principal are one principal, in
// whichever way its certificate is written.
func TestUsersCertificateIsTheUser(t *testing.T) {
	cert := &x509.Certificate{Raw: []byte("pretend this is DER")}
	short := fmt.Sprintf("%X", sha1.Sum(cert.Raw))
	for name, print := range map[string]string{
		"SHA-1":         short,
		"with colons":   strings.TrimSuffix(strings.ToLower(strings.Join(pairs(short), ":")), ":"),
		"SHA-256":       fmt.Sprintf("%x", sha256.Sum256(cert.Raw)),
		"somebody else": strings.Repeat("0", 40),
	} {
		t.Run(name, func(t *testing.T) {
			u := testUsers(t, UsersOptions{})
			if err := u.SetAttributes(User{Name: "alice", Tenant: "plant", Admin: true, Certificates: []string{print}}); err != nil {
				t.Fatal(err)
			}
			if err := u.SetAttributes(User{Name: "alice", Tenant: "plant", Admin: true}); err != nil { // keeps them
				t.Fatal(err)
			}
			d := &Identities{Users: u, Certificates: true}
			id, err := d.Authenticate(context.Background(), &Attempt{Kind: ua.UserTokenTypeCertificate, Certificate: cert})
			if err != nil {
				t.Fatal(err)
			}
			want := "alice plant true"
			if name == "somebody else" {
				want = "  false"
			}
			if got := fmt.Sprint(id.User, " ", id.Tenant, " ", id.Admin); got != want {
				t.Errorf("the certificate is %q, want %q", got, want)
			}
			if code := u.try("alice", "wonder", here); code != ua.StatusOK {
				t.Errorf("the password: %v", code)
			}
		})
	}
}

func pairs(s string) (out []string) {
	for i := 0; i < len(s); i += 2 {
		out = append(out, s[i:i+2])
	}
	return out
}

// A user may have certificates and no password; nobody guesses that one.
func TestUserWithoutPassword(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	file := func(s string) error { return os.WriteFile(path, []byte(s), 0o600) }
	if err := file("users:\n  bob:\n    certificates: [" + strings.Repeat("ab", 20) + "]\n"); err != nil {
		t.Fatal(err)
	}
	u, err := openUsers(path, UsersOptions{}, cheap)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"", "x"} {
		if code := u.try("bob", p, here); code != ua.StatusBadUserAccessDenied {
			t.Errorf("password %q: %v", p, code)
		}
	}
	for name, s := range map[string]string{
		"neither":       "users:\n  bob: {}\n",
		"no thumbprint": "users:\n  bob:\n    certificates: [zz]\n",
		"two owners":    "users:\n  bob:\n    certificates: [" + strings.Repeat("ab", 20) + "]\n  eve:\n    certificates: [" + strings.Repeat("AB", 20) + "]\n",
	} {
		if err := file(s); err != nil {
			t.Fatal(err)
		}
		if _, err := openUsers(path, UsersOptions{}, cheap); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
