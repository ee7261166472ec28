package load

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// What is wrong in a scenario is told by file, line and field.
func TestParsePlanErrors(t *testing.T) {
	const good = "phases:\n  - name: a\n    duration: 1s\n"
	for _, c := range []struct{ text, want string }{
		{"", "s.yaml: empty"},
		{good + "speed: 3\n", `s.yaml:4: unknown key "speed"; there are: description, name, phases, steady`},
		{good + "    connect:\n      client: 3\n", `s.yaml:5: unknown key "client"; there are: clients, flap,`},
		{good + "    connect:\n      clients: 60000\n", "s.yaml:5: phases[0].connect.clients: 60000, need 1 to 50000"},
		{good + "    connect:\n      clients: many\n", "a whole number"},
		{good + "    limits:\n      readP99: fast\n", "a duration such as 10s"},
		{good + "    limits:\n      connected: 1.5\n", "s.yaml:5: phases[0].limits.connected: 1.5, need 0 to 1"},
		{good + "    cut: -1\n", "s.yaml:4: phases[0].cut"},
		{good + "    flood: {silent: 20000}\n", "phases[0].flood.silent"},
		{good + "  - name: a\n    duration: 1s\n", `s.yaml:4: phases[1].name: two phases are called "a"`},
		{good + "  - name: b\n", "s.yaml:4: phases[1].duration"},
		{"steady: {readers: 1, readNodes: ['ns=x;i=1']}\n" + good, "s.yaml:1: steady.readNodes[0]"},
		{"steady:\n  writers: 1\n" + good, "steady.writeNode: writers need a node to write"},
		{"phases: []\n", "s.yaml:1: phases: need 1 to 50 phases"},
		{good + "    only: [opc.tcp, http]\n", `s.yaml:4: phases[0].only[1]: "http", need opc.tcp, opc.wss, opc.https`},
		{good + "---\n" + good, "more than one document"},
		{"phases: {}\n", "a list"},
		{strings.Repeat("- ", 20), "s.yaml"},
	} {
		_, err := ParsePlan("s.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want %q", c.text, err, c.want)
		}
	}
	if p, err := ParsePlan("s.yaml", []byte(good)); err != nil || p.Name != "s.yaml" || p.Phases[0].Name != "a" {
		t.Errorf("%+v %v", p, err)
	}
}

