// Package nodeset reads UANodeSet files (OPC 10000-6 Annex F) and turns the
// values in them into their binary encoding. It knows nothing of an address
// space: the generator of namespace 0 uses it as well as the import.
package nodeset

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds on a document: what users' files need many times over, and what keeps a
// hostile one from exhausting stack or memory beyond its own size.
const (
	maxDepth = 64
	maxAttrs = 64
)

// Error is a problem at a place in a file.
type Error struct {
	File string
	Line int
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Element is an XML element with its content.
type Element struct {
	Name     string // local name
	Attrs    []xml.Attr
	Text     string // all character data that is directly inside
	Children []*Element
	Line     int
	Raw      []byte // the element as it stands in the file
}

// Attr returns an attribute, empty when it is not there.
func (e *Element) Attr(name string) string {
	for i := range e.Attrs {
		if e.Attrs[i].Name.Local == name {
			return e.Attrs[i].Value
		}
	}
	return ""
}

// Child returns the first child with a name, nil when there is none.
func (e *Element) Child(name string) *Element {
	if e == nil {
		return nil
	}
	for _, c := range e.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// ChildText returns the text of a child, empty when it is not there.
func (e *Element) ChildText(name string) string {
	if c := e.Child(name); c != nil {
		return strings.TrimSpace(c.Text)
	}
	return ""
}

func (e *Element) isNil() bool { return e.Attr("nil") == "true" }

// scanner reads elements one subtree at a time.
type scanner struct {
	file string
	src  []byte
	dec  *xml.Decoder

	// line counts the lines before counted, so that all lines cost one pass.
	line, counted int
}

func newScanner(file string, src []byte) *scanner {
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	d := xml.NewDecoder(bytes.NewReader(src))
	d.CharsetReader = func(charset string, input io.Reader) (io.Reader, error) {
		return nil, fmt.Errorf("charset %q: only UTF-8 is supported", charset)
	}
	return &scanner{file: file, src: src, dec: d, line: 1}
}

func (s *scanner) at(offset int) int {
	if offset > s.counted && offset <= len(s.src) {
		s.line += bytes.Count(s.src[s.counted:offset], []byte{'\n'})
		s.counted = offset
	}
	return s.line
}

func (s *scanner) fail(err error) error {
	var syntax *xml.SyntaxError
	line := s.at(int(s.dec.InputOffset()))
	if errors.As(err, &syntax) {
		return &Error{s.file, syntax.Line, errors.New(syntax.Msg)}
	}
	return &Error{s.file, line, err}
}

// root reads up to the start of the document element.
func (s *scanner) root(name string) error {
	for {
		t, err := s.dec.Token()
		if err == io.EOF {
			return s.fail(errors.New("no " + name + " element"))
		}
		if err != nil {
			return s.fail(err)
		}
		if e, ok := t.(xml.StartElement); ok {
			if e.Name.Local != name {
				return s.fail(fmt.Errorf("document element is %s, not %s", e.Name.Local, name))
			}
			return nil
		}
	}
}

// next returns the next child of the document element with all it holds, nil at
// the end.
func (s *scanner) next() (*Element, error) {
	var stack []*Element
	var starts []int
	var text [][]byte
	for {
		before := int(s.dec.InputOffset())
		t, err := s.dec.Token()
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, s.fail(err)
		}
		switch t := t.(type) {
		case xml.StartElement:
			if len(stack) == maxDepth {
				return nil, s.fail(fmt.Errorf("elements nested more than %d deep", maxDepth))
			}
			if len(t.Attr) > maxAttrs {
				return nil, s.fail(fmt.Errorf("more than %d attributes", maxAttrs))
			}
			e := &Element{Name: t.Name.Local, Attrs: t.Attr, Line: s.at(before)}
			if len(stack) > 0 {
				p := stack[len(stack)-1]
				p.Children = append(p.Children, e)
			}
			stack = append(stack, e)
			starts = append(starts, before)
			text = append(text, nil)
		case xml.EndElement:
			if len(stack) == 0 {
				return nil, nil
			}
			last := len(stack) - 1
			e := stack[last]
			e.Text = string(text[last])
			e.Raw = s.src[starts[last]:s.dec.InputOffset()]
			stack, starts, text = stack[:last], starts[:last], text[:last]
			if last == 0 {
				return e, nil
			}
		case xml.CharData:
			if len(stack) > 0 {
				text[len(stack)-1] = append(text[len(stack)-1], t...)
			}
		}
	}
}
