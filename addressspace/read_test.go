package addressspace

import (
	"errors"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// allAttributes is every attribute of OPC 10000-6 A.1 and some that are none.
func allAttributes() []uint32 {
	var ids []uint32
	for i := range uint32(32) {
		ids = append(ids, i)
	}
	return append(ids, 0xFFFFFFFF)
}

// OPC 10000-3 §5: which attributes a node class has.
func TestReadAttributesOfEachClass(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("V", 1.5)
	ns.View("View")
	ns.Method("M", nil, nil, nil)
	base := []ua.AttributeID{ua.AttributeIDNodeID, ua.AttributeIDNodeClass, ua.AttributeIDBrowseName, ua.AttributeIDDisplayName,
		ua.AttributeIDDescription, ua.AttributeIDWriteMask, ua.AttributeIDUserWriteMask}
	for _, tt := range []struct {
		name string
		id   uabinary.NodeID
		has  []ua.AttributeID
	}{
		{"Object", i0(2253), []ua.AttributeID{ua.AttributeIDEventNotifier}},
		{"View", ns.NodeID("View"), []ua.AttributeID{ua.AttributeIDEventNotifier, ua.AttributeIDContainsNoLoops}},
		{"Variable", ns.NodeID("V"), []ua.AttributeID{ua.AttributeIDValue, ua.AttributeIDDataType, ua.AttributeIDValueRank,
			ua.AttributeIDAccessLevel, ua.AttributeIDUserAccessLevel, ua.AttributeIDMinimumSamplingInterval, ua.AttributeIDHistorizing, ua.AttributeIDAccessLevelEx}},
		{"Variable with ArrayDimensions", i0(2255), []ua.AttributeID{ua.AttributeIDValue, ua.AttributeIDDataType, ua.AttributeIDValueRank, ua.AttributeIDArrayDimensions,
			ua.AttributeIDAccessLevel, ua.AttributeIDUserAccessLevel, ua.AttributeIDMinimumSamplingInterval, ua.AttributeIDHistorizing, ua.AttributeIDAccessLevelEx}},
		{"Method", ns.NodeID("M"), []ua.AttributeID{ua.AttributeIDExecutable, ua.AttributeIDUserExecutable}},
		{"ObjectType", i0(58), []ua.AttributeID{ua.AttributeIDIsAbstract}},
		{"VariableType", i0(62), []ua.AttributeID{ua.AttributeIDIsAbstract, ua.AttributeIDDataType, ua.AttributeIDValueRank}},
		{"ReferenceType", i0(47), []ua.AttributeID{ua.AttributeIDIsAbstract, ua.AttributeIDSymmetric, ua.AttributeIDInverseName}},
		{"symmetric ReferenceType", i0(32), []ua.AttributeID{ua.AttributeIDIsAbstract, ua.AttributeIDSymmetric}},
		{"DataType", i0(11), []ua.AttributeID{ua.AttributeIDIsAbstract}},
		{"structured DataType", i0(296), []ua.AttributeID{ua.AttributeIDIsAbstract, ua.AttributeIDDataTypeDefinition}},
	} {
		has := make(map[uint32]bool)
		for _, a := range append(base[:len(base):len(base)], tt.has...) {
			has[uint32(a)] = true
		}
		for _, a := range allAttributes() {
			dv := s.ReadValue(&Read{ID: tt.id, Attribute: a, Timestamps: ua.TimestampsToReturnNeither})
			want := ua.StatusBadAttributeIDInvalid
			if has[a] {
				want = ua.StatusOK
			}
			if dv.Status != want {
				t.Errorf("%s, attribute %d: %v, want %v", tt.name, a, uastatus.Name(dv.Status), uastatus.Name(want))
			}
			if has[a] && dv.Mask != ua.DataValueValue {
				t.Errorf("%s, attribute %d: mask %#x", tt.name, a, dv.Mask)
			}
		}
	}
	if dv := readAttr(s, idOf(t, "ns=2;s=nothing"), ua.AttributeIDValue); dv.Status != ua.StatusBadNodeIDUnknown {
		t.Errorf("unknown node: %v", dv.Status)
	}
	if dv := readAttr(s, idOf(t, "ns=77;i=1"), ua.AttributeIDValue); dv.Status != ua.StatusBadNodeIDUnknown {
		t.Errorf("unknown namespace: %v", dv.Status)
	}
}

func TestReadAttributeValues(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("A.V", []int32{1, 2, 3}, Description("about"), DisplayName("Shown"), ArrayDimensions(9), Historizing(),
		MinimumSamplingInterval(250), AccessLevelEx(0x1003), WriteMask(ua.AttributeWriteMaskDescription|ua.AttributeWriteMaskNodeID))
	id := ns.NodeID("A.V")
	for _, tt := range []struct {
		a    ua.AttributeID
		want any
	}{
		{ua.AttributeIDNodeID, uabinary.NodeIDVariant(id)},
		{ua.AttributeIDNodeClass, int32(2)},
		{ua.AttributeIDBrowseName, uabinary.QualifiedNameVariant(uabinary.QualifiedName{Namespace: ns.Index(), Name: []byte("V")})},
		{ua.AttributeIDDisplayName, uabinary.LocalizedTextVariant(uabinary.Text("Shown"))},
		{ua.AttributeIDDescription, uabinary.LocalizedTextVariant(uabinary.Text("about"))},
		{ua.AttributeIDWriteMask, uint32(ua.AttributeWriteMaskDescription)},
		{ua.AttributeIDUserWriteMask, uint32(ua.AttributeWriteMaskDescription)},
		{ua.AttributeIDDataType, uabinary.NodeIDVariant(i0(6))},
		{ua.AttributeIDValueRank, int32(1)},
		{ua.AttributeIDArrayDimensions, []uint32{9}},
		{ua.AttributeIDAccessLevel, byte(3)},
		{ua.AttributeIDUserAccessLevel, byte(3)},
		{ua.AttributeIDMinimumSamplingInterval, 250.0},
		{ua.AttributeIDHistorizing, true},
		{ua.AttributeIDAccessLevelEx, uint32(0x1003)},
		{ua.AttributeIDValue, []int32{1, 2, 3}},
	} {
		want, err := toVariant(tt.want)
		if err != nil {
			t.Fatal(err)
		}
		if dv := readAttr(s, id, tt.a); dv.Status != ua.StatusOK || !dv.Value.Equal(want) {
			t.Errorf("%v: %x (%v), want %x", tt.a, dv.Value.Encoded(), dv.Status, want.Encoded())
		}
	}
	if dv := readAttr(s, i0(47), ua.AttributeIDInverseName); !dv.Value.Equal(uabinary.LocalizedTextVariant(uabinary.Text("ComponentOf"))) {
		t.Errorf("InverseName of HasComponent: %x", dv.Value.Encoded())
	}
}

// OPC 10000-4 §5.10.2.2 TimestampsToReturn, §7.11 DataValue.
func TestReadTimestamps(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	v := ns.Variable("V", nil, DataType(i0(11)))
	const source, now = uabinary.DateTime(1000), uabinary.DateTime(2000)
	if err := v.SetDataValue(uabinary.DataValue{Mask: ua.DataValueValue | ua.DataValueSourceTimestamp | ua.DataValueSourcePicoseconds,
		Value: uabinary.Double(1), SourceTimestamp: source, SourcePicoseconds: 7}); err != nil {
		t.Fatal(err)
	}
	dynamic := ns.Variable("D", nil, DataType(i0(11)))
	dynamic.OnReadDataValue(func(*Caller) uabinary.DataValue {
		return uabinary.DataValue{Mask: 0x3D, Value: uabinary.Double(1), SourceTimestamp: source, SourcePicoseconds: 7, ServerTimestamp: 5, ServerPicoseconds: 5}
	})
	for _, tt := range []struct {
		timestamps   ua.TimestampsToReturn
		value, other byte
	}{
		{ua.TimestampsToReturnSource, 0x15, 0x01},
		{ua.TimestampsToReturnServer, 0x09, 0x09},
		{ua.TimestampsToReturnBoth, 0x1D, 0x09},
		{ua.TimestampsToReturnNeither, 0x01, 0x01},
	} {
		for _, id := range []string{"V", "D"} {
			dv := s.ReadValue(&Read{ID: ns.NodeID(id), Attribute: 13, Timestamps: tt.timestamps, Now: now})
			if dv.Mask != tt.value {
				t.Errorf("%s value with %v: mask %#x, want %#x", id, tt.timestamps, dv.Mask, tt.value)
			}
			if dv.Mask&ua.DataValueServerTimestamp != 0 && dv.ServerTimestamp != now || dv.Mask&ua.DataValueSourceTimestamp != 0 && dv.SourceTimestamp != source {
				t.Errorf("%s value with %v: times %v, %v", id, tt.timestamps, dv.SourceTimestamp, dv.ServerTimestamp)
			}
		}
		if dv := s.ReadValue(&Read{ID: ns.NodeID("V"), Attribute: 4, Timestamps: tt.timestamps, Now: now}); dv.Mask != tt.other {
			t.Errorf("DisplayName with %v: mask %#x, want %#x", tt.timestamps, dv.Mask, tt.other)
		}
		if dv := s.ReadValue(&Read{ID: ns.NodeID("V"), Attribute: 99, Timestamps: tt.timestamps, Now: now}); dv.Mask != tt.other&^ua.DataValueValue|ua.DataValueStatusCode {
			t.Errorf("bad attribute with %v: mask %#x", tt.timestamps, dv.Mask)
		}
	}
}

// AppendRead has a shorter way for stored values; it must say the same.
func TestAppendReadEqualsReadValue(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("V", 1.5)
	ns.Variable("Empty", nil, DataType(i0(11)))
	ns.Variable("S", "text").SetStatus(ua.StatusUncertain)
	ns.Variable("Bad", "text").SetStatus(ua.StatusBadSensorFailure)
	if err := ns.Variable("P", "").SetDataValue(uabinary.DataValue{Mask: 0x3F, Value: uabinary.String("x"), SourceTimestamp: 5, ServerTimestamp: 6, SourcePicoseconds: 1, ServerPicoseconds: 2}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"V", "Empty", "S", "Bad", "P"} {
		for ts := range ua.TimestampsToReturn(5) {
			for _, a := range allAttributes() {
				rd := Read{ID: ns.NodeID(path), Attribute: a, Timestamps: ts, Now: 77}
				dv := s.ReadValue(&rd)
				want := string(uabinary.AppendDataValue(nil, &dv))
				if got := string(s.AppendRead(nil, &rd)); got != want {
					t.Errorf("%s attribute %d timestamps %d: %x, want %x", path, a, ts, got, want)
				}
			}
		}
	}
}

// OPC 10000-4 §7.27 NumericRange.
func TestReadIndexRange(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("A", []int32{10, 11, 12, 13})
	ns.Variable("S", "hello")
	ns.Variable("D", 1.5)
	for _, tt := range []struct {
		path, r string
		attr    ua.AttributeID
		want    any
		code    ua.StatusCode
	}{
		{"A", "1:2", ua.AttributeIDValue, []int32{11, 12}, 0},
		{"A", "3", ua.AttributeIDValue, []int32{13}, 0},
		{"A", "2:9", ua.AttributeIDValue, []int32{12, 13}, 0},
		{"A", "4", ua.AttributeIDValue, nil, ua.StatusBadIndexRangeNoData},
		{"A", "2:1", ua.AttributeIDValue, nil, ua.StatusBadIndexRangeInvalid},
		{"A", "x", ua.AttributeIDValue, nil, ua.StatusBadIndexRangeInvalid},
		{"S", "1:3", ua.AttributeIDValue, "ell", 0},
		{"D", "0", ua.AttributeIDValue, nil, ua.StatusBadIndexRangeNoData},
		{"A", "0", ua.AttributeIDArrayDimensions, []uint32{0}, 0},
		{"A", "5", ua.AttributeIDArrayDimensions, nil, ua.StatusBadIndexRangeNoData},
		{"A", "x", ua.AttributeIDDisplayName, nil, ua.StatusBadIndexRangeInvalid},
	} {
		dv := s.ReadValue(&Read{ID: ns.NodeID(tt.path), Attribute: uint32(tt.attr), IndexRange: []byte(tt.r), Timestamps: ua.TimestampsToReturnNeither})
		if dv.Status != tt.code {
			t.Errorf("%s[%s] attribute %d: %v, want %v", tt.path, tt.r, tt.attr, uastatus.Name(dv.Status), uastatus.Name(tt.code))
			continue
		}
		if tt.code == 0 {
			want, _ := toVariant(tt.want)
			if !dv.Value.Equal(want) {
				t.Errorf("%s[%s]: %x", tt.path, tt.r, dv.Value.Encoded())
			}
		}
	}
}

// OPC 10000-4 §5.10.2: BadDataEncodingInvalid, BadDataEncodingUnsupported.
func TestReadDataEncoding(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("D", 1.5)
	for _, tt := range []struct {
		id   uabinary.NodeID
		attr ua.AttributeID
		name string
		want ua.StatusCode
	}{
		{i0(11493), ua.AttributeIDValue, "Default Binary", 0},
		{i0(11493), ua.AttributeIDValue, "Default XML", ua.StatusBadDataEncodingUnsupported},
		{i0(11493), ua.AttributeIDValue, "Modbus", ua.StatusBadDataEncodingUnsupported},
		{ns.NodeID("D"), ua.AttributeIDValue, "", 0},
		{ns.NodeID("D"), ua.AttributeIDValue, "Modbus", ua.StatusBadDataEncodingInvalid},
		{ns.NodeID("D"), ua.AttributeIDDisplayName, "Default Binary", ua.StatusBadDataEncodingInvalid},
	} {
		dv := s.ReadValue(&Read{ID: tt.id, Attribute: uint32(tt.attr), DataEncoding: uabinary.QualifiedName{Name: []byte(tt.name)}})
		if dv.Status != tt.want {
			t.Errorf("%s attribute %d encoding %q: %v", tt.id, tt.attr, tt.name, uastatus.Name(dv.Status))
		}
	}
}

// OPC 10000-3 §5.6.2 AccessLevel, UserAccessLevel.
func TestReadAccess(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("W", 1.5, AccessLevel(AccessWriteOnly))
	admins := func(c *Caller) ua.AccessLevelType {
		if c.Admin {
			return 0xFF
		}
		return 0
	}
	ns.Variable("U", 1.5, Writable(), UserAccess(admins))
	read := func(path string, a ua.AttributeID, c *Caller) uabinary.DataValue {
		return s.ReadValue(&Read{ID: ns.NodeID(path), Attribute: uint32(a), Caller: c})
	}
	if dv := read("W", ua.AttributeIDValue, nil); dv.Status != ua.StatusBadNotReadable {
		t.Errorf("write-only: %v", dv.Status)
	}
	if dv := read("U", ua.AttributeIDValue, &Caller{Anonymous: true}); dv.Status != ua.StatusBadUserAccessDenied {
		t.Errorf("anonymous: %v", dv.Status)
	}
	if b := s.AppendRead(nil, &Read{ID: ns.NodeID("U"), Attribute: 13, Caller: &Caller{}}); b[0]&ua.DataValueStatusCode == 0 {
		t.Error("AppendRead lets an anonymous caller read")
	}
	for _, c := range []*Caller{nil, {Admin: true}} {
		if dv := read("U", ua.AttributeIDValue, c); dv.Status != ua.StatusOK {
			t.Errorf("%+v: %v", c, dv.Status)
		}
	}
	if dv := read("U", ua.AttributeIDUserAccessLevel, &Caller{}); !dv.Value.Equal(uabinary.Byte(0)) {
		t.Errorf("UserAccessLevel: %x", dv.Value.Encoded())
	}
	if dv := read("U", ua.AttributeIDAccessLevel, &Caller{}); !dv.Value.Equal(uabinary.Byte(byte(AccessReadWrite))) {
		t.Errorf("AccessLevel: %x", dv.Value.Encoded())
	}
}

func TestReadCallback(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	v := ns.Variable("V", []int32{1})
	if v.Node().Dynamic() {
		t.Error("dynamic without a callback")
	}
	var fail error
	v.OnRead(func(c *Caller) (any, error) {
		if c == nil {
			t.Error("nil caller")
		}
		return []int32{1, 2, 3}, fail
	})
	if !v.Node().Dynamic() {
		t.Error("not dynamic with a callback")
	}
	read := func(r string) uabinary.DataValue {
		return s.ReadValue(&Read{Node: v.Node(), Attribute: 13, IndexRange: []byte(r)})
	}
	if dv := read(""); dv.Value.Len() != 3 {
		t.Errorf("%d elements", dv.Value.Len())
	}
	if dv := read("1"); dv.Value.Len() != 1 {
		t.Errorf("IndexRange on a callback: %d elements", dv.Value.Len())
	}
	fail = uastatus.New(ua.StatusBadSensorFailure, "x", nil)
	if dv := read(""); dv.Status != ua.StatusBadSensorFailure {
		t.Errorf("error with a code: %v", dv.Status)
	}
	fail = errors.New("anything")
	if dv := read(""); !isBad(dv.Status) {
		t.Errorf("error without a code: %v", dv.Status)
	}
	v.OnRead(nil)
	if dv := read(""); v.Node().Dynamic() || dv.Value.Len() != 1 {
		t.Error("callback is not unbound")
	}
}

func TestReadAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("allocation counts differ under the race detector")
	}
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	v := ns.Variable("V", 1.5, NumericNodeID(1))
	buf := make([]byte, 0, 256)
	rd := Read{ID: uabinary.NumericID(ns.Index(), 1), Timestamps: ua.TimestampsToReturnBoth, Now: 1, Caller: &Caller{}}
	for _, a := range []ua.AttributeID{ua.AttributeIDValue, ua.AttributeIDDisplayName, ua.AttributeIDNodeClass, ua.AttributeIDRolePermissions} {
		rd.Attribute = uint32(a)
		if n := testing.AllocsPerRun(100, func() { buf = s.AppendRead(buf[:0], &rd) }); n != 0 {
			t.Errorf("attribute %d: %v allocations", a, n)
		}
	}
	x := any(2.5)
	if n := testing.AllocsPerRun(100, func() { _ = v.Set(x) }); n > 1 {
		t.Errorf("Set: %v allocations beside the caller's, want 1", n)
	}
}
