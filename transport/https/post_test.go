package https

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

const readJSON = `{"UaTypeId":"i=629","RequestHeader":{"RequestHandle":7},"MaxAge":0,"TimestampsToReturn":0,"NodesToRead":[]}`

// both runs f over HTTP/1.1 and HTTP/2.
func both(t *testing.T, o func() Options, f func(t *testing.T, s *server, c *http.Client)) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, false, o())
				f(t, s, s.client(t, h2))
			})
		})
	}
}

func plain() Options { return Options{} }

// OPC 10000-6 §7.4.3 (OPC UA HTTPS, binary bodies): both content types, both
// forms of body, answered in kind.
func TestBinary(t *testing.T) {
	both(t, plain, func(t *testing.T, s *server, c *http.Client) {
		for _, kind := range []string{binaryType, "application/opcua+uabinary"} {
			a := post(t, c, kind, request(42))
			typeID, handle, code := result(t, a.body)
			if a.code != 200 || a.header.Get("Content-Type") != kind || typeID != id.ReadResponse_Encoding_DefaultBinary || handle != 42 || code != ua.StatusGood {
				t.Errorf("%s: %d %v: %d, handle %d, %v", kind, a.code, a.header, typeID, handle, code)
			}
		}
		rq := request(43)
		object := appendBody(nil, rq, true)
		a := post(t, c, binaryType, object)
		if b := a.body; len(b) < 9 || b[4] != 1 || int(b[5])|int(b[6])<<8 != len(b)-9 {
			t.Fatalf("answer is no ExtensionObject: %x", b)
		} else if _, handle, _ := result(t, append(b[:4:4], b[9:]...)); handle != 43 {
			t.Error("handle", handle)
		}
	})
}

// What looks like an ExtensionObject but for the length is a plain body.
func TestObjectForm(t *testing.T) {
	for _, tc := range []struct {
		name   string
		body   []byte
		object bool
	}{
		{"object", []byte{1, 0, 119, 2, 1, 2, 0, 0, 0, 8, 9}, true},
		{"length differs", []byte{1, 0, 119, 2, 1, 3, 0, 0, 0, 8, 9}, false},
		{"no body", []byte{1, 0, 119, 2, 0}, false},
		{"two-byte id", []byte{0, 119, 1, 0, 0, 0, 0}, true},
		{"numeric id", []byte{2, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0}, true},
		{"text id", []byte{3, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0}, false},
		{"short id", []byte{1, 0}, false},
		{"empty", nil, false},
	} {
		in := buffered(tc.body)
		if got := stripObject(in); got != tc.object {
			t.Errorf("%s: %v", tc.name, got)
		} else if got {
			if back := appendBody(nil, in.B, true); !bytes.Equal(back, tc.body) {
				t.Errorf("%s: %x became %x", tc.name, tc.body, back)
			}
		} else if !bytes.Equal(in.B, tc.body) {
			t.Errorf("%s: changed to %x", tc.name, in.B)
		}
		in.Release()
	}
}

// OPC 10000-6 §7.4.4 (OPC UA HTTPS, JSON bodies).
func TestJSON(t *testing.T) {
	both(t, plain, func(t *testing.T, s *server, c *http.Client) {
		for _, kind := range []string{jsonType, "application/json; charset=UTF-8", "application/opcua+uajson"} {
			a := post(t, c, kind, []byte(readJSON))
			if a.code != 200 || !strings.HasPrefix(kind, a.header.Get("Content-Type")) || !bytes.Contains(a.body, []byte(`"RequestHandle":7`)) {
				t.Errorf("%s: %d %v %s", kind, a.code, a.header, a.body)
			}
		}
	})
}

// What the handler is told of a request's origin.
func TestPeer(t *testing.T) {
	both(t, plain, func(t *testing.T, s *server, c *http.Client) {
		var p *transport.Peer
		var policy *security.Policy
		s.h.seen = func(c transport.Call) { p, policy = c.Peer(), c.Policy() }
		post(t, c, binaryType, request(1), "OPCUA-SecurityPolicy", security.PolicyByName("Basic256Sha256").URI)
		if p.Profile != transport.ProfileHTTPSBinary || p.EndpointURL != "opc.https://plant/UA/Server" || p.Lasting || p.Reclaimable != nil ||
			p.RemoteAddr.String() != "10.0.0.2:999" || p.LocalAddr.String() != "10.0.0.1:4843" || p.Certificate != nil {
			t.Errorf("%+v", p)
		}
		if policy != security.PolicyByName("Basic256Sha256") {
			t.Error(policy)
		}
		post(t, c, jsonType, []byte(readJSON))
		if p.Profile != transport.ProfileHTTPSJSON || policy != security.None {
			t.Error(p.Profile, policy)
		}
		a := post(t, c, binaryType, request(9), "OPCUA-SecurityPolicy", "urn:nobody:knows")
		if _, _, code := result(t, a.body); a.code != 200 || code != ua.StatusBadSecurityPolicyRejected {
			t.Error(a.code, code)
		}
	})
}

