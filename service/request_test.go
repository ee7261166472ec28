package service

import (
	"slices"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// X4: a fault tells the status and nothing of the inside, and additional
// information only to those who ask.
func TestFault(t *testing.T) {
	for _, tc := range []struct {
		name     string
		ask      uint32
		code     ua.StatusCode
		hint     time.Duration
		symbolic bool
		text     string
		header   bool
	}{
		{name: "not asked", code: ua.StatusBadSessionIDInvalid},
		{name: "symbolic id", ask: diagnosticsSymbolicID, code: ua.StatusBadSessionIDInvalid, symbolic: true},
		{name: "additional info", ask: diagnosticsAdditionalInfo, code: ua.StatusBadSessionIDInvalid, text: "BadSessionIdInvalid"},
		{name: "operation level only", ask: 0x3e0, code: ua.StatusBadSessionIDInvalid},
		{name: "busy", code: uastatus.BadServerTooBusy, hint: 1500 * time.Microsecond, header: true},
		{name: "busy, asked", ask: diagnosticsAdditionalInfo, code: uastatus.BadServerTooBusy, hint: time.Second, text: "RetryAfterMs=1000", header: true},
		{name: "hint of another code", code: ua.StatusBadTooManySessions, hint: time.Second},
	} {
		r := &Request{RetryHint: tc.hint, Now: uabinary.Now()}
		r.Header.RequestHandle, r.Header.ReturnDiagnostics = 77, tc.ask
		r.Fault(tc.code)
		var d uabinary.Decoder
		d.Reset(r.Out, nil)
		msg, err := uabinary.DecodeMessage(&d)
		f, ok := msg.(*ua.ServiceFault)
		if err != nil || !ok || d.Remaining() != 0 {
			t.Fatalf("%s: %T, %v", tc.name, msg, err)
		}
		h := f.ResponseHeader
		if h.RequestHandle != 77 || h.ServiceResult != tc.code {
			t.Errorf("%s: %+v", tc.name, h)
		}
		info := h.ServiceDiagnostics
		if got := info != nil && info.Has(ua.DiagnosticInfoSymbolicID) && h.StringTable[info.SymbolicID] == uastatus.Name(tc.code); got != tc.symbolic {
			t.Errorf("%s: symbolic id %+v, %v", tc.name, info, h.StringTable)
		}
		if (info == nil || info.AdditionalInfo == "") != (tc.text == "") || tc.text != "" && info.AdditionalInfo != tc.text {
			t.Errorf("%s: additional info %+v", tc.name, info)
		}
		p, _ := h.AdditionalHeader.Value.(*ua.AdditionalParametersType)
		if (p != nil) != tc.header {
			t.Errorf("%s: additional header %+v", tc.name, h.AdditionalHeader)
		}
		if p != nil {
			ms := (tc.hint + time.Millisecond - 1).Milliseconds()
			if len(p.Parameters) != 1 || p.Parameters[0].Key.Name != "RetryAfterMs" || p.Parameters[0].Value.Value() != ms {
				t.Errorf("%s: parameters %+v", tc.name, p.Parameters[0])
			}
		}
		r.Reset()
	}
}

// The header that Begin writes by hand is what the codec would write.
func TestBeginMatchesTheCodec(t *testing.T) {
	table := NewTable()
	r := &Request{Entry: table.Lookup(631), Now: uabinary.Now()}
	r.Header.RequestHandle = 9
	r.Begin(0)
	want := uabinary.AppendTypeID(nil, 634)
	want = uabinary.AppendResponseHeader(want, &uabinary.ResponseHeader{Timestamp: r.Now, RequestHandle: 9})
	if string(r.Out) != string(want) {
		t.Errorf("%x\n%x", r.Out, want)
	}
	if len(r.Out) != responseHeaderSize {
		t.Errorf("%d bytes, responseHeaderSize is %d", len(r.Out), responseHeaderSize)
	}
	r.Reset()
}

func TestTable(t *testing.T) {
	table := NewTable()
	for _, e := range table.Entries() {
		if got := table.Lookup(e.TypeID); got == nil || got.Name != e.Name {
			t.Errorf("%s: not found by its id %d", e.Name, e.TypeID)
		}
		if e.OnDiscoveryChannel && e.NeedsSession {
			t.Errorf("%s: cannot both be discovery and need a session", e.Name)
		}
		if e.NeedsActivation && !e.NeedsSession {
			t.Errorf("%s: activation without session", e.Name)
		}
	}
	for _, id := range []uint32{0, 1, 397, 446, 12212, 1 << 31} {
		if e := table.Lookup(id); e != nil {
			t.Errorf("type id %d is %s", id, e.Name)
		}
	}
	// I14: nothing but discovery and the session services works without a session.
	for _, e := range table.Entries() {
		if e.Supported() && !e.NeedsSession {
			switch e.Name {
			case "FindServers", "GetEndpoints", "CreateSession", "ActivateSession", "CloseSession":
			default:
				t.Errorf("%s works without a session", e.Name)
			}
		}
	}
}

func TestDiscovery(t *testing.T) {
	h := newHarness(t, Limits{})
	eps := h.must(&ua.GetEndpointsRequest{RequestHeader: h.header(), EndpointURL: "opc.tcp://x:1"}).(*ua.GetEndpointsResponse)
	if len(eps.Endpoints) != 1 || eps.Endpoints[0].EndpointURL != "opc.tcp://x:1" {
		t.Errorf("%+v", eps.Endpoints)
	}
	eps = h.must(&ua.GetEndpointsRequest{RequestHeader: h.header(), ProfileURIs: []string{"urn:other"}}).(*ua.GetEndpointsResponse)
	if len(eps.Endpoints) != 0 {
		t.Errorf("§5.5.4.2 profileUris: %+v", eps.Endpoints)
	}
	for _, tc := range []struct {
		uris []string
		want int
	}{{nil, 1}, {[]string{"urn:test"}, 1}, {[]string{"urn:other"}, 0}} {
		fs := h.must(&ua.FindServersRequest{RequestHeader: h.header(), ServerURIs: tc.uris}).(*ua.FindServersResponse)
		if len(fs.Servers) != tc.want {
			t.Errorf("§5.5.2.2 serverUris %v: %d servers", tc.uris, len(fs.Servers))
		}
	}
	// X36: the filters of anybody's request are bounded.
	h.refused(&ua.FindServersRequest{RequestHeader: h.header(), ServerURIs: make([]string, 1000)}, ua.StatusBadEncodingLimitsExceeded)
}

func TestCloseSession(t *testing.T) {
	h := newHarness(t, Limits{})
	rq := &ua.CloseSessionRequest{RequestHeader: h.header()}
	h.must(rq)
	h.refused(rq, ua.StatusBadSessionIDInvalid) // I14
}

// A hint joins the parameters that are there already, and takes the place of a
// header of another type.
func TestRetryHintIsMerged(t *testing.T) {
	other := &ua.AdditionalParametersType{Parameters: []*ua.KeyValuePair{
		{Key: &ua.QualifiedName{NamespaceIndex: 0, Name: "ECDHKey"}, Value: ua.MustVariant("x")},
	}}
	params, err := uabinary.NewExtensionObject(other)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := uabinary.NewExtensionObject(&ua.Argument{Name: "a", DataType: ua.NewTwoByteNodeID(1), Description: ua.NewLocalizedText("")})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		have uabinary.ExtensionObject
		keys []string
	}{
		{"none", uabinary.ExtensionObject{}, []string{"RetryAfterMs"}},
		{"parameters", params, []string{"ECDHKey", "RetryAfterMs"}},
		{"another type", foreign, []string{"RetryAfterMs"}},
	} {
		r := &Request{RetryHint: 20 * time.Millisecond, AdditionalHeader: tc.have, Now: uabinary.Now()}
		r.Fault(uastatus.BadServerTooBusy)
		var d uabinary.Decoder
		d.Reset(r.Out, nil)
		msg, err := uabinary.DecodeMessage(&d)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		var keys []string
		for _, p := range msg.(*ua.ServiceFault).ResponseHeader.AdditionalHeader.Value.(*ua.AdditionalParametersType).Parameters {
			keys = append(keys, p.Key.Name)
		}
		if !slices.Equal(keys, tc.keys) {
			t.Errorf("%s: parameters %v, want %v", tc.name, keys, tc.keys)
		}
		r.Reset()
	}
}
