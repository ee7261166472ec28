package measure

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// served is a RoundTripper that answers without a network.
type served func(*http.Request) (*http.Response, error)

func (f served) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, body io.Reader) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(body)}
}

func scraping(t *testing.T, f served) (*Recorder, *watcher) {
	t.Helper()
	w := &watcher{}
	return start(t, Options{ServerMetrics: "http://server.test/metrics", Client: &http.Client{Transport: f}, Observers: []Observer{w}}), w
}

func TestServerMetricsStandInTheSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scrapes := 0
		r, _ := scraping(t, func(req *http.Request) (*http.Response, error) {
			scrapes++
			var b strings.Builder
			fmt.Fprintf(&b, "# HELP opcua_server_sessions Sessions.\n# TYPE opcua_server_sessions gauge\nopcua_server_sessions %d\n", 10*scrapes)
			b.WriteString("# TYPE opcua_server_requests_total counter\nopcua_server_requests_total{service=\"Read\"} 7\nopcua_server_requests_total{service=\"a\\\"b\"} 2\n")
			b.WriteString("# TYPE opcua_server_seconds histogram\nopcua_server_seconds_bucket{le=\"1\"} 3\nopcua_server_seconds_bucket{le=\"+Inf\"} 4\nopcua_server_seconds_sum 5.5\nopcua_server_seconds_count 4\n")
			b.WriteString("# TYPE opcua_server_many gauge\n")
			for i := range SeriesPerFamily + 1 {
				fmt.Fprintf(&b, "opcua_server_many{n=\"%d\"} 2\n", i)
			}
			b.WriteString("opcua_server_odd NaN\nnot_wanted 1\n")
			return answer(http.StatusOK, strings.NewReader(b.String())), nil
		})
		time.Sleep(2500 * time.Millisecond)
		res := r.Finish()
		if scrapes < 3 || scrapes > 4 { // at once and after each sample; the last may be cut off
			t.Errorf("%d scrapes", scrapes)
		}
		got := res.Samples[1].Server
		want := map[string]float64{"opcua_server_sessions": 20, `opcua_server_requests_total{service="Read"}`: 7,
			`opcua_server_requests_total{service="a\"b"}`: 2, "opcua_server_seconds_count": 4, "opcua_server_seconds_sum": 5.5,
			"opcua_server_many": 26}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("metrics %v\nwant    %v", got, want)
		}
		if m := res.Metrics; len(m) != 5 || m[4] != (Metric{"opcua_server_sessions", "gauge", "Sessions."}) {
			t.Errorf("described as %v", m)
		}
	})
}

// endless is a metrics page without an end.
type endless struct{ given int }

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, "opcua_server_x 1\n")
	e.given += n
	return n, nil
}

func TestServerMetricsAreBounded(t *testing.T) {
	page := &endless{}
	for _, c := range []struct {
		name, want string
		serve      served
	}{
		{"size", "longer than 4 MiB", func(*http.Request) (*http.Response, error) { return answer(http.StatusOK, page), nil }},
		{"time", "deadline exceeded", func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}},
		{"status", "Unauthorized", func(*http.Request) (*http.Response, error) {
			return answer(http.StatusUnauthorized, strings.NewReader("")), nil
		}},
		{"other formats", "parsing error", func(*http.Request) (*http.Response, error) {
			return answer(http.StatusOK, strings.NewReader("<html>")), nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := scraping(t, c.serve)
				time.Sleep(5500 * time.Millisecond)
				res := r.Finish()
				if len(w.samples) != 6 {
					t.Errorf("%d samples, as if the scrape had delayed them", len(w.samples))
				}
				for _, s := range res.Samples {
					if s.Server != nil {
						t.Errorf("metrics %v", s.Server)
					}
				}
				if len(res.Events) != 2 || !strings.Contains(res.Events[1].Text, c.want) {
					t.Errorf("events %v; want one remark with %q", res.Events, c.want)
				}
			})
		})
	}
	if page.given > 10*maxScrape {
		t.Errorf("%d bytes read", page.given)
	}
}

func TestServerMetricsThatComeBackAreTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scrapes := 0
		r, _ := scraping(t, func(*http.Request) (*http.Response, error) {
			scrapes++
			if scrapes > 1 && scrapes < 6 {
				return answer(http.StatusServiceUnavailable, strings.NewReader("")), nil
			}
			return answer(http.StatusOK, strings.NewReader("opcua_server_x 1\n")), nil
		})
		time.Sleep(8500 * time.Millisecond)
		res := r.Finish()
		var present string
		for _, s := range res.Samples {
			present += map[bool]string{true: "x", false: "."}[s.Server != nil]
		}
		if present != "xx...xxxx" { // a scrape may be 2.5 s old
			t.Errorf("metrics in the samples %s", present)
		}
		if n := len(res.Events); n != 3 || res.Events[2].Text != "server metrics can be read again" {
			t.Errorf("events %v", res.Events)
		}
	})
}

func TestFamiliesAndSeriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := scraping(t, func(*http.Request) (*http.Response, error) {
			var b strings.Builder
			for i := range 3 * maxFamilies {
				fmt.Fprintf(&b, "opcua_%d{l=\"a\"} 1\nopcua_%d{l=\"%s\"} 1\n", i, i, strings.Repeat("b", 2*textLimit))
			}
			return answer(http.StatusOK, strings.NewReader(b.String())), nil
		})
		time.Sleep(1500 * time.Millisecond)
		res := r.Finish()
		if n, m := len(res.Metrics), len(res.Samples[0].Server); n > maxFamilies || m > maxSeries+SeriesPerFamily || m == 0 {
			t.Errorf("%d families, %d series", n, m)
		}
		for name := range res.Samples[0].Server {
			if len(name) > textLimit+len("…") {
				t.Fatalf("a name of %d bytes", len(name))
			}
		}
	})
}

func TestMetricsOfAnotherHostAreNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScraper("http://server.test/metrics", nil, nil, func(string) {})
		var asked []string
		s.client.Transport = served(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.URL.Host+r.URL.Path)
			a := answer(http.StatusFound, strings.NewReader(""))
			a.Header.Set("Location", "/here")
			if r.URL.Path == "/here" {
				a.Header.Set("Location", "http://169.254.169.254/latest")
			}
			return a, nil
		})
		if _, _, err := s.read(t.Context()); err == nil || fmt.Sprint(asked) != "[server.test/metrics server.test/here]" {
			t.Errorf("asked %v: %v", asked, err)
		}
	})
}

func TestMetricsNeedAURL(t *testing.T) {
	for _, u := range []string{"file:///etc/passwd", "server:9090/metrics", "http://", "http://a b/"} {
		if r, err := Start(Options{ServerMetrics: u}); err == nil {
			r.Finish()
			t.Errorf("%s is taken", u)
		}
	}
}
