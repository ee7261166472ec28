package uajson

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// nested puts n of something around a text.
func nested(n int, before, text, after string) string {
	return strings.Repeat(before, n) + text + strings.Repeat(after, n)
}

// TestNesting checks the nesting budget (hostile.md X5, X33, A14, A18 to A20): 100 levels are taken, the next is refused on
// either side, whatever they consist of.
func TestNesting(t *testing.T) {
	body := `{"UaTypeId":"i=14533","Key":"k","Value":{"UaType":22,"Value":`
	for _, c := range []struct {
		name          string
		before, after string
		text          string
		kind          kind
		perStep       int
	}{
		{"Variant", `{"UaType":24,"Value":`, `}`, `{"UaType":1,"Value":true}`, kindVariant, 1},
		{"array of Variant", `{"UaType":24,"Value":[`, `]}`, `{"UaType":1,"Value":true}`, kindVariant, 1},
		{"older Variant", `{"Type":24,"Body":[`, `]}`, `{"Type":1,"Body":true}`, kindVariant, 1},
		{"DiagnosticInfo", `{"InnerDiagnosticInfo":`, `}`, `{"SymbolicId":1}`, kindDiagnosticInfo, 1},
		{"ExtensionObject", body, `}}`, `null`, kindExtensionObject, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			levels := uabinary.DefaultMaxNestingLevel / c.perStep
			if c.kind == kindDiagnosticInfo {
				levels-- // the innermost counts too
			}
			good, _, err := read(nil, nested(levels, c.before, c.text, c.after), c.kind, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := written(nil, good, c.kind, Compact); err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{levels + 1, 5 * levels, 100 * levels} {
				text := nested(n, c.before, c.text, c.after)
				if _, _, err := read(nil, text, c.kind, nil); uastatus.Code(err) != ua.StatusBadEncodingLimitsExceeded {
					t.Errorf("%d levels: %v", n, err)
				}
			}
			deep, _, err := read(nil, nested(levels+1, c.before, c.text, c.after), c.kind, &uabinary.Limits{MaxNestingLevel: 1000})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := written(nil, deep, c.kind, Compact); uastatus.Code(err) != ua.StatusBadEncodingLimitsExceeded {
				t.Errorf("written: %v", err)
			}
			// The same for uabinary, whose budget it is.
			if c.kind == kindVariant {
				d := uabinary.NewDecoder(good, nil)
				if d.Variant(); d.Err() != nil {
					t.Error(d.Err())
				}
				d = uabinary.NewDecoder(deep, nil)
				if d.Variant(); d.Err() == nil {
					t.Error("uabinary takes one more")
				}
			}
		})
	}
}

// TestDeepJSON checks that brackets alone are bounded, also where they are skipped.
func TestDeepJSON(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("[", 1<<20),
		`{"UaType":1,"x":` + nested(5000, "[", "", "]") + `}`,
		`{"UaType":1,"x":` + strings.Repeat(`{"x":`, 1<<18),
	} {
		if _, _, err := read(nil, text, kindVariant, nil); uastatus.Code(err) != ua.StatusBadEncodingLimitsExceeded {
			t.Errorf("%.20s: %v", text, err)
		}
	}
}

