package opensslkey_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/opensslkey"
)

func keys(t testing.TB) (*rsa.PrivateKey, *opensslkey.Key) {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	fast, err := opensslkey.New(k)
	if !opensslkey.Available {
		if err == nil {
			t.Fatal("New must say that the package was built without OpenSSL")
		}
		t.Skip("built without -tags openssl; ci/openssl runs these tests with it")
	}
	if err != nil {
		t.Fatal(err)
	}
	return k, fast
}

// What OpenSSL makes, Go's implementation accepts.
func TestAgreesWithGo(t *testing.T) {
	k, fast := keys(t)
	sum := sha256.Sum256([]byte("breakwater"))
	sig, err := fast.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil || rsa.VerifyPKCS1v15(&k.PublicKey, crypto.SHA256, sum[:], sig) != nil {
		t.Errorf("PKCS #1 v1.5: %v", err)
	}
	pss := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
	sig, err = fast.Sign(rand.Reader, sum[:], pss)
	if err != nil || rsa.VerifyPSS(&k.PublicKey, crypto.SHA256, sum[:], sig, pss) != nil {
		t.Errorf("PSS: %v", err)
	}
	for _, h := range []crypto.Hash{crypto.SHA1, crypto.SHA256} {
		secret, err := rsa.EncryptOAEP(h.New(), rand.Reader, &k.PublicKey, []byte("secret"), nil)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := fast.Decrypt(rand.Reader, secret, &rsa.OAEPOptions{Hash: h})
		if err != nil || string(plain) != "secret" {
			t.Errorf("OAEP with %v: %q, %v", h, plain, err)
		}
		secret[9] ^= 1
		if _, err := fast.Decrypt(rand.Reader, secret, &rsa.OAEPOptions{Hash: h}); err == nil {
			t.Errorf("OAEP with %v: a mangled block was decrypted", h)
		}
	}
}

// Every policy works with the key in the place of Go's.
func TestServesEveryPolicy(t *testing.T) {
	k, fast := keys(t)
	tpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &k.PublicKey, fast)
	if err != nil {
		t.Fatal(err)
	}
	gate := security.NewCryptoGate(1)
	defer gate.Close()
	key, err := security.NewKey([][]byte{der}, fast, fast, gate)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range security.Policies() {
		if p.IsNone() {
			continue
		}
		sig, err := p.Sign(context.Background(), key, security.PrioritySession, []byte("data"))
		if err != nil || p.Verify(key.Public(), []byte("data"), sig) != nil {
			t.Errorf("%s: sign: %v", p.Name, err)
		}
		n := 2 * p.PlainBlock(key.Public()) // OpenSecureChannel is padded to whole blocks
		secret, err := p.Encrypt(nil, make([]byte, n), key.Public())
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := p.Decrypt(context.Background(), key, security.PrioritySession, nil, secret); err != nil || len(plain) != n {
			t.Errorf("%s: decrypt: %d bytes, %v", p.Name, len(plain), err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	k, fast := keys(b)
	sum := sha256.Sum256([]byte("breakwater"))
	for name, s := range map[string]crypto.Signer{"go": k, "openssl": fast} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Sign(rand.Reader, sum[:], crypto.SHA256); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
