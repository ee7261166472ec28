package uajson

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// fuzzLimits are small, so that going over them happens.
var fuzzLimits = uabinary.Limits{MaxMessageSize: 64 << 10, MaxNestingLevel: 40, MaxArrayLength: 10_000}

// FuzzAppendBinary reads a message. What is taken must be JSON to Go, keep to the limits, and once it has been written in a
// Form be written so for ever.
func FuzzAppendBinary(f *testing.F) {
	for _, text := range []string{browseCompact, browseVerbose, browseReversible,
		`{"ServiceId":629,"Body":{"NodesToRead":[{"NodeId":"nsu=urn:x;s=\u0041","AttributeId":1e1,"DataEncoding":"1:x"}]}}`,
		`{"UaTypeId":"i=671","NodesToWrite":[{"Value":{"UaType":22,"Value":[{"UaTypeId":"ns=2;i=5","X":[1,{}]},{"TypeId":{"Id":884},"Body":{"Low":"NaN"}},{"UaTypeId":"ns=2;i=5","UaEncoding":1,"UaBody":"eyAieCIgOiAxIH0="}]}},{"Value":{"Value":{"Type":24,"Body":[{"Type":13,"Body":"2024-01-01T00:00:00.5+01:00"},null]}}},{"Value":{"UaType":3,"Value":[1,2,3,4],"Dimensions":[2,2],"Status":{"Code":1}}}]}`,
		`{"UaTypeId":"i=395","ResponseHeader":{"ServiceResult":{"Code":2147549184,"Symbol":"x"},"ServiceDiagnostics":{"InnerDiagnosticInfo":{"AdditionalInfo":"\ud83d\ude00"}},"StringTable":["",null]}}`,
	} {
		f.Add([]byte(text))
	}
	fill := newFiller(11)
	for i := range structures {
		if s := &structures[i]; s.message {
			if text, err := AppendJSON(nil, fill.message(s), forms[i%len(forms)], nil); err == nil && len(text) < 2048 {
				f.Add(text)
			}
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		RequestHandle(in)
		b, form, err := AppendBinary(nil, in, &fuzzLimits)
		if err != nil {
			return
		}
		if !json.Valid(bytes.TrimPrefix(in, []byte("\uFEFF"))) {
			t.Fatalf("%q is no JSON", in)
		}
		if len(b) > fuzzLimits.MaxMessageSize {
			t.Fatalf("%d bytes", len(b))
		}
		settled(t, b, form)
		for _, form := range forms {
			settled(t, b, form)
		}
	})
}

// settled writes a message, reads that, and writes it again.
func settled(t *testing.T, b []byte, form Form) {
	t.Helper()
	limits := uabinary.Limits{MaxMessageSize: 8 << 20}
	text, err := AppendJSON(nil, b, form, &limits)
	if uastatus.Code(err) == ua.StatusBadEncodingLimitsExceeded {
		return
	}
	if err != nil {
		t.Fatalf("%x in %s: %v", b, form, err)
	}
	if !json.Valid(text) {
		t.Fatalf("%x in %s is no JSON: %s", b, form, text)
	}
	again, _, err := AppendBinary(nil, text, &limits)
	if uastatus.Code(err) == ua.StatusBadEncodingLimitsExceeded {
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	second, err := AppendJSON(nil, again, form, &limits)
	if uastatus.Code(err) == ua.StatusBadEncodingLimitsExceeded {
		return
	}
	if err != nil || !bytes.Equal(second, text) {
		t.Fatalf("%s\nis %s\nafter %x and %x, %v", text, second, b, again, err)
	}
}

// FuzzAppendJSON writes a message in OPC UA Binary. What is taken must be read again, and what uabinary takes must be taken.
func FuzzAppendJSON(f *testing.F) {
	fill := newFiller(12)
	for i := range structures {
		if s := &structures[i]; s.message {
			if b := fill.message(s); len(b) < 1024 {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		_, err := AppendJSON(nil, in, Verbose, &fuzzLimits)
		if err != nil {
			if _, theirs := uabinary.DecodeMessage(uabinary.NewDecoder(in, &fuzzLimits)); theirs == nil && uastatus.Code(err) != ua.StatusBadEncodingLimitsExceeded {
				t.Fatalf("%x: %v, but uabinary takes it", in, err)
			}
			return
		}
		for _, form := range forms {
			settled(t, in, form)
		}
	})
}
