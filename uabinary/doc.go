// Package uabinary is OPC UA Binary (OPC 10000-6 §5.2, OPC UA Binary): bounded, and without reflection but where it says so.
//
// It has two halves.
//
// The value views ([NodeID], [Variant], [DataValue], [ExtensionObject] and so on) are what the wire path uses. A [Decoder]
// reads them from a message without copying; they alias it and keep everything that is on the wire. Append functions write
// them to the end of a byte slice. A [Variant] is its own encoding, checked once.
//
// The structures are those of gopcua's package ua. For each structure X and each message there are EncodeX and DecodeX, for
// messages also EncodeXBody and DecodeXBody without the header, and [EncodeMessage] and [DecodeMessage] for whatever comes.
// They are generated. A decoded structure has memory of its own and is laid out in slabs: the elements of an array and what
// they point to are one allocation, so that the request to read 1,000 numeric nodes takes 4. Nothing keeps a part of it from
// keeping the whole alive.
//
// # What is refused
//
// [Limits] bound messages, strings, arrays, memory and nesting; what goes over them is BadEncodingLimitsExceeded. No length
// is believed before that many elements of the smallest size are known to be there. There is one nesting budget for a
// message through Variants, DataValues in Variants, ExtensionObjects and DiagnosticInfos (and so through filter operands,
// which are ExtensionObjects), whichever half decodes it: views walk over the bodies of known structures for it. A body that
// is carried as a view and is not what its type says is let pass, like one of an unknown type; as a structure it is
// BadDecodingError. BadDecodingError are also negative lengths but -1, reserved bits in masks, unknown encodings, a Variant
// with dimensions that is no array, and dimensions that are not greater than 0 or whose product is not the array's length.
// More than 32 dimensions are over a limit.
//
// Taken although odd: every Boolean but 0 is true; a Variant may hold a Variant directly; one dimension, or none, with the
// bit for dimensions; the reserved Variant types 26 to 31, which hold ByteStrings (OPC 10000-6 §5.2.2.16); bytes after the
// end of a message.
//
// Strings are not checked to be UTF-8. The specification lets a decoder choose; views keep the bytes as they are, a Go string
// of a structure has the same bytes, and both are written again unchanged, so a value passes through a server that does not
// look at it as it would through a wire. Whoever shows or compares text must expect invalid sequences, as for every Go
// string. NumericRanges count such a byte as one character.
//
// DateTimes before 1601 are null, those from 9999-12-31T23:59:59Z on are that second (OPC 10000-6 §5.2.2.5); views keep the
// ticks.
//
// # What the edge loses
//
// Package ua cannot carry everything. Going from a view to a structure (UA and Value methods, Decode functions) loses:
//
//   - null against empty: Strings, also in QualifiedNames and NodeIds, are "" for both, and in arrays of ByteString that have
//     elements of unequal length null and empty are both null. ByteStrings, arrays and, by its mask, LocalizedText keep the
//     difference, but for a LocalizedText field that is present and null, which becomes absent. Structures write "" as null,
//     Variants as empty.
//   - DateTimes out of time.Time's use: null and everything before 1601 is the zero time, later than 9999-12-31T23:59:59Z is
//     that second.
//   - Variants: the reserved types become ByteString; one dimension, or none, that was spelled out is dropped; an array of
//     ByteString of unequal lengths must not have more than ua.MaxVariantArrayLength elements (BadEncodingLimitsExceeded).
//   - DataValues: Value is never nil, a null Variant stands for absence.
//
// Kept, other than by gopcua's own codec: bodies of unknown ExtensionObjects as [RawBody] (also those that are null, empty
// or longer than their structure), XML bodies, arrays of ByteString, times after 2262, the bits of a NaN.
//
// Package ua has no structure with optional fields and no union but the abstract one; its structures have exactly the fields
// of the specification's schema (Opc.Ua.Types.bsd as shipped with v0.8.0). The abstract structures have none, so their body
// is empty or stays a RawBody. Structures of an application that are registered with ua.RegisterExtensionObject can be
// encoded (by their own Encode method or gopcua's reflection); they decode as RawBody.
//
// differential_test.go lists where gopcua's codec behaves differently, and compares the two everywhere else.
package uabinary

//go:generate go run ./internal/gen
