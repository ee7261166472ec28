package main

import (
	"bytes"
	"fmt"
)

// writeStructure writes the smallest size, the parts, the encoder and the decoder of one structure.
func writeStructure(b *bytes.Buffer, s *structure) {
	if s.header == "" {
		fmt.Fprintf(b, "const min%s = %d\n\n", s.name, s.min)
		writeParts(b, "parts"+s.name, s)
		fmt.Fprintf(b, "// Encode%s appends a ua.%s; nil is the default value.\n", s.name, s.name)
		fmt.Fprintf(b, "func Encode%s(e *Encoder, v *ua.%s) {\n", s.name, s.name)
		writeNil(b, s)
		for _, f := range s.fields {
			writeEncodeField(b, f)
		}
		fmt.Fprintf(b, "}\n\n")
		writeDecode(b, s.name, s.name, s)
		return
	}
	header := s.fields[0]
	headerType := s.header + "Header"
	body := &structure{name: s.name, fields: s.fields[1:]}
	writeParts(b, "parts"+s.name+"Body", body)
	fmt.Fprintf(b, "type parts%s struct {\n\theader ua.%s\n\theaderParts parts%s\n", s.name, headerType, headerType)
	if body.hasParts() {
		fmt.Fprintf(b, "\tbody parts%sBody\n", s.name)
	}
	fmt.Fprintf(b, "}\n\n")

	fmt.Fprintf(b, "// Encode%s appends a ua.%s without its type id; nil is the default value.\n", s.name, s.name)
	fmt.Fprintf(b, "func Encode%s(e *Encoder, v *ua.%s) {\n", s.name, s.name)
	writeNil(b, s)
	fmt.Fprintf(b, "\tEncode%s(e, v.%s)\n\tEncode%sBody(e, v)\n}\n\n", headerType, header.name, s.name)
	fmt.Fprintf(b, "// Encode%sBody appends what follows the header of a ua.%s.\n", s.name, s.name)
	fmt.Fprintf(b, "func Encode%sBody(e *Encoder, v *ua.%s) {\n", s.name, s.name)
	if len(body.fields) > 0 {
		writeNil(b, s)
	}
	for _, f := range body.fields {
		writeEncodeField(b, f)
	}
	fmt.Fprintf(b, "}\n\n")

	fmt.Fprintf(b, "// Decode%s reads a ua.%s without its type id into *v, with memory of its own.\n", s.name, s.name)
	fmt.Fprintf(b, "func Decode%s(d *Decoder, v *ua.%s) { decode%s(d, v, new(parts%s)) }\n\n", s.name, s.name, s.name, s.name)
	fmt.Fprintf(b, "func decode%s(d *Decoder, v *ua.%s, p *parts%s) {\n", s.name, s.name, s.name)
	fmt.Fprintf(b, "\tdecode%s(d, &p.header, &p.headerParts)\n\tv.%s = &p.header\n", headerType, header.name)
	if body.hasParts() {
		fmt.Fprintf(b, "\tdecode%sBody(d, v, &p.body)\n}\n\n", s.name)
	} else {
		fmt.Fprintf(b, "\tDecode%sBody(d, v)\n}\n\n", s.name)
	}
	writeDecode(b, s.name+"Body", s.name, body)
}

func writeNil(b *bytes.Buffer, s *structure) {
	if len(s.fields) > 0 {
		fmt.Fprintf(b, "\tif v == nil {\n\t\tv = new(ua.%s)\n\t}\n", s.name)
	}
}

func writeParts(b *bytes.Buffer, name string, s *structure) {
	if !s.hasParts() {
		return
	}
	fmt.Fprintf(b, "type %s struct {\n", name)
	for _, f := range s.fields {
		if !f.isPointer() {
			continue
		}
		fmt.Fprintf(b, "\t%s %s\n", f.name, f.elem.goType)
		if p := f.elem.partsType(); p != "" {
			fmt.Fprintf(b, "\t%sParts %s\n", f.name, p)
		}
	}
	fmt.Fprintf(b, "}\n\n")
}

