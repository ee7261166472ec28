package measure

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uastatus"
)

// recorded is a short run with something of everything, as lines and as result.
func recorded(t *testing.T) (string, *Result) {
	var out bytes.Buffer
	var res *Result
	synctest.Test(t, func(t *testing.T) {
		lines := NewLines(&out)
		r := start(t, Options{Title: "storm", Target: "opc.tcp://localhost:4840", Phase: "calm", Observers: []Observer{lines}})
		for i := range 30 {
			now := time.Now()
			r.Attempt()
			r.SessionUp()
			r.Operation(Read, now, now, now.Add(time.Duration(i)*time.Millisecond), ua.StatusOK)
			r.Operation(Write, now, now, now, ua.StatusBadOutOfMemory)
			r.Refused(ByError, uastatus.BadServerTooBusy, time.Second)
			if i == 15 {
				r.Phase("storm <&>")
			}
			time.Sleep(100 * time.Millisecond)
		}
		res = r.Finish()
		res.Verdicts = []Verdict{{Phase: "calm", What: "read p99", Limit: "≤ 50 ms", Measured: "14 ms", Pass: true}}
		if err := lines.Result(res); err != nil {
			t.Error(err)
		}
	})
	return out.String(), res
}

func TestLinesGiveTheResultBack(t *testing.T) {
	text, want := recorded(t)
	got, err := ReadLines(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if !got.Begun.Equal(want.Begun) {
		t.Errorf("begun %v, want %v", got.Begun, want.Begun)
	}
	got.Begun = want.Begun
	if !reflect.DeepEqual(got, want) {
		a, _ := json.MarshalIndent(got, "", " ")
		b, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("read back\n%s\nwant\n%s", a, b)
	}
}

func TestEachLineIsAnObjectWithOneMember(t *testing.T) {
	text, res := recorded(t)
	kinds := map[string]int{}
	for l := range strings.Lines(text) {
		var m map[string]map[string]any
		if err := json.Unmarshal([]byte(l), &m); err != nil || len(m) != 1 {
			t.Fatalf("%s: %v", l, err)
		}
		for k, v := range m {
			kinds[k]++
			if k == "result" && (v["samples"] != nil || v["events"] != nil || v["version"] != 1.0) {
				t.Errorf("result %v", v)
			}
		}
	}
	if kinds["sample"] != len(res.Samples) || kinds["sample"] < 3 || kinds["event"] != 2 || kinds["result"] != 1 {
		t.Errorf("lines %v", kinds)
	}
}

func TestLinesWithoutAnEndAreRefused(t *testing.T) {
	text, _ := recorded(t)
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "end before"},
		{"no result", text[:strings.LastIndex(strings.TrimSpace(text), "\n")+1], "end before"},
		{"half a line", text[:len(text)-10], "line"},
		{"another version", strings.Replace(text, `"result":{"version":1`, `"result":{"version":2`, 1), "version 2"},
		{"an unknown kind", strings.Replace(text, `"read":`, `"reed":`, 1), `unknown kind of operation "reed"`},
		{"too long", strings.Repeat("x", maxLine+1), "too long"},
	} {
		if _, err := ReadLines(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// full is a disk that takes n more writes.
type full struct{ n, calls int }

var errFull = errors.New("disk full")

func (f *full) Write(p []byte) (int, error) {
	f.calls++
	if f.n--; f.n < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestLinesStopAtTheFirstError(t *testing.T) {
	f := &full{n: 1}
	l := NewLines(f)
	l.Event(Event{})
	l.Sample(&Sample{})
	l.Sample(&Sample{})
	if err := l.Result(&Result{}); !errors.Is(err, errFull) || f.calls != 2 {
		t.Errorf("%v after %d writes; want the first error, after 2", err, f.calls)
	}
}
