package nodeset

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Document is a parsed file. NodeIds and qualified names in it carry the
// namespace indexes of the file: 0 is OPC UA, i is URIs[i-1].
type Document struct {
	File   string
	URIs   []string
	Models []Model
	Nodes  []*Node

	// Skipped counts what the file asks for and nobody does: RolePermissions and
	// AccessRestrictions.
	Skipped int

	aliases map[string]uabinary.NodeID
	indexes []uint16 // of the server, by those of the file; see Remap
}

// Model is an information model that a file defines.
type Model struct {
	URI, Version, PublicationDate string
	Required                      []Model
	Line                          int
}

// Node is one node of a file.
type Node struct {
	Line        int
	Class       ua.NodeClass
	ID          uabinary.NodeID
	BrowseName  uabinary.QualifiedName
	DisplayName uabinary.LocalizedText
	Description *uabinary.LocalizedText
	InverseName *uabinary.LocalizedText

	WriteMask     uint32
	IsAbstract    bool
	Symmetric     bool
	ContainsLoops bool // View without ContainsNoLoops
	EventNotifier byte
	Executable    bool
	DataType      uabinary.NodeID
	ValueRank     int32
	Dims          []uint32 // nil: the attribute is not there
	AccessLevel   uint32
	Sampling      float64
	HasSampling   bool
	Historizing   bool

	Parent     *uabinary.NodeID // ParentNodeId, a hint
	References []Reference
	Definition *Definition
	Value      *Element // the element inside Value
}

// Reference is a reference of a node.
type Reference struct {
	Line         int
	Type, Target uabinary.NodeID
	Inverse      bool
}

// Parse reads a file; file is its name in errors.
func Parse(file string, src []byte) (*Document, error) {
	s := newScanner(file, src)
	if err := s.root("UANodeSet"); err != nil {
		return nil, err
	}
	doc := &Document{File: file, aliases: make(map[string]uabinary.NodeID)}
	for {
		e, err := s.next()
		if err != nil {
			return nil, err
		}
		if e == nil {
			return doc, nil
		}
		if err := doc.take(e); err != nil {
			var placed *Error
			if errors.As(err, &placed) {
				return nil, err
			}
			return nil, &Error{file, e.Line, err}
		}
	}
}

var classes = map[string]ua.NodeClass{
	"UAObject": ua.NodeClassObject, "UAVariable": ua.NodeClassVariable, "UAMethod": ua.NodeClassMethod,
	"UAView": ua.NodeClassView, "UAObjectType": ua.NodeClassObjectType, "UAVariableType": ua.NodeClassVariableType,
	"UAReferenceType": ua.NodeClassReferenceType, "UADataType": ua.NodeClassDataType,
}

func (doc *Document) take(e *Element) error {
	switch e.Name {
	case "NamespaceUris":
		for _, c := range e.Children {
			doc.URIs = append(doc.URIs, strings.TrimSpace(c.Text))
		}
		if len(doc.URIs) > 0xFFFE {
			return errors.New("too many NamespaceUris")
		}
	case "Models":
		for _, c := range e.Children {
			if c.Name == "Model" {
				doc.Models = append(doc.Models, model(c))
			}
		}
	case "Aliases":
		for _, c := range e.Children {
			id, err := doc.nodeID(strings.TrimSpace(c.Text))
			if err != nil {
				return &Error{doc.File, c.Line, fmt.Errorf("alias %q: %w", c.Attr("Alias"), err)}
			}
			doc.aliases[c.Attr("Alias")] = id
		}
	case "ServerUris", "Extensions": // nothing of ours
	default:
		class, ok := classes[e.Name]
		if !ok {
			return &Error{doc.File, e.Line, fmt.Errorf("%s is no element of a UANodeSet", e.Name)}
		}
		n, err := doc.node(e, class)
		if err != nil {
			return err
		}
		doc.Nodes = append(doc.Nodes, n)
	}
	return nil
}

func model(e *Element) Model {
	m := Model{URI: e.Attr("ModelUri"), Version: e.Attr("Version"), PublicationDate: e.Attr("PublicationDate"), Line: e.Line}
	for _, c := range e.Children {
		if c.Name == "RequiredModel" {
			m.Required = append(m.Required, Model{URI: c.Attr("ModelUri"), Version: c.Attr("Version"), PublicationDate: c.Attr("PublicationDate"), Line: c.Line})
		}
	}
	return m
}

// nodeID parses a NodeId or an alias.
func (doc *Document) nodeID(s string) (uabinary.NodeID, error) {
	if id, ok := doc.aliases[s]; ok {
		return id, nil
	}
	id, err := uabinary.ParseNodeID(s)
	if err != nil || !hasIDForm(s) {
		return id, fmt.Errorf("%q is neither a NodeId nor an alias", s)
	}
	if int(id.Namespace) > len(doc.URIs) {
		return id, fmt.Errorf("NodeId %q: namespace index beyond NamespaceUris", s)
	}
	return id, nil
}

// hasIDForm reports whether s looks like a NodeId. The parser takes anything else
// for a string id, which would hide a misspelt alias.
func hasIDForm(s string) bool {
	if strings.HasPrefix(s, "ns=") {
		_, s, _ = strings.Cut(s, ";")
	}
	return len(s) >= 2 && s[1] == '=' && strings.IndexByte("isgb", s[0]) >= 0
}

