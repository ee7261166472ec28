package uajson

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// A nil pointer to whatever Marshal takes is null, or a default, in every Form.
func TestMarshalNilPointers(t *testing.T) {
	for _, v := range []any{
		(*uabinary.Variant)(nil), (*uabinary.DataValue)(nil), (*uabinary.NodeID)(nil), (*uabinary.ExpandedNodeID)(nil), (*uabinary.QualifiedName)(nil),
		(*uabinary.LocalizedText)(nil), (*uabinary.ExtensionObject)(nil), (*uabinary.DateTime)(nil), (*time.Time)(nil),
		(*ua.Variant)(nil), (*ua.DataValue)(nil), (*ua.NodeID)(nil), (*ua.ExpandedNodeID)(nil), (*ua.QualifiedName)(nil),
		(*ua.LocalizedText)(nil), (*ua.ExtensionObject)(nil), (*ua.GUID)(nil), (*ua.DiagnosticInfo)(nil),
	} {
		for _, form := range []Form{Compact, Verbose, Reversible} {
			if b, err := Marshal(v, form); err != nil || string(b) != "null" {
				t.Errorf("%T in %s: %s, %v", v, form, b, err)
			}
		}
	}
	for _, c := range []struct {
		v    any
		form Form
		want string
	}{
		{(*ua.StatusCode)(nil), Compact, `{}`},
		{(*ua.StatusCode)(nil), Reversible, `0`},
		{(*ua.Range)(nil), Compact, `{}`},
		{(*ua.Range)(nil), Verbose, `{"Low":0,"High":0}`},
		{(*ua.ReadRequest)(nil), Compact, `{}`},
	} {
		if b, err := Marshal(c.v, c.form); err != nil || string(b) != c.want {
			t.Errorf("%T in %s: %s, %v", c.v, c.form, b, err)
		}
	}
	for _, v := range []any{nil, (*int)(nil), new(int), "x", struct{}{}} {
		if b, err := Marshal(v, Compact); uastatus.Code(err) != ua.StatusBadEncodingError {
			t.Errorf("%T: %s, %v", v, b, err)
		}
	}
	for _, v := range []any{nil, (*uabinary.NodeID)(nil), uabinary.NodeID{}, (*ua.Range)(nil), new(int)} {
		if _, err := Unmarshal([]byte("null"), v); uastatus.Code(err) != ua.StatusBadEncodingError {
			t.Errorf("into %T: %v", v, err)
		}
	}
}

func pumpRequest() *ua.ReadRequest {
	return &ua.ReadRequest{
		RequestHeader: &ua.RequestHeader{AuthenticationToken: ua.NewByteStringNodeID(0, []byte{1, 2, 3}), Timestamp: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC),
			RequestHandle: 5, AuditEntryID: "who", TimeoutHint: 10000, AdditionalHeader: ua.NewExtensionObject(nil)},
		MaxAge:             2000,
		TimestampsToReturn: ua.TimestampsToReturnBoth,
		NodesToRead: []*ua.ReadValueID{{NodeID: ua.NewStringNodeID(2, "Pump"), AttributeID: ua.AttributeIDValue, IndexRange: "1:2",
			DataEncoding: &ua.QualifiedName{NamespaceIndex: 2, Name: "Own"}}},
	}
}

