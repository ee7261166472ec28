package uajson

import (
	"bytes"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

const browseCompact = `{"UaTypeId":"i=525","RequestHeader":{"AuthenticationToken":"b=AQID","Timestamp":"2024-01-01T00:00:00Z","RequestHandle":5,"TimeoutHint":10000},` +
	`"View":{"ViewId":"i=87"},"NodesToBrowse":[{"NodeId":"i=85","BrowseDirection":2,"IncludeSubtypes":true,"ResultMask":63}]}`

const browseVerbose = `{"UaTypeId":"i=525","RequestHeader":{"AuthenticationToken":"b=AQID","Timestamp":"2024-01-01T00:00:00Z","RequestHandle":5,"ReturnDiagnostics":0,` +
	`"AuditEntryId":null,"TimeoutHint":10000,"AdditionalHeader":{}},"View":{"ViewId":"i=87","Timestamp":null,"ViewVersion":0},"RequestedMaxReferencesPerNode":0,` +
	`"NodesToBrowse":[{"NodeId":"i=85","BrowseDirection":"Both_2","ReferenceTypeId":null,"IncludeSubtypes":true,"NodeClassMask":0,"ResultMask":63}]}`

const browseReversible = `{"TypeId":{"Id":525},"Body":{"RequestHeader":{"AuthenticationToken":{"IdType":3,"Id":"AQID"},"Timestamp":"2024-01-01T00:00:00Z","RequestHandle":5,"TimeoutHint":10000},` +
	`"View":{"ViewId":{"Id":87}},"NodesToBrowse":[{"NodeId":{"Id":85},"BrowseDirection":2,"IncludeSubtypes":true,"ResultMask":63}]}}`

// TestMessageForms reads one message in every form there is, and writes it back (OPC 10000-6 §5.4.9, Messages, and §G.3).
func TestMessageForms(t *testing.T) {
	inner := strings.TrimPrefix(browseCompact, `{"UaTypeId":"i=525",`)
	verbose := strings.TrimPrefix(browseVerbose, `{"UaTypeId":"i=525",`)
	want, _, err := AppendBinary(nil, []byte(browseCompact), nil)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := uabinary.DecodeMessage(uabinary.NewDecoder(want, nil))
	if err != nil {
		t.Fatal(err)
	}
	if m := msg.(*ua.BrowseRequest); m.RequestHeader.RequestHandle != 5 || m.NodesToBrowse[0].BrowseDirection != ua.BrowseDirectionBoth ||
		m.View.ViewID.IntID() != 87 || !bytes.Equal([]byte(m.RequestHeader.AuthenticationToken.StringID()), []byte("AQID")) {
		t.Fatalf("%+v", m)
	}
	for _, c := range []struct {
		name, in string
		form     Form
		back     string // when it is not in
	}{
		{"Compact", browseCompact, Compact, ""},
		{"Verbose", browseVerbose, Verbose, ""},
		{"Reversible", browseReversible, Reversible, ""},
		{"type id of OPC UA Binary", strings.Replace(browseCompact, "i=525", "i=527", 1), Compact, browseCompact},
		{"type id of XML", strings.Replace(browseCompact, "i=525", "i=526", 1), Compact, browseCompact},
		{"type id of JSON", strings.Replace(browseCompact, "i=525", "i=15184", 1), Compact, browseCompact},
		{"type id with URI", strings.Replace(browseCompact, "i=525", "nsu=http://opcfoundation.org/UA/;i=525", 1), Compact, browseCompact},
		{"type id last", "{" + strings.TrimSuffix(inner, "}") + `,"UaTypeId":"i=525"}`, Compact, browseCompact},
		{"TypeId and Body", `{"TypeId":"i=525","Body":{` + inner + `}`, Compact | InBody, ""},
		{"TypeId and Body in Verbose", `{"TypeId":"i=525","Body":{` + verbose + `}`, Verbose | InBody, ""},
		{"Body before TypeId", `{"Body":{` + inner + `,"TypeId":"i=525"}`, Compact | InBody, `{"TypeId":"i=525","Body":{` + inner + `}`},
		{"envelope", `{"ServiceId":"i=525","Body":{` + inner + `}`, Compact | InEnvelope, ""},
		{"envelope with a number and locales", `{"ServiceId":525,"LocaleIds":["de"],"Body":{` + inner + `}`, Compact | InEnvelope, `{"ServiceId":"i=525","Body":{` + inner + `}`},
		{"UaBody", `{"UaTypeId":"i=525","UaBody":{` + inner + `}`, Compact, browseCompact},
		{"unknown members", strings.Replace(browseCompact, `"View":`, `"TraceParent":{"a":[1]},"View":`, 1), Compact, browseCompact},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, form, err := AppendBinary(nil, []byte(c.in), nil)
			if err != nil {
				t.Fatal(err)
			}
			if form != c.form {
				t.Errorf("taken for %s, not %s", form, c.form)
			}
			if !bytes.Equal(b, want) {
				t.Errorf("%x, want\n%x", b, want)
			}
			back, err := AppendJSON(nil, b, form, nil)
			if c.back == "" {
				c.back = c.in
			}
			if err != nil || string(back) != c.back {
				t.Errorf("%v\n%s, want\n%s", err, back, c.back)
			}
			if h, ok := RequestHandle([]byte(c.in)); h != 5 || !ok {
				t.Errorf("handle %d, %t", h, ok)
			}
		})
	}
}