func (doc *Document) qualifiedName(s string) (uabinary.QualifiedName, error) {
	q := uabinary.QualifiedName{Name: []byte(s)}
	if prefix, name, ok := strings.Cut(s, ":"); ok {
		if ns, err := strconv.ParseUint(prefix, 10, 16); err == nil {
			q.Namespace, q.Name = uint16(ns), []byte(name)
		}
	}
	if int(q.Namespace) > len(doc.URIs) {
		return q, fmt.Errorf("BrowseName %q: namespace index beyond NamespaceUris", s)
	}
	return q, nil
}

// attrs reads typed attributes and keeps the first error.
type attrs struct {
	e   *Element
	err error
}

func (a *attrs) flag(name string, absent bool) bool {
	s := a.e.Attr(name)
	if s == "" {
		return absent
	}
	v, err := strconv.ParseBool(s)
	a.keep(name, s, err)
	return v
}

func (a *attrs) number(name string, absent int64, bits int) int64 {
	s := a.e.Attr(name)
	if s == "" {
		return absent
	}
	v, err := strconv.ParseInt(s, 10, bits)
	a.keep(name, s, err)
	return v
}

func (a *attrs) keep(name, s string, err error) {
	if err != nil && a.err == nil {
		a.err = fmt.Errorf("%s=%q: %w", name, s, errors.Unwrap(err))
	}
}

func (doc *Document) node(e *Element, class ua.NodeClass) (*Node, error) {
	n := &Node{Line: e.Line, Class: class}
	var err error
	if n.ID, err = doc.nodeID(e.Attr("NodeId")); err != nil {
		return nil, err
	}
	if n.ID.IsNull() {
		return nil, errors.New("null NodeId")
	}
	if n.BrowseName, err = doc.qualifiedName(e.Attr("BrowseName")); err != nil {
		return nil, err
	}
	a := &attrs{e: e}
	n.WriteMask = uint32(a.number("WriteMask", 0, 64))
	n.IsAbstract = a.flag("IsAbstract", false)
	n.Symmetric = a.flag("Symmetric", false)
	n.ContainsLoops = !a.flag("ContainsNoLoops", false)
	n.EventNotifier = byte(a.number("EventNotifier", 0, 16))
	n.Executable = a.flag("Executable", true)
	n.ValueRank = int32(a.number("ValueRank", -1, 32))
	n.AccessLevel = uint32(a.number("AccessLevel", 1, 64))
	n.Historizing = a.flag("Historizing", false)
	if s := e.Attr("MinimumSamplingInterval"); s != "" {
		n.Sampling, err = strconv.ParseFloat(s, 64)
		a.keep("MinimumSamplingInterval", s, err)
		n.HasSampling = true
	}
	if s := e.Attr("ArrayDimensions"); s != "" {
		n.Dims, err = parseDims(s)
		a.keep("ArrayDimensions", s, err)
	}
	if a.err != nil {
		return nil, a.err
	}
	n.DataType = uabinary.NumericID(0, 24)
	if s := e.Attr("DataType"); s != "" {
		if n.DataType, err = doc.nodeID(s); err != nil {
			return nil, fmt.Errorf("DataType: %w", err)
		}
	}
	if s := e.Attr("ParentNodeId"); s != "" {
		id, err := doc.nodeID(s)
		if err != nil {
			return nil, fmt.Errorf("ParentNodeId: %w", err)
		}
		n.Parent = &id
	}
	if e.Attr("AccessRestrictions") != "" && e.Attr("AccessRestrictions") != "0" {
		doc.Skipped++
	}
	for _, c := range e.Children {
		switch c.Name {
		case "DisplayName":
			if n.DisplayName.Text == nil {
				n.DisplayName = localized(c)
			}
		case "Description":
			if t := localized(c); n.Description == nil {
				n.Description = &t
			}
		case "InverseName":
			if t := localized(c); n.InverseName == nil {
				n.InverseName = &t
			}
		case "References":
			if err := doc.references(n, c); err != nil {
				return nil, err
			}
		case "Value":
			if len(c.Children) > 0 {
				n.Value = c.Children[0]
			}
		case "Definition":
			if n.Definition, err = doc.definition(c); err != nil {
				return nil, err
			}
		case "RolePermissions":
			doc.Skipped++
		}
	}
	if n.DisplayName.Text == nil {
		n.DisplayName.Text = n.BrowseName.Name
	}
	return n, nil
}

func localized(e *Element) uabinary.LocalizedText {
	t := uabinary.LocalizedText{Text: []byte(e.Text)}
	if l := e.Attr("Locale"); l != "" {
		t.Locale = []byte(l)
	}
	return t
}

func (doc *Document) references(n *Node, e *Element) error {
	for _, c := range e.Children {
		if c.Name != "Reference" {
			continue
		}
		typ, err := doc.nodeID(c.Attr("ReferenceType"))
		if err != nil {
			return &Error{doc.File, c.Line, fmt.Errorf("ReferenceType: %w", err)}
		}
		target, err := doc.nodeID(strings.TrimSpace(c.Text))
		if err != nil {
			return &Error{doc.File, c.Line, err}
		}
		n.References = append(n.References, Reference{
			Line: c.Line, Type: typ, Target: target, Inverse: c.Attr("IsForward") == "false" || c.Attr("IsForward") == "0",
		})
	}
	return nil
}
