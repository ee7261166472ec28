package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

func (m *model) writeStructures(b *bytes.Buffer) {
	b.WriteString("// structures are the structures and messages of namespace 0 by name.\nvar structures = [...]structure{\n")
	for _, s := range m.structures {
		fmt.Fprintf(b, "{name: %q, dataType: %d, binary: %d, xml: %d, json: %d, min: %d, message: %t,\nfields: []field{\n",
			s.name, s.dataType, s.binary, s.xml, s.json, s.min, s.message)
		for _, f := range s.fields {
			fmt.Fprintf(b, "{name: %q, kind: %s", f.name, f.kind)
			if f.array {
				b.WriteString(", array: true")
			}
			if f.kind == "kindStructure" || f.kind == "kindEnumeration" {
				fmt.Fprintf(b, ", ref: %d", f.ref)
			}
			b.WriteString("},\n")
		}
		b.WriteString("}},\n")
	}
	b.WriteString("}\n")
}

func (m *model) writeEnumerations(b *bytes.Buffer) {
	b.WriteString("// enumerations are those of namespace 0, each by value.\nvar enumerations = [...][]literal{\n")
	for _, e := range m.enumerations {
		fmt.Fprintf(b, "{ // %s\n", e.name)
		for _, v := range e.values {
			fmt.Fprintf(b, "{%d, %q},\n", v.n, v.name)
		}
		b.WriteString("},\n")
	}
	b.WriteString("}\n")
}

func (m *model) writeTypeIDs(b *bytes.Buffer) {
	refs := map[int]int{}
	for _, s := range m.structures {
		for _, id := range []int{s.dataType, s.binary, s.xml, s.json} {
			if id != 0 {
				refs[id] = s.index
			}
		}
	}
	b.WriteString("// typeIDs are the DataTypes and their encodings in namespace 0, by id.\nvar typeIDs = [...]typeID{\n")
	for _, id := range slices.Sorted(maps.Keys(refs)) {
		fmt.Fprintf(b, "{%d, %d},\n", id, refs[id])
	}
	b.WriteString("}\n")
}

func writeSymbols(b *bytes.Buffer) {
	codes := map[ua.StatusCode]bool{
		uastatus.BadIndexRangeDataMismatch: true, uastatus.BadRequiresLock: true, uastatus.BadLocaleNotSupported: true,
		uastatus.BadServerTooBusy: true, uastatus.BadNoValue: true,
	}
	for code := range ua.StatusCodes {
		codes[code] = true
	}
	b.WriteString("// symbols are the names of the StatusCodes (OPC 10000-6 Annex A.2, StatusCodes), by code.\nvar symbols = [...]symbol{\n")
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		if code != ua.StatusGood {
			fmt.Fprintf(b, "{0x%08X, %q},\n", uint32(code), uastatus.Name(code))
		}
	}
	b.WriteString("}\n")
}
