package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
)

// adminOf makes a server that does not listen and its admin interface.
func adminOf(t *testing.T, change func(*config)) (*stack.Server, *liveLimits, http.Handler, *bytes.Buffer) {
	t.Helper()
	c := defaultConfig()
	c.Listen = []string{"opc.tcp://127.0.0.1:0"}
	c.Users, c.Security.Policies = filepath.Join(t.TempDir(), "users.yaml"), nil
	if change != nil {
		change(c)
	}
	logged := new(bytes.Buffer)
	log := slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelInfo}))
	o, err := c.options(log)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := stack.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Log(err)
		}
	})
	live := &liveLimits{server: srv, log: log, inForce: *c}
	a := &admin{log: log, limits: live}
	return srv, live, guard(a.routes(srv, http.NotFoundHandler()), "s3cret", adminHosts(adminConfig{Listen: "127.0.0.1:4841"}), log), logged
}

func ask(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:4841"
	r.Header.Set("Authorization", "Bearer s3cret")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPostLimits(t *testing.T) {
	srv, _, h, _ := adminOf(t, nil)
	post := func(path, body string) limitsView {
		t.Helper()
		w := ask(h, "POST", path, body)
		var v limitsView
		if err := json.Unmarshal(w.Body.Bytes(), &v); w.Code != 200 || err != nil {
			t.Fatalf("%s: %d, %v: %s", body, w.Code, err, w.Body)
		}
		return v
	}
	connections := func() int64 { return srv.Plan().Stages[isolation.Connection].Capacity }

	v := post("/admin/limits?dry-run", `{"limits":{"maxChannels":1500}}`)
	if !v.DryRun || !slices.Equal(v.Changed, []string{"limits.maxChannels"}) || len(v.Over) != 0 ||
		v.Plan.Stages[isolation.Connection].Capacity != 1500 || connections() != 2010 {
		t.Errorf("dry run: %+v; %d connections in force", v, connections())
	}
	if v = post("/admin/limits", `{"limits":{"maxChannels":1500},"rateLimits":{"connectionsPerSecond":50}}`); v.DryRun || connections() != 1500 {
		t.Errorf("%+v; %d connections in force", v, connections())
	}
	v = post("/admin/limits?dry-run", `{"budget":{"maxBytes":134217728},"retry":{"max":"1m"},"shadow":true,"isolation":{"requestCost":"encoded"},"rateLimits":{"discoveryBurst":7},"http":{"requestsPerSecond":9},"limits":{"helloTimeout":"3s","maxNodesPerRead":5,"maxNodesPerTranslateBrowsePaths":6},"governors":{"commands":{"maxCommands":70}}}`)
	for _, want := range []string{"budget.maxBytes", "retry.max", "shadow", "isolation.requestCost", "rateLimits.discoveryBurst", "http.requestsPerSecond", "governors.commands.maxCommands", "limits.helloTimeout", "limits.maxNodesPerRead", "limits.maxNodesPerTranslateBrowsePaths"} {
		if !slices.Contains(v.Changed, want) {
			t.Errorf("%s is not among what changes: %q", want, v.Changed)
		}
	}
	// What is left out stays as it is; the stages are replaced as a whole.
	post("/admin/limits", `{"isolation":{"stages":{"RequestExecution":{"capacity":50},"ParkedRequest":{"controlReserved":0}}}}`)
	post("/admin/limits", `{"isolation":{"stages":{"RequestExecution":{"capacity":60}}}}`)
	p := srv.Plan()
	if connections() != 1500 || p.Stages[isolation.RequestExecution].Capacity != 60 || p.Stages[isolation.ParkedRequest].Control != 1 {
		t.Errorf("%+v", p.Stages)
	}
}

func TestPostLimitsShowsWhatNoLongerFits(t *testing.T) {
	srv, _, h, _ := adminOf(t, func(c *config) { c.Limits.MaxSessions = 20 })
	var leases [10]isolation.Lease
	o, err := srv.Isolation().Issue("hog", isolation.Established)
	if err != nil {
		t.Fatal(err)
	}
	for i := range leases {
		if r := srv.Isolation().TryAcquire(&leases[i], isolation.RequestExecution, o, 1); r != isolation.Granted {
			t.Fatal(r)
		}
		defer leases[i].Release()
	}
	w := ask(h, "POST", "/admin/limits?dry-run", `{"isolation":{"stages":{"RequestExecution":{"capacity":8}}}}`)
	if want := `"over":[{"what":"RequestExecution","inUse":10,"limit":8},`; w.Code != 200 || !strings.Contains(w.Body.String(), want) {
		t.Errorf("%d, no %s in %s", w.Code, want, w.Body)
	}
	w = ask(h, "GET", "/admin/isolation", "")
	var v isolationView
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	s := v.Stages[isolation.RequestExecution]
	if v.Mode != "Balanced" || v.Owners != 1 || s.Used != 10 || s.Shared != (useView{10, 97}) || s.Kept["control"] != (useView{0, 1}) {
		t.Errorf("%+v", v)
	}
	var full isolation.Lease
	if r := srv.Isolation().TryAcquire(&full, isolation.RequestExecution, o, 1000); r != isolation.OwnerLimit {
		t.Fatal(r)
	}
	body := ask(h, "GET", "/admin/isolation", "").Body.String()
	if !strings.Contains(body, `"refused":{"owner limit":1}`) || strings.Contains(body, "hog") {
		t.Errorf("refusals are missing, or an owner's key is there: %s", body)
	}
}

func TestPostLimitsRefuses(t *testing.T) {
	srv, _, h, _ := adminOf(t, nil)
	before := *srv.Plan()
	for _, tt := range []struct {
		name, body, want string
		code             int
	}{
		{"no JSON", "limits: {}", "no JSON", 400},
		{"nothing", "", "no JSON", 400},
		{"unknown key", `{"limits":{"maxSesions":1}}`, `unknown key "maxSesions"`, 400},
		{"a section that cannot change", `{"listen":["opc.tcp://:1"]}`, `unknown key "listen"`, 400},
		{"wrong type", `{"limits":{"maxSessions":"many"}}`, "many", 400},
		{"too long", `"` + strings.Repeat("x", maxLimitsBody) + `"`, "too long", 413},
		{"cannot work", `{"limits":{"maxChannels":1002}}`, "limits.maxChannels: is 1002: every session and one newcomer must fit beside the floors; the smallest value that works is 1003", 422},
		{"restart: message size", `{"limits":{"maxMessageSize":1048576}}`, "limits.maxMessageSize: is 4194304 now; a change to 1048576 needs a restart", 422},
		{"restart: mode", `{"isolation":{"mode":"FairShare"}}`, "isolation.mode: is Balanced now; a change to FairShare needs a restart", 422},
		{"restart: origins", `{"http":{"allowedOrigins":["*"]}}`, "http.allowedOrigins: a change needs a restart", 422},
		{"restart: governor off", `{"governors":{"http":{"enabled":false}}}`, "governors.http", 422},
		{"negative", `{"limits":{"maxSessions":-1}}`, "limits.maxSessions: is negative: -1", 422},
		{"unknown stage", `{"isolation":{"stages":{"Queue":{"capacity":8}}}}`, "none of the stages", 422},
	} {
		for _, path := range []string{"/admin/limits", "/admin/limits?dry-run"} {
			if w := ask(h, "POST", path, tt.body); w.Code != tt.code || !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("%s: %d, want %d and %q in %s", tt.name, w.Code, tt.code, tt.want, w.Body)
			}
		}
	}
	for _, query := range []string{"dryrun", "dry-run&x=1", "dry-run=perhaps", "dry-run&dry-run", "%zz"} {
		if w := ask(h, "POST", "/admin/limits?"+query, `{"limits":{"maxChannels":1500}}`); w.Code != 400 {
			t.Errorf("%s: %d, %s", query, w.Code, w.Body)
		}
	}
	if srv.Plan().Stages != before.Stages {
		t.Error("a refused change changed something")
	}
	for query, dry := range map[string]bool{"dry-run": true, "dry-run=true": true, "dry-run=1": true, "dry-run=false": false, "": false} {
		if w := ask(h, "POST", "/admin/limits?"+query, `{}`); w.Code != 200 || !strings.Contains(w.Body.String(), fmt.Sprintf(`"dryRun":%v`, dry)) {
			t.Errorf("%q: %d, %s", query, w.Code, w.Body)
		}
	}
}

