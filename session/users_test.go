package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uastatus"
)

// cheap makes tests quick; one test checks the real cost.
var cheap = cost{memory: 64, time: 1, threads: 1}

var (
	here  = netip.MustParseAddr("192.0.2.7")
	there = netip.MustParseAddr("198.51.100.3")
)

func testUsers(t *testing.T, o UsersOptions) *Users {
	t.Helper()
	u, err := openUsers(filepath.Join(t.TempDir(), "users.yaml"), o, cheap)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Add(User{Name: "alice", Admin: true, Tenant: "plant"}, []byte("wonder")); err != nil {
		t.Fatal(err)
	}
	return u
}

func (u *Users) try(name, password string, from netip.Addr) ua.StatusCode {
	_, err := u.Verify(context.Background(), name, []byte(password), from)
	return uastatus.Code(err)
}

func TestUsersFile(t *testing.T) {
	u := testUsers(t, UsersOptions{})
	if err := u.Add(User{Name: "Jürgen Müller"}, []byte("p: #'\"ä")); err != nil {
		t.Fatal(err)
	}
	if err := u.Add(User{Name: "alice"}, []byte("x")); !errors.Is(err, ErrUserExists) {
		t.Error(err)
	}
	b, err := os.ReadFile(u.path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "wonder") || !strings.Contains(string(b), "$argon2id$v=19$") {
		t.Errorf("file:\n%s", b)
	}
	info, _ := os.Stat(u.path)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(u.path), ".users-*")); len(left) != 0 {
		t.Error("temporary files are left:", left)
	}
	again, err := openUsers(u.path, UsersOptions{}, cheap)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(again.List()); got != "[{Jürgen Müller false  []} {alice true plant []}]" {
		t.Error(got)
	}
	got, err := again.Verify(context.Background(), "alice", []byte("wonder"), here)
	if err != nil || !got.Admin || got.Tenant != "plant" {
		t.Errorf("%+v %v", got, err)
	}
	want(t, "odd password", again.try("Jürgen Müller", "p: #'\"ä", here), ua.StatusOK)
	if err := u.SetPassword("alice", []byte("new")); err != nil {
		t.Fatal(err)
	}
	want(t, "old password", again.try("alice", "wonder", here), ua.StatusBadUserAccessDenied)
	want(t, "new password", again.try("alice", "new", here), ua.StatusOK)
	if l := again.List(); !l[1].Admin {
		t.Error("SetPassword lost the attributes")
	}
	if err := u.SetAttributes(User{Name: "alice", Tenant: "t2"}); err != nil {
		t.Fatal(err)
	}
	if got, err := again.Verify(context.Background(), "alice", []byte("new"), here); err != nil || got.Admin || got.Tenant != "t2" {
		t.Errorf("%+v %v", got, err)
	}
	if err := u.Delete("alice"); err != nil {
		t.Fatal(err)
	}
	want(t, "deleted", again.try("alice", "new", here), ua.StatusBadUserAccessDenied)
	for _, err := range []error{u.Delete("alice"), u.SetPassword("alice", []byte("x")), u.SetAttributes(User{Name: "alice"})} {
		if !errors.Is(err, ErrUserUnknown) {
			t.Error(err)
		}
	}
}

func TestUsersRefuseWhatCannotWork(t *testing.T) {
	u := testUsers(t, UsersOptions{})
	for _, name := range []string{"", strings.Repeat("x", 257), "a\nb", "a\xffb", "a\x00"} {
		if u.Add(User{Name: name}, []byte("x")) == nil {
			t.Errorf("name %q was taken", name)
		}
	}
	for _, pw := range []string{"", strings.Repeat("x", 513)} {
		if u.Add(User{Name: "bob"}, []byte(pw)) == nil || u.SetPassword("alice", []byte(pw)) == nil {
			t.Errorf("password of %d bytes was taken", len(pw))
		}
		want(t, "such a password", u.try("alice", pw, here), ua.StatusBadUserAccessDenied)
	}
	long := strings.Repeat("p", 512)
	if err := u.Add(User{Name: "bob"}, []byte(long)); err != nil {
		t.Error(err)
	}
	want(t, "longest password", u.try("bob", long, here), ua.StatusOK)
}