// overload.md §10: each refusal, and that it comes in its place.
func TestOrderOfChecks(t *testing.T) {
	full := func() Options { // no memory at all for bodies
		b, _ := budget.NewWithThreshold(1, 0)
		return Options{Budget: b}
	}
	small := func() Options { return Options{Limits: transport.Limits{MaxMessageSize: 8192}} }
	var held *admission.HTTPLease
	busy := func() Options {
		g, err := admission.NewHTTPGovernor(admission.HTTPOptions{MaxRequests: 1, SmallBodyRequests: -1})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := g.Ingress(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		held = lease
		return Options{Governor: g}
	}
	limited := func() Options { return Options{RequestsPerSecond: 0.1, RequestBurst: 1} }
	large := bytes.Repeat([]byte{' '}, 8193)
	for _, tc := range []struct {
		name   string
		o      func() Options
		method string
		kind   string
		body   io.Reader
		code   int
		header [2]string
	}{
		{"GET", plain, "GET", "", nil, 405, [2]string{"Allow", "POST"}},
		{"PUT", plain, "PUT", binaryType, bytes.NewReader(request(1)), 405, [2]string{"Allow", "POST"}},
		{"OPTIONS", plain, "OPTIONS", "", nil, 405, [2]string{"Allow", "POST"}},
		{"memory before type", full, "POST", "text/plain", bytes.NewReader(large), 503, [2]string{"Retry-After", "1"}},
		{"governor before type", busy, "POST", "text/plain", bytes.NewReader(large), 503, [2]string{"Retry-After", "1"}},
		{"type before size", small, "POST", "text/plain", bytes.NewReader(large), 415, [2]string{}},
		{"no type", small, "POST", "", bytes.NewReader(request(1)), 415, [2]string{}},
		{"charset", small, "POST", "application/json; charset=latin1", strings.NewReader(readJSON), 415, [2]string{}},
		{"Content-Length over the limit", small, "POST", binaryType, bytes.NewReader(large), 413, [2]string{}},
		{"chunked over the limit", small, "POST", binaryType, io.MultiReader(bytes.NewReader(large)), 413, [2]string{}},
		{"undecodable JSON", small, "POST", jsonType, strings.NewReader(`{"RequestHeader":{"RequestHandle":9},`), 200, [2]string{"Content-Type", jsonType}},
		{"chunked", small, "POST", binaryType, io.MultiReader(bytes.NewReader(request(1))), 200, [2]string{"Content-Type", binaryType}},
		{"rate", limited, "POST", binaryType, bytes.NewReader(request(1)), 200, [2]string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			both(t, tc.o, func(t *testing.T, s *server, c *http.Client) {
				if seeker, ok := tc.body.(io.Seeker); ok {
					_, _ = seeker.Seek(0, io.SeekStart)
				} else if tc.body != nil {
					tc.body = io.MultiReader(bytes.NewReader(map[int][]byte{413: large, 200: request(1)}[tc.code]))
				}
				a := do(t, c, tc.method, tc.kind, tc.body)
				if a.code != tc.code || tc.header[0] != "" && a.header.Get(tc.header[0]) != tc.header[1] {
					t.Errorf("%d %v %s", a.code, a.header, a.body)
				}
				if held != nil {
					held.Release()
				}
			})
		})
	}
}

// A body that nobody can decode is answered with a ServiceFault that carries the
// request's handle, in kind.
func TestUndecodable(t *testing.T) {
	both(t, plain, func(t *testing.T, s *server, c *http.Client) {
		a := post(t, c, jsonType, []byte(`{"UaTypeId":"i=629","RequestHeader":{"RequestHandle":4711},"MaxAge":[}`))
		if a.code != 200 || !bytes.Contains(a.body, []byte(`"RequestHandle":4711`)) || !bytes.Contains(a.body, []byte(`2147942400`)) {
			t.Errorf("%d %s", a.code, a.body)
		}
		if a = post(t, c, binaryType, []byte("nonsense")); a.code != 200 {
			t.Error(a.code)
		}
	})
}