// partsType returns the type of the parts of what a pointer points to, or "".
func (k *kind) partsType() string {
	if k.structure == nil {
		return k.parts
	}
	if k.structure.hasParts() {
		return "parts" + k.structure.name
	}
	return ""
}

func writeDecode(b *bytes.Buffer, fn, typ string, s *structure) {
	what := "a ua." + typ
	if fn != typ {
		what = "what follows the header of a ua." + typ
	}
	fmt.Fprintf(b, "// Decode%s reads %s into *v, with memory of its own.\n", fn, what)
	if s.hasParts() {
		fmt.Fprintf(b, "func Decode%s(d *Decoder, v *ua.%s) { decode%s(d, v, new(parts%s)) }\n\n", fn, typ, fn, fn)
		fmt.Fprintf(b, "func decode%s(d *Decoder, v *ua.%s, p *parts%s) {\n", fn, typ, fn)
	} else {
		fmt.Fprintf(b, "func Decode%s(d *Decoder, v *ua.%s) {\n", fn, typ)
	}
	for _, f := range s.fields {
		writeDecodeField(b, f)
	}
	fmt.Fprintf(b, "}\n\n")
}

func writeEncodeField(b *bytes.Buffer, f *field) {
	k := f.elem
	switch {
	case f.slice && k.appendAll != "":
		fmt.Fprintf(b, "\te.%s(v.%s)\n", k.appendAll, f.name)
	case f.slice && k.structure != nil:
		fmt.Fprintf(b, "\tappendSlice(e, v.%s, Encode%s)\n", f.name, k.structure.name)
	case f.slice && k.goType == "ua.StatusCode":
		fmt.Fprintf(b, "\tappendSlice(e, v.%s, (*Encoder).statusCode)\n", f.name)
	case f.slice && k.raw == "":
		fmt.Fprintf(b, "\tappendSlice(e, v.%s, (*Encoder).%s)\n", f.name, k.append)
	case f.slice:
		fmt.Fprintf(b, "\tappendSlice(e, v.%s, func(e *Encoder, x %s) { e.%s(%s(x)) })\n", f.name, k.goType, k.append, k.raw)
	case k.structure != nil:
		fmt.Fprintf(b, "\tEncode%s(e, v.%s)\n", k.structure.name, f.name)
	case k.raw != "":
		fmt.Fprintf(b, "\te.%s(%s(v.%s))\n", k.append, k.raw, f.name)
	default:
		fmt.Fprintf(b, "\te.%s(v.%s)\n", k.append, f.name)
	}
}

func writeDecodeField(b *bytes.Buffer, f *field) {
	k := f.elem
	switch {
	case f.slice && k.readAll != "":
		fmt.Fprintf(b, "\tv.%s = d.%s()\n", f.name, k.readAll)
	case f.slice && k.structure != nil && k.structure.hasParts():
		fmt.Fprintf(b, "\tv.%s = trees(d, min%s, decode%s)\n", f.name, k.structure.name, k.structure.name)
	case f.slice && k.structure != nil:
		fmt.Fprintf(b, "\tv.%s = leaves(d, min%s, Decode%s)\n", f.name, k.structure.name, k.structure.name)
	case f.slice && k.conv == "":
		fmt.Fprintf(b, "\tv.%s = scalars(d, %d, (*Decoder).%s)\n", f.name, k.min, k.read)
	case f.slice:
		fmt.Fprintf(b, "\tv.%s = scalars(d, %d, func(d *Decoder) %s { return %s(d.%s()) })\n", f.name, k.min, k.goType, k.conv, k.read)
	case k.pointer:
		call := "d." + k.read + "("
		if k.structure != nil {
			call = "Decode" + k.structure.name + "(d, "
			if k.partsType() != "" {
				call = "decode" + k.structure.name + "(d, "
			}
		}
		fmt.Fprintf(b, "\t%s&p.%s", call, f.name)
		if k.partsType() != "" {
			fmt.Fprintf(b, ", &p.%sParts", f.name)
		}
		fmt.Fprintf(b, ")\n\tv.%s = &p.%s\n", f.name, f.name)
	case k.conv != "":
		fmt.Fprintf(b, "\tv.%s = %s(d.%s())\n", f.name, k.conv, k.read)
	default:
		fmt.Fprintf(b, "\tv.%s = d.%s()\n", f.name, k.read)
	}
}

