package uajson

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// read returns text as OPC UA Binary.
func read(c *Context, text string, k kind, l *uabinary.Limits) ([]byte, Form, error) {
	return newReader().run(c, nil, []byte(text), l, func(r *reader, v place) Form {
		r.value(v, k, 0)
		return Compact
	})
}

// written returns OPC UA Binary as text. The first enumeration, which the tests use, is ApplicationType.
func written(c *Context, b []byte, k kind, form Form) (string, error) {
	out, err := new(writer).run(c, nil, b, form, nil, func(w *writer, _ Form) { w.value(k, 0) })
	return string(out), err
}

// TestClauses reads each text and writes it in the Compact encoding, in the Verbose one if that is another, and in the older
// one. No text to be written means the one that is read; "error" means that it is refused.
func TestClauses(t *testing.T) {
	for _, c := range []struct {
		name, in, compact, verbose, reversible string
		kind                                   kind
	}{
		{"5.4.2.2 Boolean", `true`, ``, ``, ``, kindBoolean},
		{"5.4.2.2 Boolean that is a number", `1`, `error`, ``, ``, kindBoolean},
		{"5.4.2.2 Boolean that is null", `null`, `error`, ``, ``, kindBoolean},
		{"5.4.2.3 SByte", `-128`, ``, ``, ``, kindSByte},
		{"5.4.2.3 SByte out of range", `128`, `error`, ``, ``, kindSByte},
		{"5.4.2.3 Byte", `255`, ``, ``, ``, kindByte},
		{"5.4.2.3 Byte out of range", `256`, `error`, ``, ``, kindByte},
		{"5.4.2.3 Byte that is negative", `-1`, `error`, ``, ``, kindByte},
		{"5.4.2.3 Int16", `-32768`, ``, ``, ``, kindInt16},
		{"5.4.2.3 UInt16", `65535`, ``, ``, ``, kindUInt16},
		{"5.4.2.3 Int32", `-2147483648`, ``, ``, ``, kindInt32},
		{"5.4.2.3 Int32 out of range", `2147483648`, `error`, ``, ``, kindInt32},
		{"5.4.2.3 Int32 in another notation", `12.30e1`, `123`, ``, ``, kindInt32},
		{"5.4.2.3 Int32 with a large exponent", `1e99999999999`, `error`, ``, ``, kindInt32},
		{"5.4.2.3 Int32 0 with a large exponent", `0e99999999999`, `0`, ``, ``, kindInt32},
		{"5.4.2.3 Int32 with a fraction", `1.5`, `error`, ``, ``, kindInt32},
		{"5.4.2.3 Int32 that is a string", `"1"`, `error`, ``, ``, kindInt32},
		{"5.4.2.3 Int32 that is null", `null`, `error`, ``, ``, kindInt32},
		{"5.4.2.3 Int32 minus zero", `-0`, `0`, ``, ``, kindInt32},
		{"5.4.2.3 UInt32", `4294967295`, ``, ``, ``, kindUInt32},
		{"5.4.2.3 Int64", `"-9223372036854775808"`, ``, ``, ``, kindInt64},
		{"5.4.2.3 Int64 at the top", `"9223372036854775807"`, ``, ``, ``, kindInt64},
		{"5.4.2.3 Int64 out of range", `"9223372036854775808"`, `error`, ``, ``, kindInt64},
		{"5.4.2.3 Int64 that is a number", `-12`, `"-12"`, ``, ``, kindInt64},
		{"5.4.2.3 Int64 that is no number", `"12 "`, `error`, ``, ``, kindInt64},
		{"5.4.2.3 Int64 that is empty", `""`, `error`, ``, ``, kindInt64},
		{"5.4.2.3 Int64 in an array", `[]`, `error`, ``, ``, kindInt64},
		{"5.4.2.3 UInt64", `"18446744073709551615"`, ``, ``, ``, kindUInt64},
		{"5.4.2.3 UInt64 out of range", `"18446744073709551616"`, `error`, ``, ``, kindUInt64},
		{"5.4.2.3 UInt64 that is negative", `"-1"`, `error`, ``, ``, kindUInt64},
		{"5.4.2.4 Float", `0.1`, ``, ``, ``, kindFloat},
		{"5.4.2.4 Float out of range", `1e39`, `error`, ``, ``, kindFloat},
		{"5.4.2.4 Double", `0.1`, ``, ``, ``, kindDouble},
		{"5.4.2.4 Double of 17 digits", `1.7976931348623157e+308`, ``, ``, ``, kindDouble},
		{"5.4.2.4 Double out of range", `1e309`, `error`, ``, ``, kindDouble},
		{"5.4.2.4 Double minus zero", `-0`, ``, ``, ``, kindDouble},
		{"5.4.2.4 Double NaN", `"NaN"`, ``, ``, ``, kindDouble},
		{"5.4.2.4 Double Infinity", `"Infinity"`, ``, ``, ``, kindDouble},
		{"5.4.2.4 Double -Infinity", `"-Infinity"`, ``, ``, ``, kindDouble},
		{"5.4.2.4 Float NaN", `"NaN"`, ``, ``, ``, kindFloat},
		{"5.4.2.4 Float -Infinity", `"-Infinity"`, ``, ``, ``, kindFloat},
		{"5.4.2.4 Double INF", `"INF"`, `error`, ``, ``, kindDouble},
		{"5.4.2.4 Double that is a string", `"1"`, `error`, ``, ``, kindDouble},
		{"5.4.2.5 String", `"a\"b"`, ``, ``, ``, kindString},
		{"5.4.2.5 String that is empty", `""`, ``, ``, ``, kindString},
		{"5.4.2.5 String that is null", `null`, ``, ``, ``, kindString},
		{"5.4.2.5 String with escapes", `"\u0041\/\b\f\n\r\t\\\u0000\ud83d\ude00"`, `"A/\u0008\u000c\n\r\t\\\u0000😀"`, ``, ``, kindString},
		{"5.4.2.5 String that is a number", `1`, `error`, ``, ``, kindString},
		{"5.4.2.6 DateTime", `"2024-02-29T23:59:59.1234567Z"`, ``, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime without fraction", `"1970-01-01T00:00:00Z"`, ``, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime of 3 digits", `"1999-12-31T23:00:00.250Z"`, `"1999-12-31T23:00:00.25Z"`, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime of 9 digits", `"1999-12-31T23:00:00.123456789Z"`, `"1999-12-31T23:00:00.1234567Z"`, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime with an offset", `"2024-01-01T01:30:00+02:00"`, `"2023-12-31T23:30:00Z"`, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime at the bottom", `"0001-01-01T00:00:00Z"`, `null`, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime before 1601", `"1600-12-31T23:59:59Z"`, `null`, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime after 1601", `"1601-01-01T00:00:00.0000001Z"`, ``, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime at the top", `"9999-12-31T23:59:59Z"`, ``, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime above the top", `"9999-12-31T23:59:59.9Z"`, `"9999-12-31T23:59:59Z"`, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime below the top", `"9999-12-31T23:59:58.9999999Z"`, ``, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime without zone", `"2024-01-01T00:00:00"`, `error`, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime on February 30", `"2024-02-30T00:00:00Z"`, `error`, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime on February 29, 1900", `"1900-02-29T00:00:00Z"`, `error`, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime at 24:00", `"2024-01-01T24:00:00Z"`, `error`, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime without digits in the fraction", `"2024-01-01T00:00:00.Z"`, `error`, ``, ``, kindDateTime},
		{"5.4.2.6 DateTime cut short", `"2024-01-01T"`, `error`, ``, ``, kindDateTime},
		{"5.4.2.7 Guid", `"72962b91-fa75-4ae6-8d28-b404dc7daf63"`, ``, ``, ``, kindGuid},
		{"5.4.2.7 Guid in capitals", `"72962B91-FA75-4AE6-8D28-B404DC7DAF63"`, `"72962b91-fa75-4ae6-8d28-b404dc7daf63"`, ``, ``, kindGuid},
		{"5.4.2.7 Guid in braces", `"{72962b91-fa75-4ae6-8d28-b404dc7daf63}"`, `error`, ``, ``, kindGuid},
		{"5.4.2.7 Guid of other characters", `"72962b91-fa75-4ae6-8d28-b404dc7dafxx"`, `error`, ``, ``, kindGuid},
		{"5.4.2.8 ByteString", `"AQID/w=="`, ``, ``, ``, kindByteString},
		{"5.4.2.8 ByteString with an escape", `"AQID\/w=="`, `"AQID/w=="`, ``, ``, kindByteString},
		{"5.4.2.8 ByteString that is empty", `""`, ``, ``, ``, kindByteString},
		{"5.4.2.8 ByteString that is null", `null`, ``, ``, ``, kindByteString},
		{"5.4.2.8 ByteString without padding", `"AQID/w"`, `error`, ``, ``, kindByteString},
		{"5.4.2.8 ByteString with a line break", `"AQID\n/w=="`, `error`, ``, ``, kindByteString},
		{"5.4.2.9 XmlElement", `"<a b=\"c\"/>"`, ``, ``, ``, kindXmlElement},
		{"5.4.2.10 NodeId", `"i=85"`, ``, ``, `{"Id":85}`, kindNodeId},
		{"5.4.2.10 NodeId with an index", `"ns=2;s=Pump 1;=\n"`, ``, ``, `{"IdType":1,"Id":"Pump 1;=\n","Namespace":2}`, kindNodeId},
		{"5.4.2.10 NodeId with a Guid", `"ns=1;g=72962b91-fa75-4ae6-8d28-b404dc7daf63"`, ``, ``, `{"IdType":2,"Id":"72962b91-fa75-4ae6-8d28-b404dc7daf63","Namespace":1}`, kindNodeId},
		{"5.4.2.10 NodeId with a ByteString", `"ns=1;b=M/RbKBsRVkePCePcx24oRA=="`, ``, ``, `{"IdType":3,"Id":"M/RbKBsRVkePCePcx24oRA==","Namespace":1}`, kindNodeId},
		{"5.4.2.10 NodeId with an escape", `"ns=1;b=M\/RbKBsRVkePCePcx24oRA=="`, `"ns=1;b=M/RbKBsRVkePCePcx24oRA=="`, ``, `{"IdType":3,"Id":"M/RbKBsRVkePCePcx24oRA==","Namespace":1}`, kindNodeId},
		{"5.4.2.10 NodeId that is null", `null`, ``, ``, ``, kindNodeId},
		{"5.4.2.10 NodeId i=0", `"i=0"`, `null`, ``, ``, kindNodeId},
		{"5.4.2.10 NodeId of namespace 0 by URI", `"nsu=http://opcfoundation.org/UA/;i=85"`, `"i=85"`, ``, `{"Id":85}`, kindNodeId},
		{"5.4.2.10 NodeId, second abnormal state", `"nsu=urn:unknown;i=1"`, `"s=nsu=urn:unknown;i=1"`, ``, `{"IdType":1,"Id":"nsu=urn:unknown;i=1"}`, kindNodeId},
		{"5.4.2.10 NodeId without type", `"Pump"`, `error`, ``, ``, kindNodeId},
		{"5.4.2.10 NodeId with an index too large", `"ns=65536;i=1"`, `error`, ``, ``, kindNodeId},
		{"5.4.2.10 NodeId with an identifier too large", `"i=4294967296"`, `error`, ``, ``, kindNodeId},
		{"5.4.2.10 NodeId with an identifier with exponent", `"i=1e3"`, `error`, ``, ``, kindNodeId},
		{"5.4.2.10 NodeId with a negative identifier", `"ns=10;i=-1"`, `error`, ``, ``, kindNodeId},
		{"5.4.2.10 NodeId with a server", `"svr=1;i=1"`, `error`, ``, ``, kindNodeId},
		{"5.4.2.10 NodeId that is a number", `85`, `error`, ``, ``, kindNodeId},
		{"5.4.2.11 ExpandedNodeId", `"svr=3;nsu=urn:a%3Bb%25;s=x"`, ``, ``, `{"IdType":1,"Id":"x","Namespace":"urn:a;b%","ServerUri":3}`, kindExpandedNodeId},
		{"5.4.2.11 ExpandedNodeId with an index", `"svr=4294967295;ns=2;i=1"`, ``, ``, `{"Id":1,"Namespace":2,"ServerUri":4294967295}`, kindExpandedNodeId},
		{"5.4.2.11 ExpandedNodeId with an unknown URI", `"nsu=urn:x;i=1"`, ``, ``, `{"Id":1,"Namespace":"urn:x"}`, kindExpandedNodeId},
		{"5.4.2.11 ExpandedNodeId with an unknown server", `"svu=urn:x;i=1"`, `"s=svu=urn:x;i=1"`, ``, `{"IdType":1,"Id":"svu=urn:x;i=1"}`, kindExpandedNodeId},
		{"5.4.2.12 StatusCode", `{"Code":2158690304}`, ``, `{"Code":2158690304,"Symbol":"BadInvalidArgument"}`, `2158690304`, kindStatusCode},
		{"5.4.2.12 StatusCode with info bits", `{"Code":2158690305,"Symbol":"x"}`, `{"Code":2158690305}`, `{"Code":2158690305,"Symbol":"BadInvalidArgument"}`, `2158690305`, kindStatusCode},
		{"5.4.2.12 StatusCode without symbol", `{"Code":1}`, ``, ``, `1`, kindStatusCode},
		{"5.4.2.12 StatusCode Good", `{}`, ``, ``, `0`, kindStatusCode},
		{"H.4 StatusCode", `2158690304`, `{"Code":2158690304}`, `{"Code":2158690304,"Symbol":"BadInvalidArgument"}`, ``, kindStatusCode},
		{"H.4 StatusCode that is null", `null`, `{}`, ``, `0`, kindStatusCode},
		{"5.4.2.13 DiagnosticInfo", `{"SymbolicId":1,"NamespaceUri":2,"Locale":3,"LocalizedText":4,"AdditionalInfo":"x","InnerStatusCode":{"Code":2147549184},"InnerDiagnosticInfo":{"AdditionalInfo":"y"}}`, ``,
			`{"SymbolicId":1,"NamespaceUri":2,"Locale":3,"LocalizedText":4,"AdditionalInfo":"x","InnerStatusCode":{"Code":2147549184,"Symbol":"BadUnexpectedError"},"InnerDiagnosticInfo":{"AdditionalInfo":"y"}}`,
			`{"SymbolicId":1,"NamespaceUri":2,"Locale":3,"LocalizedText":4,"AdditionalInfo":"x","InnerStatusCode":2147549184,"InnerDiagnosticInfo":{"AdditionalInfo":"y"}}`, kindDiagnosticInfo},
		{"5.4.2.13 DiagnosticInfo of defaults", `{"SymbolicId":-1,"InnerStatusCode":{}}`, `null`, ``, ``, kindDiagnosticInfo},
		{"5.4.2.14 QualifiedName", `"Pump"`, ``, ``, `{"Name":"Pump"}`, kindQualifiedName},
		{"5.4.2.14 QualifiedName with an index", `"3:Pump"`, ``, ``, `{"Name":"Pump","Uri":3}`, kindQualifiedName},
		{"5.4.2.14 QualifiedName that looks like one with an index", `"0:3:Pump"`, ``, ``, `{"Name":"3:Pump"}`, kindQualifiedName},
		{"5.4.2.14 QualifiedName that is no index", `"99999:Pump"`, ``, ``, `{"Name":"99999:Pump"}`, kindQualifiedName},
		{"5.4.2.14 QualifiedName with an unknown URI", `"nsu=urn:x;Pump"`, `"0:nsu=urn:x;Pump"`, ``, `{"Name":"nsu=urn:x;Pump"}`, kindQualifiedName},
		{"5.4.2.14 QualifiedName that is null", `null`, ``, ``, ``, kindQualifiedName},
		{"H.5 QualifiedName", `{"Name":"Pump","Uri":3}`, `"3:Pump"`, ``, ``, kindQualifiedName},
		{"H.2 NodeId", `{"IdType":1,"Id":"Pump","Namespace":2}`, `"ns=2;s=Pump"`, ``, ``, kindNodeId},
		{"H.2 NodeId of an unknown type", `{"IdType":4,"Id":"Pump"}`, `error`, ``, ``, kindNodeId},
		{"H.2 NodeId of another type", `{"IdType":0,"Id":"Pump"}`, `error`, ``, ``, kindNodeId},
		{"H.2 NodeId with an unknown URI", `{"Id":1,"Namespace":"urn:x"}`, `error`, ``, ``, kindNodeId},
		{"H.3 ExpandedNodeId", `{"Id":1,"Namespace":"urn:x","ServerUri":2}`, `"svr=2;nsu=urn:x;i=1"`, ``, ``, kindExpandedNodeId},
		{"5.4.2.15 LocalizedText", `{"Locale":"en","Text":"Pump"}`, ``, ``, ``, kindLocalizedText},
		{"5.4.2.15 LocalizedText without locale", `{"Text":"Pump"}`, ``, ``, ``, kindLocalizedText},
		{"5.4.2.15 LocalizedText with null", `{"Locale":null,"Text":"Pump"}`, `{"Text":"Pump"}`, ``, ``, kindLocalizedText},
		{"5.4.2.15 LocalizedText that is a string", `"Pump"`, `error`, ``, ``, kindLocalizedText},
		{"5.4.2.16 ExtensionObject", `{"UaTypeId":"i=884","Low":1,"High":2.5}`, ``, ``, `{"TypeId":{"Id":884},"Body":{"Low":1,"High":2.5}}`, kindExtensionObject},
		{"5.4.2.16 ExtensionObject, type last", `{"High":2.5,"Low":1,"UaTypeId":"i=884"}`, `{"UaTypeId":"i=884","Low":1,"High":2.5}`, ``, `{"TypeId":{"Id":884},"Body":{"Low":1,"High":2.5}}`, kindExtensionObject},
		{"5.4.2.16 ExtensionObject by its encodings", `{"UaTypeId":"i=15375","Low":1}`, `{"UaTypeId":"i=884","Low":1}`, `{"UaTypeId":"i=884","Low":1,"High":0}`, `{"TypeId":{"Id":884},"Body":{"Low":1}}`, kindExtensionObject},
		{"5.4.2.16 ExtensionObject of defaults", `{"UaTypeId":"i=884"}`, ``, `{"UaTypeId":"i=884","Low":0,"High":0}`, `{"TypeId":{"Id":884},"Body":{}}`, kindExtensionObject},
		{"5.4.2.16 ExtensionObject in OPC UA Binary", `{"UaTypeId":"ns=2;i=5001","UaEncoding":1,"UaBody":"AQID"}`, ``, ``, `{"TypeId":{"Id":5001,"Namespace":2},"Encoding":1,"Body":"AQID"}`, kindExtensionObject},
		{"5.4.2.16 ExtensionObject in XML", `{"UaTypeId":"ns=2;i=5001","UaEncoding":2,"UaBody":"PGEvPg=="}`, ``, ``, `{"TypeId":{"Id":5001,"Namespace":2},"Encoding":2,"Body":"<a/>"}`, kindExtensionObject},
		{"5.4.2.16 ExtensionObject in a known OPC UA Binary", `{"UaTypeId":"i=884","UaEncoding":1,"UaBody":"AAAAAAAA8D8AAAAAAAAEQA=="}`, `{"UaTypeId":"i=884","Low":1,"High":2.5}`, ``, `{"TypeId":{"Id":884},"Body":{"Low":1,"High":2.5}}`, kindExtensionObject},
		{"5.4.2.16 ExtensionObject that is not what it says", `{"UaTypeId":"i=884","UaEncoding":1,"UaBody":"AQID"}`, ``, ``, `{"TypeId":{"Id":884},"Encoding":1,"Body":"AQID"}`, kindExtensionObject},
		{"5.4.2.16 ExtensionObject of an unknown encoding", `{"UaTypeId":"i=884","UaEncoding":3,"UaBody":"AQID"}`, `error`, ``, ``, kindExtensionObject},
		{"5.4.2.16 ExtensionObject without type", `{"Low":1}`, `error`, ``, ``, kindExtensionObject},
		{"5.4.2.16 ExtensionObject, default in Verbose", `{}`, `null`, ``, ``, kindExtensionObject},
		{"5.4.2.16 ExtensionObject of an unknown structure", `{"X":[1, null],"UaTypeId":"nsu=urn:x;i=3002","Y":{}}`, `{"UaTypeId":"nsu=urn:x;i=3002","X":[1, null],"Y":{}}`, ``, `{"TypeId":{"Id":3002,"Namespace":"urn:x"},"Body":{"X":[1, null],"Y":{}}}`, kindExtensionObject},
		{"5.4.2.16 ExtensionObject with a field of the wrong type", `{"UaTypeId":"i=884","Low":"1"}`, `error`, ``, ``, kindExtensionObject},
		{"5.4.2.16 ExtensionObject with an unknown field", `{"UaTypeId":"i=884","Middle":["1"]}`, `{"UaTypeId":"i=884"}`, `{"UaTypeId":"i=884","Low":0,"High":0}`, `{"TypeId":{"Id":884},"Body":{}}`, kindExtensionObject},
		{"H.7 ExtensionObject", `{"TypeId":{"Id":885},"Body":{"Low":1,"High":2}}`, `{"UaTypeId":"i=884","Low":1,"High":2}`, ``, `{"TypeId":{"Id":884},"Body":{"Low":1,"High":2}}`, kindExtensionObject},
		{"H.7 ExtensionObject without body", `{"TypeId":{"Id":884}}`, `{"UaTypeId":"i=884","UaEncoding":0}`, ``, ``, kindExtensionObject},
		{"H.7 ExtensionObject of an unknown structure", `{"TypeId":{"Id":3002,"Namespace":2},"Body":{"X":1}}`, `{"UaTypeId":"ns=2;i=3002","X":1}`, ``, ``, kindExtensionObject},
		{"5.4.2.17 Variant", `{"UaType":6,"Value":7}`, ``, ``, `{"Type":6,"Body":7}`, kindVariant},
		{"5.4.2.17 Variant, type last", `{"Value":7,"UaType":6}`, `{"UaType":6,"Value":7}`, ``, `{"Type":6,"Body":7}`, kindVariant},
		{"5.4.2.17 Variant, null", `null`, ``, ``, ``, kindVariant},
		{"5.4.2.17 Variant of type 0", `{"UaType":0}`, `null`, ``, ``, kindVariant},
		{"5.4.2.17 Variant of a default", `{"UaType":6,"Value":0}`, ``, ``, `{"Type":6,"Body":0}`, kindVariant},
		{"5.4.2.17 Variant of a null String", `{"UaType":12}`, ``, ``, `{"Type":12}`, kindVariant},
		{"5.4.2.17 Variant of an Int32 without value", `{"UaType":6}`, `{"UaType":6,"Value":0}`, ``, `{"Type":6,"Body":0}`, kindVariant},
		{"5.4.2.17 Variant of null for a number", `{"UaType":11,"Value":null}`, `error`, ``, ``, kindVariant},
		{"5.4.2.17 Variant of an array", `{"UaType":8,"Value":["1","2"]}`, ``, ``, `{"Type":8,"Body":["1","2"]}`, kindVariant},
		{"5.4.2.17 Variant of an array of null", `{"UaType":12,"Value":[null,"",null]}`, ``, ``, `{"Type":12,"Body":[null,"",null]}`, kindVariant},
		{"5.4.2.17 Variant of an empty array", `{"UaType":1,"Value":[]}`, ``, ``, `{"Type":1,"Body":[]}`, kindVariant},
		{"5.4.2.17 Variant of a matrix", `{"UaType":3,"Value":[1,2,3,4,5,6],"Dimensions":[2,3]}`, ``, ``, `{"Type":3,"Body":[1,2,3,4,5,6],"Dimensions":[2,3]}`, kindVariant},
		{"5.4.2.17 Variant of one dimension", `{"UaType":3,"Value":[1,2],"Dimensions":[2]}`, `{"UaType":3,"Value":[1,2]}`, ``, `{"Type":3,"Body":[1,2]}`, kindVariant},
		{"5.4.2.17 Variant of one wrong dimension", `{"UaType":3,"Value":[1,2],"Dimensions":[1]}`, `error`, ``, ``, kindVariant},
		{"5.4.2.17 Variant of wrong dimensions", `{"UaType":3,"Value":[1,2,3,4,5,6],"Dimensions":[2,2]}`, `error`, ``, ``, kindVariant},
		{"5.4.2.17 Variant of dimensions that overflow", `{"UaType":3,"Value":[1,2],"Dimensions":[2147483647,2147483647,4]}`, `error`, ``, ``, kindVariant},
		{"5.4.2.17 Variant of a dimension 0", `{"UaType":3,"Value":[],"Dimensions":[0,2]}`, `error`, ``, ``, kindVariant},
		{"5.4.2.17 Variant of dimensions and a scalar", `{"UaType":3,"Value":1,"Dimensions":[1,1]}`, `error`, ``, ``, kindVariant},
		{"5.4.2.17 Variant of Variants", `{"UaType":24,"Value":[{"UaType":1,"Value":true},null]}`, ``, ``, `{"Type":24,"Body":[{"Type":1,"Body":true},null]}`, kindVariant},
		{"5.4.2.17 Variant of DataValues", `{"UaType":23,"Value":[{"UaType":1,"Value":true},null]}`, ``, ``, `{"Type":23,"Body":[{"Value":{"Type":1,"Body":true}},null]}`, kindVariant},
		{"5.4.2.17 Variant of a reserved type", `{"UaType":31,"Value":"AQ=="}`, ``, ``, `{"Type":31,"Body":"AQ=="}`, kindVariant},
		{"5.4.2.17 Variant of an unknown type", `{"UaType":32,"Value":1}`, `error`, ``, ``, kindVariant},
		{"5.4.2.17 Variant without type", `{"Value":1}`, `error`, ``, ``, kindVariant},
		{"5.4.2.17 Variant that is a number", `1`, `error`, ``, ``, kindVariant},
		{"H.8 Variant", `{"Type":24,"Body":{"Type":20,"Body":{"Name":"x","Uri":1}}}`, `{"UaType":24,"Value":{"UaType":20,"Value":"1:x"}}`, ``, ``, kindVariant},
		{"5.4.2.18 DataValue", `{"UaType":11,"Value":1.5,"Status":{"Code":1083179008},"SourceTimestamp":"2024-01-01T00:00:00Z","SourcePicoseconds":10,"ServerTimestamp":"2024-01-01T00:00:01Z","ServerPicoseconds":20}`, ``,
			`{"UaType":11,"Value":1.5,"Status":{"Code":1083179008,"Symbol":"UncertainLastUsableValue"},"SourceTimestamp":"2024-01-01T00:00:00Z","SourcePicoseconds":10,"ServerTimestamp":"2024-01-01T00:00:01Z","ServerPicoseconds":20}`,
			`{"Value":{"Type":11,"Body":1.5},"Status":1083179008,"SourceTimestamp":"2024-01-01T00:00:00Z","SourcePicoseconds":10,"ServerTimestamp":"2024-01-01T00:00:01Z","ServerPicoseconds":20}`, kindDataValue},
		{"5.4.2.18 DataValue of a matrix", `{"UaType":6,"Value":[1,2,3,4],"Dimensions":[2,2]}`, ``, ``, `{"Value":{"Type":6,"Body":[1,2,3,4],"Dimensions":[2,2]}}`, kindDataValue},
		{"5.4.2.18 DataValue of defaults", `{"Status":{},"SourceTimestamp":null,"SourcePicoseconds":0}`, `null`, ``, ``, kindDataValue},
		{"5.4.2.18 DataValue without type", `{"Value":1.5}`, `error`, ``, ``, kindDataValue},
		{"5.4.4 Enumeration", `2`, ``, `"ClientAndServer_2"`, ``, kindEnumeration},
		{"5.4.4 Enumeration with a name", `"Anything_2"`, `2`, `"ClientAndServer_2"`, `2`, kindEnumeration},
		{"5.4.4 Enumeration without name", `-7`, ``, `"-7"`, ``, kindEnumeration},
		{"5.4.4 Enumeration with a negative value", `"Anything_-7"`, `-7`, `"-7"`, ``, kindEnumeration},
		{"5.4.4 Enumeration without value", `"Anything"`, `error`, ``, ``, kindEnumeration},
		{"5.4.4 Enumeration out of range", `4294967296`, `error`, ``, ``, kindEnumeration},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _, err := read(nil, c.in, c.kind, nil)
			if c.compact == "error" {
				if uastatus.Code(err) != ua.StatusBadDecodingError {
					t.Fatalf("%x, %v", b, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := [3]string{c.compact, c.verbose, c.reversible}
			if want[Compact] == "" {
				want[Compact] = c.in
			}
			for form := Verbose; form <= Reversible; form++ {
				if want[form] == "" {
					want[form] = want[Compact]
				}
			}
			if strings.HasPrefix(c.name, "H.") && c.reversible == "" {
				want[Reversible] = c.in
			}
			for form, want := range want {
				got, err := written(nil, b, c.kind, Form(form))
				if err != nil || got != want {
					t.Errorf("%s: %s, %v, want %s", Form(form), got, err, want)
					continue
				}
				again, _, err := read(nil, got, c.kind, nil)
				if err != nil || string(again) != string(b) {
					t.Errorf("%s: %s is %x, %v, not %x", Form(form), got, again, err, b)
				}
			}
		})
	}
}

// OPC 10000-6 §5.4.2.15: Locale and Text are not encoded if they are null or empty. The older encoding has empty ones (§H.6).
func TestEmptyPartsOfLocalizedText(t *testing.T) {
	for _, c := range []struct{ in, want, reversible string }{
		{`{"Locale":"","Text":"Pump"}`, `{"Text":"Pump"}`, `{"Locale":"","Text":"Pump"}`},
		{`{"Locale":"en","Text":""}`, `{"Locale":"en"}`, `{"Locale":"en","Text":""}`},
		{`{"Text":""}`, `null`, `{"Text":""}`},
		{`{"Locale":"","Text":""}`, `null`, `{"Locale":"","Text":""}`},
	} {
		b, _, err := read(nil, c.in, kindLocalizedText, nil)
		if err != nil {
			t.Fatal(err)
		}
		for form, want := range map[Form]string{Compact: c.want, Verbose: c.want, Reversible: c.reversible} {
			if got, err := written(nil, b, kindLocalizedText, form); err != nil || got != want {
				t.Errorf("%s in %s: %s, %v, want %s", c.in, form, got, err, want)
			}
		}
	}
	text, err := Marshal(&ua.Argument{Name: "x", Description: &ua.LocalizedText{EncodingMask: ua.LocalizedTextText}}, Compact)
	if err != nil || strings.Contains(string(text), "Description") {
		t.Errorf("a field without content: %s, %v", text, err)
	}
}

// TestRFC8259 checks what is JSON.
func TestRFC8259(t *testing.T) {
	for _, c := range []struct {
		name, in string
		ok       bool
	}{
		{"white space", " \t\r\n{ \"UaType\" :\n6 , \"Value\" : [ 1 , 2 ] } ", true},
		{"byte order mark", "\uFEFFnull", true},
		{"two byte order marks", "\uFEFF\uFEFFnull", false},
		{"nothing", "", false},
		{"white space only", "  ", false},
		{"garbage behind", "null null", false},
		{"garbage behind an object", "{}x", false},
		{"comma at the end", `{"UaType":6,"Value":[1,]}`, false},
		{"comma at the end of an object", `{"UaType":6,"Value":1,}`, false},
		{"comma alone", `{"UaType":6,"Value":[,]}`, false},
		{"no comma", `{"UaType":6 "Value":1}`, false},
		{"no colon", `{"UaType" 6}`, false},
		{"no name", `{6}`, false},
		{"brackets that do not match", `{"UaType":6,"Value":[1}]`, false},
		{"open array", `{"UaType":6,"Value":[1`, false},
		{"open object", `{"UaType":6`, false},
		{"open string", `{"UaType":12,"Value":"x`, false},
		{"open escape", `{"UaType":12,"Value":"\`, false},
		{"single quotes", `{'UaType':6}`, false},
		{"comment", `{"UaType":6/**/}`, false},
		{"leading zero", `{"UaType":06,"Value":1}`, false},
		{"plus sign", `{"UaType":6,"Value":+1}`, false},
		{"no digit after the point", `{"UaType":11,"Value":1.}`, false},
		{"no digit before the point", `{"UaType":11,"Value":.1}`, false},
		{"no exponent", `{"UaType":11,"Value":1e}`, false},
		{"hexadecimal", `{"UaType":6,"Value":0x1}`, false},
		{"NaN", `{"UaType":11,"Value":NaN}`, false},
		{"True", `{"UaType":1,"Value":True}`, false},
		{"truely", `{"UaType":1,"Value":truely}`, false},
		{"control character", "{\"UaType\":12,\"Value\":\"a\nb\"}", false},
		{"unknown escape", `{"UaType":12,"Value":"\x41"}`, false},
		{"short escape", `{"UaType":12,"Value":"\u12"}`, false},
		{"high surrogate alone", `{"UaType":12,"Value":"\ud83d"}`, false},
		{"high surrogate twice", `{"UaType":12,"Value":"\ud83d\ud83d"}`, false},
		{"low surrogate alone", `{"UaType":12,"Value":"\ude00"}`, false},
		{"pair of surrogates", `{"UaType":12,"Value":"\ud83d\ude00"}`, true},
		{"invalid UTF-8", "{\"UaType\":12,\"Value\":\"\xff\"}", false},
		{"overlong UTF-8", "{\"UaType\":12,\"Value\":\"\xc0\x80\"}", false},
		{"surrogate in UTF-8", "{\"UaType\":12,\"Value\":\"\xed\xa0\x80\"}", false},
		{"replacement character", "{\"UaType\":12,\"Value\":\"\uFFFD\"}", true},
		{"escaped name", `{"\u0055aType":12,"V\u0061lue":"x"}`, true},
		{"name twice", `{"UaType":6,"UaType":6}`, false},
		{"name twice, escaped", `{"UaType":6,"\u0055aType":6}`, false},
		{"unknown name twice", `{"UaType":6,"Value":1,"x":[],"x":[]}`, false},
		{"name twice, deep inside", `{"UaType":6,"Value":1,"x":[{"y":{"z":1,"z":2}}]}`, false},
		{"name in two objects", `{"UaType":6,"Value":1,"x":[{"y":1},{"y":1}]}`, true},
		{"many names, one twice", `{"UaType":6,"Value":1,"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"a":1}`, false},
		{"many names", `{"UaType":6,"Value":1,"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"A":1}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := read(nil, c.in, kindVariant, nil)
			if (err == nil) != c.ok || err != nil && uastatus.Code(err) != ua.StatusBadDecodingError {
				t.Error(err)
			}
		})
	}
}

// TestContext checks the forms with URIs (OPC 10000-6 §5.1.12, QualifiedName, NodeId and ExpandedNodeId String Encoding).
func TestContext(t *testing.T) {
	ctx := &Context{NamespaceURIs: []string{namespace0, "urn:server", "http://a.org/x;y%"}, ServerURIs: []string{"urn:me", "urn:other"}}
	for _, c := range []struct {
		in, want string
		kind     kind
	}{
		{`"ns=2;s=x"`, `"nsu=http://a.org/x%3By%25;s=x"`, kindNodeId},
		{`"nsu=http://a.org/x%3by%25;s=x"`, `"nsu=http://a.org/x%3By%25;s=x"`, kindNodeId},
		{`"ns=3;i=1"`, `"ns=3;i=1"`, kindNodeId},
		{`"i=1"`, `"i=1"`, kindNodeId},
		{`"2:x"`, `"nsu=http://a.org/x%3By%25;x"`, kindQualifiedName},
		{`"nsu=urn:server;2:x"`, `"nsu=urn:server;2:x"`, kindQualifiedName},
		{`{"Name":"x","Uri":"urn:server"}`, `"nsu=urn:server;x"`, kindQualifiedName},
		{`{"Id":5,"Namespace":"urn:server"}`, `"nsu=urn:server;i=5"`, kindNodeId},
		{`"nsu=urn:server;i=5"`, `"nsu=urn:server;i=5"`, kindExpandedNodeId},
		{`"svu=urn:other;nsu=urn:server;i=5"`, `"svu=urn:other;nsu=urn:server;i=5"`, kindExpandedNodeId},
		{`"svr=1;ns=1;i=5"`, `"svu=urn:other;ns=1;i=5"`, kindExpandedNodeId},
		{`{"Id":5,"ServerUri":"urn:other"}`, `"svu=urn:other;i=5"`, kindExpandedNodeId},
		{`"svr=2;i=5"`, `"svr=2;i=5"`, kindExpandedNodeId},
	} {
		b, _, err := read(ctx, c.in, c.kind, nil)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if got, err := written(ctx, b, c.kind, Compact); err != nil || got != c.want {
			t.Errorf("%s: %s, %v, want %s", c.in, got, err, c.want)
		}
	}
	b, _, err := read(ctx, `"nsu=urn:server;i=5"`, kindNodeId, nil)
	if want := uabinary.AppendNodeID(nil, uabinary.NumericID(1, 5)); err != nil || !slices.Equal(b, want) {
		t.Errorf("%x, %v, want %x", b, err, want)
	}
}

// TestInvalidText checks that bytes that are no UTF-8 become U+FFFD, and stay JSON.
func TestInvalidText(t *testing.T) {
	got, err := written(nil, uabinary.AppendString(nil, "a\xff\xc3(\xed\xa0\x80é"), kindString, Compact)
	if want := `"a` + "\uFFFD\uFFFD(\uFFFD\uFFFD\uFFFD" + `é"`; err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// TestDoubles compares the fast ways to read a number with the exact one.
func TestDoubles(t *testing.T) {
	f := newFiller(3)
	for range 20000 {
		x := math.Float64frombits(f.Uint64())
		if f.IntN(2) == 0 {
			x = float64(f.IntN(1e9)) / 1000
		}
		if x != x || math.IsInf(x, 0) {
			continue
		}
		text := appendFloat(nil, x, 64)
		if got, ok := double(text); !ok || got != x {
			t.Fatalf("%s is %v, not %v", text, got, x)
		}
		y := float32(x)
		if math.IsInf(float64(y), 0) {
			continue
		}
		text = appendFloat(nil, float64(y), 32)
		if got, ok := float(text); !ok || got != y {
			t.Fatalf("%s is %v, not %v", text, got, y)
		}
		if got, ok := float(appendFloat(nil, x, 64)); ok {
			if want, _ := parseFloat(appendFloat(nil, x, 64), 32); got != float32(want) {
				t.Fatalf("%v is %v, not %v", x, got, want)
			}
		}
	}
}
