package browser_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/internal/cutproxy"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
)

// front gives servers that come and go an address that stays.
func front(t *testing.T) (url string, server *atomic.Pointer[plant]) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server = &atomic.Pointer[plant]{}
	proxy := &cutproxy.Proxy{
		Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", server.Load().address)
		},
		Plan: func(int) (cutproxy.Cut, bool) { return cutproxy.Cut{}, false },
	}
	var serving sync.WaitGroup
	serving.Go(func() { proxy.Serve(ln) })
	t.Cleanup(func() {
		ln.Close()
		proxy.Close()
		serving.Wait()
	})
	return "wss://" + ln.Addr().String(), server
}

// plant is a server that a page on origin may use, with a temperature.
type plant struct {
	address     string
	temperature *addressspace.Variable
	stop        func()
}

func serve(t *testing.T, pki, origin string) *plant {
	t.Helper()
	users, err := session.OpenUsers(filepath.Join(t.TempDir(), "users.yaml"), session.UsersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := users.Add(session.User{Name: "jürgen"}, []byte("geheim£")); err != nil {
		t.Fatal(err)
	}
	srv, err := stack.NewServer(stack.Options{
		Authenticator:   &session.Identities{Anonymous: true, Users: users},
		ApplicationName: "Boiler house",
		Endpoints:       []string{"opc.wss://127.0.0.1:0"},
		Security:        stack.Security{PKI: pki, AllowAnonymous: true},
		HTTP:            stack.HTTPOptions{AllowPolicyNone: true, AllowedOrigins: []string{origin}},
		Logger:          slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ns := srv.AddressSpace().Namespace("urn:plant")
	temperature := ns.Variable("Boiler.Temperature", 20.0, addressspace.EURange(0, 100))
	ns.Variable("Boiler.Message", ua.NewLocalizedTextWithLocale("All is well", "en"))
	ctx, cancel := context.WithCancel(t.Context())
	if err := srv.Listen(ctx); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := srv.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	ns.Variable("Boiler.User", "").OnRead(func(c *addressspace.Caller) (any, error) { return c.User, nil })
	return &plant{strings.TrimPrefix(srv.URLs()[0], "opc.wss://"), temperature, stop}
}

// live: the page shows values as they change, what they are called and measured
// in, plots them, and finds the server again after a restart.
func live(t *testing.T, b *browser, s site) {
	pki := t.TempDir()
	url, server := front(t)
	p := serve(t, pki, s.origin)
	server.Store(p)
	const temperature, message, missing = "nsu=urn:plant;s=Boiler.Temperature", "nsu=urn:plant;s=Boiler.Message", "nsu=urn:plant;s=Boiler.Pressure"
	card := func(id, part string) string { return `article[data-node="` + id + `"] ` + part }
	is := func(want string) func(string) bool { return func(got string) bool { return got == want } }

	b.show(t, s.page(url, temperature, message, missing, "i=2258"), 390, 844)
	b.said(is("Live"))
	b.until("#server", is("Boiler house"))
	b.until(card(temperature, "h2"), is("Temperature"))
	b.until(card(temperature, ".value"), is("20"))
	b.until(card(message, ".value"), is("All is well"))
	b.until(card(missing, ".note"), is("BadNodeIdUnknown"))
	clock := b.until(card("i=2258", ".value"), func(text string) bool { return strings.Contains(text, ":") })

	t.Run("a change arrives", func(t *testing.T) {
		b.t = t
		for i, want := range []string{"21.5", "60", "−3"} {
			p.temperature.Set([]float64{21.5, 60, -3}[i])
			b.until(card(temperature, ".value"), is(want))
		}
		b.until(card("i=2258", ".value"), func(text string) bool { return text != clock })
		var plotted int
		b.eval(`(() => { const c = document.querySelector('canvas'); return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.filter((v, i) => i % 4 === 3 && v > 0).length; })()`, &plotted)
		if plotted < 100 {
			t.Errorf("%d dots of the plot are drawn", plotted)
		}
		b.until(card(temperature, ".note span:last-child"), is("−3 … 60 in 60 s"))
	})
	t.Run("nothing is wider than a phone", func(t *testing.T) {
		b.t = t
		var width int
		if b.eval("document.documentElement.scrollWidth", &width); width > 390 {
			t.Errorf("%d of 390 points", width)
		}
		b.screenshot("phone.png")
	})
	t.Run("one more node", func(t *testing.T) {
		b.t = t
		b.eval(`node.value = "i=2259"; add.requestSubmit()`, nil)
		b.until(card("i=2259", ".value"), is("0"))
		b.eval(`document.querySelector('article[data-node="i=2259"] button').click()`, nil)
		b.until(card("i=2259", ".value"), is(""))
		p.temperature.Set(70.0)
		b.until(card(temperature, ".value"), is("70"))
	})
	t.Run("a lost connection keeps the session", func(t *testing.T) {
		b.t = t
		var before, after string
		b.eval("monitor.connection.token", &before)
		b.forget()
		b.eval(`monitor.connection.close("cut by the test")`, nil)
		b.said(func(text string) bool { return strings.HasPrefix(text, "cut by the test; again in") })
		p.temperature.Set(71.0)
		b.until(card(temperature, ".value"), is("71"))
		if b.eval("monitor.connection.token", &after); before != after || after == "" {
			t.Errorf("token %q, then %q", before, after)
		}
	})
	t.Run("a lost notification is fetched", func(t *testing.T) {
		b.t = t
		b.eval(`(() => {
			const parse = JSON.parse;
			JSON.parse = text => {
				const message = parse(text);
				if (!JSON.stringify(message.NotificationMessage ?? "").includes('"Value":72')) return message;
				JSON.parse = parse;
				throw new SyntaxError("lost by the test");
			};
		})()`, nil)
		p.temperature.Set(72.0)
		b.said(func(text string) bool { return strings.Contains(text, "does not speak OPC UA JSON; again in") })
		p.temperature.Set(73.0)
		b.until(card(temperature, ".value"), is("73"))
		var plotted bool
		if b.eval("items[0].points.some(p => p[1] === 72)", &plotted); !plotted {
			t.Error("the plot has a gap")
		}
	})
	t.Run("a user logs in", func(t *testing.T) {
		b.t = t
		const user = "nsu=urn:plant;s=Boiler.User"
		b.eval(`node.value = "`+user+`"; add.requestSubmit()`, nil)
		b.until(card(user, "h2"), is("User"))
		b.forget()
		b.eval(`document.getElementById("user").value = "jürgen"; password.value = "wrong"; document.forms.connect.requestSubmit()`, nil)
		b.said(func(text string) bool {
			return strings.HasPrefix(text, "activateSession: Bad") && !strings.Contains(text, "again")
		})
		b.eval(`password.value = "geheim£"; document.forms.connect.requestSubmit()`, nil)
		b.until(card(user, ".value"), is("jürgen"))
	})
	t.Run("a restarted server is found", func(t *testing.T) {
		b.t = t
		b.forget()
		p.stop()
		b.said(func(text string) bool { return strings.Contains(text, "again in") })
		b.forget()
		p = serve(t, pki, s.origin)
		server.Store(p)
		p.temperature.Set(80.0)
		b.said(is("Live"))
		b.until(card(temperature, ".value"), is("80"))
		p.temperature.Set(81.0)
		b.until(card(temperature, ".value"), is("81"))
		b.screenshot("restarted.png")
	})
}