// writeMessages writes the type switches over all messages.
func writeMessages(b *bytes.Buffer, m *model) {
	b.WriteString(`// MessageTypeID returns the type id of a message's binary encoding, given a pointer to the message; 0 for anything else.
func MessageTypeID(msg any) uint32 {
	switch msg.(type) {
`)
	for _, s := range m.messages {
		fmt.Fprintf(b, "\tcase *ua.%s:\n\t\treturn %d\n", s.name, s.typeID)
	}
	b.WriteString(`	}
	return 0
}

// EncodeMessage appends the type id and the message msg points to. For anything that is no message the error has
// BadServiceUnsupported.
func EncodeMessage(e *Encoder, msg any) {
	id := MessageTypeID(msg)
	if id == 0 {
		e.fail(ua.StatusBadServiceUnsupported, fmt.Sprintf("message %T", msg))
		return
	}
	e.B = AppendTypeID(e.B, id)
	switch v := msg.(type) {
`)
	for _, s := range m.messages {
		fmt.Fprintf(b, "\tcase *ua.%s:\n\t\tEncode%s(e, v)\n", s.name, s.name)
	}
	b.WriteString(`	}
}

// DecodeMessage reads a type id and the message it stands for, and returns a pointer to a message of ua with memory of its
// own. The error has BadServiceUnsupported for an unknown type, else what [Decoder.Err] has.
func DecodeMessage(d *Decoder) (any, error) {
	var v any
	switch id := d.TypeID(); id {
`)
	for _, s := range m.messages {
		fmt.Fprintf(b, "\tcase %d:\n\t\ts := new(slab[ua.%s, parts%s])\n\t\tdecode%s(d, &s.v, &s.p)\n\t\tv = &s.v\n", s.typeID, s.name, s.name, s.name)
	}
	b.WriteString(`	default:
		d.Fail(ua.StatusBadServiceUnsupported, "message type")
	}
	if d.err != nil {
		return nil, d.err
	}
	return v, nil
}
`)
}

// writeBodies writes the registry of the structures an ExtensionObject may hold.
func writeBodies(b *bytes.Buffer, m *model) {
	b.WriteString(`// bodyTypeID returns the type id of a structure's binary encoding, given a pointer to it; 0 for anything else.
func bodyTypeID(v any) uint32 {
	switch v.(type) {
`)
	for _, s := range m.bodies {
		fmt.Fprintf(b, "\tcase *ua.%s:\n\t\treturn %d\n", s.name, s.typeID)
	}
	b.WriteString(`	}
	return 0
}

// body appends the structure v points to.
func (e *Encoder) body(v any) {
	switch v := v.(type) {
`)
	for _, s := range m.bodies {
		fmt.Fprintf(b, "\tcase *ua.%s:\n\t\tEncode%s(e, v)\n", s.name, s.name)
	}
	b.WriteString(`	}
}

// decodeBody reads the structure with the given type id; nil when there is none.
func (d *Decoder) decodeBody(id uint32) any {
	switch id {
`)
	for _, s := range m.bodies {
		if s.hasParts() {
			fmt.Fprintf(b, "\tcase %d:\n\t\ts := new(slab[ua.%s, parts%s])\n\t\tdecode%s(d, &s.v, &s.p)\n\t\treturn &s.v\n", s.typeID, s.name, s.name, s.name)
		} else {
			fmt.Fprintf(b, "\tcase %d:\n\t\tv := new(ua.%s)\n\t\tDecode%s(d, v)\n\t\treturn v\n", s.typeID, s.name, s.name)
		}
	}
	b.WriteString(`	}
	return nil
}
`)
}
