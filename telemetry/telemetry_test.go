package telemetry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestNewLogger(t *testing.T) {
	for _, tt := range []struct {
		format, level string
		want          []string // substrings of what is written, nil: nothing
		fails         bool
	}{
		{format: "text", level: "info", want: []string{"level=INFO", "msg=hello", "port=4840"}},
		{format: "json", level: "INFO", want: []string{`"level":"INFO"`, `"msg":"hello"`, `"port":4840`}},
		{format: "text", level: "warn"},
		{format: "text", level: "info+2"},
		{format: "xml", level: "info", fails: true},
		{format: "text", level: "loud", fails: true},
	} {
		t.Run(tt.format+" "+tt.level, func(t *testing.T) {
			var out bytes.Buffer
			log, err := NewLogger(&out, tt.format, tt.level)
			if (err != nil) != tt.fails {
				t.Fatalf("error %v", err)
			}
			if tt.fails {
				return
			}
			log.Info("hello", "port", 4840)
			if tt.want == nil && out.Len() > 0 {
				t.Errorf("%s wrote %q", tt.level, out.String())
			}
			for _, s := range tt.want {
				if !strings.Contains(out.String(), s) {
					t.Errorf("%q lacks %q", out.String(), s)
				}
			}
			if tt.format == "json" && !json.Valid(out.Bytes()) {
				t.Errorf("%q is no JSON", out.String())
			}
		})
	}
}

func TestSecretShowsNowhere(t *testing.T) {
	var out bytes.Buffer
	log, err := NewLogger(&out, "json", "debug")
	if err != nil {
		t.Fatal(err)
	}
	s := Secret("hunter2")
	log.Info("x", "token", s)
	fmt.Fprintf(&out, "%v %s %#v", s, s, s)
	if strings.Contains(out.String(), "hunter2") {
		t.Errorf("secret in %q", out.String())
	}
}

func TestNewRegistry(t *testing.T) {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "opcua_server_test_total", Help: "x"})
	r, err := NewRegistry(c)
	if err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range families {
		found[f.GetName()] = true
	}
	for _, name := range []string{"opcua_server_test_total", "go_goroutines", "process_start_time_seconds"} {
		if !found[name] {
			t.Errorf("%s is not gathered", name)
		}
	}
	if _, err := NewRegistry(c, c); err == nil {
		t.Error("a collector that is there twice was accepted")
	}
}

func TestJSONWritesDurationsAsText(t *testing.T) {
	var b strings.Builder
	log, err := NewLogger(&b, "json", "info")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("x", "took", 1500*time.Millisecond)
	if !strings.Contains(b.String(), `"took":"1.5s"`) {
		t.Error(b.String())
	}
}
