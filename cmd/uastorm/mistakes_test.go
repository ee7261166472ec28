package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// What is wrong with a command line is said before anything is done, by the name
// of the flag or the field.
func TestMistakesAreNamed(t *testing.T) {
	const url = "opc.tcp://127.0.0.1:1"
	dir := t.TempDir()
	scenario := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	idle := scenario("idle.yaml", "phases: [{name: a, duration: 1s}]\n")
	chunks := scenario("chunks.yaml", "phases: [{name: a, duration: 1s, flood: {chunks: 1}}]\n")
	many := scenario("many.yaml", "phases: [{name: a, duration: 1s, flood: {chunks: 2}}]\n")
	const want = "want opc.tcp://host:port, opc.wss://host:port or opc.https://host:port"
	for _, c := range []struct{ says, args string }{
		{want, "connect abc"},
		{want, "connect localhost:4840"},
		{want, "connect opc.tcp://"},
		{want, "connect opc.tcp://127.0.0.1:99999"},
		{want, "connect opc.tcp://127.0.0.1:0"},
		{want, "connect opc.tcp://127.0.0.1:x"},
		{"name an address", "connect opc.tcp://0.0.0.0:4840"},
		{"name an address", "connect opc.tcp://[::]:4840 --i-own-this-server"},
		{"--i-own-this-server", "connect " + url + " --server-metrics http://169.254.169.254/metrics"},
		{"--server-metrics", "connect " + url + " --server-metrics localhost:9090"},
		{"--readers, --writers and --subscribers", "steady " + url + " --readers 0 --subscribers 0"},
		{"idle.yaml: no load", "scenario " + idle + " " + url},
		{"chunks.yaml: phases[0].flood.chunks: not possible over opc.https", "scenario " + chunks + " opc.https://127.0.0.1:1"},
		{"many.yaml: phases[0].flood.chunks: 20000", "scenario --scale 10000 " + many + " " + url},
		{"--read-rate changes nothing without readers", "steady " + url + " --readers 0 --read-rate 5"},
		{"--write-rate changes nothing without writers", "steady " + url + " --write-rate 5"},
		{"--write-node changes nothing without writers", "steady " + url + " --write-node i=2258"},
		{"--write-node changes nothing without writers", "scenario " + chunks + " " + url + " --write-node i=2258"},
		{"--counter-node changes nothing without subscribers", "steady " + url + " --subscribers 0 --counter-node i=2258"},
		{"--user-key changes nothing", "connect " + url + " --user-key x.pem"},
		{"--password-file changes nothing", "connect " + url + " --password-file x"},
		{"--max-cpu NaN", "connect " + url + " --max-cpu NaN"},
		{"--max-cpu 2", "connect " + url + " --max-cpu 2"},
		{"--max-cpu 0", "connect " + url + " --max-cpu 0"},
		{"--max-cpu -2", "connect " + url + " --max-cpu -2"},
		{"--sources 12288001", "connect " + url + " --sources 12288001"},
		{"--sources -1", "connect " + url + " --sources -1"},
		{"--json and --report", "connect " + url + " --json - --report -"},
		{"--clients: 0", "connect " + url + " --clients 0"},
		{"--within: ", "connect " + url + " --within 61m"},
		{"--hold: ", "connect " + url + " --hold 0s"},
		{"--storm: ", "storm " + url + " --storm -1s"},
		{"--duration: ", "flood " + url + " --silent 1 --duration 0s"},
		{"--slow-chunks: -1", "flood " + url + " --slow-chunks -1"},
		{"--nodes-per-read: 10001", "steady " + url + " --nodes-per-read 10001"},
		{"--read-node: ", "steady " + url + " --read-node ns=x"},
		{`--limit foo=1: unknown key "foo"`, "steady " + url + " --limit foo=1"},
	} {
		code, _, text := uastorm(t.Context(), strings.Fields(c.args)...)
		if code != exitUsage || !strings.Contains(text, c.says) {
			t.Errorf("%s: exit %d, %q; want %q", c.args, code, text, c.says)
		}
	}
}

// A file that cannot be written is noticed before the run, or, when the disk is
// full at its end, does not hide how the run ended.
func TestUnwritableFiles(t *testing.T) {
	url := serve(t)
	run := func(args ...string) (int, string, string) {
		return uastorm(t.Context(), append(append([]string{"steady", url, "--readers", "1", "--read-rate", "20", "--subscribers", "0",
			"--duration", "200ms"}, easy...), args...)...)
	}
	dir := t.TempDir()
	for _, flag := range []string{"--json", "--report"} {
		for _, file := range []string{dir, filepath.Join(dir, "no", "such")} {
			if code, out, text := run(flag, file); code != exitUsage || out != "" || strings.Contains(text, "target  ") {
				t.Errorf("%s %s: exit %d\n%s%s", flag, file, code, out, text)
			}
		}
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full: ", err)
	}
	for _, flag := range []string{"--json", "--report"} {
		if code, out, text := run(flag, "/dev/full"); code != exitTarget || !strings.Contains(out, "PASS") || !strings.Contains(text, "/dev/full") {
			t.Errorf("%s: exit %d\n%s%s", flag, code, out, text)
		}
		if code, _, text := run(flag, "/dev/full", "--limit", "readP99=1ns"); code != exitLimits || !strings.Contains(text, "/dev/full") {
			t.Errorf("%s, limits not kept: exit %d\n%s", flag, code, text)
		}
		if code, _, text := run(flag, "/dev/full", "--max-lateness", "1ns"); code != exitSaturated || !strings.Contains(text, "/dev/full") {
			t.Errorf("%s, saturated: exit %d\n%s", flag, code, text)
		}
	}
}

