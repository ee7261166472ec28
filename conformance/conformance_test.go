package conformance

import (
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/refserver/demo"
	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uabinary"
)

var (
	targetURL  = flag.String("target", "", "endpoint `URL` of a server to test instead of our own")
	targetFile = flag.String("target-file", "", "JSON `file` with the target's user and nodes")
	ledgerFile = flag.String("ledger", "", "JSON `file` of what is known not to pass")
)

// TestConformance runs the suite against our own server with the demo address
// space, over each transport, or against the server that the flags name.
func TestConformance(t *testing.T) {
	if *targetURL != "" {
		theirs(t)
		return
	}
	ledgers, err := LoadLedgers("testdata/breakwater.json")
	if err != nil {
		t.Fatal(err)
	}
	for transport := range ledgers {
		if !slices.Contains(ours, transport) {
			t.Errorf("the ledger names %q, over which nothing is tested", transport)
		}
	}
	// A server for each, and all at once, since cases spend their time waiting.
	var all sync.WaitGroup
	for _, transport := range ours {
		all.Go(func() {
			t.Run(string(transport), func(t *testing.T) { Run(t, ourselves(t, transport), ledgers[transport]) })
		})
	}
	all.Wait()
}

// ours are the transports of our own server that the suite runs over.
var ours = []probe.Transport{probe.TCP, probe.WSS, probe.WSSJSON, probe.HTTPSBinary, probe.HTTPSJSON}

// theirs tests the server that the flags name.
func theirs(t *testing.T) {
	target := &Target{}
	if *targetFile != "" {
		b, err := os.ReadFile(*targetFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, target); err != nil {
			t.Fatalf("%s: %v", *targetFile, err)
		}
	}
	target.URL = *targetURL
	ledgers := Ledgers{}
	if *ledgerFile != "" {
		var err error
		if ledgers, err = LoadLedgers(*ledgerFile); err != nil {
			t.Fatal(err)
		}
	}
	Run(t, target, ledgers[target.Transport()])
}

// ourselves starts a server on free loopback ports and returns it as it is
// reached over a transport.
func ourselves(t *testing.T, transport probe.Transport) *Target {
	dir := t.TempDir()
	users, err := session.OpenUsers(dir+"/users.yaml", session.UsersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := users.Add(session.User{Name: "tester"}, []byte("correct horse")); err != nil {
		t.Fatal(err)
	}
	srv, err := stack.NewServer(stack.Options{
		ApplicationName: "Breakwater under test",
		Endpoints:       []string{"opc.tcp://127.0.0.1:0", "opc.wss://127.0.0.3:0", "opc.https://127.0.0.3:0"},
		Security:        stack.Security{AllowNone: true, AllowAnonymous: true, TrustAll: true, PKI: dir + "/pki"},
		Authenticator:   &session.Identities{Anonymous: true, Users: users},
		Logger:          slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		t.Fatal(err)
	}
	space, err := demo.Build(srv.AddressSpace(), demo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Listen(ctx); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}, 2)
	go func() { defer func() { ended <- struct{}{} }(); space.Run(ctx) }()
	go func() {
		defer func() { ended <- struct{}{} }()
		if err := srv.Run(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("server: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatal("the server did not end")
			}
		}
	})
	ns := srv.AddressSpace().Namespace(demo.NamespaceURI).Index()
	node := func(path string) string { return uabinary.StringID(ns, "Demo."+path).String() }
	nodes := Nodes{Scalars: map[string]string{}, Arrays: map[string]string{}, Matrices: map[string]string{},
		ReadOnly: node("Access.ReadOnly"), WriteOnly: node("Access.WriteOnly"), Analog: node("DataAccess.Temperature"),
		Changing: node("Simulation.Counter"), WideFolder: node("Wide"), MethodObject: node("Methods"),
		MethodNone: node("Methods.NoArguments"), MethodArgs: node("Methods.Add"), MethodArgsCount: 2, MethodFailing: node("Methods.Fail")}
	for _, name := range strings.Fields("Boolean SByte Byte Int16 UInt16 Int32 UInt32 Int64 UInt64 Float Double String DateTime Guid ByteString " +
		"XmlElement NodeId ExpandedNodeId StatusCode QualifiedName LocalizedText DataValue DiagnosticInfo Variant") {
		if name != "Variant" {
			nodes.Scalars[name] = node("Scalar." + name)
		}
		nodes.Arrays[name], nodes.Matrices[name] = node("Array."+name), node("Matrix."+name)
	}
	target := &Target{User: "tester", Password: "correct horse", Nodes: nodes, JSON: transport == probe.WSSJSON || transport == probe.HTTPSJSON}
	for _, url := range srv.URLs() {
		if strings.HasPrefix(url, transport.Scheme()+":") {
			target.URL = url
		}
	}
	if got := target.Transport(); got != transport {
		t.Fatalf("%v: %q instead of %q", srv.URLs(), got, transport)
	}
	return target
}
