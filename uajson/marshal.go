package uajson

import (
	"fmt"
	"reflect"
	"time"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Marshal returns the JSON encoding of v, which goes through OPC UA Binary and allocates. v is one of
//
//   - a pointer to a structure of ua, or to a message, which is written as its fields alone (see [MarshalMessage]);
//   - a pointer to a value, or a value, of uabinary: Variant, DataValue, NodeID, ExpandedNodeID, QualifiedName, LocalizedText,
//     ExtensionObject, DateTime;
//   - a pointer to a value of ua: Variant, DataValue, NodeID, ExpandedNodeID, QualifiedName, LocalizedText, ExtensionObject,
//     DiagnosticInfo, GUID; a ua.StatusCode; a time.Time.
//
// A null value, and a nil pointer to a value that has a null, are "null"; a nil pointer to anything else is its default.
// The error has BadEncodingError for any other type, and for structures that are not in the schema.
func Marshal(v any, form Form) ([]byte, error) { return (*Context)(nil).Marshal(v, form) }

// Unmarshal reads what [Marshal] writes, in any Form, into the value that v points to, and returns the Form. v is a pointer
// to what Marshal takes. Structures keep nothing of what was in *v. The error has BadDecodingError or
// BadEncodingLimitsExceeded, or BadEncodingError when v is nothing that Marshal takes.
func Unmarshal(json []byte, v any) (Form, error) { return (*Context)(nil).Unmarshal(json, v) }

// MarshalMessage returns the JSON encoding of a message of ua, given a pointer to it, with its type id. The error has
// BadServiceUnsupported for anything that is no message.
func MarshalMessage(msg any, form Form) ([]byte, error) {
	return (*Context)(nil).MarshalMessage(msg, form)
}

// UnmarshalMessage reads a whole message, as [AppendBinary] does, and returns a pointer to a message of ua.
func UnmarshalMessage(json []byte) (msg any, form Form, err error) {
	return (*Context)(nil).UnmarshalMessage(json)
}

// MarshalMessage is [MarshalMessage] with the tables of c.
func (c *Context) MarshalMessage(msg any, form Form) ([]byte, error) {
	var e uabinary.Encoder
	uabinary.EncodeMessage(&e, msg)
	if err := e.Err(); err != nil {
		return nil, err
	}
	return c.AppendJSON(nil, e.B, form, unlimited(len(e.B)))
}

// UnmarshalMessage is [UnmarshalMessage] with the tables of c.
func (c *Context) UnmarshalMessage(json []byte) (msg any, form Form, err error) {
	b, form, err := c.AppendBinary(nil, json, nil)
	if err != nil {
		return nil, form, err
	}
	msg, err = uabinary.DecodeMessage(uabinary.NewDecoder(b, nil))
	return msg, form, err
}

// unlimited are limits for a value of n bytes that is in memory already.
func unlimited(n int) *uabinary.Limits {
	return &uabinary.Limits{
		MaxMessageSize:      max(n, uabinary.DefaultMaxMessageSize),
		MaxStringLength:     max(n, uabinary.DefaultMaxStringLength),
		MaxByteStringLength: max(n, uabinary.DefaultMaxByteStringLength),
		MaxArrayLength:      max(n, uabinary.DefaultMaxArrayLength),
	}
}

// Marshal is [Marshal] with the tables of c.
func (c *Context) Marshal(v any, form Form) ([]byte, error) {
	b, k, ref, err := encode(v)
	if err != nil {
		return nil, err
	}
	w := writers.Get().(*writer)
	defer w.free()
	return w.run(c, nil, b, form, unlimited(len(b)), func(w *writer, _ Form) { w.value(k, ref) })
}

// orZero returns what p points to; of a nil pointer the zero value, which is null or Good.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// encode returns v in OPC UA Binary, and its type.
func encode(v any) (b []byte, k kind, ref uint16, err error) {
	switch v := v.(type) {
	case uabinary.Variant:
		return uabinary.AppendVariant(nil, v), kindVariant, 0, nil
	case *uabinary.Variant:
		return uabinary.AppendVariant(nil, orZero(v)), kindVariant, 0, nil
	case uabinary.DataValue:
		return uabinary.AppendDataValue(nil, &v), kindDataValue, 0, nil
	case *uabinary.DataValue:
		x := orZero(v)
		return uabinary.AppendDataValue(nil, &x), kindDataValue, 0, nil
	case uabinary.NodeID:
		return uabinary.AppendNodeID(nil, v), kindNodeId, 0, nil
	case *uabinary.NodeID:
		return uabinary.AppendNodeID(nil, orZero(v)), kindNodeId, 0, nil
	case uabinary.ExpandedNodeID:
		return uabinary.AppendExpandedNodeID(nil, v), kindExpandedNodeId, 0, nil
	case *uabinary.ExpandedNodeID:
		return uabinary.AppendExpandedNodeID(nil, orZero(v)), kindExpandedNodeId, 0, nil
	case uabinary.QualifiedName:
		return uabinary.AppendQualifiedName(nil, v), kindQualifiedName, 0, nil
	case *uabinary.QualifiedName:
		return uabinary.AppendQualifiedName(nil, orZero(v)), kindQualifiedName, 0, nil
	case uabinary.LocalizedText:
		return uabinary.AppendLocalizedText(nil, v), kindLocalizedText, 0, nil
	case *uabinary.LocalizedText:
		return uabinary.AppendLocalizedText(nil, orZero(v)), kindLocalizedText, 0, nil
	case uabinary.ExtensionObject:
		return uabinary.AppendExtensionObject(nil, v), kindExtensionObject, 0, nil
	case *uabinary.ExtensionObject:
		return uabinary.AppendExtensionObject(nil, orZero(v)), kindExtensionObject, 0, nil
	case uabinary.DateTime:
		return uabinary.AppendDateTime(nil, v), kindDateTime, 0, nil
	case *uabinary.DateTime:
		return uabinary.AppendDateTime(nil, orZero(v)), kindDateTime, 0, nil
	case time.Time:
		return uabinary.AppendDateTime(nil, uabinary.FromTime(v)), kindDateTime, 0, nil
	case *time.Time:
		return uabinary.AppendDateTime(nil, uabinary.FromTime(orZero(v))), kindDateTime, 0, nil
	case ua.StatusCode:
		return uabinary.AppendStatusCode(nil, v), kindStatusCode, 0, nil
	case *ua.StatusCode:
		return uabinary.AppendStatusCode(nil, orZero(v)), kindStatusCode, 0, nil
	}
	return encodeUA(v)
}

// encodeUA does the same for the types of ua, which uabinary has encoders for as parts of other things only.
func encodeUA(v any) (b []byte, k kind, ref uint16, err error) {
	switch v := v.(type) {
	case *ua.Variant:
		x, err := uabinary.VariantOf(v)
		return uabinary.AppendVariant(nil, x), kindVariant, 0, err
	case *ua.DataValue:
		x, err := uabinary.DataValueOf(v)
		return uabinary.AppendDataValue(nil, &x), kindDataValue, 0, err
	case *ua.NodeID:
		return uabinary.AppendNodeID(nil, uabinary.NodeIDOf(v)), kindNodeId, 0, nil
	case *ua.ExpandedNodeID:
		return uabinary.AppendExpandedNodeID(nil, uabinary.ExpandedOf(v)), kindExpandedNodeId, 0, nil
	case *ua.QualifiedName:
		return uabinary.AppendQualifiedName(nil, uabinary.QualifiedNameOf(v)), kindQualifiedName, 0, nil
	case *ua.LocalizedText:
		return uabinary.AppendLocalizedText(nil, uabinary.LocalizedTextOf(v)), kindLocalizedText, 0, nil
	case *ua.ExtensionObject:
		x, err := uabinary.ExtensionObjectOf(v)
		return uabinary.AppendExtensionObject(nil, x), kindExtensionObject, 0, err
	case *ua.GUID, *ua.DiagnosticInfo:
		x, err := uabinary.NewVariant(v)
		if err != nil {
			return nil, 0, 0, err
		}
		return x.Encoded()[1:], kind(x.Type()), 0, nil
	}
	if id := uabinary.MessageTypeID(v); id != 0 {
		var e uabinary.Encoder
		uabinary.EncodeMessage(&e, v)
		d := uabinary.NewDecoder(e.B, nil)
		d.TypeID()
		s, err := refOf(id, v)
		return d.Rest(), kindStructure, s, err
	}
	x, err := uabinary.ExtensionObjectOf(&ua.ExtensionObject{Value: v})
	if err != nil {
		return nil, 0, 0, err
	}
	s, err := refOf(x.TypeID.Numeric, v)
	if x.TypeID.Namespace != 0 || x.Encoding != ua.ExtensionObjectBinary {
		err = errType(v)
	}
	return x.Body, kindStructure, s, err
}

func errType(v any) error {
	return uastatus.New(ua.StatusBadEncodingError, fmt.Sprintf("JSON encoding of %T", v), nil)
}

// refOf returns the row of the structure with that id.
func refOf(id uint32, v any) (uint16, error) {
	s := lookup(id)
	if s == nil {
		return 0, errType(v)
	}
	for i := range structures {
		if &structures[i] == s {
			return uint16(i), nil
		}
	}
	return 0, errType(v)
}

// Unmarshal is [Unmarshal] with the tables of c.
func (c *Context) Unmarshal(json []byte, v any) (Form, error) {
	_, k, ref, err := encodeZero(v)
	if err != nil {
		return Compact, err
	}
	r := readers.Get().(*reader)
	defer r.free()
	b, form, err := r.run(c, nil, json, nil, func(r *reader, at place) Form {
		r.value(at, k, ref)
		return Compact
	})
	if err != nil {
		return form, err
	}
	return form, decode(b, k, ref, v)
}

// encodeZero returns the type of what v points to, of which it looks at nothing else.
func encodeZero(v any) (b []byte, k kind, ref uint16, err error) {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return nil, 0, 0, errType(v)
	}
	return encode(reflect.New(p.Type().Elem()).Interface())
}