func TestReread(t *testing.T) {
	srv, live, _, logged := adminOf(t, nil)
	for _, tt := range []struct {
		name   string
		change func(*config)
		err    error
		want   string
	}{
		{"a limit", func(c *config) { c.Limits.MaxChannels = 1500 }, nil, `msg="limits are in force" by=SIGHUP changed=[limits.maxChannels]`},
		{"the same again", func(c *config) { c.Limits.MaxChannels = 1500 }, nil, `msg="limits are in force" by=SIGHUP changed=[]`},
		{"needs a restart", func(c *config) { c.Limits.MaxChannels, c.Security.Anonymous = 1400, false }, nil, "security.anonymous: a change needs a restart"},
		{"cannot work", func(c *config) { c.Limits.MaxChannels = 1 }, nil, "limits.maxChannels: is 1"},
		{"cannot be read", nil, http.ErrBodyNotAllowed, http.ErrBodyNotAllowed.Error()},
	} {
		logged.Reset()
		live.reload = func() (*config, error) {
			if tt.err != nil {
				return nil, tt.err
			}
			c := live.inForce
			tt.change(&c)
			return &c, nil
		}
		live.reread()
		if !strings.Contains(logged.String(), tt.want) {
			t.Errorf("%s: no %q in %s", tt.name, tt.want, logged)
		}
		if n := srv.Plan().Stages[isolation.Connection].Capacity; n != 1500 {
			t.Errorf("%s: %d connections", tt.name, n)
		}
	}
}

