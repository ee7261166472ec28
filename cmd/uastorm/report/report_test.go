package report

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

var update = flag.Bool("update", false, "write the golden files")

func written(t *testing.T, res *measure.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, res); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTextTellsAll(t *testing.T) {
	res := recorded(t)
	res.Phases[2].Saturation.Saturated, res.Phases[2].Saturation.Reason = true, "more than 85 % of 2 processors used in 12 of 30 seconds"
	var b bytes.Buffer
	if err := Text(&b, res); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "storm.txt.golden")
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s is now\n%s\nand was\n%s", file, b.String(), want)
	}
	var bad bytes.Buffer
	if err := Text(&bad, poisoned(res)); err != nil || strings.ContainsAny(bad.String(), "\x1b\u202e") {
		t.Errorf("%v; control characters of the server's reach the terminal: %q", err, bad.String())
	}
}

func TestThePageNeedsNothingButItself(t *testing.T) {
	page := written(t, recorded(t))
	for _, no := range []string{`src=`, `href=`, `url(`, `@import`, `style="`, ` onload=`, ` onclick=`} {
		if strings.Contains(page, no) {
			t.Errorf("the page has %s", no)
		}
	}
	policy := regexp.MustCompile(`content="(default-src[^"]*)"`).FindStringSubmatch(page)
	if policy == nil || strings.Contains(policy[1], "unsafe") || !strings.HasPrefix(policy[1], "default-src &#39;none&#39;; style-src &#39;sha256-") {
		t.Errorf("policy %q", policy)
	}
	ids := map[string]bool{}
	for _, id := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if ids[id[1]] {
			t.Errorf("two elements are called %s", id[1])
		}
		ids[id[1]] = true
	}
}

func TestThePageShowsWhatIsAskedFor(t *testing.T) {
	page := written(t, recorded(t))
	for _, id := range []string{"sessions", "attempts", "refusals", "hints", "latency-read", "latency-write", "latency-publish", "latency-connect",
		"throughput", "values", "losses", "errors", "cpu", "lateness"} {
		if !strings.Contains(page, `<figure id="`+id+`">`) {
			t.Errorf("no plot of %s", id)
		}
	}
	for _, text := range []string{"opcua_server_sessions", "opcua_server_requests_total", "process_resident_memory_bytes", "Metrics that did not change (",
		"BadTcpServerTooBusy", "✗ Failed", "✗ fail", "✓ pass", "≥ 95 %", "8,000 clients connect", "Clients by phase", "25.1s", "Floods by phase", "17 BadTcpMessageTooLarge, 4 silence", "uastorm storm --clients 8000"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not have %q", text)
		}
	}
	if strings.Contains(page, "did not keep up") {
		t.Error("the page warns of a generator that kept up")
	}
}

// A run that failed before its first second, or did nothing, has a page too.
func TestAnEmptyResultIsReported(t *testing.T) {
	for name, res := range map[string]*measure.Result{
		"nothing":   {},
		"one phase": {Title: "empty", Phases: []measure.Phase{{Name: "run", Saturation: measure.Saturation{CPU: -1}}}},
		"one sample": {Seconds: 0.2, Phases: []measure.Phase{{Name: "run", End: 0.2}},
			Samples: []measure.Sample{{At: 0.2, Seconds: 0.2, Phase: "run", CPU: -1}}},
		"a sample of no time": {Samples: []measure.Sample{{}}},
	} {
		page := written(t, res)
		if !strings.Contains(page, "</html>") || strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
			t.Errorf("%s: %s", name, page)
		}
		for _, write := range []func(*bytes.Buffer) error{
			func(b *bytes.Buffer) error { return SVG(b, res) },
			func(b *bytes.Buffer) error { return Text(b, res) },
		} {
			var b bytes.Buffer
			if err := write(&b); err != nil || b.Len() == 0 || strings.Contains(b.String(), "NaN") {
				t.Errorf("%s: %v: %s", name, err, b.String())
			}
		}
	}
}

func TestLongRunsMakeNoLargePages(t *testing.T) {
	res := recorded(t)
	short := len(written(t, res))
	first := res.Samples
	for len(res.Samples) < 7200 {
		for _, s := range first {
			s.At += res.Seconds
			res.Samples = append(res.Samples, s)
		}
		res.Seconds += 90
	}
	long := written(t, res)
	if len(long) > 1_500_000 || len(long) > 8*short {
		t.Errorf("%d bytes for two hours, %d for 90 seconds", len(long), short)
	}
	if !strings.Contains(long, "2:00:00") && !strings.Contains(long, "1:30:00") {
		t.Error("the time axis has no hours")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

var errBroken = errors.New("broken pipe")

func TestWriteErrorsAreTold(t *testing.T) {
	res := &measure.Result{Title: "x"}
	if err := Write(broken{}, res); !errors.Is(err, errBroken) {
		t.Errorf("Write: %v", err)
	}
	if err := SVG(broken{}, res); !errors.Is(err, errBroken) {
		t.Errorf("SVG: %v", err)
	}
	if err := Text(broken{}, res); !errors.Is(err, errBroken) {
		t.Errorf("Text: %v", err)
	}
}