func TestUsersBadFiles(t *testing.T) {
	dir := t.TempDir()
	good := newPasswordHash([]byte("x"), cheap).String()
	for name, body := range map[string]string{
		"not YAML":        "users: [",
		"unknown key":     "users:\n  bob: {password: '" + good + "', role: x}\n",
		"plain password":  "users:\n  bob: {password: hello}\n",
		"bcrypt":          "users:\n  bob: {password: '$2a$10$xxxxxxxxxxxxxxxxxxxxxx'}\n",
		"absurd memory":   "users:\n  bob: {password: '" + strings.Replace(good, "m=64", "m=4000000000", 1) + "'}\n",
		"absurd time":     "users:\n  bob: {password: '" + strings.Replace(good, "t=1", "t=4000000", 1) + "'}\n",
		"zero time":       "users:\n  bob: {password: '" + strings.Replace(good, "t=1", "t=0", 1) + "'}\n",
		"zero lanes":      "users:\n  bob: {password: '" + strings.Replace(good, "p=1", "p=0", 1) + "'}\n",
		"no salt":         "users:\n  bob: {password: '$argon2id$v=19$m=64,t=1,p=1$$" + strings.Repeat("A", 43) + "'}\n",
		"unprintable":     "users:\n  \"a\\u0007\": {password: '" + good + "'}\n",
		"users is a list": "users:\n- bob\n",
	} {
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenUsers(path, UsersOptions{}); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	for name, body := range map[string]string{"empty": "", "no users": "users:\n", "comment": "# nobody\n"} {
		path := filepath.Join(dir, "f")
		os.WriteFile(path, []byte(body), 0o600)
		if u, err := OpenUsers(path, UsersOptions{}); err != nil || len(u.List()) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUsersFileChangesWhileOpen(t *testing.T) {
	var out logBuffer
	u := testUsers(t, UsersOptions{LockoutFailures: -1, Logger: out.logger(slog.LevelInfo)})
	want(t, "alice", u.try("alice", "wonder", here), ua.StatusOK)
	good, _ := os.ReadFile(u.path)

	os.WriteFile(u.path, []byte("users: ["), 0o600)
	for range 3 {
		want(t, "a broken file changes nothing", u.try("alice", "wonder", here), ua.StatusOK)
	}
	if n := strings.Count(out.String(), "last good one"); n != 1 {
		t.Errorf("said %d times", n)
	}
	if err := u.Delete("alice"); err == nil {
		t.Error("a broken file was overwritten")
	}
	os.Remove(u.path)
	want(t, "a file that is gone has no users", u.try("alice", "wonder", here), ua.StatusBadUserAccessDenied)
	if len(u.cache.known) != 0 {
		t.Error("overload.md §8c: verified passwords outlive the file they were verified with")
	}
	os.WriteFile(u.path, good, 0o600)
	want(t, "back", u.try("alice", "wonder", here), ua.StatusOK)
	if strings.Contains(out.String(), "chmod") {
		t.Error("warned about mode 0600")
	}
	os.Chmod(u.path, 0o644)
	os.Chtimes(u.path, time.Time{}, time.Now().Add(time.Minute))
	want(t, "readable by others", u.try("alice", "wonder", here), ua.StatusOK)
	if !strings.Contains(out.String(), "chmod 600") {
		t.Error("no warning about mode 0644")
	}
}

// The hash is the one of overload.md §8c, and an unknown user costs as much as a
// wrong password: the same hash over the same memory.
func TestPasswordCost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	u, err := OpenUsers(path, UsersOptions{LockoutFailures: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Add(User{Name: "alice"}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(path)
	if !strings.Contains(string(b), "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("file:\n%s", b)
	}
	memory := func(name, password string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		u.try(name, password, here)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for _, who := range []string{"alice", "nobody"} {
		if m := memory(who, "wrong"); m < 19<<20 {
			t.Errorf("%s with a wrong password costs %d bytes, less than argon2id", who, m)
		}
	}
	want(t, "right", u.try("alice", "x", here), ua.StatusOK)
	if m := memory("alice", "x"); m > 1<<20 {
		t.Errorf("overload.md §8c: a verified password is checked again for %d bytes", m)
	}
	if m := memory("alice", "wrong"); m < 19<<20 {
		t.Error("a wrong password is cheap once the right one is known")
	}
}

// hostile.md C13, X32: five wrong passwords lock that user for that address, for
// five minutes, and nobody else, whatever certificate they share.
func TestC13X32LockoutIsPerUserAndAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := testUsers(t, UsersOptions{})
		if err := u.Add(User{Name: "bob"}, []byte("builder")); err != nil {
			t.Fatal(err)
		}
		for range 3 { // each success clears the count, also when the password is remembered
			for range 4 {
				want(t, "wrong", u.try("alice", "wrong", here), ua.StatusBadUserAccessDenied)
			}
			want(t, "right after four", u.try("alice", "wonder", here), ua.StatusOK)
		}
		for range 5 {
			want(t, "wrong", u.try("alice", "wrong", here), ua.StatusBadUserAccessDenied)
		}
		want(t, "locked", u.try("alice", "wonder", here), ua.StatusBadUserAccessDenied)
		want(t, "the same host", u.try("alice", "wonder", netip.MustParseAddr("::ffff:192.0.2.7")), ua.StatusBadUserAccessDenied)
		want(t, "another address", u.try("alice", "wonder", there), ua.StatusOK)
		want(t, "another user", u.try("bob", "builder", here), ua.StatusOK)
		time.Sleep(5*time.Minute - time.Second)
		want(t, "still locked", u.try("alice", "wonder", here), ua.StatusBadUserAccessDenied)
		time.Sleep(time.Second)
		want(t, "tries while locked do not prolong it", u.try("alice", "wonder", here), ua.StatusOK)
	})
}

func TestLockoutForgetsAndCanBeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := testUsers(t, UsersOptions{LockoutFailures: 3, LockoutPeriod: time.Minute})
		for range 10 {
			u.try("alice", "wrong", here)
			u.try("alice", "wrong", here)
			time.Sleep(time.Minute)
		}
		want(t, "old failures do not count", u.try("alice", "wonder", here), ua.StatusOK)
		off := testUsers(t, UsersOptions{LockoutFailures: -1})
		for range 20 {
			off.try("alice", "wrong", here)
		}
		want(t, "off", off.try("alice", "wonder", here), ua.StatusOK)
	})
}

