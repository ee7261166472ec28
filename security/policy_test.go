package security

import (
	"bytes"
	"crypto/rsa"
	"math/big"
	"testing"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uapolicy"
)

// The parameters of OPC 10000-7 §6.6, written out a second time.
func TestPolicyParameters_Part7_6_6(t *testing.T) {
	for _, c := range []struct {
		p                                *Policy
		uri                              string
		least, most, nonce, sig, sigKey  int
		encKey, overhead2048             int
		signatureURI, encryptionURI      string
		deprecated, weakHash             bool
		symmetricBlock, asymmetricSigLen int
	}{
		{None, "http://opcfoundation.org/UA/SecurityPolicy#None", 0, 0, 0, 0, 0, 0, 0, "", "", false, false, 1, 0},
		{Basic128Rsa15, "http://opcfoundation.org/UA/SecurityPolicy#Basic128Rsa15", 1024, 2048, 16, 20, 16, 16, 11, "http://www.w3.org/2000/09/xmldsig#rsa-sha1", "http://www.w3.org/2001/04/xmlenc#rsa-1_5", true, true, 16, 256},
		{Basic256, "http://opcfoundation.org/UA/SecurityPolicy#Basic256", 1024, 2048, 32, 20, 24, 32, 42, "http://www.w3.org/2000/09/xmldsig#rsa-sha1", "http://www.w3.org/2001/04/xmlenc#rsa-oaep", true, true, 16, 256},
		{Basic256Sha256, "http://opcfoundation.org/UA/SecurityPolicy#Basic256Sha256", 2048, 4096, 32, 32, 32, 32, 42, "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256", "http://www.w3.org/2001/04/xmlenc#rsa-oaep", false, false, 16, 256},
		{Aes128Sha256RsaOaep, "http://opcfoundation.org/UA/SecurityPolicy#Aes128_Sha256_RsaOaep", 2048, 4096, 32, 32, 32, 16, 42, "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256", "http://www.w3.org/2001/04/xmlenc#rsa-oaep", false, false, 16, 256},
		{Aes256Sha256RsaPss, "http://opcfoundation.org/UA/SecurityPolicy#Aes256_Sha256_RsaPss", 2048, 4096, 32, 32, 32, 32, 66, "http://opcfoundation.org/UA/security/rsa-pss-sha2-256", "http://opcfoundation.org/UA/security/rsa-oaep-sha2-256", false, false, 16, 256},
	} {
		t.Run(c.p.Name, func(t *testing.T) {
			p, pub := c.p, &testKey(t, 2048).PublicKey
			least, most := p.KeyBits()
			if p.URI != c.uri || least != c.least || most != c.most || p.NonceLength() != c.nonce ||
				p.SymmetricSignatureLength() != c.sig || p.signingKey != c.sigKey || p.encryptingKey != c.encKey ||
				p.SignatureURI() != c.signatureURI || p.EncryptionURI() != c.encryptionURI ||
				p.Deprecated() != c.deprecated || p.WeakHash() != c.weakHash ||
				p.SymmetricBlockSize() != c.symmetricBlock || p.SignatureSize(pub) != c.asymmetricSigLen {
				t.Errorf("parameters differ: %+v", p)
			}
			if !p.IsNone() && p.CipherBlock(pub)-p.PlainBlock(pub) != c.overhead2048 {
				t.Errorf("a block costs %d bytes, want %d", p.CipherBlock(pub)-p.PlainBlock(pub), c.overhead2048)
			}
			if PolicyByURI(c.uri) != p || PolicyByName(p.Name) != p || PolicyByName(c.uri) != p {
				t.Error("the policy is not found by URI and name")
			}
		})
	}
	for i, p := range Policies()[1:] {
		if p.Strength() <= Policies()[i].Strength() {
			t.Errorf("%s is not stronger than %s", p, Policies()[i])
		}
	}
	if PolicyByURI("http://opcfoundation.org/UA/SecurityPolicy#none") != nil || PolicyByURI("") != nil || PolicyByName("x") != nil {
		t.Error("an unknown URI has a policy")
	}
}

