package uajson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

var forms = []Form{Compact, Verbose, Reversible, Compact | InBody, Verbose | InEnvelope}

// TestMessagesRoundTrip checks for each message and each Form that OPC UA Binary comes back as it was, that what is between
// is JSON to Go's decoder, and that the tables agree with uabinary about the message.
func TestMessagesRoundTrip(t *testing.T) {
	f := newFiller(1)
	messages := 0
	for i := range structures {
		s := &structures[i]
		if !s.message {
			continue
		}
		for n := range 12 {
			in := f.message(s)
			d := uabinary.NewDecoder(in, nil)
			if _, err := uabinary.DecodeMessage(d); err != nil || d.Remaining() != 0 {
				if n == 0 && strings.HasPrefix(s.name, "SessionlessInvoke") {
					break // gopcua has none
				}
				t.Fatalf("%s: uabinary: %v, %d bytes left\n%x", s.name, err, d.Remaining(), in)
			}
			form := forms[n%len(forms)]
			text, err := AppendJSON([]byte("before "), in, form, nil)
			if err != nil {
				t.Fatalf("%s %s: %v\n%x", s.name, form, err, in)
			}
			text = bytes.TrimPrefix(text, []byte("before "))
			var v any
			if err := json.Unmarshal(text, &v); err != nil {
				t.Fatalf("%s %s: %v\n%s", s.name, form, err, text)
			}
			out, got, err := AppendBinary([]byte("before "), text, nil)
			if err != nil {
				t.Fatalf("%s %s: %v\n%s", s.name, form, err, text)
			}
			if out = bytes.TrimPrefix(out, []byte("before ")); !bytes.Equal(out, in) {
				t.Fatalf("%s %s: came back as\n%x\nwant\n%x\nthrough\n%s", s.name, form, out, in, text)
			}
			if got&^encodings != form&^encodings && form != Reversible {
				t.Errorf("%s: %s was taken for %s", s.name, form, got)
			}
		}
		messages++
	}
	if messages < 75 {
		t.Errorf("only %d messages", messages)
	}
}

// TestBodiesRoundTrip does the same for each structure that an ExtensionObject may hold.
func TestBodiesRoundTrip(t *testing.T) {
	f := newFiller(1)
	for i := range structures {
		s := &structures[i]
		if s.message || s.binary == 0 {
			continue
		}
		for n := range 9 {
			f.b = nil
			f.structure(s)
			x := uabinary.ExtensionObject{
				TypeID: uabinary.ExpandedNodeID{NodeID: uabinary.NumericID(0, s.binary)}, Encoding: ua.ExtensionObjectBinary,
				Body: append([]byte{}, f.b...),
			}
			if v, err := x.UA(); err != nil {
				t.Fatalf("%s: uabinary: %v\n%x", s.name, err, f.b)
			} else if _, raw := v.Value.(*uabinary.RawBody); raw && len(s.fields) > 0 && s.name != "SessionlessInvokeRequestType" && s.name != "SessionlessInvokeResponseType" {
				t.Fatalf("%s: uabinary takes it for something else: %x", s.name, f.b)
			}
			form := forms[n%3]
			text, err := Marshal(x, form)
			if err != nil {
				t.Fatalf("%s %s: %v", s.name, form, err)
			}
			if form == Compact && !bytes.HasPrefix(text, []byte(`{"UaTypeId":`)) || bytes.Contains(text[:min(40, len(text))], []byte(`UaEncoding`)) {
				t.Fatalf("%s: %s", s.name, text)
			}
			var got uabinary.ExtensionObject
			if _, err := Unmarshal(text, &got); err != nil {
				t.Fatalf("%s %s: %v\n%s", s.name, form, err, text)
			}
			if !bytes.Equal(got.Body, x.Body) || !got.TypeID.Equal(x.TypeID) {
				t.Fatalf("%s %s: came back as\n%x\nwant\n%x\nthrough\n%s", s.name, form, got.Body, x.Body, text)
			}
		}
	}
}

// TestKnowsWhatUabinaryKnows checks that the tables have every message and structure of uabinary.
func TestKnowsWhatUabinaryKnows(t *testing.T) {
	messages, bodies := 0, 0
	for id := uint32(1); id < 40000; id++ {
		d := uabinary.NewDecoder(append(uabinary.AppendTypeID(nil, id), make([]byte, 600)...), nil)
		if _, err := uabinary.DecodeMessage(d); err == nil {
			messages++
			if s := lookup(id); s == nil || !s.message || s.binary != id {
				t.Errorf("message %d is missing", id)
			}
			continue
		}
		// A body that is too short is an error for known structures only.
		x := uabinary.ExtensionObject{TypeID: uabinary.ExpandedNodeID{NodeID: uabinary.NumericID(0, id)}, Encoding: 1, Body: []byte{0}}
		if _, err := x.UA(); err == nil {
			continue
		}
		bodies++
		if s := lookup(id); s == nil || s.binary != id {
			t.Errorf("structure %d is missing", id)
		}
	}
	if messages < 75 || bodies < 200 {
		t.Errorf("%d messages, %d structures", messages, bodies)
	}
}
