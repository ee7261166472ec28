package main

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
)

func TestConfigTextHoldsTheDefaults(t *testing.T) {
	c := &config{}
	if err := c.decode(configText); err != nil {
		t.Fatal(err)
	}
	if want := defaultConfig(); !reflect.DeepEqual(c, want) {
		t.Errorf("refserver.yaml says\n%+v\nthe defaults are\n%+v", c, want)
	}
	var keys func(reflect.Type, string)
	keys = func(typ reflect.Type, indent string) {
		for i := range typ.NumField() {
			key := typ.Field(i).Tag.Get("yaml")
			if !strings.Contains(string(configText), "\n"+indent+key+":") {
				t.Errorf("refserver.yaml does not show %q", key)
			}
			if typ.Field(i).Type.Kind() == reflect.Struct {
				keys(typ.Field(i).Type, indent+"  ")
			}
		}
	}
	keys(reflect.TypeFor[config](), "")
}

func TestDecodeErrors(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"unknown key", "pki: x\nlisten: []\nlissten: []\n", `line 3: unknown key "lissten"`},
		{"unknown key inside", "admin:\n  listen: off\n  tokenn: x\n", `line 3: unknown key "tokenn"`},
		{"wrong type", "limits:\n  maxSessions: many\n", "line 2"},
		{"bad size", "limits:\n  maxMessageSize: 4 MB\n", "line 2: \"4 MB\" is no size"},
		{"bad duration", "shutdownTimeout: soon\n", "line 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := defaultConfig().decode([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
	c := defaultConfig()
	if err := c.decode([]byte("# nothing\n")); err != nil || !reflect.DeepEqual(c, defaultConfig()) {
		t.Errorf("an empty file: %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	c := defaultConfig()
	strays, err := overrideFromEnvironment(c, []string{
		"BREAKWATER_LISTEN=opc.tcp://:1, opc.tcp://:2",
		"BREAKWATER_ADMIN_LISTEN=off",
		"BREAKWATER_SECURITY_TRUST_ALL=true",
		"BREAKWATER_LIMITS_MAX_MESSAGE_SIZE=8 MiB",
		"BREAKWATER_LIMITS_MIN_TOKEN_LIFETIME=2s",
		"BREAKWATER_DEMO_VARIABLES=7",
		"BREAKWATER_APPLICATION_URI=urn:x",
		"BREAKWATER_INTEROP=required",
		"HOME=/",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := defaultConfig()
	want.Listen = []string{"opc.tcp://:1", "opc.tcp://:2"}
	want.Admin.Listen = "off"
	want.Security.TrustAll = true
	want.Limits.MaxMessageSize = 8 << 20
	want.Limits.MinTokenLifetime = 2 * time.Second
	want.Demo.Variables = 7
	want.ApplicationURI = "urn:x"
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v\nwant %+v", c, want)
	}
	if !slices.Equal(strays, []string{"BREAKWATER_INTEROP"}) {
		t.Errorf("variables that name no setting: %q", strays)
	}
	if _, err := overrideFromEnvironment(c, []string{"BREAKWATER_DEMO_VARIABLES=many"}); err == nil || !strings.Contains(err.Error(), "BREAKWATER_DEMO_VARIABLES") {
		t.Errorf("a bad number: %v", err)
	}
}

func TestSettingsOverrideEachOther(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	text := "pki: keys\nnodesets: [a.xml, /b.xml]\nlog: {level: warn, format: json}\ndemo: {variables: 1}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BREAKWATER_LOG_LEVEL", "error")
	t.Setenv("BREAKWATER_DEMO_VARIABLES", "2")
	a := &app{stderr: io.Discard, configFile: file, usersFile: filepath.Join(dir, "u")}
	c, err := a.load()
	if err != nil {
		t.Fatal(err)
	}
	cmd := a.newServe()
	if err := cmd.ParseFlags([]string{"--demo-variables", "3", "--no-demo", "--memory-limit", "2GiB", "--trust-all"}); err != nil {
		t.Fatal(err)
	}
	flags := &serveFlags{variables: 3, noDemo: true, memory: 2 << 30, trustAll: true}
	if err := flags.apply(c, cmd.Flags()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what      string
		got, want any
	}{
		{"file, relative to its folder", c.PKI, filepath.Join(dir, "keys")},
		{"list of paths in the file", c.NodeSets, []string{filepath.Join(dir, "a.xml"), "/b.xml"}},
		{"file", c.Log.Format, "json"},
		{"environment over file", c.Log.Level, "error"},
		{"flag over environment", c.Demo.Variables, 3},
		{"flag", c.Demo.Enabled, false},
		{"flag of a size", c.Runtime.MemoryLimit, size(2 << 30)},
		{"persistent flag", c.Users, filepath.Join(dir, "u")},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.what, tt.got, tt.want)
		}
	}
	if _, _, err := loadConfig(filepath.Join(dir, "none.yaml")); err == nil {
		t.Error("a file that was named and is not there was no error")
	}
}

