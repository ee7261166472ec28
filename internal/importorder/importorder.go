// Package importorder holds the order in which the packages of this module may
// import each other, as text, and the check that the tree keeps to it. It is
// the counterpart of go/build's deps_test.go: whoever adds a package adds a
// line here, and whoever wants an upward import has to argue with this file.
package importorder

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the import path prefix that the order speaks about.
const Module = "github.com/breakwater-ua/breakwater"

// Order lists the packages from the top down, one a line. A package may import
// only packages on lines below its own. A line covers the folders below it too,
// unless they have a line of their own; packages under one line may import each
// other. Everything after # is a comment.
const Order = `
conformance/interop      # third-party clients against refserver
internal/bench           # ratios against other servers
internal/overloadtest    # storms and floods against our server
cmd/refserver            # the reference server
cmd/uastorm              # load tester
conformance              # the suite, against any endpoint
client                   # products
client/reconnect         # composition
stack
service                  # the service sets
subscription
session
addressspace
securechannel            # wire
transport/https
transport/wss
transport/uatcp
transport
admission                # capacity
isolation
budget
security/opensslkey      # crypto
security/pki
security
uajson                   # ground
uabinary
uastatus
telemetry
internal/importorder
internal/buffer
internal/child
internal/command
internal/stacksize
internal/cutproxy
internal/memnet
internal/wheel
`

// A layers value maps a package folder to its place in the order.
type layers struct {
	names []string
}

func parseOrder(order string) (*layers, error) {
	l := &layers{}
	for line := range strings.Lines(order) {
		name, _, _ := strings.Cut(line, "#")
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if slices.Contains(l.names, name) {
			return nil, fmt.Errorf("importorder: %s is listed twice", name)
		}
		l.names = append(l.names, name)
	}
	return l, nil
}

// rank gives the line that covers folder dir (slash-separated, relative to the
// module): the longest listed prefix. It is -1 for a folder no line covers.
func (l *layers) rank(dir string) int {
	for d := dir; d != "." && d != "/"; d = path.Dir(d) {
		if i := slices.Index(l.names, d); i >= 0 {
			return i
		}
	}
	return -1
}

// check judges one import of our own module.
func (l *layers) check(from, to string) error {
	f, t := l.rank(from), l.rank(to)
	switch {
	case f < 0:
		return fmt.Errorf("%s has no line in importorder.Order: add it where it belongs", from)
	case t < 0:
		return fmt.Errorf("%s imports %s, which has no line in importorder.Order", from, to)
	case t < f:
		return fmt.Errorf("%s imports %s, which is above it", from, to)
	}
	return nil
}

// Check parses the imports of all Go files under root, a copy of the module,
// tests apart, and returns one error per import that points upward and per
// package that the order does not know. Hidden folders, testdata and folders
// that are modules of their own are skipped.
func Check(root string) ([]error, error) {
	l, err := parseOrder(Order)
	if err != nil {
		return nil, err
	}
	var bad []error
	seen := map[string]bool{}
	walk := func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if file != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules" || isModule(file)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		from := filepath.ToSlash(rel)
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imp := range f.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			to, ours := strings.CutPrefix(p, Module+"/")
			if !ours || seen[from+" "+to] {
				continue
			}
			seen[from+" "+to] = true
			if err := l.check(from, to); err != nil {
				bad = append(bad, err)
			}
		}
		return nil
	}
	if err := filepath.WalkDir(root, walk); err != nil {
		return nil, err
	}
	return bad, nil
}

func isModule(dir string) bool {
	m, err := filepath.Glob(filepath.Join(dir, "go.mod"))
	return err == nil && len(m) > 0
}
