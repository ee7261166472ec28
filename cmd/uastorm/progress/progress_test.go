package progress

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is now\n%s\nand was\n%s", file, got, want)
	}
}

func calm(at float64) *measure.Sample {
	return &measure.Sample{At: at, Seconds: 1, Phase: "calm", Sessions: 1000, Connections: 1002,
		Counts:   measure.Counts{Notifications: 10_000},
		Lateness: measure.Quantiles{Count: 500, P99: 0.21, Max: 1.4}, CPU: 0.31,
		Operations: map[measure.Kind]measure.Operations{
			measure.Read: {Count: 500, Latency: measure.Quantiles{Count: 500, P50: 0.84, P90: 1.3, P99: 2.51, P999: 4.2, Max: 5.02}},
		}}
}

func storm(at float64) *measure.Sample {
	return &measure.Sample{At: at, Seconds: 1.02, Phase: "storm", Sessions: 1480, Connections: 1611,
		Counts:       measure.Counts{Attempts: 3100, Refused: 2600, Hinted: 2500, SessionsUp: 480, Notifications: 9_800, Gaps: 2, Lost: 5},
		Refusals:     map[measure.Refusal]uint64{measure.ByError: 2500, measure.BySilence: 100},
		RefusalCodes: map[string]uint64{"BadTcpServerTooBusy": 2500, "none": 100},
		Hints:        measure.Quantiles{Count: 2500, P50: 4200, Max: 31_000},
		Errors:       map[string]uint64{"BadTimeout": 12, "BadTooManyOperations": 3},
		Lateness:     measure.Quantiles{Count: 4000, P99: 41, Max: 120}, CPU: 1.9, Saturated: true,
		Operations: map[measure.Kind]measure.Operations{
			measure.Connect: {Count: 480, Latency: measure.Quantiles{Count: 480, P50: 45, P90: 120, P99: 310, P999: 500, Max: 640}},
			measure.Read:    {Count: 515, Errors: 15, Latency: measure.Quantiles{Count: 512, P50: 1.2, P90: 8, P99: 35.1, P999: 1000, Max: 1040}},
		}}
}

func options(width int) Options {
	return Options{Title: "storm", Target: "opc.tcp://localhost:4840", Processors: 2, Terminal: true, Width: func() int { return width }}
}

func TestTheBlockIsRedrawnInPlace(t *testing.T) {
	for name, width := range map[string]int{"wide": 120, "normal": 80, "narrow": 40} {
		t.Run(name, func(t *testing.T) {
			s := &screen{width: width}
			v := New(s, options(width))
			v.Event(measure.Event{At: 0, Text: "phase calm"})
			for at := range 41 {
				v.Sample(calm(float64(at)))
			}
			v.Event(measure.Event{At: 41.2, Text: "phase storm"})
			for at := range 5 {
				v.Sample(storm(float64(at + 42)))
			}
			if s.writes != 48 {
				t.Errorf("%d writes for 48 changes: the block would flicker", s.writes)
			}
			v.Close()
			v.Sample(calm(99))
			v.Event(measure.Event{Text: "late"})
			if s.writes != 48 || s.fault != "" {
				t.Errorf("%d writes, %s", s.writes, s.fault)
			}
			s.Write([]byte("verdict: ok\n"))
			for _, row := range s.rows {
				if len(row) >= width {
					t.Errorf("%q fills %d columns", string(row), width)
				}
			}
			golden(t, name, s.String())
		})
	}
}

func TestTheBlockShrinksWithTheTerminal(t *testing.T) {
	width := 120
	s := &screen{width: width}
	o := options(0)
	o.Width = func() int { return width }
	v := New(s, o)
	v.Event(measure.Event{At: 0, Text: "phase calm"})
	v.Sample(storm(1))
	width = 50
	s.resize(width)
	v.Sample(calm(2))
	text := s.String()
	if !strings.HasPrefix(text, "0:00  phase calm\n0:02  phase calm  storm") || strings.Contains(text, "phase storm") || strings.Count(text, "sessions") != 1 {
		t.Errorf("after the terminal got narrower:\n%s", text)
	}
}

func TestColorIsOnlyASupplement(t *testing.T) {
	var plain, colored bytes.Buffer
	o := options(100)
	New(&plain, o).Sample(storm(1))
	o.Color = true
	New(&colored, o).Sample(storm(1))
	for _, style := range []string{styleBold, styleBad} {
		if strings.Contains(plain.String(), style) || !strings.Contains(colored.String(), style) {
			t.Errorf("style %q is in the plain view, or not in the coloured one", style)
		}
	}
	without := strings.NewReplacer(styleBold, "", styleBad, "", styleEnd, "").Replace(colored.String())
	if without != plain.String() || !strings.Contains(plain.String(), "SATURATED") {
		t.Errorf("colours tell more than words:\n%s\n%s", without, plain.String())
	}
}

func TestWithoutATerminalThereAreLines(t *testing.T) {
	var b bytes.Buffer
	v := New(&b, Options{Title: "storm", Processors: 2})
	v.Event(measure.Event{At: 0, Text: "phase calm\x1b[2J"})
	for at := range 7 {
		v.Sample(calm(float64(at + 1)))
	}
	v.Event(measure.Event{At: 7.3, Text: "phase storm"})
	for at := range 6 {
		v.Sample(storm(float64(at + 8)))
	}
	v.Close()
	v.Close()
	golden(t, "lines", b.String())
	if strings.Contains(b.String(), "\x1b") {
		t.Error("control sequences where there is no terminal")
	}
}

func TestLinesComeAsOftenAsAsked(t *testing.T) {
	var b bytes.Buffer
	v := New(&b, Options{Every: 2 * time.Second})
	for at := range 10 {
		v.Sample(calm(float64(at + 1)))
	}
	if n := strings.Count(b.String(), "\n"); n != 5 {
		t.Errorf("%d lines in 10 seconds", n)
	}
}

// A file is not a terminal; nor is one that has gone.
func TestForFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := ForFile(f, Options{Title: "x"})
	if o.Terminal || o.Color || o.Title != "x" {
		t.Errorf("a file has %+v", o)
	}
	v := New(gone{}, Options{Terminal: true, Width: o.Width})
	v.Sample(calm(1))
	v.Close()
}

type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, errors.New("gone") }
