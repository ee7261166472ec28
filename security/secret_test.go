package security

import (
	"bytes"
	"crypto/rsa"
	"encoding/binary"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

func TestSecret_Part4_7_40_2_2(t *testing.T) {
	gate := testGate(t, 1)
	for p, lengths := range strangers() {
		k := newTestKey(t, lengths[0], gate)
		nonce := Nonce(32)
		for _, n := range []int{0, 1, 64, 1000} {
			secret := Nonce(n)
			c, err := p.EncryptSecret(k.Public(), secret, nonce)
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.DecryptSecret(t.Context(), k, PrioritySession, c, nonce)
			if err != nil || !bytes.Equal(got, secret) {
				t.Errorf("%s: a secret of %d bytes came back as %d, %v", p, n, len(got), err)
			}
		}
		// .NET fills the last block with zeros behind the nonce.
		plain := binary.LittleEndian.AppendUint32(nil, uint32(4+len(nonce)))
		plain = append(append(append(plain, "word"...), nonce...), make([]byte, p.PlainBlock(k.Public())-8-len(nonce))...)
		c, err := p.Encrypt(nil, plain, k.Public())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.DecryptSecret(t.Context(), k, PrioritySession, c, nonce); err != nil || string(got) != "word" {
			t.Errorf("%s: padded secret: %q, %v", p, got, err)
		}
	}
}

// forge encrypts an encoded message of the attacker's choice with textbook RSA.
func forge(pub *rsa.PublicKey, em []byte) []byte {
	c := new(big.Int).Exp(new(big.Int).SetBytes(em), big.NewInt(int64(pub.E)), pub.N)
	return c.FillBytes(make([]byte, pub.Size()))
}

// pkcs1 is 00 02 ‖ padding ‖ 00 ‖ msg.
func pkcs1(size int, msg []byte) []byte {
	em := bytes.Repeat([]byte{0xa5}, size)
	em[0], em[1] = 0, 2
	em[size-len(msg)-1] = 0
	copy(em[size-len(msg):], msg)
	return em
}

func TestX21_SecretsFailUniformly(t *testing.T) {
	gate := testGate(t, 1)
	nonce := Nonce(32)
	for p, lengths := range strangers() {
		k := newTestKey(t, lengths[0], gate)
		size := k.Public().Size()
		encrypted := func(plain []byte) []byte {
			c, err := p.Encrypt(nil, plain, k.Public())
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		length := func(n uint32, rest ...[]byte) []byte {
			return append(binary.LittleEndian.AppendUint32(nil, n), bytes.Join(rest, nil)...)
		}
		good, _ := p.EncryptSecret(k.Public(), []byte("password"), nonce)
		flipped := bytes.Clone(good)
		flipped[len(flipped)-1] ^= 1
		noZero := pkcs1(size, nil)
		noZero[size-1] = 0xa5
		shortPad := pkcs1(size, []byte("x"))
		shortPad[5] = 0
		wrongType := pkcs1(size, []byte("x"))
		wrongType[1] = 1
		cases := map[string][]byte{
			"empty":                 {},
			"no whole block":        good[1:],
			"too many blocks":       bytes.Repeat(good, MaxDecryptBlocks+1),
			"flipped bit":           flipped,
			"zero":                  make([]byte, size),
			"above the modulus":     bytes.Repeat([]byte{0xff}, size),
			"block type":            forge(k.Public(), wrongType),
			"no separator":          forge(k.Public(), noZero),
			"padding too short":     forge(k.Public(), shortPad),
			"well padded, empty":    forge(k.Public(), pkcs1(size, nil)), /* for OAEP simply wrong */
			"well padded, 1 byte":   encrypted([]byte{1}),
			"nonce of another time": encrypted(length(40, []byte("password"), Nonce(32))),
			"length too small":      encrypted(length(31, []byte("password"), nonce)),
			"length too large":      encrypted(length(41, []byte("password"), nonce)),
			"length huge":           encrypted(length(0xffffffff, []byte("password"), nonce)),
			"length zero":           encrypted(length(0, []byte("password"), nonce)),
			"nonce not at the end":  encrypted(length(41, []byte("password"), nonce, []byte{0})),
		}
		for name, c := range cases {
			_, err := p.DecryptSecret(t.Context(), k, PrioritySession, c, nonce)
			if err == nil || err.Error() != errRejected().Error() || uastatus.Code(err) != ua.StatusBadIdentityTokenRejected {
				t.Errorf("%s, %s: %v", p, name, err)
			}
		}
		if _, err := p.DecryptSecret(t.Context(), k, PrioritySession, good, nil); err == nil {
			t.Errorf("%s: accepted without a nonce", p)
		}
		if _, err := None.DecryptSecret(t.Context(), k, PrioritySession, []byte("password"), nonce); err == nil {
			t.Error("None decrypted something")
		}
	}
}

func TestX21_ChannelPaddingIsNoOracle(t *testing.T) {
	gate := testGate(t, 1)
	k := newTestKey(t, 2048, gate)
	size := k.Public().Size()
	block := Basic128Rsa15.PlainBlock(k.Public())
	noZero := pkcs1(size, nil)
	noZero[size-1] = 0xa5
	wrongType := pkcs1(size, make([]byte, block))
	wrongType[1] = 1
	for name, c := range map[string][]byte{
		"block type":          forge(k.Public(), wrongType),
		"no separator":        forge(k.Public(), noZero),
		"well padded, short":  forge(k.Public(), pkcs1(size, []byte("short"))),
		"well padded, empty":  forge(k.Public(), pkcs1(size, nil)),
		"well padded, 1 less": forge(k.Public(), pkcs1(size, make([]byte, block-1))),
	} {
		a, err := Basic128Rsa15.Decrypt(t.Context(), k, PriorityIssue, nil, c)
		if err != nil || len(a) != block {
			t.Errorf("%s: %d bytes, %v; want %d random ones", name, len(a), err, block)
			continue
		}
		if b, _ := Basic128Rsa15.Decrypt(t.Context(), k, PriorityIssue, nil, c); bytes.Equal(a, b) {
			t.Errorf("%s: the substitute is not random", name)
		}
	}
	for p := range strangers() {
		for name, c := range map[string][]byte{"empty": nil, "no whole block": make([]byte, size-1), "too many": make([]byte, size*(MaxDecryptBlocks+1))} {
			if _, err := p.Decrypt(t.Context(), k, PriorityIssue, nil, c); err == nil || err.Error() != errDecrypt().Error() {
				t.Errorf("%s, %s: %v", p, name, err)
			}
		}
		if p != Basic128Rsa15 {
			if _, err := p.Decrypt(t.Context(), k, PriorityIssue, nil, make([]byte, 2*size)); err == nil || err.Error() != errDecrypt().Error() {
				t.Errorf("%s: garbage: %v", p, err)
			}
		}
	}
}

// Good and bad padding must cost the same; within a factor that noise cannot exceed and an
// early return would (a returned private-key operation is the whole cost).
func TestX21_Time(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("measures")
	}
	k := newTestKey(t, 2048, testGate(t, 1))
	nonce := Nonce(32)
	good, _ := Basic128Rsa15.EncryptSecret(k.Public(), []byte("password"), nonce)
	bad := forge(k.Public(), bytes.Repeat([]byte{0x55}, 256))
	// Taken in turns, so that a busy machine slows both.
	best := [2]time.Duration{time.Hour, time.Hour}
	for range 60 {
		for i, c := range [][]byte{good, bad} {
			start := time.Now()
			Basic128Rsa15.DecryptSecret(t.Context(), k, PrioritySession, c, nonce)
			best[i] = min(best[i], time.Since(start))
		}
	}
	if r := float64(best[1]) / float64(best[0]); r < 0.5 || r > 2 {
		t.Errorf("good padding takes %v, bad %v", best[0], best[1])
	}
}

func TestNewKey(t *testing.T) {
	gate := testGate(t, 1)
	priv, other := testKey(t, 2048), testKey(t, 3072)
	cert := testCertificate(t, priv)
	for name, f := range map[string]func() (*Key, error){
		"no certificate": func() (*Key, error) { return NewKey(nil, priv, priv, gate) },
		"no gate":        func() (*Key, error) { return NewKey([][]byte{cert}, priv, priv, nil) },
		"no signer":      func() (*Key, error) { return NewKey([][]byte{cert}, nil, priv, gate) },
		"not DER":        func() (*Key, error) { return NewKey([][]byte{{1, 2}}, priv, priv, gate) },
		"foreign key":    func() (*Key, error) { return NewKey([][]byte{cert}, other, other, gate) },
		"broken signer": func() (*Key, error) {
			return NewKey([][]byte{cert}, watchedKey{priv, func(string) { panic("HSM gone") }}, priv, gate)
		},
	} {
		if k, err := f(); err == nil || k != nil {
			t.Errorf("%s: accepted", name)
		}
	}
	k, err := NewKey([][]byte{cert, testCertificate(t, other)}, priv, priv, gate)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(k.Certificate(), cert) || len(k.Chain()) <= len(cert) || !bytes.HasPrefix(k.Chain(), cert) || k.Thumbprint() != Thumbprint(cert) {
		t.Error("certificate, chain or thumbprint differ")
	}
}

// A private key that fails (an HSM that is gone) is not the peer's fault.
func TestSignerFailure(t *testing.T) {
	priv := testKey(t, 2048)
	fail := false
	k, err := NewKey([][]byte{testCertificate(t, priv)}, watchedKey{priv, func(string) {
		if fail {
			panic(errors.New("HSM gone"))
		}
	}}, priv, testGate(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	fail = true
	if _, err := Basic256Sha256.Sign(t.Context(), k, PriorityIssue, []byte("x")); uastatus.Code(err) != ua.StatusBadInternalError {
		t.Errorf("got %v", err)
	}
}
