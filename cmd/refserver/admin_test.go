package main

import (
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Who was refused is for the operator to know, at a bounded rate.
func TestGuardLogsRefusals(t *testing.T) {
	var out strings.Builder
	h := guard(http.NotFoundHandler(), "s3cret", []string{"localhost"}, slog.New(slog.NewTextHandler(&out, nil)))
	for range 4 * refusalsPerSecond {
		r := httptest.NewRequest(http.MethodGet, "/admin/stats", nil)
		r.Host, r.RemoteAddr = "localhost", "192.0.2.7:50123"
		r.Header.Set("Authorization", "Bearer wrong")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, part := range []string{"remote=192.0.2.7:50123", "status=401", "path=/admin/stats"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%s is missing in %s", part, out.String())
		}
	}
	if strings.Contains(out.String(), "wrong") {
		t.Error("the log has what was tried")
	}
	if n := strings.Count(out.String(), "\n"); n >= 4*refusalsPerSecond {
		t.Errorf("%d lines", n)
	}
}

// TestGuard has a row for each rule of the admin interface: known host, no
// foreign origin, the token except for the open paths, JSON for changes.
func TestGuard(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	h := guard(next, "s3cret", adminHosts(adminConfig{Listen: "127.0.0.1:4841", Hosts: []string{"Plant.example"}}), slog.New(slog.DiscardHandler))
	for _, tt := range []struct {
		name, method, path, host, origin, authorization, contentType string
		want                                                         int
	}{
		{name: "healthz is open", path: "/healthz", want: 204},
		{name: "readyz is open", path: "/readyz", want: 204},
		{name: "metrics are open", path: "/metrics", want: 204},
		{name: "pprof needs the token", path: "/debug/pprof/", want: 401},
		{name: "the index needs the token", path: "/", want: 401},
		{name: "below an open path is not open", path: "/metrics/x", want: 401},
		{name: "token", path: "/debug/pprof/", authorization: "Bearer s3cret", want: 204},
		{name: "scheme in any case", path: "/debug/pprof/", authorization: "bearer s3cret", want: 204},
		{name: "wrong token", path: "/debug/pprof/", authorization: "Bearer s3cre", want: 401},
		{name: "empty token", path: "/debug/pprof/", authorization: "Bearer ", want: 401},
		{name: "basic is not bearer", path: "/debug/pprof/", authorization: "Basic s3cret", want: 401},
		{name: "foreign host", path: "/healthz", host: "evil.example:4841", want: 421},
		{name: "localhost", path: "/healthz", host: "localhost:4841", want: 204},
		{name: "IPv6 loopback", path: "/healthz", host: "[::1]:4841", want: 204},
		{name: "configured host", path: "/healthz", host: "plant.example", want: 204},
		{name: "foreign origin with token", path: "/admin/stats", origin: "http://evil.example", authorization: "Bearer s3cret", want: 403},
		{name: "null origin", path: "/metrics", origin: "null", want: 403},
		{name: "own origin", path: "/metrics", origin: "http://127.0.0.1:4841", want: 204},
		{name: "form", method: "POST", path: "/admin/x", authorization: "Bearer s3cret", contentType: "application/x-www-form-urlencoded", want: 415},
		{name: "JSON", method: "POST", path: "/admin/x", authorization: "Bearer s3cret", contentType: "application/json; charset=utf-8", want: 204},
	} {
		t.Run(tt.name, func(t *testing.T) {
			method := tt.method
			if method == "" {
				method = http.MethodGet
			}
			r := httptest.NewRequest(method, tt.path, nil)
			r.Host = "127.0.0.1:4841"
			if tt.host != "" {
				r.Host = tt.host
			}
			for name, value := range map[string]string{"Origin": tt.origin, "Authorization": tt.authorization, "Content-Type": tt.contentType} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("%d, want %d: %s", w.Code, tt.want, w.Body)
			}
		})
	}
}

func TestAdminNeedsTLSBeyondLoopback(t *testing.T) {
	for _, tt := range []struct {
		c     adminConfig
		fails bool
	}{
		{adminConfig{Listen: "off"}, false},
		{adminConfig{Listen: "127.0.0.1:4841"}, false},
		{adminConfig{Listen: "[::1]:4841"}, false},
		{adminConfig{Listen: "localhost:4841"}, false},
		{adminConfig{Listen: ":4841"}, true},
		{adminConfig{Listen: "0.0.0.0:4841"}, true},
		{adminConfig{Listen: "192.0.2.1:4841"}, true},
		{adminConfig{Listen: "192.0.2.1:4841", TLSCertificate: "c", TLSKey: "k"}, false},
		{adminConfig{Listen: "127.0.0.1:4841", TLSCertificate: "c"}, true},
		{adminConfig{Listen: "4841"}, true},
	} {
		if err := tt.c.validate(); (err != nil) != tt.fails {
			t.Errorf("%+v: %v", tt.c, err)
		}
	}
}

func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sub", "admin.token")
	first, err := loadToken(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(string(first)) < 2*tokenBytes {
		t.Errorf("a token of %d characters", len(string(first)))
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	again, err := loadToken(file)
	if err != nil || again != first {
		t.Errorf("the second start does not find the first one's token: %v", err)
	}
	for _, tt := range []struct {
		name, text string
		mode       fs.FileMode
	}{
		{"readable by others", strings.Repeat("x", 64), 0o644},
		{"too short", "x\n", 0o600},
		{"empty", "", 0o600},
	} {
		bad := filepath.Join(t.TempDir(), "admin.token")
		if err := os.WriteFile(bad, []byte(tt.text), tt.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := loadToken(bad); err == nil {
			t.Errorf("%s: accepted", tt.name)
		}
	}
}

func TestReadyUntilShutdown(t *testing.T) {
	a := &admin{log: slog.New(slog.DiscardHandler)}
	h := a.routes(nil, http.NotFoundHandler())
	for _, tt := range []struct {
		ready bool
		want  int
	}{{true, 200}, {false, 503}} {
		a.ready.Store(tt.ready)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if w.Code != tt.want {
			t.Errorf("ready %v: %d, want %d", tt.ready, w.Code, tt.want)
		}
	}
}
