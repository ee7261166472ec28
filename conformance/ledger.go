package conformance

import (
	"encoding/json"
	"fmt"
	"os"
)

// Entry is what the ledger knows of one case.
type Entry struct {
	// Expect is Fail or NotApplicable.
	Expect Outcome `json:"expect"`
	// Reason says why; it must not be empty.
	Reason string `json:"reason"`
}

// Ledger lists the cases of a target that are not expected to pass, by
// [Case.ID]. A case that is not in it must pass.
type Ledger map[string]Entry

// LoadLedger reads a ledger from a JSON file.
func LoadLedger(path string) (Ledger, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var l Ledger
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for id, e := range l {
		if (e.Expect != Fail && e.Expect != NotApplicable) || e.Reason == "" {
			return nil, fmt.Errorf("%s: %q needs expect \"fail\" or \"not applicable\" and a reason", path, id)
		}
	}
	return l, nil
}

// Judge returns an error when a result is not what the ledger expects.
func (l Ledger) Judge(id string, r Result) error {
	e, known := l[id]
	switch {
	case !known && r.Outcome == Pass:
		return nil
	case !known && r.Outcome == NotApplicable:
		return fmt.Errorf("does not apply, and the ledger does not say so")
	case !known:
		return fmt.Errorf("failed")
	case e.Expect == r.Outcome:
		return nil
	case r.Outcome == Pass:
		return fmt.Errorf("passed, but the ledger expects %q because: %s", e.Expect, e.Reason)
	}
	return fmt.Errorf("came to %q, but the ledger expects %q because: %s", r.Outcome, e.Expect, e.Reason)
}
