package conformance

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/breakwater-ua/breakwater/conformance/probe"
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

// Ledgers are those of a server, one for each transport that it is tested over.
type Ledgers map[probe.Transport]Ledger

// LoadLedgers reads ledgers from a JSON file: an object with a member for each
// transport ("opc.tcp", "opc.wss JSON").
func LoadLedgers(path string) (Ledgers, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all Ledgers
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for transport, l := range all {
		for id, e := range l {
			if (e.Expect != Fail && e.Expect != NotApplicable) || e.Reason == "" {
				return nil, fmt.Errorf("%s: %s: %q needs expect \"fail\" or \"not applicable\" and a reason", path, transport, id)
			}
		}
	}
	return all, nil
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