// TestLimits checks each limit at its edge.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name      string
		kind      kind
		good, bad string
		limits    uabinary.Limits
	}{
		{"String", kindString, `"\u00e9bc"`, `"\u00e9bcd"`, uabinary.Limits{MaxStringLength: 4}},
		{"ByteString", kindByteString, `"AQIDBA=="`, `"AQIDBAU="`, uabinary.Limits{MaxByteStringLength: 4}},
		{"QualifiedName", kindQualifiedName, `"1:abcd"`, `"1:abcde"`, uabinary.Limits{MaxStringLength: 4}},
		{"NodeId", kindNodeId, `"s=ab"`, `"s=abc"`, uabinary.Limits{MaxStringLength: 4}},
		{"array", kindVariant, `{"UaType":3,"Value":[1,2,3]}`, `{"UaType":3,"Value":[1,2,3,4]}`, uabinary.Limits{MaxArrayLength: 3}},
		{"JSON size", kindVariant, `{"UaType":1,"Value":true}`, `{"UaType":1,"Value":true} `, uabinary.Limits{MaxMessageSize: 25}},
		{"number", kindDouble, "1" + strings.Repeat("0", 200), "1." + strings.Repeat("0", 2000), uabinary.Limits{}},
		{"body of an ExtensionObject", kindExtensionObject, `{"UaTypeId":"i=884"}`, `{"UaTypeId":"i=884"}`, uabinary.Limits{MaxByteStringLength: 16}},
		{"dimensions", kindVariant, `{"UaType":3,"Value":[1],"Dimensions":[1,1,1]}`, `{"UaType":3,"Value":[1],"Dimensions":[` + strings.Repeat("1,", 32) + `1]}`, uabinary.Limits{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := read(nil, c.good, c.kind, &c.limits); err != nil {
				t.Error(err)
			}
			if c.good == c.bad {
				c.limits.MaxByteStringLength--
			}
			if _, _, err := read(nil, c.bad, c.kind, &c.limits); uastatus.Code(err) != ua.StatusBadEncodingLimitsExceeded {
				t.Error(err)
			}
		})
	}
}

// TestAmplification checks that little JSON does not become much OPC UA Binary: an empty object is a structure of hundreds of
// bytes. The same the other way.
func TestAmplification(t *testing.T) {
	text := `{"UaTypeId":"i=15530","Connections":[` + strings.Repeat("{},", 50_000) + `{}]}`
	l := &uabinary.Limits{MaxMessageSize: 1 << 20}
	if s := lookup(15530); s == nil || s.name != "PubSubConfigurationDataType" {
		t.Fatal(s)
	}
	r := newReader()
	if _, _, err := r.run(nil, nil, []byte(text), l, func(r *reader, v place) Form { r.value(v, kindExtensionObject, 0); return Compact }); uastatus.Code(err) != ua.StatusBadEncodingLimitsExceeded {
		t.Error(err)
	}
	if n := cap(r.out); n > 4<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	b, _, err := read(nil, text, kindExtensionObject, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.MaxMessageSize = len(b)
	w := writer{}
	if _, err := w.run(nil, nil, b, Verbose, l, func(w *writer, _ Form) { w.value(kindExtensionObject, 0) }); err != nil && uastatus.Code(err) != ua.StatusBadEncodingLimitsExceeded {
		t.Error(err)
	}
	if n := cap(w.out); n > 3*maxGrowth*len(b) {
		t.Errorf("%d bytes were allocated for %d", n, len(b))
	}
}

// TestManyNames checks that objects with very many members take linear time and are still searched for names that occur
// twice.
func TestManyNames(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"UaType":1,"Value":true`)
	for i := range 100_000 {
		fmt.Fprintf(&b, `,"n%d":%d`, i, i)
	}
	if _, _, err := read(nil, b.String()+"}", kindVariant, nil); err != nil {
		t.Error(err)
	}
	if _, _, err := read(nil, b.String()+`,"n77777":[]}`, kindVariant, nil); uastatus.Code(err) != ua.StatusBadDecodingError {
		t.Error(err)
	}
}

// TestScratchIsBounded checks that a large message leaves nothing behind.
func TestScratchIsBounded(t *testing.T) {
	text := `{"UaType":24,"Value":[` + strings.Repeat(`{"UaType":12,"Value":"\n"},`, 100_000) + `null]}`
	r := newReader()
	if _, _, err := r.run(nil, nil, []byte(text), nil, func(r *reader, v place) Form { r.value(v, kindVariant, 0); return Compact }); err != nil {
		t.Fatal(err)
	}
	if n := cap(r.spans); n < 100_000 {
		t.Fatalf("%d spans", n)
	}
	r.free()
	if n := cap(r.spans) + cap(r.keys) + cap(r.text) + cap(r.uri) + cap(r.places); n > 5*maxKept || r.in != nil || r.out != nil {
		t.Errorf("%d are kept", n)
	}
}
