// Package uajson is OPC UA JSON (OPC 10000-6 §5.4, OPC UA JSON): it turns messages from JSON into OPC UA Binary and back, for
// transports that carry JSON to a server that knows OPC UA Binary alone.
//
// Nothing in between is a Go value: tables, generated from the schema, say which fields a structure has, and a reader and a
// writer walk along them. Reading a request of 100 nodes allocates nothing but what its result takes.
//
// # Forms
//
// Written are the Compact and the Verbose encoding of 1.05.04 and later, and the older Reversible encoding. Read is whatever
// comes, also mixed: it is the JSON type and the names of members that tell. A message is an ExtensionObject (§5.4.9,
// Messages), {"UaTypeId":"i=629","RequestHeader":{…},…}; {"TypeId":…,"Body":{…}} and {"ServiceId":…,"Body":{…}} are taken too.
// The [Form] that AppendBinary returns is Reversible when objects of that encoding were seen, else Verbose when there was
// null for a field or a name in an enumeration, which Compact never has, else Compact.
//
// # What is refused
//
// The limits are those of uabinary, for the text and for what becomes of it: a few bytes of JSON can stand for a structure of
// hundreds. Time and memory are linear in the text. The nesting budget counts as that of uabinary. BadDecodingError are
// also: names that occur twice in any object; text that is no UTF-8, and halves of surrogate pairs; anything behind the text;
// numbers with a fraction where an integer is wanted, or out of range; null for a number or Boolean (JavaScript writes NaN
// so); other Base64 than the padded standard alphabet; a DateTime without zone. Members that a structure does not have are
// ignored.
//
// Taken although odd: a byte order mark; 64-bit integers as numbers; integers as "1e3"; an offset in a DateTime; fields of a
// message under UaBody.
//
// # NodeIds
//
// The text of a NodeId has the NamespaceUri, unless the encoder has none for the index (§5.4.2.10, NodeId). Without a
// [Context] that is always so: "ns=2;s=Pump". Read are both; a URI without index becomes what the clause says, a String
// identifier in namespace 0 that no node has.
//
// # Structures of an application
//
// A body in OPC UA Binary of an unknown type is Base64 under UaBody with its id, in both directions. An object with the
// fields of an unknown type stays text, which is the body of the ExtensionObject that comes out, under the id of the DataType.
// Text under an id that is not known is written as it was. So a client of JSON reads back what it wrote; others see a
// ByteString.
//
// # What a value loses
//
// From OPC UA Binary through JSON and back: the bits of a NaN; DateTimes before 1601 and after 9999-12-31T23:59:58Z; whether
// fields of a DataValue or DiagnosticInfo that are not there, or a LocalizedText's, were absent or default; null identifiers
// that are not numeric; null against empty for the name of a QualifiedName that is not in namespace 0, for String
// identifiers, and for arrays in a Variant; bytes that are no UTF-8 in texts.
package uajson

//go:generate go run ./internal/gen
