package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"
)

// refserver runs one command with its own configuration folder.
func refserver(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newRoot(strings.NewReader(stdin), &out, io.Discard)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func ownFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	return filepath.Join(dir, "breakwater")
}

func TestUserCommands(t *testing.T) {
	dir := ownFolder(t)
	for _, tt := range []struct {
		name, stdin string
		args        []string
		want        string // in the output
		fails       string // in the error
	}{
		{name: "nobody yet", args: []string{"user", "list"}},
		{name: "add", stdin: "hunter2\n", args: []string{"user", "add", "alice", "--admin", "--tenant", "north", "--password-stdin"}, want: "added alice"},
		{name: "list", args: []string{"user", "list"}, want: "alice  admin  tenant north"},
		{name: "twice", stdin: "x\n", args: []string{"user", "add", "alice", "--password-stdin"}, fails: "alice"},
		{name: "no password", stdin: "\n", args: []string{"user", "add", "bob", "--password-stdin"}, fails: "no password"},
		{name: "no terminal", stdin: "x\n", args: []string{"user", "add", "bob"}, fails: "--password-stdin"},
		{name: "password", stdin: "other\r\n", args: []string{"user", "password", "alice", "--password-stdin"}, want: "changed"},
		{name: "delete", args: []string{"user", "del", "alice"}, want: "deleted alice"},
		{name: "delete again", args: []string{"user", "del", "alice"}, fails: "alice"},
		{name: "no name", args: []string{"user", "add"}, fails: "accepts 1 arg"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := refserver(t, tt.stdin, tt.args...)
			if !strings.Contains(out, tt.want) {
				t.Errorf("printed %q, want %q in it", out, tt.want)
			}
			if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("error %v, want %q in it", err, tt.fails)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "users.yaml")); err == nil && bytes.Contains(text, []byte("hunter2")) {
				t.Error("the password stands in the users file")
			}
		})
	}
}

func TestConfigCommands(t *testing.T) {
	dir := ownFolder(t)
	file := filepath.Join(dir, "refserver.yaml")
	if out, err := refserver(t, "", "config", "init"); err != nil || !strings.Contains(out, file) {
		t.Fatalf("%q, %v", out, err)
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, configText) {
		t.Errorf("the file differs from the text: %v", err)
	}
	if _, err := refserver(t, "", "config", "init"); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("overwriting: %v", err)
	}
	if _, err := refserver(t, "", "config", "init", "--force"); err != nil {
		t.Error(err)
	}
	if out, err := refserver(t, "", "config", "check"); err != nil || !strings.Contains(out, "good") {
		t.Errorf("%q, %v", out, err)
	}
	if err := os.WriteFile(file, []byte("listen: [http://x]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("log", func(t *testing.T) {
		t.Setenv("BREAKWATER_LOG_LEVEL", "loud")
		if _, err := refserver(t, "", "config", "check"); err == nil || !strings.Contains(err.Error(), "loud") {
			t.Errorf("a log level nobody knows: %v", err)
		}
	})
	if _, err := refserver(t, "", "config", "check"); err == nil || !strings.Contains(err.Error(), "opc.tcp") {
		t.Errorf("a wrong URL: %v", err)
	}
}

func TestPKICommands(t *testing.T) {
	dir := ownFolder(t)
	if _, err := refserver(t, "", "pki", "show"); err == nil || !strings.Contains(err.Error(), "first start") {
		t.Errorf("show before the first start: %v", err)
	}
	if _, err := refserver(t, "", "pki", "list"); err == nil || !strings.Contains(err.Error(), "no folder") {
		t.Errorf("list before the first start: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pki")); err == nil {
		t.Error("a look made the folder")
	}
	for _, user := range []string{"--user=false", "--user"} {
		if _, err := refserver(t, "", "pki", "trust", "no-such-file", user); err == nil {
			t.Error("trusted what is not there")
		}
	}
	if _, err := refserver(t, "", "pki", "renew", "--user"); err == nil || !strings.Contains(err.Error(), "themselves") {
		t.Errorf("renew --user: %v", err)
	}
	if out, err := refserver(t, "", "pki", "list", "--user"); err != nil || !strings.Contains(out, "THUMBPRINT") {
		t.Errorf("list --user: %q, %v", out, err)
	}
	if out, err := refserver(t, "", "pki", "list"); err != nil || !strings.Contains(out, "THUMBPRINT") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestVersionAndUnknownCommands(t *testing.T) {
	if out, err := refserver(t, "", "version"); err != nil || !strings.Contains(out, "go1.") {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := refserver(t, "", "srve"); err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("a mistyped command: %v", err)
	}
	if _, err := refserver(t, "", "serve", "--log-level", "loud", "--admin", "off"); err == nil || !strings.Contains(err.Error(), "loud") {
		t.Errorf("a wrong log level: %v", err)
	}
}

// lines collects output and lets a test wait for a pattern in it.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *lines) await(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	limit := time.After(30 * time.Second)
	for {
		l.mu.Lock()
		m := re.FindStringSubmatch(l.text.String())
		l.mu.Unlock()
		if m != nil {
			return m[1]
		}
		select {
		case <-l.more:
		case <-limit:
			t.Fatalf("no %s in\n%s", pattern, l.text.String())
		}
	}
}

