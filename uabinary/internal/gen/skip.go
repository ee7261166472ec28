package main

import (
	"bytes"
	"fmt"
	"slices"
)

// nests reports whether s holds, at any depth, a type that takes from the nesting budget.
func (s *structure) nests() bool {
	return slices.ContainsFunc(s.fields, func(f *field) bool {
		if f.elem.structure != nil {
			return f.elem.structure.nests()
		}
		switch f.elem.goType {
		case "ua.ExtensionObject", "ua.Variant", "ua.DataValue", "ua.DiagnosticInfo":
			return true
		}
		return false
	})
}

// writeSkips writes functions that walk over the bodies that nest, to find out how deep.
func writeSkips(b *bytes.Buffer, m *model) {
	b.WriteString(`// skipBody walks over a structure that can hold values of any depth, given its type id. It does nothing for other types.
func (d *Decoder) skipBody(id uint32) {
	switch id {
`)
	need := map[*structure]bool{}
	for _, s := range m.bodies {
		if s.nests() {
			fmt.Fprintf(b, "\tcase %d:\n\t\tskip%s(d)\n", s.typeID, s.name)
			s.collect(need)
		}
	}
	b.WriteString("\t}\n}\n\n")
	for _, s := range m.structures {
		if need[s] {
			writeSkip(b, s)
		}
	}
}

func (s *structure) collect(need map[*structure]bool) {
	if need[s] {
		return
	}
	need[s] = true
	for _, f := range s.fields {
		if f.elem.structure != nil {
			f.elem.structure.collect(need)
		}
	}
}

func writeSkip(b *bytes.Buffer, s *structure) {
	fmt.Fprintf(b, "func skip%s(d *Decoder) {\n", s.name)
	fixed := 0
	flush := func() {
		if fixed > 0 {
			fmt.Fprintf(b, "\td.take(%d)\n", fixed)
			fixed = 0
		}
	}
	for _, f := range s.fields {
		one := skipOne(f.elem)
		switch {
		case f.slice && one == "":
			flush()
			fmt.Fprintf(b, "\tif n := d.ArrayLen(%d); n > 0 {\n\t\td.take(%d * n)\n\t}\n", f.elem.min, f.elem.min)
		case f.slice:
			flush()
			fmt.Fprintf(b, "\tfor n := d.ArrayLen(%d); n > 0 && d.err == nil; n-- {\n\t\t%s\n\t}\n", f.elem.min, one)
		case one == "":
			fixed += f.elem.min
		default:
			flush()
			fmt.Fprintf(b, "\t%s\n", one)
		}
	}
	flush()
	fmt.Fprintf(b, "}\n\n")
}

// skipOne returns the statement that skips one value, "" when its size is fixed.
func skipOne(k *kind) string {
	switch {
	case k.structure != nil:
		return "skip" + k.structure.name + "(d)"
	case k.goType == "ua.GUID":
		return ""
	case k.goType == "ua.DiagnosticInfo":
		return "d.SkipDiagnosticInfo()"
	case k.goType == "ua.Variant":
		return "d.skipVariant()"
	case k.pointer:
		return "d." + k.goType[len("ua."):] + "()"
	case k.goType == "[]byte":
		return "d.ByteString()"
	case k.read == "String":
		return "d.StringBytes()"
	}
	return ""
}
