package session

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
)

// cost is what one password check costs.
type cost struct {
	memory  uint32 // KiB
	time    uint32
	threads uint8
}

// standardCost is overload.md §8c: 19 MiB, two passes, one lane.
var standardCost = cost{memory: 19 << 10, time: 2, threads: 1}

const (
	saltLength = 16
	hashLength = 32
	// maxMemory and maxTime bound what a hand-written hash can make a login cost.
	maxMemory = 256 << 10
	maxTime   = 16
)

var errBadHash = errors.New("not an argon2id hash of the form $argon2id$v=19$m=…,t=…,p=…$salt$hash")

// passwordHash is a password as the users file keeps it.
type passwordHash struct {
	cost cost
	salt []byte
	sum  []byte
}

// newPasswordHash hashes password with a new salt.
func newPasswordHash(password []byte, c cost) passwordHash {
	h := passwordHash{cost: c, salt: make([]byte, saltLength)}
	rand.Read(h.salt)
	h.sum = argon2.IDKey(password, h.salt, c.time, c.memory, c.threads, hashLength)
	return h
}

// matches computes the hash of password and compares in constant time.
func (h passwordHash) matches(password []byte) bool {
	sum := argon2.IDKey(password, h.salt, h.cost.time, h.cost.memory, h.cost.threads, uint32(len(h.sum)))
	return subtle.ConstantTimeCompare(sum, h.sum) == 1
}

// String is the PHC string form.
func (h passwordHash) String() string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version,
		h.cost.memory, h.cost.time, h.cost.threads, b64.EncodeToString(h.salt), b64.EncodeToString(h.sum))
}

func parsePasswordHash(s string) (passwordHash, error) {
	var h passwordHash
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return h, errBadHash
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.cost.memory, &h.cost.time, &h.cost.threads); err != nil {
		return h, errBadHash
	}
	c := h.cost
	if c.time < 1 || c.time > maxTime || c.threads < 1 || c.memory < 8*uint32(c.threads) || c.memory > maxMemory {
		return h, fmt.Errorf("argon2id cost m=%d,t=%d,p=%d is out of range", c.memory, c.time, c.threads)
	}
	var err error
	if h.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil || len(h.salt) < 8 || len(h.salt) > 64 {
		return h, errBadHash
	}
	if h.sum, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil || len(h.sum) < 16 || len(h.sum) > 64 {
		return h, errBadHash
	}
	return h, nil
}