func TestCheckKey_Part4_6_1_3_SecurityPolicyCheck(t *testing.T) {
	good := testKey(t, 2048).N
	odd := func(bits int) *big.Int {
		n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
		return n.SetBit(n, 0, 1)
	}
	for _, c := range []struct {
		name string
		p    *Policy
		pub  *rsa.PublicKey
		want ua.StatusCode
	}{
		{"2048", Basic256Sha256, &rsa.PublicKey{N: good, E: 65537}, ua.StatusGood},
		{"2047", Basic256Sha256, &rsa.PublicKey{N: odd(2047), E: 65537}, ua.StatusBadCertificatePolicyCheckFailed},
		{"4096", Aes256Sha256RsaPss, &rsa.PublicKey{N: odd(4096), E: 65537}, ua.StatusGood},
		{"4097", Aes256Sha256RsaPss, &rsa.PublicKey{N: odd(4097), E: 65537}, ua.StatusBadCertificatePolicyCheckFailed},
		{"1024 old", Basic256, &rsa.PublicKey{N: odd(1024), E: 65537}, ua.StatusGood},
		{"1023 old", Basic128Rsa15, &rsa.PublicKey{N: odd(1023), E: 65537}, ua.StatusBadCertificatePolicyCheckFailed},
		{"2049 old", Basic128Rsa15, &rsa.PublicKey{N: odd(2049), E: 65537}, ua.StatusBadCertificatePolicyCheckFailed},
		{"None takes any", None, nil, ua.StatusGood},
		{"X22 nil", Basic256Sha256, nil, ua.StatusBadCertificateInvalid},
		{"X22 zero modulus", Basic256Sha256, &rsa.PublicKey{N: new(big.Int), E: 65537}, ua.StatusBadCertificateInvalid},
		{"X22 modulus one", Basic256Sha256, &rsa.PublicKey{N: big.NewInt(1), E: 65537}, ua.StatusBadCertificateInvalid},
		{"X22 negative modulus", Basic256Sha256, &rsa.PublicKey{N: new(big.Int).Neg(good), E: 65537}, ua.StatusBadCertificateInvalid},
		{"X22 even modulus", Basic256Sha256, &rsa.PublicKey{N: new(big.Int).Lsh(good, 1), E: 65537}, ua.StatusBadCertificateInvalid},
		{"X22 exponent one is the identity", Basic256Sha256, &rsa.PublicKey{N: good, E: 1}, ua.StatusBadCertificateInvalid},
		{"X22 exponent zero", Basic256Sha256, &rsa.PublicKey{N: good, E: 0}, ua.StatusBadCertificateInvalid},
		{"X22 even exponent", Basic256Sha256, &rsa.PublicKey{N: good, E: 65536}, ua.StatusBadCertificateInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := uastatus.Code(c.p.CheckKey(c.pub)); got != c.want {
				t.Errorf("got %s, want %s", uastatus.Name(got), uastatus.Name(c.want))
			}
			if c.want != ua.StatusGood && c.pub != nil {
				if c.p.Verify(c.pub, []byte("data"), make([]byte, 256)) == nil {
					t.Error("Verify uses the key")
				}
				if _, err := c.p.Encrypt(nil, []byte("data"), c.pub); err == nil {
					t.Error("Encrypt uses the key")
				}
			}
		})
	}
}

// strangers pairs each policy with the key lengths that are tried against gopcua.
func strangers() map[*Policy][]int {
	return map[*Policy][]int{
		Basic128Rsa15:       {1024, 2048},
		Basic256:            {1024, 2048},
		Basic256Sha256:      {2048, 3072, 4096},
		Aes128Sha256RsaOaep: {2048, 3072},
		Aes256Sha256RsaPss:  {2048, 3072, 4096},
	}
}

func TestAsymmetricAgainstGopcua(t *testing.T) {
	gate := testGate(t, 1)
	for p, lengths := range strangers() {
		for _, bits := range lengths {
			k := newTestKey(t, bits, gate)
			theirs, err := uapolicy.Asymmetric(p.URI, testKey(t, bits), k.Public())
			if err != nil {
				t.Fatal(err)
			}
			data := Nonce(3*p.PlainBlock(k.Public()) - 7) // the last block is short
			full := Nonce(2 * p.PlainBlock(k.Public()))

			sig, err := p.Sign(t.Context(), k, PriorityIssue, data)
			if err != nil || len(sig) != p.SignatureSize(k.Public()) {
				t.Fatalf("%s %d: Sign: %d bytes, %v", p, bits, len(sig), err)
			}
			if err := theirs.VerifySignature(data, sig); err != nil {
				t.Errorf("%s %d: gopcua refuses our signature: %v", p, bits, err)
			}
			sig, err = theirs.Signature(data)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Verify(k.Public(), data, sig); err != nil {
				t.Errorf("%s %d: gopcua's signature: %v", p, bits, err)
			}
			sig[5] ^= 1
			if err := p.Verify(k.Public(), data, sig); uastatus.Code(err) != ua.StatusBadSecurityChecksFailed {
				t.Errorf("%s %d: broken signature: %v", p, bits, err)
			}
			if err := p.Verify(k.Public(), data, nil); err == nil {
				t.Errorf("%s %d: no signature accepted", p, bits)
			}

			c, err := p.Encrypt([]byte("head"), data, k.Public())
			if err != nil || !bytes.HasPrefix(c, []byte("head")) {
				t.Fatal(err)
			}
			if got, err := theirs.Decrypt(c[4:]); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s %d: gopcua cannot decrypt: %v", p, bits, err)
			}
			c, err = theirs.Encrypt(full)
			if err != nil {
				t.Fatal(err)
			}
			// In place: the plaintext goes where the ciphertext began.
			buf := append([]byte("head"), c...)
			got, err := p.Decrypt(t.Context(), k, PriorityIssue, buf[:4], buf[4:])
			if err != nil || !bytes.Equal(got[4:], full) || &got[0] != &buf[0] {
				t.Errorf("%s %d: gopcua's ciphertext: %v", p, bits, err)
			}
		}
	}
}

func TestNonce(t *testing.T) {
	a, b := Nonce(32), Nonce(32)
	if len(a) != 32 || bytes.Equal(a, b) || bytes.Equal(a, make([]byte, 32)) {
		t.Errorf("nonces %x and %x", a, b)
	}
}
