package uajson

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// filler makes random values in OPC UA Binary, of those that JSON keeps without loss.
type filler struct {
	*rand.Rand
	b     []byte
	depth int
}

func newFiller(seed uint64) *filler { return &filler{Rand: rand.New(rand.NewPCG(seed, 2))} }

// message returns a random message.
func (f *filler) message(s *structure) []byte {
	f.b = uabinary.AppendTypeID(nil, s.binary)
	f.structure(s)
	return f.b
}

func (f *filler) structure(s *structure) {
	for _, x := range s.fields {
		if !x.array {
			f.value(x.kind, x.ref)
			continue
		}
		n := f.IntN(5) - 1
		f.b = uabinary.AppendInt32(f.b, int32(n))
		for range n {
			f.value(x.kind, x.ref)
		}
	}
}

func (f *filler) zeroOr(v func()) {
	if f.IntN(4) > 0 {
		v()
	}
}

func (f *filler) text() []byte {
	switch f.IntN(5) {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	return fmt.Appendf(nil, "Größe \"%d\"\n\\\u2028\U0001F600</x>\x01", f.IntN(1e6))
}

// nonEmpty is a text for where JSON has no empty one.
func (f *filler) nonEmpty() []byte {
	if s := f.text(); len(s) > 0 {
		return s
	}
	return nil
}

func (f *filler) bytes() []byte {
	if f.IntN(4) == 0 {
		return nil
	}
	b := make([]byte, f.IntN(8))
	for i := range b {
		b[i] = byte(f.Uint32())
	}
	return b
}

func (f *filler) nodeID() (x uabinary.NodeID) {
	if f.IntN(4) == 0 {
		return x
	}
	x.Namespace = uint16(f.IntN(4))
	switch x.Type = uabinary.IDType(f.IntN(4)); x.Type {
	case uabinary.IDNumeric:
		x.Numeric = 1 + f.Uint32()>>f.IntN(32)>>1
	case uabinary.IDString:
		x.Bytes = append([]byte("ns=1;"), f.text()...)
	case uabinary.IDGUID:
		x.Bytes = uabinary.AppendUint64(uabinary.AppendUint64(nil, f.Uint64()), f.Uint64())
	case uabinary.IDOpaque:
		x.Bytes = append([]byte{1}, f.bytes()...)
	}
	return x
}

func (f *filler) value(k kind, ref uint16) {
	switch k {
	case kindBoolean:
		f.b = uabinary.AppendBool(f.b, f.IntN(2) == 1)
	case kindString, kindXmlElement:
		f.b = uabinary.AppendByteString(f.b, f.text())
	case kindDateTime:
		var t uabinary.DateTime
		f.zeroOr(func() { t = uabinary.DateTime(1 + f.Int64N(lastSecond*ticksPerSecond-1)) })
		if f.IntN(10) == 0 {
			t = uabinary.MaxDateTime
		}
		f.b = uabinary.AppendDateTime(f.b, t)
	case kindFloat:
		var x float32
		f.zeroOr(func() { x = math.Float32frombits(f.Uint32()) })
		if x != x {
			x = float32(math.NaN())
		}
		f.b = uabinary.AppendFloat(f.b, x)
	case kindDouble:
		var x float64
		f.zeroOr(func() { x = math.Float64frombits(f.Uint64()) })
		switch f.IntN(8) {
		case 0:
			x = math.Inf(1 - 2*f.IntN(2))
		case 1:
			x = float64(f.IntN(1e6)) / 100
		case 2:
			x = math.Copysign(0, -1)
		}
		if x != x {
			x = math.NaN()
		}
		f.b = uabinary.AppendDouble(f.b, x)
	case kindNodeId:
		f.b = uabinary.AppendNodeID(f.b, f.nodeID())
	case kindExpandedNodeId:
		x := uabinary.ExpandedNodeID{NodeID: f.nodeID()}
		if f.IntN(3) == 0 && x.Numeric != 0 {
			x.Namespace, x.NamespaceURI = 0, []byte("urn:a;b%3B \"c\"")
		}
		if f.IntN(3) == 0 && x.Numeric != 0 {
			x.ServerIndex = f.Uint32()>>f.IntN(31) | 1
		}
		f.b = uabinary.AppendExpandedNodeID(f.b, x)
	case kindQualifiedName:
		x := uabinary.QualifiedName{Namespace: uint16(f.IntN(3)), Name: f.text()}
		if x.Name == nil {
			x.Namespace = 0
		} else if f.IntN(3) == 0 {
			x.Name = []byte("3:x")
		}
		f.b = uabinary.AppendQualifiedName(f.b, x)
	case kindLocalizedText:
		f.b = uabinary.AppendLocalizedText(f.b, uabinary.LocalizedText{Locale: f.nonEmpty(), Text: f.nonEmpty()})
	case kindExtensionObject:
		f.extensionObject()
	case kindVariant:
		f.variant()
	case kindDataValue:
		f.dataValue()
	case kindDiagnosticInfo:
		f.diagnosticInfo()
	case kindStructure:
		f.structure(&structures[ref])
	case kindByteString:
		f.b = uabinary.AppendByteString(f.b, f.bytes())
	case kindEnumeration:
		v := int32(f.Uint32())
		if list := enumerations[ref]; f.IntN(8) > 0 && len(list) > 0 {
			v = list[f.IntN(len(list))].value
		}
		f.b = uabinary.AppendInt32(f.b, v)
	case kindStatusCode:
		v := uint32(0)
		f.zeroOr(func() { v = symbols[f.IntN(len(symbols))].code | uint32(f.IntN(3)) })
		f.b = uabinary.AppendUint32(f.b, v)
	case kindGuid:
		f.b = append(f.b, make([]byte, 16)...)
		f.zeroOr(func() { f.b[len(f.b)-1-f.IntN(16)] = byte(f.Uint32()) })
	default:
		if k.fixed() == 0 { // the reserved types
			f.value(kindByteString, 0)
			return
		}
		start := len(f.b)
		f.b = append(f.b, make([]byte, k.fixed())...)
		f.zeroOr(func() {
			for i := range f.b[start:] {
				f.b[start+i] = byte(f.Uint32())
			}
		})
	}
}

func (f *filler) extensionObject() {
	f.depth++
	defer func() { f.depth-- }()
	if f.depth > 3 {
		f.b = append(f.b, 0, 0, 0)
		return
	}
	unknown := uabinary.ExpandedNodeID{NodeID: uabinary.NumericID(2, 5001)}
	switch f.IntN(8) {
	case 0:
		f.b = append(f.b, 0, 0, 0)
	case 1:
		f.b = uabinary.AppendExtensionObject(f.b, uabinary.ExtensionObject{TypeID: unknown})
	case 2:
		f.b = uabinary.AppendExtensionObject(f.b, uabinary.ExtensionObject{TypeID: unknown, Encoding: 1, Body: f.bytes()})
	case 3:
		f.b = uabinary.AppendExtensionObject(f.b, uabinary.ExtensionObject{TypeID: unknown, Encoding: 2, Body: f.text()})
	case 4: // a body longer than its type
		s := lookup(340) // BuildInfo
		f.b = uabinary.AppendNodeID(f.b, uabinary.NumericID(0, s.binary))
		f.b = uabinary.AppendByteString(append(f.b, 1), make([]byte, s.min+1+f.IntN(5)))
	case 5:
		f.b = uabinary.AppendExtensionObject(f.b, uabinary.ExtensionObject{TypeID: unknown, Encoding: 1, Body: []byte(`{"X":[1,{"Y":null}],"é":"\u00e9"}`)})
	default:
		s := &structures[f.IntN(len(structures))]
		for s.binary == 0 || s.message {
			s = &structures[f.IntN(len(structures))]
		}
		f.b = uabinary.AppendNodeID(f.b, uabinary.NumericID(0, s.binary))
		f.b = uabinary.AppendInt32(append(f.b, 1), 0)
		at := len(f.b)
		f.structure(s)
		uabinary.AppendInt32(f.b[:at-4], int32(len(f.b)-at))
	}
}

func (f *filler) variant() {
	f.depth++
	defer func() { f.depth-- }()
	if f.depth > 3 || f.IntN(8) == 0 {
		f.b = append(f.b, 0)
		return
	}
	t := kind(1 + f.IntN(int(maxBuiltin)))
	switch f.IntN(3) {
	case 0:
		f.b = append(f.b, byte(t))
		f.value(t, 0)
	case 1:
		n := f.IntN(4)
		f.b = uabinary.AppendInt32(append(f.b, byte(t)|variantArray), int32(n))
		for range n {
			f.value(t, 0)
		}
	default:
		f.b = uabinary.AppendInt32(append(f.b, byte(t)|variantArray|variantDims), 6)
		for range 6 {
			f.value(t, 0)
		}
		f.b = uabinary.AppendInt32(f.b, 2)
		f.b = uabinary.AppendInt32(f.b, 2)
		f.b = uabinary.AppendInt32(f.b, 3)
	}
}

func (f *filler) dataValue() {
	at := len(f.b)
	f.b = append(f.b, 0)
	part := func(bit byte, k kind) {
		if f.IntN(2) == 0 {
			return
		}
		start := len(f.b)
		f.value(k, 0)
		if isZero(f.b[start:]) {
			f.b = f.b[:start]
			return
		}
		f.b[at] |= bit
	}
	part(ua.DataValueValue, kindVariant)
	part(ua.DataValueStatusCode, kindStatusCode)
	part(ua.DataValueSourceTimestamp, kindDateTime)
	part(ua.DataValueSourcePicoseconds, kindUInt16)
	part(ua.DataValueServerTimestamp, kindDateTime)
	part(ua.DataValueServerPicoseconds, kindUInt16)
}

func (f *filler) diagnosticInfo() {
	at := len(f.b)
	f.b = append(f.b, 0)
	for _, bit := range []byte{ua.DiagnosticInfoSymbolicID, ua.DiagnosticInfoNamespaceURI, ua.DiagnosticInfoLocale, ua.DiagnosticInfoLocalizedText} {
		if f.IntN(2) == 0 {
			f.b[at] |= bit
			f.b = uabinary.AppendInt32(f.b, int32(f.Uint32()>>1))
		}
	}
	if s := f.text(); s != nil {
		f.b[at] |= ua.DiagnosticInfoAdditionalInfo
		f.b = uabinary.AppendByteString(f.b, s)
	}
	if f.IntN(2) == 0 {
		f.b[at] |= ua.DiagnosticInfoInnerStatusCode
		f.b = uabinary.AppendUint32(f.b, 0x80010000)
	}
	if f.IntN(3) == 0 && f.depth < 5 {
		start := len(f.b)
		f.depth++
		f.diagnosticInfo()
		f.depth--
		if isZero(f.b[start:]) {
			f.b = f.b[:start]
		} else {
			f.b[at] |= ua.DiagnosticInfoInnerDiagnosticInfo
		}
	}
}
