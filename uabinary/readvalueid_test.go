package uabinary

import (
	"testing"

	"github.com/gopcua/opcua/ua"
)

func TestPlainReadValueID(t *testing.T) {
	rest := func(indexRange []byte, encoding QualifiedName) []byte {
		b := AppendUint32(nil, 13)
		b = AppendStringBytes(b, indexRange)
		return AppendQualifiedName(b, encoding)
	}
	for _, tc := range []struct {
		name string
		b    []byte
		ok   bool
	}{
		{"nothing special", rest(nil, QualifiedName{}), true},
		{"more behind it", append(rest(nil, QualifiedName{}), 1, 2, 3), true},
		{"one byte short", rest(nil, QualifiedName{})[:13], false},
		{"empty index range", rest([]byte{}, QualifiedName{}), false},
		{"index range", rest([]byte("1:2"), QualifiedName{}), false},
		{"namespace of the data encoding", rest(nil, QualifiedName{Namespace: 1}), false},
		{"data encoding", rest(nil, QualifiedName{Name: []byte("Default Binary")}), false},
		{"nothing", nil, false},
	} {
		d := NewDecoder(tc.b, nil)
		attribute, ok := d.PlainReadValueID()
		if ok != tc.ok || ok && (ua.AttributeID(attribute) != ua.AttributeIDValue || d.Pos() != 14) || !ok && d.Pos() != 0 || d.Err() != nil {
			t.Errorf("%s: %d, %v, at %d, %v", tc.name, attribute, ok, d.Pos(), d.Err())
		}
	}
}
