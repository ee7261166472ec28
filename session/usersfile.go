package session

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxUsersFile bounds the users file in bytes: about 50,000 users.
const maxUsersFile = 16 << 20

const usersHeader = `# Users of this server. Change it with "refserver user add|del|list", or by hand:
# a running server reads it again. Passwords are argon2id hashes.
`

// usersDocument is the users file.
type usersDocument struct {
	Users map[string]userRecord `yaml:"users"`
}

type userRecord struct {
	Password string `yaml:"password,omitempty"`
	Admin    bool   `yaml:"admin,omitempty"`
	Tenant   string `yaml:"tenant,omitempty"`
	// Certificates are the thumbprints of certificates that the user may log in with.
	Certificates []string `yaml:"certificates,omitempty"`
}

// user is a userRecord ready for use.
type user struct {
	User
	stored string // the hash as it stands in the file
	hash   passwordHash
}

// User is one entry of the users file without its password.
type User struct {
	Name   string
	Admin  bool   // may call administrative methods
	Tenant string // admission scope, "" is the default tenant
	// Certificates are the user's, by thumbprint: SHA-1 as 40 or SHA-256 as 64
	// hexadecimal digits. Who logs in with one of them is this user, as who knows
	// the password is.
	Certificates []string
}

// readUsers reads and checks the file. A file that is not there has no users.
func readUsers(path string) (map[string]*user, fs.FileInfo, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]*user{}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxUsersFile+1))
	if err != nil {
		return nil, info, err
	}
	if len(b) > maxUsersFile {
		return nil, info, fmt.Errorf("%s is larger than %d bytes", path, maxUsersFile)
	}
	users, err := parseUsers(b)
	if err != nil {
		return nil, info, fmt.Errorf("%s: %w", path, err)
	}
	return users, info, nil
}

func parseUsers(b []byte) (map[string]*user, error) {
	var doc usersDocument
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	users := make(map[string]*user, len(doc.Users))
	for name, r := range doc.Users {
		if err := checkUserName(name); err != nil {
			return nil, err
		}
		u := &user{User: User{Name: name, Admin: r.Admin, Tenant: r.Tenant, Certificates: r.Certificates}, stored: r.Password}
		if r.Password != "" || len(r.Certificates) == 0 {
			var err error
			if u.hash, err = parsePasswordHash(r.Password); err != nil {
				return nil, fmt.Errorf("user %q: %w", name, err)
			}
		}
		users[name] = u
	}
	if err := checkCertificates(users); err != nil {
		return nil, err
	}
	return users, nil
}

// writeUsers replaces the file atomically; only its owner may read it.
func writeUsers(path string, users map[string]*user) error {
	doc := usersDocument{Users: make(map[string]userRecord, len(users))}
	for name, u := range users {
		doc.Users[name] = userRecord{Password: u.stored, Admin: u.Admin, Tenant: u.Tenant, Certificates: u.Certificates}
	}
	body, err := yaml.Marshal(doc)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".users-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append([]byte(usersHeader), body...))
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	// Best effort: not every file system lets a folder be synced.
	if d, err := os.Open(dir); err == nil {
		d.Sync()
		d.Close()
	}
	return nil
}

func checkUserName(name string) error {
	if name == "" || len(name) > maxUserNameLength {
		return fmt.Errorf("a user name has 1 to %d bytes", maxUserNameLength)
	}
	if !utf8.ValidString(name) {
		return errors.New("a user name is valid UTF-8")
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("user name %q holds a character that does not print", name)
		}
	}
	return nil
}

// thumbprintOf reads a thumbprint as people write it: with colons or spaces, in
// any case.
func thumbprintOf(s string) (string, error) {
	t := strings.ToLower(strings.Map(func(r rune) rune {
		if r == ':' || r == ' ' {
			return -1
		}
		return r
	}, s))
	if b, err := hex.DecodeString(t); err != nil || len(b) != sha1.Size && len(b) != sha256.Size {
		return "", fmt.Errorf("%q is no thumbprint: it has 40 or 64 hexadecimal digits", s)
	}
	return t, nil
}

// checkCertificates sees to it that a certificate is one user's only.
func checkCertificates(users map[string]*user) error {
	owner := make(map[string]string)
	for name, u := range users {
		for _, c := range u.Certificates {
			t, err := thumbprintOf(c)
			if err != nil {
				return fmt.Errorf("user %q: certificate %w", name, err)
			}
			if other, taken := owner[t]; taken && other != name {
				return fmt.Errorf("certificate %s belongs to two users", t)
			}
			owner[t] = name
		}
	}
	return nil
}

func checkPassword(p []byte) error {
	if len(p) == 0 || len(p) > maxPasswordLength {
		return fmt.Errorf("a password has 1 to %d bytes", maxPasswordLength)
	}
	return nil
}
