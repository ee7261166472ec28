package security

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"testing"

	"github.com/gopcua/opcua/uapolicy"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The SHA-256 vector is the one of the IETF TLS list for the TLS 1.2 PRF; the SHA-1 one comes
// from OpenSSL: openssl kdf -kdfopt digest:SHA1 … TLS1-PRF.
func TestPSHA_RFC5246_5(t *testing.T) {
	count := make([]byte, 32)
	down := make([]byte, 32)
	for i := range count {
		count[i], down[i] = byte(i), byte(255-i)
	}
	for _, c := range []struct {
		name         string
		h            func() hash.Hash
		secret, seed []byte
		want         string
	}{
		{"P_SHA256", sha256.New, unhex(t, "9bbe436ba940f017b17652849a71db35"), append([]byte("test label"), unhex(t, "a0ba9f936cda311827a6f796ffd5198c")...),
			"e3f229ba727be17b8d122620557cd453c2aab21d07c3d495329b52d4e61edb5a6b301791e90d35c9c9a46b4e14baf9af0fa022f7077def17abfd3797c0564bab4fbc91666e9def9b97fce34f796789baa48082d122ee42c5a72e5a5110fff70187347b66"},
		{"P_SHA1", sha1.New, count, down,
			"abd920a34b1fa152da9c8b13e016fe44e94bc1d1639210714f874da0d01f57cc62959b0aafc7637b17e5d815e2c27783a3cfa5ff2957bdb103dae8d3dc8b62f63a2aa99074207f82"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := unhex(t, c.want)
			for n := 1; n <= len(want); n++ {
				if got := pSHA(c.h, c.secret, c.seed, n); !bytes.Equal(got, want[:n]) {
					t.Fatalf("%d bytes: %x, want %x", n, got, want[:n])
				}
			}
		})
	}
}

func TestSymmetricAgainstGopcua_Part6_6_7_5(t *testing.T) {
	for p := range strangers() {
		t.Run(p.Name, func(t *testing.T) {
			client, server := Nonce(p.NonceLength()), Nonce(p.NonceLength())
			// gopcua as the client: local is the client's nonce.
			theirs, err := uapolicy.Symmetric(p.URI, client, server)
			if err != nil {
				t.Fatal(err)
			}
			receive := p.Derive(server, client) // what the client sends
			send := p.Derive(client, server)
			for _, n := range []int{16, 64, 4096} {
				data := Nonce(n)

				sig, err := theirs.Signature(data)
				if err != nil {
					t.Fatal(err)
				}
				if len(sig) != receive.SignatureSize() || !receive.Verify(data, sig) {
					t.Errorf("%d bytes: gopcua's signature refused", n)
				}
				for _, bad := range [][]byte{nil, sig[1:], append([]byte{sig[0] ^ 1}, sig[1:]...)} {
					if receive.Verify(data, bad) {
						t.Errorf("%d bytes: signature %x accepted", n, bad)
					}
				}
				c, err := theirs.Encrypt(bytes.Clone(data))
				if err != nil {
					t.Fatal(err)
				}
				if !receive.Decrypt(c) || !bytes.Equal(c, data) {
					t.Errorf("%d bytes: gopcua's ciphertext does not decrypt", n)
				}

				if err := theirs.VerifySignature(data, send.Sign(nil, data)); err != nil {
					t.Errorf("%d bytes: gopcua refuses our signature: %v", n, err)
				}
				b := bytes.Clone(data)
				send.Encrypt(b)
				if got, err := theirs.Decrypt(b); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes: gopcua cannot decrypt: %v", n, err)
				}
			}
		})
	}
}

func TestSymmetricDecryptRefusesPartialBlocks(t *testing.T) {
	s := Basic256Sha256.Derive(Nonce(32), Nonce(32))
	b := bytes.Repeat([]byte{7}, 33)
	if s.Decrypt(b) || !bytes.Equal(b, bytes.Repeat([]byte{7}, 33)) {
		t.Error("33 bytes were decrypted")
	}
	if !s.Decrypt(nil) {
		t.Error("no bytes are no error")
	}
	if None.Derive(nil, nil) != nil {
		t.Error("None has keys")
	}
}

func TestSymmetricAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for p := range strangers() {
		s := p.Derive(Nonce(32), Nonce(32))
		b := make([]byte, 8192, 8192+32)
		sig := s.Sign(nil, b)
		for name, f := range map[string]func(){
			"Sign":    func() { s.Sign(b, b) },
			"Verify":  func() { s.Verify(b, sig) },
			"Encrypt": func() { s.Encrypt(b) },
			"Decrypt": func() { s.Decrypt(b) },
		} {
			if n := testing.AllocsPerRun(100, f); n != 0 {
				t.Errorf("%s %s: %v allocations", p, name, n)
			}
		}
	}
}

func BenchmarkSymmetric(b *testing.B) {
	for _, p := range []*Policy{Basic256Sha256, Aes128Sha256RsaOaep} {
		for _, n := range []int{64, 1024, 8192, 65536 - 32} {
			buf := make([]byte, n, n+32)
			for _, dir := range []string{"send", "receive"} {
				b.Run(fmt.Sprintf("%s/%d/%s", p, n, dir), func(b *testing.B) {
					s := p.Derive(Nonce(32), Nonce(32))
					sig := s.Sign(nil, buf)
					b.ReportAllocs()
					b.SetBytes(int64(n))
					for b.Loop() {
						if dir == "send" {
							s.Sign(buf, buf)
							s.Encrypt(buf)
						} else {
							s.Decrypt(buf)
							s.Verify(buf, sig)
						}
					}
				})
			}
		}
	}
}

func BenchmarkDerive(b *testing.B) {
	secret, seed := Nonce(32), Nonce(32)
	b.ReportAllocs()
	for b.Loop() {
		Basic256Sha256.Derive(secret, seed)
	}
}
