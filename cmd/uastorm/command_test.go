package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/load"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/stack"
)

// uastorm runs a command line and returns its exit code and what it wrote.
func uastorm(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	cmd := newRoot(&out, &errs)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err != nil {
		errs.WriteString(err.Error())
	}
	return exitCode(err), out.String(), errs.String()
}

// serve starts a server until the test ends and returns its URL of opc.tcp.
func serve(t *testing.T) string {
	t.Helper()
	return serveOver(t, load.SchemeTCP)
}

// serveOver is serve for any scheme.
func serveOver(t *testing.T, scheme string) string {
	t.Helper()
	srv, err := stack.NewServer(stack.Options{
		ApplicationName: "uastorm's test server", Endpoints: []string{scheme + "://127.0.0.1:0"}, Logger: slog.New(slog.DiscardHandler),
		Security: stack.Security{Policies: stack.NoPolicies, AllowNone: true, AllowAnonymous: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { _ = srv.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	return srv.URLs()[0]
}

// easy says that a busy machine is no failure of these tests.
var easy = []string{"--quiet", "--max-lateness", "-1ns", "--max-cpu", "-1"}

func TestRefusesWhatIsNotOurs(t *testing.T) {
	for _, url := range []string{"opc.tcp://192.0.2.1:4840", "opc.tcp://8.8.8.8", "opc.tcp://[2001:db8::1]:4840", "opc.wss://8.8.8.8", "opc.tcp://169.254.169.254:80", "opc.https://8.8.8.8:443"} {
		code, _, text := uastorm(t.Context(), "connect", url)
		if code != exitUsage || !strings.Contains(text, "--i-own-this-server") {
			t.Errorf("%s: exit %d, %s", url, code, text)
		}
	}
}

func TestUsage(t *testing.T) {
	const url = "opc.tcp://127.0.0.1:1"
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "50000", []string{"connect", url, "--clients", "50001"}},
		{exitUsage, "1h0m0s", []string{"steady", url, "--duration", "61m"}},
		{exitUsage, "choose what to do", []string{"flood", url}},
		{exitUsage, "there are auto, None", []string{"connect", url, "--policy", "Best"}},
		{exitUsage, "there are auto, None, Sign", []string{"connect", url, "--mode", "Best"}},
		{exitUsage, "--password-file", []string{"connect", url, "--identity", "user:alice:secret"}},
		{exitUsage, "--user-certificate", []string{"connect", url, "--identity", "certificate"}},
		{exitUsage, "unknown key", []string{"steady", url, "--limit", "readP98=1s"}},
		{exitUsage, "duration", []string{"steady", url, "--limit", "readP99=fast"}},
		{exitUsage, "network-blip", []string{"scenario", "nothing", url}},
		{exitUsage, "writers need a node", []string{"steady", url, "--writers", "1"}},
		{exitUsage, "--chunks: not possible over opc.https", []string{"flood", "opc.https://127.0.0.1:1", "--chunks", "1"}},
		{exitUsage, "--slow-headers: not possible over opc.tcp", []string{"flood", url, "--slow-headers", "1"}},
		{exitUsage, "no-such-file", []string{"connect", "opc.wss://127.0.0.1:1", "--tls-ca", "no-such-file"}},
		{exitUsage, "no certificate", []string{"connect", "opc.wss://127.0.0.1:1", "--tls-ca", "command_test.go"}},
		{exitUsage, "--tls-ca changes nothing over opc.tcp", []string{"connect", url, "--tls-ca", "command_test.go"}},
		{exitUsage, "one source address", []string{"connect", "opc.tcp://[::1]:1", "--sources", "2"}},
		{exitTarget, "opc.tcp://127.0.0.1:1", []string{"connect", url}},
		{exitTarget, "opc.wss://127.0.0.1:1", []string{"connect", "opc.wss://127.0.0.1:1"}},
		{exitTarget, "opc.https://127.0.0.1:1", []string{"connect", "opc.https://127.0.0.1:1"}},
		{exitUsage, "want opc.tcp://host:port", []string{"connect", "http://127.0.0.1:1"}},
		{exitUsage, "unknown command", []string{"strom"}},
	} {
		code, _, text := uastorm(t.Context(), c.args...)
		if code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%v: exit %d, %q; want %d, %q", c.args, code, text, c.code, c.says)
		}
	}
}

// Every mode ends with 0 against a server that does its work, says before what it
// does, and leaves its lines and its page.
func TestModes(t *testing.T) {
	for _, scheme := range load.Schemes() {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel() // they wait for phases to end
			allModes(t, serveOver(t, scheme))
		})
	}
}

