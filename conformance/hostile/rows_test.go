package hostile

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// scenarios are the numbers that concern opc.tcp, decoding, sessions,
// subscriptions, browsing and certificates.
const scenarios = `X1 X2 X3 X4 X5 X6 X7 X8 X10 X11 X13 X16 X17 X18 X19 X21 X23 X24 X25 X26 X27 X28 X31 X32 X33 X36 X37 X38 X39 X40
A1 A2 A3 A4 A5 A6 A7 A8 A9 A11 A13 A14 A17 A18 A19 A20 A21 A22 A23 A24 A25 A26
B1 B2 B3 B6 B7 B8 B9 B10 B11 B14 B17 B18 B19 B21 B22 B23 B27
C1 C10 C12 C13 C14 C16 D1 D2 D4 D6 D7 D9 D11 E1 E4 E8 E9 E10 E11 E12 F1 F4 F7 H4 I6 I7 I8 I9 I10 I11 I12 I14 I16`

// TestEveryScenarioHasATest holds the list against the names of the tests.
func TestEveryScenarioHasATest(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	number := regexp.MustCompile(`^[A-IX]\d+`)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			rest, ok := strings.CutPrefix(fn.Name.Name, "Test")
			for n := number.FindString(rest); ok && n != ""; n = number.FindString(rest) {
				have[n] = true
				rest = strings.TrimPrefix(rest, n)
			}
		}
	}
	for n := range strings.FieldsSeq(scenarios) {
		if !have[n] {
			t.Errorf("no test is named after %s", n)
		}
	}
}
