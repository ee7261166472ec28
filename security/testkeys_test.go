package security

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"os"
	"sync"
	"testing"
	"time"
)

var (
	testKeysMu sync.Mutex
	testKeys   = map[int]*rsa.PrivateKey{}
)

// testKey returns the fixed RSA key of that length in testdata.
func testKey(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	testKeysMu.Lock()
	defer testKeysMu.Unlock()
	if k := testKeys[bits]; k != nil {
		return k
	}
	data, err := os.ReadFile(fmt.Sprintf("testdata/rsa%d.pem", bits))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	k, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	testKeys[bits] = k
	return k
}

func testCertificate(t testing.TB, k *rsa.PrivateKey) []byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func testGate(t testing.TB, workers int) *CryptoGate {
	t.Helper()
	g := NewCryptoGate(workers)
	t.Cleanup(g.Close)
	return g
}

func newTestKey(t testing.TB, bits int, g *CryptoGate) *Key {
	t.Helper()
	priv := testKey(t, bits)
	k, err := NewKey([][]byte{testCertificate(t, priv)}, priv, priv, g)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// watchedKey is a private key behind interfaces that calls before at each use.
type watchedKey struct {
	*rsa.PrivateKey
	before func(op string)
}

func (w watchedKey) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	w.before("sign")
	return w.PrivateKey.Sign(r, digest, opts)
}

func (w watchedKey) Decrypt(r io.Reader, msg []byte, opts crypto.DecrypterOpts) ([]byte, error) {
	w.before("decrypt")
	return w.PrivateKey.Decrypt(r, msg, opts)
}
