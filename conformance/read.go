package conformance

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/gopcua/opcua/ua"
)

var readCases = []Case{
	{"Attribute Read", "every attribute of an Object", "OPC 10000-3 §5.5.1", func(t *T) {
		s := t.Session()
		for attr, want := range map[ua.AttributeID]ua.StatusCode{
			ua.AttributeIDNodeID: ua.StatusOK, ua.AttributeIDNodeClass: ua.StatusOK, ua.AttributeIDBrowseName: ua.StatusOK,
			ua.AttributeIDDisplayName: ua.StatusOK, ua.AttributeIDEventNotifier: ua.StatusOK,
			ua.AttributeIDValue: ua.StatusBadAttributeIDInvalid, ua.AttributeIDDataType: ua.StatusBadAttributeIDInvalid,
			ua.AttributeIDExecutable: ua.StatusBadAttributeIDInvalid, 99: ua.StatusBadAttributeIDInvalid, 0: ua.StatusBadAttributeIDInvalid,
		} {
			rs := call[*ua.ReadResponse](t, s, readOf(attr, ns0(2253)))
			t.Code(rs.Results[0].Status, attr.String(), want)
		}
	}},
	{"Attribute Read", "every attribute of a Variable", "OPC 10000-3 §5.6.2", func(t *T) {
		s := t.Session()
		want := map[ua.AttributeID]reflect.Type{
			ua.AttributeIDNodeID: reflect.TypeFor[*ua.NodeID](), ua.AttributeIDNodeClass: reflect.TypeFor[int32](),
			ua.AttributeIDBrowseName: reflect.TypeFor[*ua.QualifiedName](), ua.AttributeIDDisplayName: reflect.TypeFor[*ua.LocalizedText](),
			ua.AttributeIDValue: reflect.TypeFor[[]string](), ua.AttributeIDDataType: reflect.TypeFor[*ua.NodeID](),
			ua.AttributeIDValueRank: reflect.TypeFor[int32](), ua.AttributeIDAccessLevel: reflect.TypeFor[byte](),
			ua.AttributeIDUserAccessLevel: reflect.TypeFor[byte](), ua.AttributeIDHistorizing: reflect.TypeFor[bool](),
		}
		for attr, typ := range want {
			rs := call[*ua.ReadResponse](t, s, readOf(attr, namespaceArray))
			if got := reflect.TypeOf(value(rs.Results[0])); got != typ {
				t.Errorf("%v is %v (%v), want %v", attr, got, rs.Results[0].Status, typ)
			}
		}
	}},
	{"Attribute Read", "values of every scalar type", "OPC 10000-6 §5.1.2", func(t *T) { t.readAll(t.Target.Nodes.Scalars, "scalars", 0) }},
	{"Attribute Read", "values of every array type", "OPC 10000-6 §5.2.5", func(t *T) { t.readAll(t.Target.Nodes.Arrays, "arrays", 1) }},
	{"Attribute Read", "values of every matrix type", "OPC 10000-6 §5.2.2.16", func(t *T) { t.readAll(t.Target.Nodes.Matrices, "matrices", 2) }},
	{"Attribute Read", "unknown nodes and ids", "OPC 10000-4 §5.11.2", func(t *T) {
		s := t.Session()
		rs := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, longNodeID, serverStatus, ns0(4_000_000_000)))
		t.Code(rs.Results[0].Status, "unknown", ua.StatusBadNodeIDUnknown)
		t.Code(rs.Results[1].Status, "known between them", ua.StatusOK)
		t.Code(rs.Results[2].Status, "unknown numeric", ua.StatusBadNodeIDUnknown)
	}},
	{"Attribute Read", "nothing to do and too much to do", "OPC 10000-4 §5.11.2", func(t *T) {
		s := t.Session()
		refuse(t, s, &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth}, ua.StatusBadNothingToDo)
		n := t.limit(operationLimitRead, 0)
		if n == 0 || n > 50_000 {
			t.Logf("MaxNodesPerRead is %d: too much cannot be asked", n)
			return
		}
		rq := readOf(ua.AttributeIDNodeClass)
		for range n + 1 {
			rq.NodesToRead = append(rq.NodesToRead, item(ua.AttributeIDNodeClass, ns0(84)))
		}
		refuse(t, s, rq, ua.StatusBadTooManyOperations)
		rq.NodesToRead = rq.NodesToRead[:n]
		rq.RequestHeader = nil
		if rs := call[*ua.ReadResponse](t, s, rq); len(rs.Results) != n {
			t.Errorf("%d results for the %d nodes allowed", len(rs.Results), n)
		}
	}},
	{"Attribute Read", "timestamps as asked for", "OPC 10000-4 §7.40", func(t *T) {
		s := t.Session()
		for ts, want := range map[ua.TimestampsToReturn][2]bool{
			ua.TimestampsToReturnSource: {true, false}, ua.TimestampsToReturnServer: {false, true},
			ua.TimestampsToReturnBoth: {true, true}, ua.TimestampsToReturnNeither: {false, false},
		} {
			rq := readOf(ua.AttributeIDValue, serverStatus)
			rq.TimestampsToReturn = ts
			dv := call[*ua.ReadResponse](t, s, rq).Results[0]
			if got := [2]bool{!dv.SourceTimestamp.IsZero(), !dv.ServerTimestamp.IsZero()}; got != want {
				t.Errorf("%v: source, server present %v, want %v", ts, got, want)
			}
		}
		rq := readOf(ua.AttributeIDValue, serverStatus)
		rq.TimestampsToReturn = 7
		refuse(t, s, rq, ua.StatusBadTimestampsToReturnInvalid)
	}},
	{"Attribute Read", "a negative MaxAge is refused", "OPC 10000-4 §5.11.2", func(t *T) {
		rq := readOf(ua.AttributeIDValue, serverStatus)
		rq.MaxAge = -1
		refuse(t, t.Session(), rq, ua.StatusBadMaxAgeInvalid)
	}},
	{"Attribute Read", "data encodings", "OPC 10000-4 §5.11.2", func(t *T) {
		s := t.Session()
		rq := readOf(ua.AttributeIDValue, serverStatus, serverStatus, serverStatus, namespaceArray)
		rq.NodesToRead[0].DataEncoding = &ua.QualifiedName{Name: "Default Binary"}
		rq.NodesToRead[1].DataEncoding = &ua.QualifiedName{Name: "Default Smoke Signals"}
		rq.NodesToRead[2] = item(ua.AttributeIDBrowseName, serverStatus)
		rq.NodesToRead[2].DataEncoding = &ua.QualifiedName{Name: "Default Binary"}
		rq.NodesToRead[3].DataEncoding = &ua.QualifiedName{Name: "Default Binary"}
		rs := call[*ua.ReadResponse](t, s, rq)
		t.Code(rs.Results[0].Status, "Default Binary of a structure", ua.StatusOK)
		t.Code(rs.Results[1].Status, "an unknown encoding", ua.StatusBadDataEncodingInvalid, ua.StatusBadDataEncodingUnsupported)
		t.Code(rs.Results[2].Status, "an encoding of BrowseName", ua.StatusBadDataEncodingInvalid)
		t.Code(rs.Results[3].Status, "an encoding of a String array", ua.StatusBadDataEncodingInvalid)
	}},
	{"Attribute Read", "index ranges of arrays", "OPC 10000-4 §7.27", func(t *T) {
		s := t.Session()
		node := t.Node(t.Target.Nodes.Arrays["Int32"], "an Int32 array")
		all, ok := value(call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, node)).Results[0]).([]int32)
		if !ok || len(all) < 3 {
			t.Fatalf("%v is no array of three or more", node)
		}
		for _, c := range []struct {
			r    string
			want any
			code ua.StatusCode
		}{
			{"0", all[:1], ua.StatusOK}, {"1:2", all[1:3], ua.StatusOK}, {"1:1000", all[1:], ua.StatusOK},
			{"100000", nil, ua.StatusBadIndexRangeNoData}, {"2:1", nil, ua.StatusBadIndexRangeInvalid}, {"1:1", nil, ua.StatusBadIndexRangeInvalid},
			{"a", nil, ua.StatusBadIndexRangeInvalid}, {"1:", nil, ua.StatusBadIndexRangeInvalid}, {"-1", nil, ua.StatusBadIndexRangeInvalid},
			{"0,0", nil, ua.StatusBadIndexRangeNoData},
		} {
			rq := readOf(ua.AttributeIDValue, node)
			rq.NodesToRead[0].IndexRange = c.r
			dv := call[*ua.ReadResponse](t, s, rq).Results[0]
			want := []ua.StatusCode{c.code}
			if c.r == "0,0" {
				want = append(want, ua.StatusBadIndexRangeInvalid)
			}
			t.Code(dv.Status, c.r, want...)
			if c.want != nil && !reflect.DeepEqual(value(dv), c.want) {
				t.Errorf("%s: got %v, want %v", c.r, value(dv), c.want)
			}
		}
	}},
	{"Attribute Read", "index ranges of strings and matrices", "OPC 10000-4 §7.27", func(t *T) {
		s := t.Session()
		str := t.Node(t.Target.Nodes.Scalars["String"], "a String")
		t.write(s, str, "breakwater")
		rq := readOf(ua.AttributeIDValue, str)
		rq.NodesToRead[0].IndexRange = "0:4"
		if got := value(call[*ua.ReadResponse](t, s, rq).Results[0]); got != "break" {
			t.Errorf("0:4 of a String is %v", got)
		}
		m := t.Node(t.Target.Nodes.Matrices["Int32"], "an Int32 matrix")
		all := reflect.ValueOf(value(call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, m)).Results[0]))
		rq = readOf(ua.AttributeIDValue, m)
		rq.NodesToRead[0].IndexRange = "0,1"
		got := reflect.ValueOf(value(call[*ua.ReadResponse](t, s, rq).Results[0]))
		if got.Kind() != reflect.Slice || got.Index(0).Index(0).Interface() != all.Index(0).Index(1).Interface() {
			t.Errorf("0,1 of %v is %v", all, got)
		}
	}},
	{"Attribute Read", "what may not be read", "OPC 10000-3 §8.57", func(t *T) {
		s := t.Session()
		dv := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, t.Node(t.Target.Nodes.WriteOnly, "a write-only variable"))).Results[0]
		t.Code(dv.Status, "read", ua.StatusBadNotReadable)
	}},
	{"Attribute Read", "a value that changes, changes", "OPC 10000-4 §5.11.2", func(t *T) {
		s := t.Session()
		node := t.Node(t.Target.Nodes.Changing, "a changing variable")
		first := value(call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, node)).Results[0])
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			if now := value(call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, node)).Results[0]); !reflect.DeepEqual(now, first) {
				return
			}
		}
		t.Errorf("%v stayed %v for four seconds", node, first)
	}},
}

