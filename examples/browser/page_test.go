// Package browser_test shows the example page in a browser and looks at it.
package browser_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// A site serves the example.
type site struct{ origin string }

// page is the URL of the example for a server and its nodes.
func (s site) page(server string, nodes ...string) string {
	return s.origin + "/index.html?" + url.Values{"url": {server}, "node": nodes}.Encode()
}

// TestPage looks at the page in one browser, which takes seconds to start.
func TestPage(t *testing.T) {
	files := httptest.NewServer(http.FileServer(http.Dir(".")))
	defer files.Close()
	s, b := site{files.URL}, start(t)
	t.Run("delays", func(t *testing.T) { delays(t, b, s) })
	t.Run("hints", func(t *testing.T) { hints(t, b, s) })
	t.Run("live values", func(t *testing.T) { live(t, b, s) })
}

// refusing is a server that answers every WebSocket with refuse.
func refusing(t *testing.T, refuse func(c *websocket.Conn, r *http.Request)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"opcua+uajson"}, InsecureSkipVerify: true})
		if err != nil {
			return
		}
		refuse(c, r)
		c.CloseNow()
	}))
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http:", "ws:", 1)
}

// hints: a refused page says for how long it stays away, and that
// is what the server asked for.
func hints(t *testing.T, b *browser, s site) {
	var fault atomic.Pointer[[]byte]
	closing := refusing(t, func(c *websocket.Conn, r *http.Request) {
		c.Close(websocket.StatusTryAgainLater, "RetryAfterMs=20000")
	})
	faulting := refusing(t, func(c *websocket.Conn, r *http.Request) {
		_, text, err := c.Read(r.Context())
		if err != nil {
			return
		}
		handle, _ := uajson.RequestHandle(text)
		hint, err := uabinary.NewExtensionObject(&ua.AdditionalParametersType{Parameters: []*ua.KeyValuePair{
			{Key: &ua.QualifiedName{Name: "RetryAfterMs"}, Value: ua.MustVariant(int64(20000))}}})
		if err != nil {
			t.Error(err)
			return
		}
		object, err := hint.UA()
		if err != nil {
			t.Error(err)
			return
		}
		answer, err := uajson.MarshalMessage(&ua.ServiceFault{ResponseHeader: &ua.ResponseHeader{
			Timestamp: time.Now(), RequestHandle: handle, ServiceResult: uastatus.BadServerTooBusy,
			ServiceDiagnostics: &ua.DiagnosticInfo{}, AdditionalHeader: object}}, uajson.Compact)
		if err != nil {
			t.Error(err)
			return
		}
		fault.Store(&answer)
		c.Write(r.Context(), websocket.MessageText, answer)
		c.Read(r.Context())
	})
	b.show(t, s.page(closing, "i=2258"), 800, 600)
	wait := regexp.MustCompile(`; again in (1\d|2[0-2]) s$`)
	if state := b.said(wait.MatchString); !strings.Contains(state, "1013") {
		t.Errorf("%q does not say that the server was busy", state)
	}
	b.show(t, s.page(faulting, "i=2258"), 800, 600)
	busy := func(state string) bool { return strings.HasPrefix(state, "getEndpoints: BadServerTooBusy") }
	if state := b.said(busy); !wait.MatchString(state) {
		t.Errorf("%q, answered %s", state, *fault.Load())
	}
	b.screenshot("busy.png")
}

// delays: the delays of overload.md §11, without chance.
func delays(t *testing.T, b *browser, s site) {
	b.show(t, s.page("ws://127.0.0.1:1", "i=2258"), 800, 600)
	b.said(func(state string) bool { return strings.Contains(state, "again in") })
	for _, c := range []struct {
		name    string
		before  int // attempts that failed
		failure map[string]any
		lived   float64
		min     float64
		max     float64
	}{
		{"plain", 0, map[string]any{}, 0, 900, 1100},
		{"plain, fourth", 3, map[string]any{}, 0, 7200, 8800},
		{"at most 30 s, and chance only lowers it", 20, map[string]any{}, 0, 27000, 30000},
		{"busy without a hint stays away four times as long", 0, map[string]any{"busy": true}, 0, 3600, 4400},
		{"a hint is kept to, and chance only adds", 0, map[string]any{"busy": true, "hint": 10000}, 0, 10000, 11000},
		{"a small hint does not shorten the delay", 3, map[string]any{"busy": true, "hint": 50}, 0, 8000, 8800},
		{"a hint counts for at most 30 s", 0, map[string]any{"busy": true, "hint": 100000}, 0, 30000, 33000},
		{"who was in for long starts anew", 20, map[string]any{}, 30000, 900, 1100},
		{"who was not does not", 20, map[string]any{}, 29999, 27000, 30000},
	} {
		failure, err := json.Marshal(c.failure)
		if err != nil {
			t.Fatal(err)
		}
		arguments, err := json.Marshal([]any{c.before, json.RawMessage(failure), c.lived})
		if err != nil {
			t.Fatal(err)
		}
		var delays []float64
		b.eval(`((before, failure, lived) => Array.from({length: 200}, () => {
			const r = new Retry();
			for (let i = 0; i < before; i++) r.next({}, 0);
			return r.next(failure, lived);
		}))(...`+string(arguments)+`)`, &delays)
		for _, d := range delays {
			if d < c.min || d > c.max {
				t.Errorf("%s: %v ms, want %v to %v", c.name, d, c.min, c.max)
				break
			}
		}
	}
}