// A signal ends uastorm with 130 also while the target says nothing.
func TestInterruptedBeforeTheRun(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"opc.tcp://", "opc.wss://", "opc.https://"} {
		ctx, cancel := context.WithCancel(t.Context())
		var accepting sync.WaitGroup
		accepting.Go(func() {
			c, err := l.Accept()
			cancel()
			if err == nil {
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		})
		if code, _, text := uastorm(ctx, "connect", scheme+l.Addr().String(), "--quiet"); code != exitCancelled || text != "interrupted" {
			t.Errorf("%s: exit %d, %q", scheme, code, text)
		}
		accepting.Wait()
	}
	_ = l.Close()
}

// watcher calls seen once a text has been written.
type watcher struct {
	mu    sync.Mutex
	text  bytes.Buffer
	until string
	seen  func()
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if strings.Contains(w.text.String(), w.until) {
		w.seen()
	}
	return len(p), nil
}

// A signal is answered: sessions are being closed, and how to end at once. What
// was measured is reported.
func TestInterruptedRun(t *testing.T) {
	url := serve(t)
	for _, quiet := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		w := &watcher{until: "plan ", seen: cancel}
		var out bytes.Buffer
		cmd := newRoot(&out, w)
		page := filepath.Join(t.TempDir(), "out.html")
		args := []string{"steady", url, "--report", page, "--max-lateness", "-1ns", "--max-cpu", "-1"}
		if quiet {
			args = append(args, "--quiet")
		}
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(ctx)
		cancel()
		if exitCode(err) != exitCancelled || strings.Count(w.text.String(), "a second Ctrl-C ends uastorm at once") != 1 {
			t.Errorf("quiet %v: %v\n%s", quiet, err, w.text.String())
		}
		if b, err := os.ReadFile(page); err != nil || !bytes.Contains(b, []byte("</html>")) {
			t.Errorf("no page: %v", err)
		}
	}
}

// Endpoints of other transports are counted, and those of the URL's listed once.
func TestNoEndpointWillDo(t *testing.T) {
	srv, err := stack.NewServer(stack.Options{ApplicationName: "two", Endpoints: []string{"opc.tcp://127.0.0.1:0", "opc.wss://127.0.0.1:0"},
		Logger: slog.New(slog.DiscardHandler), Security: stack.Security{Policies: stack.NoPolicies, AllowNone: true, AllowAnonymous: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { _ = srv.Run(ctx) })
	defer work.Wait()
	defer cancel()
	code, _, text := uastorm(t.Context(), "connect", srv.URLs()[0], "--policy", "Basic256Sha256")
	if code != exitTarget || strings.Count(text, `"None" None`) != 1 || !strings.Contains(text, " more over other transports") {
		t.Errorf("exit %d, %s", code, text)
	}
}

// Modes mean nothing over opc.https.
func TestModeOverHTTPS(t *testing.T) {
	args := append([]string{"connect", serveOver(t, "opc.https"), "--mode", "SignAndEncrypt", "--clients", "1", "--hold", "1ms"}, easy...)
	if code, _, text := uastorm(t.Context(), args...); code != 0 {
		t.Errorf("exit %d, %s", code, text)
	}
}

func TestHTTPSFailuresSayTheirCause(t *testing.T) {
	_, _, text := uastorm(t.Context(), "connect", "opc.https://127.0.0.1:1")
	if strings.Contains(text, "has been closed") || !strings.Contains(text, "connection refused") {
		t.Error(text)
	}
}

// Only an answer that is about certificates asks for trust.
func TestWhoDoubtsTheCertificate(t *testing.T) {
	for code, want := range map[ua.StatusCode]bool{ua.StatusBadSecurityChecksFailed: true, ua.StatusBadCertificateUntrusted: true,
		ua.StatusBadCertificateTimeInvalid: true, ua.StatusBadUserAccessDenied: false, ua.StatusBadIdentityTokenRejected: false,
		ua.StatusBadIdentityTokenInvalid: false, uastatus.BadServerTooBusy: false, ua.StatusOK: false} {
		if doubtsCertificate(code) != want {
			t.Errorf("%v: %v", code, !want)
		}
	}
}

// Metrics come from the addresses that were checked, whatever their name stands
// for later.
func TestMetricsAreReadFromWhereWasChecked(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }))
	defer srv.Close()
	at := netip.MustParseAddrPort(srv.Listener.Addr().String())
	transport := &http.Transport{DialContext: dialOnly([]netip.Addr{at.Addr()})}
	defer transport.CloseIdleConnections()
	url := "http://elsewhere.invalid:" + strings.TrimPrefix(at.String(), at.Addr().String()+":")
	answer, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil || !strings.HasPrefix(string(body), "elsewhere.invalid") {
		t.Errorf("%s, %v", body, err)
	}
}
