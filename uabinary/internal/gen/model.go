package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const uaPath = "github.com/gopcua/opcua/ua"

// model is what gen knows about package ua.
type model struct {
	structures []*structure // by name
	messages   []*structure // those with a header, by type id
	bodies     []*structure // those an ExtensionObject may hold, by type id
}

// structure is one structure or message.
type structure struct {
	name   string
	typeID int64  // of its binary encoding; 0 when it is not registered
	header string // "Request" or "Response" for a message
	fields []*field
	min    int // smallest encoding in bytes
}

// field is one field of a structure.
type field struct {
	name   string
	goType string // as written in generated code, e.g. "ua.NodeClass"
	slice  bool
	elem   *kind
}

// kind says how a value is encoded. Exactly one of its three forms is used:
// basic: read and append by a method each, converted when named;
// builtin: a pointer to one of ua's built-in types, filled by a hand-written method, with parts of its own or not;
// structure: a pointer to another structure.
type kind struct {
	goType    string
	min       int
	read      string // method of Decoder
	append    string // method of Encoder
	conv      string // type to convert to when reading, "" if none
	raw       string // type to convert to when appending
	pointer   bool
	parts     string // parts type of a built-in, "" if none
	readAll   string // method that reads a slice of them
	appendAll string
	structure *structure
}

// hasParts reports whether decoding into s needs memory for what s points to.
func (s *structure) hasParts() bool { return slices.ContainsFunc(s.fields, (*field).isPointer) }

func (f *field) isPointer() bool { return f.elem.pointer && !f.slice }

// builtins are the pointer types that are encoded by hand.
var builtins = map[string]kind{
	"NodeID":          {min: 2},
	"ExpandedNodeID":  {min: 2, parts: "expandedParts"},
	"QualifiedName":   {min: 6},
	"LocalizedText":   {min: 1},
	"ExtensionObject": {min: 3, parts: "extensionObjectParts"},
	"Variant":         {min: 1},
	"DataValue":       {min: 1, parts: "dataValueParts"},
	"DiagnosticInfo":  {min: 1},
	"GUID":            {min: 16, parts: "guidParts"},
}

var basics = map[types.BasicKind]kind{
	types.Bool:    {min: 1, read: "Bool", append: "bool"},
	types.Int8:    {min: 1, read: "SByte", append: "byte", raw: "byte"},
	types.Uint8:   {min: 1, read: "Byte", append: "byte"},
	types.Int16:   {min: 2, read: "Int16", append: "uint16", raw: "uint16"},
	types.Uint16:  {min: 2, read: "UInt16", append: "uint16"},
	types.Int32:   {min: 4, read: "Int32", append: "uint32", raw: "uint32"},
	types.Uint32:  {min: 4, read: "UInt32", append: "uint32"},
	types.Int64:   {min: 8, read: "Int64", append: "uint64", raw: "uint64"},
	types.Uint64:  {min: 8, read: "UInt64", append: "uint64"},
	types.Float32: {min: 4, read: "Float", append: "float"},
	types.Float64: {min: 8, read: "Double", append: "double"},
	types.String:  {min: 4, read: "String", append: "string"},
}

func load() (*model, error) {
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo,
	}, uaPath)
	if err != nil {
		return nil, err
	}
	if len(pkgs) != 1 || len(pkgs[0].Errors) != 0 {
		return nil, fmt.Errorf("load %s: %v", uaPath, pkgs[0].Errors)
	}
	pkg := pkgs[0]
	l := &loader{pkg: pkg, byName: map[string]*structure{}, state: map[string]int{}, ids: map[string]int64{}}
	l.registrations()
	for _, name := range pkg.Types.Scope().Names() {
		obj, ok := pkg.Types.Scope().Lookup(name).(*types.TypeName)
		if !ok || obj.IsAlias() {
			continue
		}
		if _, ok := obj.Type().Underlying().(*types.Struct); !ok {
			continue
		}
		if filepath.Base(pkg.Fset.Position(obj.Pos()).Filename) != "extobjs_gen.go" {
			continue
		}
		if _, err := l.structure(obj.Type().(*types.Named)); err != nil {
			return nil, err
		}
	}
	m := &model{}
	for _, s := range l.byName {
		m.structures = append(m.structures, s)
		switch {
		case s.typeID == 0:
		case s.header != "":
			m.messages = append(m.messages, s)
		default:
			m.bodies = append(m.bodies, s)
		}
	}
	if len(m.structures) < 300 || len(m.messages) < 70 || len(m.bodies) < 200 {
		return nil, fmt.Errorf("found only %d structures, %d messages, %d bodies", len(m.structures), len(m.messages), len(m.bodies))
	}
	slices.SortFunc(m.structures, func(a, b *structure) int { return strings.Compare(a.name, b.name) })
	slices.SortFunc(m.messages, func(a, b *structure) int { return int(a.typeID - b.typeID) })
	slices.SortFunc(m.bodies, func(a, b *structure) int { return int(a.typeID - b.typeID) })
	return m, nil
}

