package nodeset

import "fmt"

// Order sorts documents so that each comes after those whose models it requires.
// Models that have says are loaded already. The error names the model that
// nothing provides.
func Order(docs []*Document, have func(uri string) bool) ([]*Document, error) {
	provider := make(map[string]*Document)
	for _, d := range docs {
		for _, m := range d.Models {
			if other := provider[m.URI]; other != nil {
				return nil, &Error{d.File, m.Line, fmt.Errorf("model %s is in %s too", m.URI, other.File)}
			}
			provider[m.URI] = d
		}
	}
	// Kahn's algorithm, keeping the given order where it is free.
	needs := make(map[*Document]map[*Document]bool)
	for _, d := range docs {
		needs[d] = make(map[*Document]bool)
		for _, m := range d.Models {
			for _, r := range m.Required {
				p := provider[r.URI]
				switch {
				case p == d:
				case p != nil:
					needs[d][p] = true
				case !have(r.URI):
					version := ""
					if r.Version != "" {
						version = " version " + r.Version
					}
					return nil, &Error{d.File, r.Line, fmt.Errorf("model %s requires model %s%s, which no file given defines", m.URI, r.URI, version)}
				}
			}
		}
	}
	var out []*Document
	for len(out) < len(docs) {
		progress := false
		for _, d := range docs {
			if n, open := needs[d]; open && len(n) == 0 {
				out = append(out, d)
				delete(needs, d)
				for _, other := range needs {
					delete(other, d)
				}
				progress = true
			}
		}
		if !progress {
			for _, d := range docs {
				if _, open := needs[d]; open {
					return nil, &Error{d.File, d.Models[0].Line, fmt.Errorf("model %s requires itself by way of other models", d.Models[0].URI)}
				}
			}
		}
	}
	return out, nil
}
