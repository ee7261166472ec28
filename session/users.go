package session

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uastatus"
)

// Errors of the users file's administration.
var (
	ErrUserExists  = errors.New("user exists")
	ErrUserUnknown = errors.New("no such user")
)

var (
	errLocked    = errors.New("locked after too many wrong passwords")
	errWrong     = errors.New("unknown user or wrong password")
	errNowLocked = errors.New("unknown user or wrong password; now locked")
)

// UsersOptions configure [OpenUsers].
type UsersOptions struct {
	// LockoutFailures is how many wrong passwords lock a user name for a remote
	// address. 0: 5. Negative: never.
	LockoutFailures int
	// LockoutPeriod is how long a lock lasts, and after how long without a failure
	// earlier ones are forgotten. 0 or negative: 5 min.
	LockoutPeriod time.Duration
	// MaxConcurrentHashes bounds the argon2id computations at once, each of which
	// takes 19 MiB. 0 or negative: 2.
	MaxConcurrentHashes int
	// Logger is told when the file changed or cannot be read. nil: nothing.
	Logger *slog.Logger
}

// Users checks user names and passwords against a YAML file:
//
//	users:
//	  alice:
//	    password: $argon2id$v=19$m=19456,t=2,p=1$…$…
//	    admin: true
//	    tenant: plant-a
//	    certificates: [3F786850E387550FDAB836ED7E6DC881DE23001B]
//
// The file is read again when it changed. While it is there but cannot be read
// or parsed the last good content stays in force; a file that is gone has no
// users. Users is safe for concurrent use.
type Users struct {
	path    string
	log     *slog.Logger
	cost    cost
	dummy   passwordHash
	lockout *lockout
	cache   *verified
	hashing chan struct{} // one token per argon2id computation

	changing sync.Mutex // serialises Add, Delete, SetPassword, SetAttributes

	mu    sync.RWMutex
	users map[string]*user
	info  fs.FileInfo // of what was read last; nil when there was no file
	bad   bool        // what was read last could not be used
}

// OpenUsers reads the users file. A file that does not exist has no users and is
// created by [Users.Add].
func OpenUsers(path string, o UsersOptions) (*Users, error) {
	return openUsers(path, o, standardCost)
}

func openUsers(path string, o UsersOptions, c cost) (*Users, error) {
	if o.LockoutFailures == 0 {
		o.LockoutFailures = 5
	}
	u := &Users{
		path:    path,
		log:     o.Logger,
		cost:    c,
		dummy:   passwordHash{cost: c, salt: make([]byte, saltLength), sum: make([]byte, hashLength)},
		lockout: newLockout(o.LockoutFailures, orDuration(o.LockoutPeriod, 5*time.Minute)),
		cache:   newVerified(),
		hashing: make(chan struct{}, orInt(o.MaxConcurrentHashes, 2)),
	}
	if u.log == nil {
		u.log = slog.New(slog.DiscardHandler)
	}
	var err error
	u.users, u.info, err = readUsers(path)
	if err != nil {
		return nil, err
	}
	u.warnIfReadable()
	return u, nil
}

// Verify checks a password. Its error is BadUserAccessDenied for an unknown
// user, a wrong password and a locked pair of user and address alike; unknown
// users cost the same as wrong passwords. It waits for its turn to hash until
// ctx ends.
func (u *Users) Verify(ctx context.Context, name string, password []byte, remote netip.Addr) (User, error) {
	if len(name) > maxUserNameLength || checkPassword(password) != nil {
		return User{}, denied(errWrong)
	}
	k := keyOf(name, remote)
	if u.lockout.locked(k, time.Now()) {
		return User{}, denied(errLocked)
	}
	entry := u.current()[name]
	if entry != nil && entry.stored == "" { // logs in by certificate only
		entry = nil
	}
	if entry != nil && u.cache.has(u.cache.tag(name, entry.stored, password)) {
		u.lockout.succeeded(k)
		return entry.User, nil
	}
	select {
	case u.hashing <- struct{}{}:
	case <-ctx.Done():
		return User{}, uastatus.New(uastatus.Code(ctx.Err()), "wait for a password check", ctx.Err())
	}
	defer func() { <-u.hashing }()
	// Asked again: those that waited in parallel must not get more tries than
	// those that came one after the other.
	if u.lockout.locked(k, time.Now()) {
		return User{}, denied(errLocked)
	}
	hash := u.dummy
	if entry != nil {
		hash = entry.hash
	}
	if !hash.matches(password) || entry == nil {
		if u.lockout.failed(k, time.Now()) {
			return User{}, denied(errNowLocked)
		}
		return User{}, denied(errWrong)
	}
	u.lockout.succeeded(k)
	u.cache.add(u.cache.tag(name, entry.stored, password))
	return entry.User, nil
}