func allModes(t *testing.T, url string) {
	dir := t.TempDir()
	for _, c := range []struct{ name, says string }{
		{"connect --clients 5 --within 1m --hold 200ms --subscribe", "5 clients connect at once, with a subscription each"},
		{"steady --readers 2 --read-rate 40 --subscribers 1 --duration 500ms", "2 readers, 40 reads/s of 1 nodes"},
		{"storm --clients 5 --readers 2 --read-rate 20 --subscribers 1 --before 200ms --storm 1m --after 200ms", ""},
		{"flood --silent 2 --duration 500ms", "2 silent sockets"},
	} {
		if strings.HasPrefix(c.name, "storm") {
			c.name = strings.Replace(c.name, "--storm 1m", "--storm 3s --limit readP99=1m", 1)
			c.says = "5 clients connect at once"
		}
		lines, page := filepath.Join(dir, "out.jsonl"), filepath.Join(dir, "out.html")
		args := append(strings.Fields(c.name), url, "--json", lines, "--report", page)
		code, out, text := uastorm(t.Context(), append(args, easy...)...)
		if code != 0 || !strings.Contains(text, c.says) || !strings.Contains(text, "target   "+url) {
			t.Errorf("%s: exit %d\n%s\n%s", c.name, code, text, out)
			continue
		}
		f, err := os.Open(lines)
		if err != nil {
			t.Fatal(err)
		}
		res, err := measure.ReadLines(f)
		_ = f.Close()
		if err != nil || res.Total.SessionsUp == 0 || res.Total.SessionsUp != res.Total.SessionsDown {
			t.Errorf("%s: %v, %+v", c.name, err, res)
		}
		if b, err := os.ReadFile(page); err != nil || !bytes.Contains(b, []byte("</html>")) {
			t.Errorf("%s: no page: %v", c.name, err)
		}
		floods := strings.HasPrefix(c.name, "flood")
		if clients := strings.Contains(c.name, "--clients"); clients != (len(res.Clients) > 0) || floods != (len(res.Floods) > 0) {
			t.Errorf("%s: clients %+v, floods %+v", c.name, res.Clients, res.Floods)
		}
		if code, again, text := uastorm(t.Context(), "report", lines); code != 0 || again != out {
			t.Errorf("report: exit %d, %s%s, and the run itself said\n%s", code, again, text, out)
		}
	}
}

// A limit that is not kept is exit 1, and the verdict says which.
func TestLimitNotKept(t *testing.T) {
	url := serve(t)
	args := append([]string{"steady", url, "--readers", "1", "--read-rate", "20", "--subscribers", "0", "--duration", "300ms",
		"--limit", "readP99=1ns", "--json", "-"}, easy...)
	code, out, text := uastorm(t.Context(), args...)
	if code != exitLimits || !strings.Contains(text, "read p99") {
		t.Errorf("exit %d\n%s", code, text)
	}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
}

// A node that is not there is told at the start: exit 3, and its name.
func TestNodeThatIsNotThere(t *testing.T) {
	args := append([]string{"steady", serve(t), "--readers", "1", "--subscribers", "0", "--duration", "1m", "--read-node", "i=4711"}, easy...)
	code, _, text := uastorm(t.Context(), args...)
	if code != exitTarget || !strings.Contains(text, "node i=4711 cannot be read: BadNodeIdUnknown") {
		t.Errorf("exit %d\n%s", code, text)
	}
}

