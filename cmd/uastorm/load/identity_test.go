package load

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/security"
	accounts "github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/gopcua/opcua/ua"
)

// Sessions are had by user name and by user certificate, with and without a secured
// channel, and not with a wrong password.
func TestIdentities(t *testing.T) {
	users, err := accounts.OpenUsers(filepath.Join(t.TempDir(), "users.yaml"), accounts.UsersOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := users.Add(accounts.User{Name: "alice"}, []byte("a good password")); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, SchemeTCP, func(o *stack.Options) {
		o.Authenticator = &accounts.Identities{Anonymous: true, Users: users, Certificates: true}
	})
	key, err := ownKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []*security.Policy{security.None, security.Basic256Sha256, security.Aes256Sha256RsaPss} {
		for _, c := range []struct {
			id   Identity
			code ua.StatusCode
		}{
			{Identity{}, ua.StatusOK},
			{Identity{User: "alice", Password: []byte("a good password")}, ua.StatusOK},
			{Identity{User: "alice", Password: []byte("a bad password")}, ua.StatusBadUserAccessDenied},
			{Identity{Key: key}, ua.StatusOK},
		} {
			target := s.discover(t, Security{Policy: policy, Identity: c.id})
			err := target.Try(context.Background())
			if code, _ := reconnect.Signal(err); code != c.code {
				t.Errorf("%s, %s: %v", policy.Name, c.id, err)
			}
		}
	}
}