// IPv6 hosts own a /64: hopping within it is no way around the lock.
func TestLockoutCountsIPv6By64(t *testing.T) {
	u := testUsers(t, UsersOptions{})
	for i := range 5 {
		u.try("alice", "wrong", netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", i+1)))
	}
	want(t, "same /64", u.try("alice", "wonder", netip.MustParseAddr("2001:db8::99")), ua.StatusBadUserAccessDenied)
	want(t, "other /64", u.try("alice", "wonder", netip.MustParseAddr("2001:db8:0:1::99")), ua.StatusOK)
}

func TestLockoutTableIsBounded(t *testing.T) {
	l := newLockout(1, time.Hour)
	now := time.Now()
	for i := range 10_001 {
		l.failed(keyOf(fmt.Sprint(i), here), now)
	}
	if len(l.entries) != 10_000 {
		t.Errorf("%d entries", len(l.entries))
	}
	if l.locked(keyOf("0", here), now) || !l.locked(keyOf("1", here), now) || !l.locked(keyOf("10000", here), now) {
		t.Error("the oldest entry is the one that goes")
	}
}

// Parallel guesses get no more tries than guesses in a row, and only two hashes
// run at once.
func TestParallelGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := testUsers(t, UsersOptions{})
		if cap(u.hashing) != 2 {
			t.Errorf("%d hashes at once", cap(u.hashing))
		}
		for range cap(u.hashing) {
			u.hashing <- struct{}{}
		}
		var tried atomic.Int64
		for range 100 {
			go func() {
				_, err := u.Verify(context.Background(), "nobody", []byte("guess"), here)
				if errors.Is(err, errWrong) || errors.Is(err, errNowLocked) {
					tried.Add(1)
				}
			}()
		}
		synctest.Wait() // all have passed the first look at the lock
		for range cap(u.hashing) {
			<-u.hashing
		}
		synctest.Wait()
		if n := tried.Load(); n < 5 || n > 6 {
			t.Errorf("%d of 100 parallel guesses were tried", n)
		}
	})
}

func TestVerifyWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := testUsers(t, UsersOptions{})
		for range cap(u.hashing) {
			u.hashing <- struct{}{}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := u.Verify(ctx, "alice", []byte("wonder"), here)
		want(t, "busy", uastatus.Code(err), ua.StatusBadTimeout)
	})
}

func TestVerifiedCache(t *testing.T) {
	v := newVerified()
	a := v.tag("alice", "h", []byte("x"))
	for _, other := range [][3]string{{"alice", "h2", "x"}, {"alice", "h", "y"}, {"alic", "eh", "x"}, {"alice", "hx", ""}} {
		if v.tag(other[0], other[1], []byte(other[2])) == a {
			t.Errorf("%q has the same tag", other)
		}
	}
	if newVerified().tag("alice", "h", []byte("x")) == a {
		t.Error("the key is not random")
	}
	v.maximum = 3
	tags := make([][32]byte, 5)
	for i := range tags {
		tags[i] = v.tag(fmt.Sprint(i), "", nil)
		v.add(tags[i])
		v.add(tags[i])
	}
	for i, tag := range tags {
		if v.has(tag) != (i >= 2) {
			t.Errorf("entry %d: %t", i, v.has(tag))
		}
	}
	v.clear()
	if v.has(tags[4]) {
		t.Error("clear")
	}
	v.add(tags[0])
	if !v.has(tags[0]) {
		t.Error("add after clear")
	}
}

func TestPasswordHashRoundTrip(t *testing.T) {
	h := newPasswordHash([]byte("x"), cheap)
	again, err := parsePasswordHash(h.String())
	if err != nil || !again.matches([]byte("x")) || again.matches([]byte("y")) {
		t.Errorf("%v %v", again, err)
	}
	if o := newPasswordHash([]byte("x"), cheap); bytes.Equal(o.sum, h.sum) {
		t.Error("the salt repeats")
	}
}

// End to end: the store with a users file, over None and a secured channel.
func TestIdentitiesWithUsers(t *testing.T) {
	u := testUsers(t, UsersOptions{})
	o := Options{Key: serverKey(t), Authenticator: &Identities{Anonymous: true, Users: u}}
	st := newStore(t, o)
	for _, ch := range []*fakeChannel{noneChannel(), secureChannel()} {
		c := create(t, st, ch)
		want(t, "wrong", c.activate(ch, asUser("alice", "x")), ua.StatusBadUserAccessDenied)
		want(t, "unknown", c.activate(ch, asUser("zoe", "x")), ua.StatusBadUserAccessDenied)
		want(t, "right", c.activate(ch, asUser("alice", "wonder")), ua.StatusOK)
		if caller := c.session().Caller(); !caller.Admin || caller.User != "alice" || c.session().Tenant() != "plant" {
			t.Errorf("%+v", caller)
		}
		want(t, "certificates are not offered", c.activate(ch, asCertificate(userParty())), ua.StatusBadIdentityTokenInvalid)
		want(t, "anonymous", c.activate(ch, anonymous), ua.StatusOK)
		if c.session().Caller().Admin {
			t.Error("rights outlive the identity")
		}
	}
}

func TestIdentitiesZeroValueLetsNobodyIn(t *testing.T) {
	d := &Identities{}
	if len(d.TokenTypes()) != 0 {
		t.Error(d.TokenTypes())
	}
	for _, k := range []ua.UserTokenType{ua.UserTokenTypeAnonymous, ua.UserTokenTypeUserName, ua.UserTokenTypeCertificate, ua.UserTokenTypeIssuedToken} {
		if _, err := d.Authenticate(context.Background(), &Attempt{Kind: k}); uastatus.Code(err) != ua.StatusBadIdentityTokenRejected {
			t.Error(k, err)
		}
	}
}