// A message goes through every Form and comes back (OPC 10000-6 §5.4.9, Messages).
func TestMarshalMessage(t *testing.T) {
	want := pumpRequest()
	for form, start := range map[Form]string{
		Compact: `{"UaTypeId":"i=629","RequestHeader":{`, Verbose: `{"UaTypeId":"i=629","RequestHeader":{`, Reversible: `{"TypeId":{"Id":629},"Body":{`,
		Compact | InBody: `{"TypeId":"i=629","Body":{`, Compact | InEnvelope: `{"ServiceId":"i=629","Body":{`, Verbose | InEnvelope: `{"ServiceId":"i=629","Body":{`,
	} {
		text, err := MarshalMessage(want, form)
		if err != nil || !strings.HasPrefix(string(text), start) {
			t.Fatalf("%s: %s, %v", form, text, err)
		}
		msg, got, err := UnmarshalMessage(text)
		if err != nil || got != form {
			t.Errorf("%s: taken for %s, %v", form, got, err)
		}
		if !reflect.DeepEqual(msg, want) {
			t.Errorf("%s: %+v", form, msg)
		}
	}
	rs := &ua.ServiceFault{ResponseHeader: &ua.ResponseHeader{RequestHandle: 7, ServiceResult: ua.StatusBadNodeIDUnknown}}
	text, err := MarshalMessage(rs, Verbose)
	if err != nil || !strings.Contains(string(text), `"ServiceResult":{"Code":2150891520,"Symbol":"BadNodeIdUnknown"}`) {
		t.Errorf("%s, %v", text, err)
	}
	msg, _, err := UnmarshalMessage(text)
	if f, ok := msg.(*ua.ServiceFault); err != nil || !ok || f.ResponseHeader.RequestHandle != 7 || f.ResponseHeader.ServiceResult != ua.StatusBadNodeIDUnknown {
		t.Errorf("%+v, %v", msg, err)
	}
}

// With the tables of a server ids have its URIs (OPC 10000-6 §5.4.2.10, NodeId), and both forms are read.
func TestMarshalMessageWithTables(t *testing.T) {
	c := &Context{NamespaceURIs: []string{namespace0, "urn:server", "urn:plant"}, ServerURIs: []string{"urn:server"}}
	want := pumpRequest()
	text, err := c.MarshalMessage(want, Compact)
	if err != nil || !strings.Contains(string(text), `"NodeId":"nsu=urn:plant;s=Pump"`) || !strings.Contains(string(text), `"DataEncoding":"nsu=urn:plant;Own"`) {
		t.Fatalf("%s, %v", text, err)
	}
	plain, err := MarshalMessage(want, Compact)
	if err != nil || !strings.Contains(string(plain), `"NodeId":"ns=2;s=Pump"`) || !strings.Contains(string(plain), `"DataEncoding":"2:Own"`) {
		t.Fatalf("%s, %v", plain, err)
	}
	for _, in := range [][]byte{text, plain} {
		msg, _, err := c.UnmarshalMessage(in)
		if err != nil || !reflect.DeepEqual(msg, want) {
			t.Errorf("%s: %+v, %v", in, msg, err)
		}
	}
	// Without the tables the id is that of no node.
	msg, _, err := UnmarshalMessage(text)
	if err != nil {
		t.Fatal(err)
	}
	if id := msg.(*ua.ReadRequest).NodesToRead[0].NodeID; id.Namespace() != 0 || id.StringID() != "nsu=urn:plant;s=Pump" {
		t.Errorf("%s", id)
	}
}

func TestMessagesNotMarshalled(t *testing.T) {
	for _, v := range []any{nil, new(int), &ua.Range{}, &uabinary.NodeID{}} {
		if b, err := MarshalMessage(v, Compact); uastatus.Code(err) != ua.StatusBadServiceUnsupported {
			t.Errorf("%T: %s, %v", v, b, err)
		}
	}
	for in, want := range map[string]ua.StatusCode{
		``: ua.StatusBadDecodingError, `null`: ua.StatusBadDecodingError, `{"UaTypeId":"i=884"}`: ua.StatusBadServiceUnsupported,
		`{"UaTypeId":"i=629"`: ua.StatusBadDecodingError, `{"UaTypeId":"i=629"}{}`: ua.StatusBadDecodingError,
		strings.Repeat("[", 10_000): ua.StatusBadDecodingError,
	} {
		msg, _, err := UnmarshalMessage([]byte(in))
		if code := uastatus.Code(err); msg != nil || code != want && code != ua.StatusBadEncodingLimitsExceeded {
			t.Errorf("%.20s: %v, %v", in, msg, err)
		}
	}
	if msg, _, err := UnmarshalMessage([]byte(`{"UaTypeId":"i=629"}`)); err != nil || msg.(*ua.ReadRequest).NodesToRead != nil {
		t.Errorf("an empty message: %+v, %v", msg, err)
	}
}