// TestServe runs the command as a person would: start, connect, look at the
// admin interface, SIGTERM.
func TestServe(t *testing.T) {
	dir := ownFolder(t)
	settings := filepath.Join(dir, "refserver.yaml")
	write := func(text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(settings, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("limits: {maxSessions: 900}\n")
	stdout, stderr := &lines{more: make(chan struct{}, 1)}, &lines{more: make(chan struct{}, 1)}
	cmd := newRoot(strings.NewReader(""), stdout, stderr)
	cmd.SetArgs([]string{"--listen", "opc.tcp://127.0.0.1:0", "--admin", "127.0.0.1:0", "--trust-all", "--demo-variables", "10"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { ended <- cmd.ExecuteContext(ctx) })

	url := stdout.await(t, `endpoint\s+(opc\.tcp://127\.0\.0\.1:\d+)`)
	admin := stdout.await(t, `admin\s+(http://127\.0\.0\.1:\d+)`)
	thumbprint := stdout.await(t, `SHA-1 ([0-9A-F]{40})`)
	stdout.await(t, `(!! --trust-all: EVERY client certificate)`)
	stdout.await(t, `(The endpoint without security)`)
	if folder := stdout.await(t, `PKI folder\s+(\S+)`); folder != filepath.Join(dir, "pki") {
		t.Errorf("PKI folder %s", folder)
	}

	c, err := opcua.NewClient(url, opcua.SecurityMode(ua.MessageSecurityModeNone), opcua.AutoReconnect(false))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	ns, err := c.FindNamespace(ctx, "urn:breakwater:demo")
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.Node(ua.NewStringNodeID(ns, "Demo.Mass.Folder0000.V0000009")).Value(ctx)
	if err != nil || v.Type() != ua.TypeIDDouble {
		t.Errorf("mass variable: %v, %v", v, err)
	}
	token, err := os.ReadFile(filepath.Join(dir, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path  string
		token bool
		code  int
		want  string
	}{
		{"/healthz", false, 200, "ok"},
		{"/readyz", false, 200, "ready"},
		{"/metrics", false, 200, "opcua_server_sessions"},
		{"/metrics", false, 200, "go_goroutines"},
		{"/admin/stats", false, 401, "admin.token"},
		{"/admin/stats", true, 200, `"Sessions"`},
		{"/admin/isolation", false, 401, "admin.token"},
		{"/admin/isolation", true, 200, `{"stage":"Connection","bytes":false,"used":1,"capacity":1810,`},
		{"/admin/admission", false, 401, "admin.token"},
		{"/admin/admission", true, 200, `"maxRequests":256`},
		{"/admin/limits", true, 405, ""},
		{"/debug/pprof/goroutine?debug=1", true, 200, "goroutine profile"},
		{"/", true, 200, "/metrics"},
		{"/nothing", true, 404, ""},
	} {
		code, body := get(t, admin+tt.path, map[bool]string{true: strings.TrimSpace(string(token))}[tt.token])
		if code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d, want %d and %q in %.200q", tt.path, code, tt.code, tt.want, body)
		}
	}
	write("limits: {maxSessions: 800}\n")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	stderr.await(t, `(limits are in force" by=SIGHUP changed="\[limits.maxSessions limits.maxChannels limits.maxParkedRequests)`)
	if out, err := refserver(t, "", "pki", "show"); err != nil || !strings.Contains(strings.ReplaceAll(strings.ToUpper(out), ":", ""), thumbprint) {
		t.Errorf("pki show: %q, %v", out, err)
	}
	if out, err := refserver(t, "", "pki", "renew"); err != nil || !strings.Contains(out, "restart") {
		t.Errorf("pki renew: %q, %v", out, err)
	}

	// A call that runs when the signal comes is finished and answered.
	slow := make(chan ua.StatusCode, 1)
	wg.Go(func() {
		res, err := c.Call(ctx, &ua.CallMethodRequest{
			ObjectID: ua.NewStringNodeID(ns, "Demo.Methods"), MethodID: ua.NewStringNodeID(ns, "Demo.Methods.Slow"),
			InputArguments: []*ua.Variant{ua.MustVariant(0.5)},
		})
		if err != nil {
			t.Error(err)
			slow <- ua.StatusBad
			return
		}
		slow <- res.StatusCode
	})
	for stats := ""; !strings.Contains(stats, `"BlockingRequests":1`); {
		_, stats = get(t, admin+"/admin/stats", strings.TrimSpace(string(token)))
	}
	http.DefaultClient.CloseIdleConnections()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		cancel()
		t.Fatal("SIGTERM did not end the server")
	}
	stderr.await(t, `msg=(stopped)\n`)
	if code := <-slow; code != ua.StatusOK {
		t.Errorf("the call that ran was answered with %v", code)
	}
	_ = c.Close(ctx) // its server has gone
}

// get asks the admin interface, with a token unless it is empty.
func get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestServeSaysWhatFailed(t *testing.T) {
	ownFolder(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "opc.tcp://192.0.2.1:1", "--admin", "off"}, "another --listen"},
		{[]string{"--listen", "opc.tcp://127.0.0.1:0", "--admin", "0.0.0.0:0"}, "needs admin.tlsCertificate"},
		{[]string{"--listen", "opc.tcp://127.0.0.1:0", "--admin", "192.0.2.1:1"}, "needs admin.tlsCertificate"},
		{[]string{"--nodeset", "/does/not/exist"}, "/does/not/exist"},
		{[]string{"--config", "/does/not/exist"}, "/does/not/exist"},
	} {
		if _, err := refserver(t, "", tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q in it", tt.args, err, tt.want)
		}
	}
}