func denied(cause error) error {
	return uastatus.New(ua.StatusBadUserAccessDenied, "check password", cause)
}

// current returns the users of the file as it is now.
func (u *Users) current() map[string]*user {
	info, err := os.Stat(u.path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = nil, nil
	}
	u.mu.RLock()
	users, same := u.users, err == nil && sameFile(info, u.info)
	u.mu.RUnlock()
	if same {
		return users
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil || !sameFile(info, u.info) { // else another login was faster
		u.reload()
	}
	return u.users
}

// reload reads the file; u.mu is held.
func (u *Users) reload() {
	users, info, err := readUsers(u.path)
	if err != nil {
		// Say it once per content, not once per login.
		if !u.bad || info != nil && !sameFile(info, u.info) {
			u.log.Error("users file cannot be used, the last good one stays in force", "error", err)
		}
		u.bad = true
		if info != nil {
			u.info = info
		}
		return
	}
	u.users, u.info, u.bad = users, info, false
	u.cache.clear()
	u.warnIfReadable()
	u.log.Info("users file read again", "users", len(users))
}

// warnIfReadable speaks up when others may read the hashes; u.mu is held or u is
// not shared yet.
func (u *Users) warnIfReadable() {
	if u.info != nil && runtime.GOOS != "windows" && u.info.Mode().Perm()&0o077 != 0 {
		u.log.Warn("users file is open to other users of this machine; chmod 600", "file", u.path, "mode", u.info.Mode().Perm().String())
	}
}

func sameFile(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// List returns all users by name.
func (u *Users) List() []User {
	var out []User
	for _, e := range u.current() {
		out = append(out, e.User)
	}
	slices.SortFunc(out, func(a, b User) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Add adds a user: ErrUserExists when the name is taken. The name has 1 to 256
// printable bytes of UTF-8, the password 1 to 512 bytes.
func (u *Users) Add(add User, password []byte) error {
	if err := errors.Join(checkUserName(add.Name), checkPassword(password)); err != nil {
		return err
	}
	h := u.hash(password)
	return u.change(func(users map[string]*user) error {
		if users[add.Name] != nil {
			return ErrUserExists
		}
		users[add.Name] = &user{User: add, stored: h.String(), hash: h}
		return nil
	})
}

// Delete removes a user: ErrUserUnknown when there is none of that name. Live
// sessions of the user are not closed.
func (u *Users) Delete(name string) error {
	return u.change(func(users map[string]*user) error {
		if users[name] == nil {
			return ErrUserUnknown
		}
		delete(users, name)
		return nil
	})
}

// SetPassword gives a user a new password and keeps the attributes.
func (u *Users) SetPassword(name string, password []byte) error {
	if err := checkPassword(password); err != nil {
		return err
	}
	h := u.hash(password)
	return u.change(func(users map[string]*user) error {
		old := users[name]
		if old == nil {
			return ErrUserUnknown
		}
		users[name] = &user{User: old.User, stored: h.String(), hash: h}
		return nil
	})
}

// OfCertificate returns the user whose certificate, as DER, this is. Whether it is
// trusted, and whether the caller has its key, is for others to find out.
func (u *Users) OfCertificate(der []byte) (User, bool) {
	a, b := sha1.Sum(der), sha256.Sum256(der)
	short, long := hex.EncodeToString(a[:]), hex.EncodeToString(b[:])
	for _, e := range u.current() {
		for _, c := range e.Certificates {
			if t, err := thumbprintOf(c); err == nil && (t == short || t == long) {
				return e.User, true
			}
		}
	}
	return User{}, false
}

// SetAttributes changes a user's attributes and keeps the password; Certificates
// that are nil stay as they are.
func (u *Users) SetAttributes(set User) error {
	return u.change(func(users map[string]*user) error {
		old := users[set.Name]
		if old == nil {
			return ErrUserUnknown
		}
		if set.Certificates == nil {
			set.Certificates = old.Certificates
		}
		users[set.Name] = &user{User: set, stored: old.stored, hash: old.hash}
		return nil
	})
}

func (u *Users) hash(password []byte) passwordHash {
	u.hashing <- struct{}{}
	defer func() { <-u.hashing }()
	return newPasswordHash(password, u.cost)
}

// change edits the file as it is now and writes it back. A file that cannot be
// parsed is not overwritten.
func (u *Users) change(edit func(map[string]*user) error) error {
	u.changing.Lock()
	defer u.changing.Unlock()
	users, _, err := readUsers(u.path)
	if err != nil {
		return err
	}
	if err := edit(users); err != nil {
		return err
	}
	if err := writeUsers(u.path, users); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reload()
	return nil
}
