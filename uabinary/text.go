package uabinary

import (
	"bytes"

	"github.com/gopcua/opcua/ua"
)

// QualifiedName is a view of a QualifiedName (OPC 10000-6 §5.2.2.13, QualifiedName). A nil Name is a null String.
type QualifiedName struct {
	Namespace uint16
	Name      []byte
}

// QualifiedNameOf returns n as a view; the null QualifiedName for nil. An empty name is a null one, which is what the two
// are in `ua`.
func QualifiedNameOf(n *ua.QualifiedName) QualifiedName {
	if n == nil {
		return QualifiedName{}
	}
	return QualifiedName{Namespace: n.NamespaceIndex, Name: bytesOrNil(n.Name)}
}

// UA returns the name as gopcua's type.
func (n QualifiedName) UA() *ua.QualifiedName {
	return &ua.QualifiedName{NamespaceIndex: n.Namespace, Name: string(n.Name)}
}

// Clone returns a copy that aliases nothing.
func (n QualifiedName) Clone() QualifiedName {
	n.Name = bytes.Clone(n.Name)
	return n
}

// Equal reports whether both are the same name. Null and empty names are the same.
func (n QualifiedName) Equal(o QualifiedName) bool {
	return n.Namespace == o.Namespace && bytes.Equal(n.Name, o.Name)
}

// IsNull reports whether the name is null or empty, in namespace 0.
func (n QualifiedName) IsNull() bool { return n.Namespace == 0 && len(n.Name) == 0 }

// QualifiedName reads a QualifiedName.
func (d *Decoder) QualifiedName() QualifiedName {
	return QualifiedName{Namespace: d.UInt16(), Name: d.StringBytes()}
}

// AppendQualifiedName appends a QualifiedName.
func AppendQualifiedName(b []byte, n QualifiedName) []byte {
	return AppendByteString(AppendUint16(b, n.Namespace), n.Name)
}

// LocalizedText is a view of a LocalizedText (OPC 10000-6 §5.2.2.14, LocalizedText). A nil field is absent.
type LocalizedText struct{ Locale, Text []byte }

// LocalizedTextOf returns t as a view; the null text for nil. A field is present when it is not empty or when EncodingMask
// says so.
func LocalizedTextOf(t *ua.LocalizedText) LocalizedText {
	if t == nil {
		return LocalizedText{}
	}
	v := LocalizedText{Locale: bytesOrNil(t.Locale), Text: bytesOrNil(t.Text)}
	if v.Locale == nil && t.Has(ua.LocalizedTextLocale) {
		v.Locale = []byte{}
	}
	if v.Text == nil && t.Has(ua.LocalizedTextText) {
		v.Text = []byte{}
	}
	return v
}

// Text returns a LocalizedText without locale.
func Text(text string) LocalizedText { return LocalizedText{Text: []byte(text)} }

// UA returns the text as gopcua's type.
func (t LocalizedText) UA() *ua.LocalizedText {
	u := new(ua.LocalizedText)
	t.setUA(u)
	return u
}

func (t LocalizedText) setUA(u *ua.LocalizedText) {
	u.Locale, u.Text = string(t.Locale), string(t.Text)
	if t.Locale != nil {
		u.EncodingMask |= ua.LocalizedTextLocale
	}
	if t.Text != nil {
		u.EncodingMask |= ua.LocalizedTextText
	}
}

// Clone returns a copy that aliases nothing.
func (t LocalizedText) Clone() LocalizedText {
	return LocalizedText{Locale: bytes.Clone(t.Locale), Text: bytes.Clone(t.Text)}
}

// Equal reports whether both have the same locale and text. Null and empty are the same.
func (t LocalizedText) Equal(o LocalizedText) bool {
	return bytes.Equal(t.Locale, o.Locale) && bytes.Equal(t.Text, o.Text)
}

// LocalizedText reads a LocalizedText. A field that is present but null is taken for absent.
func (d *Decoder) LocalizedText() (t LocalizedText) {
	mask := d.Byte()
	if mask&ua.LocalizedTextLocale != 0 {
		t.Locale = d.StringBytes()
	}
	if mask&ua.LocalizedTextText != 0 {
		t.Text = d.StringBytes()
	}
	if mask&^(ua.LocalizedTextLocale|ua.LocalizedTextText) != 0 {
		d.bad("LocalizedText mask")
	}
	return t
}

// AppendLocalizedText appends a LocalizedText.
func AppendLocalizedText(b []byte, t LocalizedText) []byte {
	var mask byte
	if t.Locale != nil {
		mask |= ua.LocalizedTextLocale
	}
	if t.Text != nil {
		mask |= ua.LocalizedTextText
	}
	b = append(b, mask)
	if t.Locale != nil {
		b = AppendByteString(b, t.Locale)
	}
	if t.Text != nil {
		b = AppendByteString(b, t.Text)
	}
	return b
}

// bytesOrNil returns the bytes of s; nil for "".
func bytesOrNil(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}
