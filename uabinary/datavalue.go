package uabinary

import "github.com/gopcua/opcua/ua"

// DataValue is a view of a DataValue (OPC 10000-6 §5.2.2.17, DataValue). Mask says which fields are present, with the bits
// ua.DataValueValue, ua.DataValueStatusCode and so on; the others are ignored.
type DataValue struct {
	Mask              byte
	Value             Variant
	Status            ua.StatusCode
	SourceTimestamp   DateTime
	ServerTimestamp   DateTime
	SourcePicoseconds uint16 // in units of 10 ps
	ServerPicoseconds uint16 // in units of 10 ps
}

const dataValueMask = ua.DataValueValue | ua.DataValueStatusCode | ua.DataValueSourceTimestamp |
	ua.DataValueServerTimestamp | ua.DataValueSourcePicoseconds | ua.DataValueServerPicoseconds

// Clone returns a copy that aliases nothing.
func (v DataValue) Clone() DataValue {
	v.Value = v.Value.Clone()
	return v
}

// DataValue reads a DataValue.
func (d *Decoder) DataValue() (v DataValue) {
	v.Mask = d.Byte()
	if v.Mask&^dataValueMask != 0 {
		d.bad("DataValue mask")
	}
	if v.Mask&ua.DataValueValue != 0 {
		v.Value = d.Variant()
	}
	if v.Mask&ua.DataValueStatusCode != 0 {
		v.Status = d.StatusCode()
	}
	if v.Mask&ua.DataValueSourceTimestamp != 0 {
		v.SourceTimestamp = d.DateTime()
	}
	if v.Mask&ua.DataValueSourcePicoseconds != 0 {
		v.SourcePicoseconds = d.UInt16()
	}
	if v.Mask&ua.DataValueServerTimestamp != 0 {
		v.ServerTimestamp = d.DateTime()
	}
	if v.Mask&ua.DataValueServerPicoseconds != 0 {
		v.ServerPicoseconds = d.UInt16()
	}
	return v
}

// AppendDataValue appends a DataValue.
func AppendDataValue(b []byte, v *DataValue) []byte {
	b = append(b, v.Mask&dataValueMask)
	if v.Mask&ua.DataValueValue != 0 {
		b = AppendVariant(b, v.Value)
	}
	if v.Mask&ua.DataValueStatusCode != 0 {
		b = AppendUint32(b, uint32(v.Status))
	}
	if v.Mask&ua.DataValueSourceTimestamp != 0 {
		b = AppendUint64(b, uint64(v.SourceTimestamp))
	}
	if v.Mask&ua.DataValueSourcePicoseconds != 0 {
		b = AppendUint16(b, v.SourcePicoseconds)
	}
	if v.Mask&ua.DataValueServerTimestamp != 0 {
		b = AppendUint64(b, uint64(v.ServerTimestamp))
	}
	if v.Mask&ua.DataValueServerPicoseconds != 0 {
		b = AppendUint16(b, v.ServerPicoseconds)
	}
	return b
}
