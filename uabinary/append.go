package uabinary

import (
	"encoding/binary"
	"math"

	"github.com/gopcua/opcua/ua"
)

// null is the length of a null String, ByteString or array.
const null = math.MaxUint32

// AppendBool appends a Boolean.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendByte appends a Byte.
func AppendByte(b []byte, v byte) []byte { return append(b, v) }

// AppendUint16 appends a UInt16.
func AppendUint16(b []byte, v uint16) []byte { return binary.LittleEndian.AppendUint16(b, v) }

// AppendInt16 appends an Int16.
func AppendInt16(b []byte, v int16) []byte { return binary.LittleEndian.AppendUint16(b, uint16(v)) }

// AppendUint32 appends a UInt32.
func AppendUint32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }

// AppendInt32 appends an Int32; also the length of an array (-1 for a null one).
func AppendInt32(b []byte, v int32) []byte { return binary.LittleEndian.AppendUint32(b, uint32(v)) }

// AppendUint64 appends a UInt64.
func AppendUint64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

// AppendInt64 appends an Int64.
func AppendInt64(b []byte, v int64) []byte { return binary.LittleEndian.AppendUint64(b, uint64(v)) }

// AppendFloat appends a Float, bit by bit.
func AppendFloat(b []byte, v float32) []byte { return AppendUint32(b, math.Float32bits(v)) }

// AppendDouble appends a Double, bit by bit.
func AppendDouble(b []byte, v float64) []byte { return AppendUint64(b, math.Float64bits(v)) }

// AppendDateTime appends a DateTime.
func AppendDateTime(b []byte, v DateTime) []byte { return AppendUint64(b, uint64(v)) }

// AppendStatusCode appends a StatusCode.
func AppendStatusCode(b []byte, v ua.StatusCode) []byte { return AppendUint32(b, uint32(v)) }

// AppendString appends a String; "" is the empty String, not the null one.
func AppendString(b []byte, s string) []byte {
	b = AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// AppendStringBytes appends a String: a null one for nil.
func AppendStringBytes(b, s []byte) []byte { return AppendByteString(b, s) }

// AppendByteString appends a ByteString (or a String, which is encoded alike): a null one for nil.
func AppendByteString(b, s []byte) []byte {
	if s == nil {
		return append(b, 0xFF, 0xFF, 0xFF, 0xFF)
	}
	b = AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// AppendGUID appends a Guid given as its 16 bytes on the wire.
func AppendGUID(b []byte, g [16]byte) []byte { return append(b, g[:]...) }