func TestMessagesRefused(t *testing.T) {
	for _, c := range []struct {
		name, in string
		code     ua.StatusCode
	}{
		{"array", `[]`, ua.StatusBadDecodingError},
		{"null", `null`, ua.StatusBadDecodingError},
		{"no type", `{}`, ua.StatusBadDecodingError},
		{"type that is null", `{"UaTypeId":null}`, ua.StatusBadDecodingError},
		{"type of another namespace", `{"UaTypeId":"ns=1;i=525"}`, ua.StatusBadServiceUnsupported},
		{"type of another server", `{"UaTypeId":"svr=1;i=525"}`, ua.StatusBadServiceUnsupported},
		{"type that is a structure", `{"UaTypeId":"i=884"}`, ua.StatusBadServiceUnsupported},
		{"type that is none", `{"UaTypeId":"i=999999"}`, ua.StatusBadServiceUnsupported},
		{"type that is no id", `{"UaTypeId":"x"}`, ua.StatusBadDecodingError},
		{"TypeId without Body", `{"TypeId":"i=525"}`, ua.StatusBadDecodingError},
		{"ServiceId without Body", `{"ServiceId":"i=525"}`, ua.StatusBadDecodingError},
		{"Body that is no object", `{"ServiceId":"i=525","Body":"AQID"}`, ua.StatusBadDecodingError},
		{"header that is no object", `{"UaTypeId":"i=525","RequestHeader":[]}`, ua.StatusBadDecodingError},
		{"array that is an object", `{"UaTypeId":"i=525","NodesToBrowse":{}}`, ua.StatusBadDecodingError},
		{"field of the wrong type", `{"UaTypeId":"i=525","RequestHeader":{"RequestHandle":"5"}}`, ua.StatusBadDecodingError},
	} {
		dst := []byte("dst")
		out, _, err := AppendBinary(dst, []byte(c.in), nil)
		if uastatus.Code(err) != c.code || string(out) != "dst" {
			t.Errorf("%s: %q, %v", c.name, out, err)
		}
	}
	for _, c := range []struct {
		name string
		in   []byte
		code ua.StatusCode
	}{
		{"nothing", nil, ua.StatusBadDecodingError},
		{"structure", uabinary.AppendTypeID(nil, 886), ua.StatusBadServiceUnsupported},
		{"DataType for encoding", uabinary.AppendTypeID(nil, 525), ua.StatusBadServiceUnsupported},
		{"String id", uabinary.AppendNodeID(nil, uabinary.StringID(0, "x")), ua.StatusBadDecodingError},
		{"cut", uabinary.AppendTypeID(nil, 527), ua.StatusBadDecodingError},
	} {
		dst := []byte("dst")
		if out, err := AppendJSON(dst, c.in, Compact, nil); uastatus.Code(err) != c.code || string(out) != "dst" {
			t.Errorf("%s: %q, %v", c.name, out, err)
		}
	}
}