// readAll reads the Value of each node and checks the built-in type and the
// number of dimensions.
func (t *T) readAll(nodes map[string]string, what string, dims int) {
	if len(nodes) == 0 {
		t.NotApplicable("the target names no %s", what)
	}
	s := t.Session()
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		node := t.Node(nodes[name], name)
		dv := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, node)).Results[0]
		if dv.Status != ua.StatusOK || dv.Value == nil {
			t.Errorf("%s: %v, no value", name, dv.Status)
			continue
		}
		if name == "Variant" { // a Variable of BaseDataType holds any type
			continue
		}
		if got := typeName(dv.Value.Type()); got != name {
			t.Errorf("%s: value of type %s", name, got)
		}
		if got := depth(dv.Value.Value()); got != dims {
			t.Errorf("%s: %d dimensions, want %d", name, got, dims)
		}
	}
}

func typeName(id ua.TypeID) string {
	names := []string{"Null", "Boolean", "SByte", "Byte", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64", "Float", "Double", "String",
		"DateTime", "Guid", "ByteString", "XmlElement", "NodeId", "ExpandedNodeId", "StatusCode", "QualifiedName", "LocalizedText",
		"ExtensionObject", "DataValue", "Variant", "DiagnosticInfo"}
	if int(id) < len(names) {
		return names[id]
	}
	return "?"
}

// depth counts the dimensions of a Go value as gopcua's Variant holds it; a
// ByteString is one value.
func depth(v any) int {
	if _, ok := v.([]byte); ok {
		return 0
	}
	t := reflect.TypeOf(v)
	n := 0
	for t != nil && t.Kind() == reflect.Slice && t != reflect.TypeFor[[]byte]() {
		n, t = n+1, t.Elem()
	}
	if _, ok := v.(ua.ByteArray); ok {
		return 1
	}
	return n
}