// A generator that is late says so: exit 4, whatever the limits say.
func TestSaturated(t *testing.T) {
	code, _, text := uastorm(t.Context(), "steady", serve(t), "--readers", "1", "--read-rate", "50", "--subscribers", "0", "--duration", "300ms",
		"--quiet", "--max-lateness", "1ns")
	if code != exitSaturated || !strings.Contains(text, "saturated") {
		t.Errorf("exit %d\n%s", code, text)
	}
}

// A server that trusts nobody yet is told apart from one that is busy, at once and
// with what to do.
func TestUntrusted(t *testing.T) {
	dir := t.TempDir()
	srv, err := stack.NewServer(stack.Options{ApplicationName: "strict", Endpoints: []string{"opc.tcp://127.0.0.1:0"}, Logger: slog.New(slog.DiscardHandler),
		Security: stack.Security{AllowAnonymous: true, PKI: filepath.Join(dir, "server")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { _ = srv.Run(ctx) })
	code, _, text := uastorm(t.Context(), "connect", srv.URLs()[0], "--quiet", "--pki", filepath.Join(dir, "client"))
	if code != exitTarget || !strings.Contains(text, "thumbprint") || !strings.Contains(text, "trust") {
		t.Errorf("exit %d\n%s", code, text)
	}
	cancel()
	work.Wait()
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code, _, text := uastorm(ctx, "connect", "opc.tcp://127.0.0.1:1", "--quiet"); code != exitCancelled {
		t.Errorf("exit %d\n%s", code, text)
	}
}

// The scenarios that come with uastorm are valid at every scale, and their files
// are what --show prints.
func TestScenarios(t *testing.T) {
	names := scenarioNames()
	if strings.Join(names, " ") != "hostile-neighbour network-blip shift-start" {
		t.Errorf("%q", names)
	}
	for _, n := range names {
		p, err := readScenario(n)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name != n || p.Description == "" || p.Connections() > 200 {
			t.Errorf("%s: %q, %d connections", n, p.Name, p.Connections())
		}
		for _, scheme := range load.Schemes() {
			mine, _ := readScenario(n)
			if err := mine.For(scheme); err != nil {
				t.Errorf("%s over %s: %v", n, scheme, err)
			}
		}
		for _, f := range []float64{0.01, 10, 100} {
			big, _ := readScenario(n)
			big.Scale(f)
			if err := big.Validate(); err != nil {
				t.Errorf("%s × %v: %v", n, f, err)
			}
		}
		file, err := os.ReadFile(filepath.Join("scenarios", n+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if code, out, _ := uastorm(t.Context(), "scenario", "--show", n); code != 0 || out != string(file) {
			t.Errorf("--show %s: exit %d", n, code)
		}
	}
	if code, out, _ := uastorm(t.Context(), "scenario", "--list"); code != 0 || strings.Count(out, "\n") != 3 {
		t.Errorf("--list: exit %d, %s", code, out)
	}
}

// A scenario of one's own runs from a file.
func TestScenarioFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	text := "name: mine\nsteady: {readers: 1, readRate: 20}\nphases:\n  - {name: a, duration: 300ms, limits: {readsFailed: 0}}\n" +
		"  - {name: b, duration: 1m, untilConnected: true, connect: {clients: 3}, limits: {connected: 1}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range load.Schemes() {
		code, out, errs := uastorm(t.Context(), append([]string{"scenario", file, serveOver(t, scheme)}, easy...)...)
		if code != 0 || !strings.Contains(out, "clients with a session") {
			t.Errorf("%s: exit %d\n%s%s", scheme, code, out, errs)
		}
	}
	if _, err := load.ParsePlan(file, append([]byte("speed: 3\n"), text...)); err == nil || !strings.Contains(err.Error(), "mine.yaml:1: unknown key \"speed\"") {
		t.Errorf("%v", err)
	}
}