// overload.md §9: 429 with Retry-After; requests of live sessions do not count.
func TestRate(t *testing.T) {
	o := func() Options {
		return Options{RequestsPerSecond: 0.25, RequestBurst: 2, Live: func(b []byte) bool { return bytes.Equal(b, request(5)) }}
	}
	both(t, o, func(t *testing.T, s *server, c *http.Client) {
		for i, tc := range []struct {
			handle uint32
			code   int
		}{{5, 200}, {5, 200}, {5, 200}, {1, 200}, {1, 200}, {1, 429}, {5, 200}} {
			a := post(t, c, binaryType, request(tc.handle))
			if a.code != tc.code || tc.code == 429 && a.header.Get("Retry-After") != "4" {
				t.Fatalf("%d: %d %v", i, a.code, a.header)
			}
		}
		if a := post(t, c, jsonType, []byte("{")); a.code != 429 {
			t.Error("undecodable is free:", a.code)
		}
		time.Sleep(4 * time.Second)
		if a := post(t, c, binaryType, request(1)); a.code != 200 {
			t.Error("after Retry-After:", a.code)
		}
		s.SetRate(0, 0)
		for range 5 {
			if a := post(t, c, binaryType, request(1)); a.code != 200 {
				t.Error("off:", a.code)
			}
		}
	})
}

// The Retry-After is the planner's, in whole seconds, rounded up.
func TestRetryAfter(t *testing.T) {
	b, _ := budget.NewWithThreshold(1, 0)
	o := func() Options {
		return Options{Budget: b, RetryAfter: func(time.Time) time.Duration { return 2100 * time.Millisecond }}
	}
	both(t, o, func(t *testing.T, s *server, c *http.Client) {
		if a := post(t, c, binaryType, request(1)); a.code != 503 || a.header.Get("Retry-After") != "3" {
			t.Error(a.code, a.header)
		}
	})
}

// Body admission: 2 × declared + MaxBufferSize by owner and in the budget, from
// before the first byte until the body is decoded.
func TestBodyMemory(t *testing.T) {
	plan, err := isolation.CreatePlan(isolation.Options{}, isolation.Totals{MaxMessageSize: 1 << 20, MaxBufferSize: 65535, MaxSessions: 100,
		MaxChannels: 300, Budget: 64 << 20, MaxEstablishment: 128})
	if err != nil {
		t.Fatal(err)
	}
	o := func() Options {
		b, _ := budget.New(64 << 20)
		return Options{Isolation: isolation.NewProvider(plan), Budget: b, Limits: transport.Limits{MaxMessageSize: 1 << 20}}
	}
	both(t, o, func(t *testing.T, s *server, c *http.Client) {
		s.h.hold = true
		for _, tc := range []struct {
			name   string
			length int64
			want   int64
		}{{"declared", 1000, 2*1000 + transport.MaxBufferSize}, {"unknown", -1, 2<<20 + transport.MaxBufferSize}} {
			body, feed := io.Pipe()
			r, _ := http.NewRequest("POST", "https://plant/", body)
			r.Header.Set("Content-Type", binaryType)
			r.ContentLength = tc.length
			done := make(chan struct{})
			go func() {
				defer close(done)
				resp, err := c.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
			}()
			_, _ = feed.Write(request(1)) // so that HTTP/1.1 sends the header
			synctest.Wait()
			if n, m := s.budget.Reserved(), s.provider.Used(isolation.ReassemblyBytes); n != tc.want || m != tc.want {
				t.Errorf("%s: budget %d, stage %d, want %d", tc.name, n, m, tc.want)
			}
			_, _ = feed.Write(make([]byte, 1000-len(request(1))))
			_ = feed.Close()
			call := <-s.h.held
			synctest.Wait()
			if n, m := s.budget.Reserved(), s.provider.Used(isolation.ReassemblyBytes); n != 0 || m != 0 {
				t.Errorf("%s: decoded, budget %d, stage %d", tc.name, n, m)
			}
			_ = call.Respond(s.h.answer(request(1)), ua.StatusGood, 0)
			<-done
		}
	})
}

// An answer says how long it is, whoever counts: net/http what it can gather, we
// the rest.
func TestContentLength(t *testing.T) {
	both(t, plain, func(t *testing.T, s *server, c *http.Client) {
		for _, s.h.large = range []int{0, smallAnswer - 60, smallAnswer - 20, smallAnswer, 3 * smallAnswer, 100_000} {
			a := post(t, c, binaryType, request(1))
			if got := a.header.Get("Content-Length"); a.code != 200 || got != fmt.Sprint(len(a.body)) || len(a.body) < s.h.large {
				t.Errorf("%d: Content-Length %q of %d", a.code, got, len(a.body))
			}
		}
	})
}