// TestEmptyMessage checks that every field may be absent.
func TestEmptyMessage(t *testing.T) {
	for i := range structures {
		s := &structures[i]
		if !s.message || strings.HasPrefix(s.name, "SessionlessInvoke") {
			continue
		}
		w := writer{}
		w.out = append(w.out, `{"UaTypeId":`...)
		w.typeID(s.dataType)
		w.out = append(w.out, '}')
		text := string(w.out)
		b, _, err := AppendBinary(nil, []byte(text), nil)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		d := uabinary.NewDecoder(b, nil)
		if _, err := uabinary.DecodeMessage(d); err != nil || d.Remaining() != 0 {
			t.Errorf("%s: %v, %d bytes left", s.name, err, d.Remaining())
		}
		if back, err := AppendJSON(nil, b, Compact, nil); err != nil || string(back) != text {
			t.Errorf("%s: %s, %v", s.name, back, err)
		}
	}
}

// TestCutMessages checks that a message that is cut anywhere is an error and nothing worse, on both sides.
func TestCutMessages(t *testing.T) {
	f := newFiller(5)
	for i := range structures {
		s := &structures[i]
		if !s.message {
			continue
		}
		b := f.message(s)
		text, err := AppendJSON(nil, b, Verbose, nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(b); n += 1 + len(b)/100 {
			if out, err := AppendJSON(nil, b[:n], Compact, nil); err == nil {
				t.Fatalf("%s: %d of %d bytes are %s", s.name, n, len(b), out)
			}
		}
		for n := 0; n < len(text); n += 1 + len(text)/100 {
			if out, _, err := AppendBinary(nil, text[:n], nil); err == nil {
				t.Fatalf("%s: %s is %x", s.name, text[:n], out)
			}
			RequestHandle(text[:n])
		}
	}
}

func TestRequestHandle(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     uint32
		ok       bool
	}{
		{"message", browseCompact, 5, true},
		{"cut behind the handle", browseCompact[:strings.Index(browseCompact, `,"TimeoutHint"`)], 5, true},
		{"cut before the handle", browseCompact[:strings.Index(browseCompact, `"RequestHandle"`)], 0, false},
		{"no JSON behind", `{"RequestHeader":{"RequestHandle":7},]]]]`, 7, true},
		{"white space", " {\n\"RequestHeader\" : {\t\"RequestHandle\" : 7 } }", 7, true},
		{"handle elsewhere", `{"RequestHandle":1,"RequestHeader":{"AdditionalHeader":{"RequestHandle":2}},"RequestHandle":3}`, 0, false},
		{"handle behind an object", `{"RequestHeader":{"AdditionalHeader":{"RequestHandle":2},"RequestHandle":3}}`, 3, true},
		{"header too deep", `{"a":{"b":{"RequestHeader":{"RequestHandle":2}}}}`, 0, false},
		{"header that is a value", `{"a":"RequestHeader","RequestHandle":2}`, 0, false},
		{"negative", `{"RequestHeader":{"RequestHandle":-1}}`, 0, false},
		{"too large", `{"RequestHeader":{"RequestHandle":4294967296}}`, 0, false},
		{"largest", `{"RequestHeader":{"RequestHandle":4294967295}}`, 4294967295, true},
		{"string", `{"RequestHeader":{"RequestHandle":"1"}}`, 0, false},
		{"nothing", ``, 0, false},
		{"closing", `}}}}{"RequestHeader":{"RequestHandle":1}}`, 0, false},
		{"open string", `{"RequestHeader":{"RequestHandle`, 0, false},
	} {
		if got, ok := RequestHandle([]byte(c.in)); got != c.want || ok != c.ok {
			t.Errorf("%s: %d, %t", c.name, got, ok)
		}
	}
}

func TestFormString(t *testing.T) {
	for form, want := range map[Form]string{
		Compact: "Compact", Verbose: "Verbose", Reversible: "Reversible", Verbose | InBody: "Verbose in Body",
		Compact | InEnvelope: "Compact in envelope", Form(3): "Compact",
	} {
		if form.String() != want {
			t.Errorf("%d: %s", form, form)
		}
	}
}