type loader struct {
	pkg    *packages.Package
	byName map[string]*structure
	state  map[string]int // 1 while a structure is being built
	ids    map[string]int64
}

// registrations collects RegisterService(id, new(T)) and RegisterExtensionObject(NewNumericNodeID(0, id), new(T)).
func (l *loader) registrations() {
	for _, f := range l.pkg.Syntax {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			fn, ok := call.Fun.(*ast.Ident)
			if !ok || fn.Name != "RegisterService" && fn.Name != "RegisterExtensionObject" {
				return true
			}
			id := call.Args[0]
			if c, ok := id.(*ast.CallExpr); ok {
				id = c.Args[len(c.Args)-1]
			}
			value := l.pkg.TypesInfo.Types[id].Value
			t, ok := call.Args[1].(*ast.CallExpr)
			if value == nil || !ok {
				return true
			}
			v, _ := constant.Int64Val(constant.ToInt(value))
			l.ids[t.Args[0].(*ast.Ident).Name] = v
			return true
		})
	}
}

func (l *loader) structure(t *types.Named) (*structure, error) {
	name := t.Obj().Name()
	if s := l.byName[name]; s != nil {
		return s, nil
	}
	if l.state[name] == 1 {
		return nil, fmt.Errorf("%s contains itself: its decoder would need the nesting budget", name)
	}
	l.state[name] = 1
	s := &structure{name: name, typeID: l.ids[name]}
	st := t.Underlying().(*types.Struct)
	for i := range st.NumFields() {
		f, err := l.field(st.Field(i))
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", name, st.Field(i).Name(), err)
		}
		s.fields = append(s.fields, f)
		if f.slice {
			s.min += 4
			if f.elem.min == 0 {
				return nil, fmt.Errorf("%s.%s: elements without size", name, f.name)
			}
		} else {
			s.min += f.elem.min
		}
	}
	if len(s.fields) > 0 && s.fields[0].elem.structure != nil {
		switch s.fields[0].elem.structure.name {
		case "RequestHeader":
			s.header = "Request"
		case "ResponseHeader":
			s.header = "Response"
		}
	}
	l.state[name] = 2
	l.byName[name] = s
	return s, nil
}

func (l *loader) field(v *types.Var) (*field, error) {
	f := &field{name: v.Name(), goType: l.typeString(v.Type())}
	t := v.Type()
	if isBytes(t) {
		f.elem = &kind{goType: "[]byte", min: 4, read: "uaBytes", append: "bytes"}
		return f, nil
	}
	if s, ok := t.Underlying().(*types.Slice); ok {
		f.slice = true
		t = s.Elem()
	}
	var err error
	f.elem, err = l.kind(t)
	return f, err
}

func (l *loader) kind(t types.Type) (*kind, error) {
	switch {
	case isBytes(t):
		return &kind{goType: "[]byte", min: 4, read: "uaBytes", append: "bytes"}, nil
	case t.String() == "time.Time":
		return &kind{goType: "time.Time", min: 8, read: "uaTime", append: "time"}, nil
	}
	if p, ok := t.(*types.Pointer); ok {
		n, ok := p.Elem().(*types.Named)
		if !ok {
			return nil, errors.New("pointer to a type without name")
		}
		name := n.Obj().Name()
		if k, ok := builtins[name]; ok {
			k.goType, k.pointer = "ua."+name, true
			k.read, k.append = "ua"+name, "ua"+name
			k.readAll, k.appendAll = k.read+"s", k.append+"s"
			return &k, nil
		}
		s, err := l.structure(n)
		if err != nil {
			return nil, err
		}
		return &kind{goType: "ua." + name, min: s.min, pointer: true, structure: s}, nil
	}
	b, ok := t.Underlying().(*types.Basic)
	if !ok {
		return nil, fmt.Errorf("no encoding for %s", t)
	}
	k, ok := basics[b.Kind()]
	if !ok {
		return nil, fmt.Errorf("no encoding for %s", t)
	}
	k.goType = l.typeString(t)
	if _, named := t.(*types.Named); named {
		k.conv = k.goType
		if k.raw == "" {
			k.raw = b.Name()
		}
		if k.goType == "ua.StatusCode" {
			k.read, k.conv = "StatusCode", ""
		}
	}
	return &k, nil
}

func isBytes(t types.Type) bool {
	s, ok := t.Underlying().(*types.Slice)
	if !ok {
		return false
	}
	b, ok := s.Elem().(*types.Basic)
	return ok && b.Kind() == types.Byte
}

func (l *loader) typeString(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string { return p.Name() })
}