// A plan is made one for a scheme, or it is said what is not possible over it.
func TestPlanFor(t *testing.T) {
	const text = `
phases:
  - {name: a, duration: 1s, flood: {silent: 1, sessions: 1}}
  - {name: b, duration: 1s, only: [opc.tcp, opc.wss], flood: {chunks: 1, slowChunks: 1, hellos: 1, opn: 1, slowReaders: 1}}
  - {name: c, duration: 1s, only: [opc.wss, opc.https], flood: {tlsSilent: 1, slowHeaders: 1}}
  - {name: d, duration: 1s, only: [opc.https], flood: {slowBodies: 1}}
`
	for scheme, want := range map[string]string{SchemeTCP: "ab", SchemeWSS: "abc", SchemeHTTPS: "acd"} {
		p, err := ParsePlan("s.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.For(scheme); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
		got := ""
		for _, f := range p.Phases {
			got += f.Name
		}
		if got != want {
			t.Errorf("%s: phases %s, want %s", scheme, got, want)
		}
	}
	for _, c := range []struct{ scheme, phase, want string }{
		{SchemeHTTPS, "flood: {silent: 1, opn: 2}", "phases[0].flood.opn: not possible over opc.https, where there are silent, tlsSilent, slowHeaders, slowBodies, sessions"},
		{SchemeTCP, "flood: {tlsSilent: 2}", "phases[0].flood.tlsSilent: not possible over opc.tcp"},
		{SchemeWSS, "flood: {slowBodies: 2}", "phases[0].flood.slowBodies: not possible over opc.wss"},
		{SchemeWSS, "only: [opc.tcp]", "phases: none is for opc.wss"},
	} {
		p, err := ParsePlan("s.yaml", []byte("phases:\n  - name: a\n    duration: 1s\n    "+c.phase+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.For(c.scheme); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s over %s: %v", c.phase, c.scheme, err)
		}
	}
}

func TestSetLimit(t *testing.T) {
	var l Limits
	for _, s := range []string{"readP99=250ms", "readsFailed=0", "connected=0.9", "attemptsPerClient=3"} {
		if err := SetLimit(&l, s); err != nil {
			t.Error(err)
		}
	}
	if l.ReadP99.String() != "250ms" || l.ReadsFailed == nil || *l.Connected != 0.9 || l.AttemptsPerClient != 3 {
		t.Errorf("%+v", l)
	}
	for _, s := range []string{"readP99", "readP99=-1s", "connected=2", "sped=1"} {
		if err := SetLimit(&l, s); err == nil {
			t.Errorf("%s was taken", s)
		}
	}
}

// Fifty thousand clients on loopback have addresses of their own, none of them
// 127.0.0.1 or one that ends in 0 or 255.
func TestSources(t *testing.T) {
	s := NewSources(netip.MustParseAddr("127.0.0.1"), 0)
	if !s.rotate {
		t.Skip("this system has one loopback address")
	}
	seen := map[string]bool{}
	for i := range MaxClients {
		ip := s.at(groupClients, i).To4()
		if ip[0] != 127 || ip[1] < 64 || ip[3] == 0 || ip[3] == 255 {
			t.Fatalf("client %d comes from %v", i, ip)
		}
		seen[ip.String()] = true
	}
	if len(seen) != MaxClients {
		t.Errorf("%d addresses for %d clients", len(seen), MaxClients)
	}
	if one := NewSources(netip.MustParseAddr("127.0.0.1"), 1); !one.at(groupClients, 1).Equal(one.at(groupFlood, 7)) {
		t.Error("one address is two")
	}
	if NewSources(netip.MustParseAddr("192.168.0.1"), 0).at(groupClients, 1) != nil {
		t.Error("a loopback address for a connection to elsewhere")
	}
}

// Only what is near may be a target, unless somebody says it is theirs.
func TestResolve(t *testing.T) {
	ctx := context.Background()
	ports := map[string]uint16{SchemeTCP: 4840, SchemeWSS: 4843, SchemeHTTPS: 4843}
	for _, host := range []string{"127.0.0.1", "[::1]", "10.1.2.3", "172.16.0.1", "192.168.1.1", "[fd00::1]", "localhost", "[::ffff:127.0.0.1]"} {
		for scheme, port := range ports {
			a, err := Resolve(ctx, scheme+"://"+host, false)
			if err != nil || a.Host.Port() != port || a.Scheme() != scheme {
				t.Errorf("%s://%s: %v %v", scheme, host, a.Host, err)
			}
		}
	}
	for _, host := range []string{"8.8.8.8", "192.0.2.1", "172.32.0.1", "100.64.0.1", "[2001:db8::1]", "[::ffff:8.8.8.8]", "169.254.169.254", "[fe80::1]"} {
		for scheme := range ports {
			if _, err := Resolve(ctx, scheme+"://"+host+":4840", false); !errors.Is(err, ErrForeign) {
				t.Errorf("%s://%s: %v", scheme, host, err)
			}
		}
		if _, err := Resolve(ctx, "opc.tcp://"+host+":4840", true); err != nil {
			t.Errorf("%s, owned: %v", host, err)
		}
	}
	for _, host := range []string{"0.0.0.0", "[::]", "[::ffff:0.0.0.0]"} {
		if _, err := Resolve(ctx, "opc.tcp://"+host, true); !errors.Is(err, ErrUnspecified) {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, url := range []string{"http://127.0.0.1", "opc.tcp://", "127.0.0.1:4840", "opc.tcp://127.0.0.1:70000", "abc", "", "opc.tcp://%", "opc.tcp://127.0.0.1/" + strings.Repeat("x", 5000)} {
		if _, err := Resolve(ctx, url, true); !errors.Is(err, ErrURL) || len(err.Error()) > 500 {
			t.Errorf("%.40s: %v", url, err)
		}
	}
}
