package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ParsePlan reads a scenario: a [Plan] in YAML. Unknown keys and bad values are
// errors that name the file, the line and the field.
func ParsePlan(name string, text []byte) (*Plan, error) {
	p := &Plan{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	switch err := d.Decode(p); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: empty", name)
	case err != nil:
		return nil, explain(name, true, err)
	}
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one document", name)
	}
	if err := p.Validate(); err != nil {
		var field *FieldError
		var root yaml.Node
		if errors.As(err, &field) && yaml.Unmarshal(text, &root) == nil {
			return nil, fmt.Errorf("%s:%d: %w", name, lineOf(&root, field.Path), err)
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if p.Name == "" {
		p.Name = name
	}
	return p, nil
}

var (
	yamlLine  = regexp.MustCompile(`^line (\d+): `)
	yamlField = regexp.MustCompile(`^line (\d+): field (\S+) not found in type load\.(\w+)$`)
	yamlType  = regexp.MustCompile(` into (\S+)$`)
)

// explain puts yaml's errors into words for somebody who does not read Go, with
// the line when name is that of a file.
func explain(name string, file bool, err error) error {
	var t *yaml.TypeError
	if !errors.As(err, &t) {
		return fmt.Errorf("%s: %w", name, err)
	}
	var lines []string
	for _, s := range t.Errors {
		at := name
		if m := yamlLine.FindStringSubmatch(s); file && m != nil {
			at += ":" + m[1]
		}
		switch {
		case yamlField.MatchString(s):
			m := yamlField.FindStringSubmatch(s)
			s = fmt.Sprintf("%s: unknown key %q; there are: %s", at, m[2], strings.Join(keysOf(m[3]), ", "))
		default:
			s = yamlLine.ReplaceAllLiteralString(s, at+": ")
			s = yamlType.ReplaceAllStringFunc(s, func(v string) string { return " as " + kindOf(strings.TrimPrefix(v, " into ")) })
		}
		lines = append(lines, s)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// kindOf says what a Go type wants to be written as.
func kindOf(goType string) string {
	switch strings.TrimPrefix(goType, "load.") {
	case "time.Duration":
		return "a duration such as 10s or 1m30s"
	case "int":
		return "a whole number"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "string":
		return "text"
	}
	if strings.HasPrefix(goType, "[]") {
		return "a list"
	}
	return "keys with values"
}

// keysOf lists the keys of one of the plan's types.
func keysOf(typeName string) (keys []string) {
	for _, v := range []any{Plan{}, Steady{}, Phase{}, Connect{}, Flood{}, Limits{}} {
		t := reflect.TypeOf(v)
		if t.Name() != typeName {
			continue
		}
		for i := range t.NumField() {
			keys = append(keys, t.Field(i).Tag.Get("yaml"))
		}
	}
	slices.Sort(keys)
	return keys
}

// lineOf finds the line of a field; of the nearest above it that is there.
func lineOf(n *yaml.Node, path []any) int {
	if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
		n = n.Content[0]
	}
	line := max(n.Line, 1)
	for _, step := range path {
		var next *yaml.Node
		switch step := step.(type) {
		case string:
			if n.Kind == yaml.MappingNode {
				for i := 0; i+1 < len(n.Content); i += 2 {
					if n.Content[i].Value == step {
						line, next = n.Content[i].Line, n.Content[i+1]
					}
				}
			}
		case int:
			if n.Kind == yaml.SequenceNode && step < len(n.Content) {
				next = n.Content[step]
				line = next.Line
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return line
}
