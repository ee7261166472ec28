package conformance

import "testing"

func TestLedgerJudges(t *testing.T) {
	l := Ledger{"u/fails": {Fail, "known"}, "u/na": {NotApplicable, "lacks it"}}
	for _, c := range []struct {
		id      string
		outcome Outcome
		ok      bool
	}{
		{"u/new", Pass, true},
		{"u/new", Fail, false},
		{"u/new", NotApplicable, false},
		{"u/fails", Fail, true},
		{"u/fails", Pass, false}, // an unexpected pass fails too
		{"u/fails", NotApplicable, false},
		{"u/na", NotApplicable, true},
		{"u/na", Pass, false},
	} {
		if err := l.Judge(c.id, Result{Outcome: c.outcome}); (err == nil) != c.ok {
			t.Errorf("%s that came to %q: %v", c.id, c.outcome, err)
		}
	}
}

func TestCheckRecordsOutcomes(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(*T)
		want Outcome
	}{
		{"returns", func(*T) {}, Pass},
		{"fails", func(t *T) { t.Errorf("no") }, Fail},
		{"ends itself", func(t *T) { t.Fatalf("no") }, Fail},
		{"lacks a node", func(t *T) { t.Node("", "x") }, NotApplicable},
		{"panics", func(*T) { panic("oops") }, Fail},
	} {
		if r := Check(t.Context(), &Target{}, Case{Run: c.run}); r.Outcome != c.want {
			t.Errorf("a case that %s came to %q (%s), want %q", c.name, r.Outcome, r.Log, c.want)
		}
	}
}
