package stack

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A certificate that the server made for itself is replaced in time, a given one
// is not; when that fails the old one stays, and the log is not flooded.
func TestTLSRenewal(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := &tlsMaterial{own: true, name: "test", log: slog.New(slog.DiscardHandler)}
		m.opts.CertificateFile, m.opts.KeyFile = filepath.Join(dir, "tls", "cert.pem"), filepath.Join(dir, "tls", "key.pem")
		if err := m.load(); err != nil {
			t.Fatal(err)
		}
		first := m.pair.Load()
		m.refresh()
		if m.pair.Load() != first {
			t.Error("replaced without need")
		}
		time.Sleep(ownTLSLife - ownTLSRenew)
		if err := os.Rename(filepath.Join(dir, "tls"), filepath.Join(dir, "away")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tls"), nil, 0o600); err != nil { // no folder can be made
			t.Fatal(err)
		}
		m.refresh()
		if m.pair.Load() != first || m.again.IsZero() {
			t.Error("the old pair did not stay, or nothing keeps the next try off")
		}
		if err := os.Remove(filepath.Join(dir, "tls")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		m.refresh()
		second := m.pair.Load()
		if second == first || !second.Leaf.NotAfter.After(time.Now().Add(ownTLSLife-time.Hour)) {
			t.Errorf("not replaced: %v", second.Leaf.NotAfter)
		}

		given := &tlsMaterial{opts: m.opts, log: m.log}
		if err := given.load(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ownTLSLife)
		if pair := given.pair.Load(); given.expires(pair) {
			t.Error("a given certificate is the operator's to replace")
		}
	})
}
