package importorder

import "testing"

func TestTreeImportsDownward(t *testing.T) {
	bad, err := Check("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range bad {
		t.Error(err)
	}
}

func TestCheckRefusesUpwardImports(t *testing.T) {
	l, err := parseOrder(Order)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		from, to string
		ok       bool
	}{
		{"stack", "service", true},
		{"service", "stack", false},
		{"transport/uatcp", "transport", true},
		{"transport", "transport/uatcp", false},
		{"security/pki", "security", true},
		{"security", "security/pki", false},
		{"uabinary/internal/gen", "uabinary", true},
		{"addressspace", "session", false},
		{"addressspace", "uabinary", true},
		{"unlisted", "uabinary", false},
		{"stack", "unlisted", false},
	} {
		if err := l.check(tc.from, tc.to); (err == nil) != tc.ok {
			t.Errorf("%s imports %s: %v, want ok=%v", tc.from, tc.to, err, tc.ok)
		}
	}
}

func TestOrderNamesEachPackageOnce(t *testing.T) {
	if _, err := parseOrder("a\nb\na\n"); err == nil {
		t.Error("a package listed twice was accepted")
	}
}