// TestServeTrustedIngress: a client that arrives at the trusted address holds
// reserved room, one that arrives at the other address does not.
func TestServeTrustedIngress(t *testing.T) {
	dir := ownFolder(t)
	file := filepath.Join(dir, "trusted.yaml")
	text := `listen: ["opc.tcp://:0"]
admin: {listen: "127.0.0.1:0"}
demo: {enabled: false}
budget: {maxBytes: 128 MiB}
isolation:
  mode: TrustedReservations
  trustedOwners: [{key: control-room, reservations: {Connection: {reserved: 3}}}]
  trustedIngress: [{address: "127.0.0.2", owner: control-room}]
`
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	stdout := &lines{more: make(chan struct{}, 1)}
	cmd := newRoot(strings.NewReader(""), stdout, io.Discard)
	cmd.SetArgs([]string{"--config", file})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		if err := cmd.ExecuteContext(ctx); err != nil {
			t.Error(err)
		}
	})
	admin := stdout.await(t, `admin\s+(http://127\.0\.0\.1:\d+)`)
	port := stdout.await(t, `endpoint\s+opc\.tcp://\S+:(\d+)`)
	token, err := os.ReadFile(filepath.Join(dir, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		address         string
		shared, trusted int64
	}{
		{"127.0.0.1", 1, 0},
		{"127.0.0.2", 1, 1},
	} {
		c, err := net.Dial("tcp", net.JoinHostPort(tt.address, port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var s stageLive
		for limit := time.Now().Add(10 * time.Second); s.Shared.Used != tt.shared || s.Kept["trusted"].Used != tt.trusted; {
			if time.Now().After(limit) {
				t.Fatalf("%s: %+v", tt.address, s)
			}
			_, body := get(t, admin+"/admin/isolation", strings.TrimSpace(string(token)))
			var v isolationView
			if err := json.Unmarshal([]byte(body), &v); err != nil {
				t.Fatal(err)
			}
			s = v.Stages[isolation.Connection]
		}
		if s.Kept["trusted"].Capacity != 3 {
			t.Errorf("%+v", s)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