// decode sets what v points to to the value in b, with memory of its own.
func decode(b []byte, k kind, ref uint16, v any) error {
	d := uabinary.NewDecoder(b, unlimited(len(b)))
	switch v := v.(type) {
	case *uabinary.Variant:
		*v = d.Variant()
	case *uabinary.DataValue:
		*v = d.DataValue()
	case *uabinary.NodeID:
		*v = d.NodeID()
	case *uabinary.ExpandedNodeID:
		*v = d.ExpandedNodeID()
	case *uabinary.QualifiedName:
		*v = d.QualifiedName()
	case *uabinary.LocalizedText:
		*v = d.LocalizedText()
	case *uabinary.ExtensionObject:
		*v = d.ExtensionObject()
	case *uabinary.DateTime:
		*v = d.DateTime()
	case *time.Time:
		*v = d.DateTime().Time()
	case *ua.StatusCode:
		*v = d.StatusCode()
	case *ua.NodeID:
		*v = *d.NodeID().UA()
	case *ua.ExpandedNodeID:
		*v = *d.ExpandedNodeID().UA()
	case *ua.QualifiedName:
		*v = *d.QualifiedName().UA()
	case *ua.LocalizedText:
		*v = *d.LocalizedText().UA()
	case *ua.Variant, *ua.DataValue, *ua.ExtensionObject, *ua.GUID, *ua.DiagnosticInfo:
		// As the value of a Variant, which uabinary makes into ua's types.
		in := append([]byte{byte(k)}, b...)
		return assign(v, uabinary.NewDecoder(in, unlimited(len(in))).Variant())
	default:
		return decodeStructure(b, ref, v)
	}
	return d.Err()
}

