package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	steps = []string{"discovery", "security", "values", "browse", "calls", "subscription", "renewal", "reconnect"}

	// types are the built-in types of OPC 10000-6 §5.1.2 (Built-in Types) that a
	// variable may hold as scalar, array and matrix; Variant only as array and matrix.
	types = []string{
		"Boolean", "SByte", "Byte", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64", "Float", "Double",
		"String", "DateTime", "Guid", "ByteString", "XmlElement", "NodeId", "ExpandedNodeId", "StatusCode",
		"QualifiedName", "LocalizedText", "Structure", "DataValue", "DiagnosticInfo", "Variant",
	}

	endpoints = []string{
		"None/None",
		"Basic256Sha256/Sign", "Basic256Sha256/SignAndEncrypt",
		"Aes128_Sha256_RsaOaep/Sign", "Aes128_Sha256_RsaOaep/SignAndEncrypt",
		"Aes256_Sha256_RsaPss/Sign", "Aes256_Sha256_RsaPss/SignAndEncrypt",
	}
	identities = []string{"Anonymous", "UserName", "Certificate"}
)

// result is what a peer said about one step.
type result struct {
	Step   string   `json:"step"`
	Event  string   `json:"event"`
	OK     bool     `json:"ok"`
	Detail string   `json:"detail"`
	Items  []string `json:"items"`
}

func TestThirdPartyClients(t *testing.T) {
	switch {
	case os.Getenv("BREAKWATER_INTEROP") == "off":
		t.Skip("BREAKWATER_INTEROP=off")
	case testing.Short():
		t.Skip("-short")
	}
	server := startServer(t.Context(), t)
	t.Run("peers", func(t *testing.T) {
		for _, p := range peers {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				require(t, p.tools...)
				dir := p.ready(t.Context(), t)
				px := startProxy(t, server.address)
				results := runPeer(t, p, dir, px.endpoint(), px.cut, steps, server)
				judge(t, results, steps, expected(), p.cannot)
				t.Run("tshark", func(t *testing.T) {
					require(t, "tshark")
					dissect(t, px)
				})
			})
		}
		t.Run(miloWeb.name, func(t *testing.T) {
			t.Parallel()
			require(t, miloWeb.tools...)
			dir := miloWeb.ready(t.Context(), t)
			for _, w := range web {
				t.Run(w.name, func(t *testing.T) {
					results := runPeer(t, miloWeb, dir, w.endpoint(t, server), nil, webSteps, server)
					judge(t, results, webSteps, w.expected(), miloWeb.cannot)
				})
			}
		})
	})
}

// runPeer runs steps of the peer's scenario at endpoint and returns its results by
// step. cut breaks its connections.
func runPeer(t *testing.T, p *peer, dir, endpoint string, cut func(), steps []string, server *refserver) map[string]result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := p.run(ctx, p.source(t), dir)
	cmd.WaitDelay = 5 * time.Second
	cmd.Args = append(cmd.Args,
		"--endpoint", endpoint,
		"--application-uri", applicationURI,
		"--cert", server.files["client.der"], "--key", server.files["client.pem"],
		"--server-cert", server.files["server.der"],
		"--user", userName, "--password", password,
		"--user-cert", server.files["user.der"], "--user-key", server.files["user.pem"],
		"--namespace", demoNamespace,
		"--types", strings.Join(types, ","),
		"--token-lifetime", strconv.FormatInt(tokenLifetime.Milliseconds(), 10),
		"--steps", strings.Join(steps, ","),
	)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	results := map[string]result{}
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Logf("%s", lines.Text()) // a library that greets on standard output
			continue
		}
		if r.Event == "cut" {
			cut()
			continue
		}
		results[r.Step] = r
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", p.name, err, stderr.String())
	}
	return results
}

// judge fails for each step that was not ok and each expected item that was not
// covered, and for each exclusion that is no longer true.
func judge(t *testing.T, results map[string]result, steps, expected []string, excluded map[string]string) {
	t.Helper()
	var covered []string
	for _, step := range steps {
		r, ran := results[step]
		switch {
		case !ran:
			t.Errorf("%s: no result", step)
		case !r.OK:
			t.Errorf("%s: %s", step, r.Detail)
		case len(r.Items) == 0:
			t.Errorf("%s: covered nothing", step)
		default:
			t.Logf("%s: %s; %s", step, r.Detail, strings.Join(r.Items, ", "))
		}
		covered = append(covered, r.Items...)
	}
	for _, item := range expected {
		why, cannot := excluded[item]
		switch covers := slices.Contains(covered, item); {
		case covers && cannot:
			t.Errorf("%s was covered although the peer cannot: %s", item, why)
		case !covers && !cannot:
			t.Errorf("%s was not covered", item)
		}
	}
}

// expected lists every item that a peer covers unless its cannot says why not.
func expected() []string {
	items := slices.Clone(endpoints)
	for _, e := range endpoints {
		for _, who := range identities {
			items = append(items, e+"/"+who)
		}
	}
	for _, name := range types {
		if name != "Variant" {
			items = append(items, "Scalar."+name)
		}
		items = append(items, "Array."+name, "Matrix."+name)
	}
	return items
}

// dissect lets tshark read what passed px without security.
func dissect(t *testing.T, px *proxy) {
	t.Helper()
	flows := px.unsecured()
	if len(flows) == 0 {
		t.Fatal("no unsecured connection was recorded")
	}
	file := filepath.Join(t.TempDir(), "session.pcap")
	if err := writePcap(file, flows); err != nil {
		t.Fatal(err)
	}
	services := tshark(t, file, "opcua.servicenodeid.numeric")
	if services < 20 {
		t.Errorf("tshark found %d packets with OPC UA services in %d connections", services, len(flows))
	}
	if n := tshark(t, file, "_ws.malformed || _ws.expert.group == \"Malformed\""); n > 0 {
		out, _ := exec.Command("tshark", "-r", file, "-Y", "_ws.malformed || _ws.expert.group == \"Malformed\"").CombinedOutput()
		keep := filepath.Join(os.TempDir(), "breakwater-"+filepath.Base(filepath.Dir(file))+".pcap")
		if b, err := os.ReadFile(file); err == nil {
			_ = os.WriteFile(keep, b, 0o600)
		}
		t.Errorf("tshark calls %d packets malformed (kept in %s):\n%s", n, keep, out)
	}
	t.Logf("%d connections, %d packets with services", len(flows), services)
}

// tshark counts the packets of file that match a display filter.
func tshark(t *testing.T, file, filter string) int {
	t.Helper()
	cmd := exec.Command("tshark", "-r", file, "-Y", filter, "-T", "fields", "-e", "frame.number")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark %s: %v\n%s", filter, err, stderr.String())
	}
	return bytes.Count(out, []byte("\n"))
}