func TestOnePortForAll(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string
		err  string
	}{
		{[]string{"--listen-shared", "127.0.0.1:4840"}, []string{"opc.tcp://127.0.0.1:4840", "opc.wss://127.0.0.1:4840", "opc.https://127.0.0.1:4840"}, ""},
		{[]string{"--listen-shared", ":4840"}, []string{"opc.tcp://:4840", "opc.wss://:4840", "opc.https://:4840"}, ""},
		{[]string{"--listen-shared", "4840"}, nil, "--listen-shared"},
		{[]string{"--listen-shared", ":4840", "--listen", "opc.tcp://:1"}, nil, "exclude each other"},
	} {
		flags, set := &serveFlags{}, pflag.NewFlagSet("serve", pflag.ContinueOnError)
		flags.add(set)
		if err := set.Parse(tt.args); err != nil {
			t.Fatal(err)
		}
		c := defaultConfig()
		err := flags.apply(c, set)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: error %v, want %q in it", tt.args, err, tt.err)
			}
		} else if err != nil || !slices.Equal(c.Listen, tt.want) {
			t.Errorf("%q: %q, %v", tt.args, c.Listen, err)
		}
	}
}

func TestSize(t *testing.T) {
	for _, tt := range []struct {
		text  string
		want  size
		fails bool
	}{
		{text: "0", want: 0}, {text: "65535", want: 65535}, {text: "4 MiB", want: 4 << 20}, {text: "2GiB", want: 2 << 30},
		{text: "1 KiB", want: 1024}, {text: "3 B", want: 3},
		{text: "", fails: true}, {text: "-1", fails: true}, {text: "1.5 MiB", fails: true}, {text: "9000000 TiB", fails: true},
	} {
		got, err := parseSize(tt.text)
		if got != tt.want || (err != nil) != tt.fails {
			t.Errorf("parseSize(%q) = %d, %v", tt.text, got, err)
		}
		if again, err := parseSize(got.String()); err != nil || again != got {
			t.Errorf("%q does not read back: %d, %v", got.String(), again, err)
		}
	}
}

func TestOptionsNameWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		change func(*config)
		want   string
	}{
		{func(c *config) { c.Security.Policies = []string{"Basic512"} }, `"Basic512" is not one of`},
		{func(c *config) { c.Security.Modes = []string{"None"} }, `"None" is neither`},
		{func(c *config) { c.Security.Modes = []string{} }, "security.modes: is empty"},
		{func(c *config) { c.ProxyPeers = []string{"10.0.0.1", "here"} }, `proxyPeers[1]: "here" is neither`},
		{func(c *config) { c.Limits.MaxSessions = -3 }, "limits.maxSessions: is negative: -3"},
		{func(c *config) { c.Limits.HelloTimeout = -5 * time.Second }, "limits.helloTimeout: is negative: -5s"},
		{func(c *config) { c.Demo.Variables = -1 }, "demo.variables: is negative: -1"},
		{func(c *config) { c.ShutdownTimeout = -1 }, "shutdownTimeout: is negative: -1ns"},
		{func(c *config) { c.NodeSets = []string{"/does/not/exist.xml"} }, "/does/not/exist.xml"},
	} {
		c := defaultConfig()
		c.Users = filepath.Join(t.TempDir(), "users.yaml")
		tt.change(c)
		if _, err := c.options(nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q in it", err, tt.want)
		}
	}
}

func TestOptionsOfLists(t *testing.T) {
	c := defaultConfig()
	c.Users = filepath.Join(t.TempDir(), "users.yaml")
	c.Security.Policies = []string{}
	c.ProxyPeers = []string{"10.0.0.1", "10.1.0.0/16"}
	o, err := c.options(nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.1.0.0/16")}; !slices.Equal(o.ProxyPeers, want) {
		t.Errorf("balancers: %v", o.ProxyPeers)
	}
	if o.Security.Policies == nil || len(o.Security.Policies) > 0 {
		t.Errorf("an empty list offers %v", o.Security.Policies)
	}
}

func TestNegativeNumbersWithAMeaning(t *testing.T) {
	c := defaultConfig()
	c.Limits.RunSlots, c.RateLimits.PoliteRefusalsPerSecond, c.Demo.Interval = -1, -1, -1
	if err := c.check(); err != nil {
		t.Error(err)
	}
}

func TestSettingsAreOneDocument(t *testing.T) {
	c := defaultConfig()
	if err := c.decode([]byte("log:\n  level: debug\n---\nfoo: 1\n")); err == nil || !strings.Contains(err.Error(), "second document") {
		t.Errorf("a second document: %v", err)
	}
	if err := defaultConfig().decode([]byte("---\nlog:\n  level: debug\n")); err != nil {
		t.Errorf("a marker before the only one: %v", err)
	}
}

// All ordinary requests that the HTTP governor counts fit into its bytes, and
// establishments that wait for the private key leave room for those of others.
func TestDefaultGovernorsFit(t *testing.T) {
	h := defaultGovernors().HTTP
	if each := 4*int64(h.MaxControlBodyBytes) + int64(h.OtherReservedBytes) + 4096; int64(h.MaxRequests)*each > int64(h.MaxReservedBytes) {
		t.Errorf("%d requests of %d bytes, %v for all", h.MaxRequests, each, h.MaxReservedBytes)
	}
	p, err := stack.Options{}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if n := p.Stages[isolation.SessionEstablishment].Capacity; int64(h.MaxRequests) < 2*n {
		t.Errorf("%d requests, of which %d may be establishments", h.MaxRequests, n)
	}
}