// assign sets what v points to to the value of a Variant, which is a pointer to the same type.
func assign(v any, x uabinary.Variant) error {
	value, err := x.Value()
	if err != nil {
		return err
	}
	if value == nil {
		return uastatus.New(ua.StatusBadDecodingError, fmt.Sprintf("decode %T", v), nil)
	}
	reflect.ValueOf(v).Elem().Set(reflect.ValueOf(value).Elem())
	return nil
}

// decodeStructure does the same for a structure or message without its type id.
func decodeStructure(b []byte, ref uint16, v any) error {
	s := &structures[ref]
	var value any
	if s.message {
		in := append(uabinary.AppendTypeID(nil, s.binary), b...)
		msg, err := uabinary.DecodeMessage(uabinary.NewDecoder(in, unlimited(len(in))))
		if err != nil {
			return err
		}
		value = msg
	} else {
		x, err := uabinary.ExtensionObject{
			TypeID:   uabinary.ExpandedNodeID{NodeID: uabinary.NumericID(0, s.binary)},
			Encoding: ua.ExtensionObjectBinary,
			Body:     b,
		}.UA()
		if err != nil {
			return err
		}
		value = x.Value
	}
	from, to := reflect.ValueOf(value), reflect.ValueOf(v)
	if from.Type() != to.Type() {
		return errType(v)
	}
	to.Elem().Set(from.Elem())
	return nil
}
