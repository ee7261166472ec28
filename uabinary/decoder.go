package uabinary

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Decoder reads OPC UA Binary (OPC 10000-6 §5.2, OPC UA Binary) from a byte slice.
//
// The error is sticky: after the first one every method returns a zero value, so a caller may read a whole structure and
// look at [Decoder.Err] once. What a method returns as view or as []byte aliases the input and is valid as long as that is.
// A Decoder holds no resources and may be embedded by value and reset; it must not be used concurrently.
type Decoder struct {
	b   []byte
	pos int // len(b) after an error
	err error

	maxString     int
	maxByteString int
	maxArray      int
	maxDepth      int
	depth         int
	memory        int  // what is left of Limits.MaxDecodedBytes
	checked       bool // b has been decoded before: bodies need not be looked into
}

// NewDecoder returns a Decoder on b. A nil l means the default limits.
func NewDecoder(b []byte, l *Limits) *Decoder {
	d := new(Decoder)
	d.Reset(b, l)
	return d
}

// Reset makes d decode b from its start. A nil l means the default limits. Nothing of the former input is kept.
func (d *Decoder) Reset(b []byte, l *Limits) {
	*d = Decoder{
		b:             b,
		maxString:     DefaultMaxStringLength,
		maxByteString: DefaultMaxByteStringLength,
		maxArray:      DefaultMaxArrayLength,
		maxDepth:      DefaultMaxNestingLevel,
		memory:        DefaultMaxDecodedBytes,
	}
	size := DefaultMaxMessageSize
	if l != nil {
		size = orDefault(l.MaxMessageSize, DefaultMaxMessageSize)
		d.maxString = orDefault(l.MaxStringLength, DefaultMaxStringLength)
		d.maxByteString = orDefault(l.MaxByteStringLength, DefaultMaxByteStringLength)
		d.maxArray = orDefault(l.MaxArrayLength, DefaultMaxArrayLength)
		d.maxDepth = min(orDefault(l.MaxNestingLevel, DefaultMaxNestingLevel), maxNestingLevel)
		d.memory = orDefault(l.MaxDecodedBytes, DefaultMaxDecodedBytes)
	}
	if len(b) > size {
		d.Fail(ua.StatusBadEncodingLimitsExceeded, "message size")
	}
}

// resetView makes d decode the encoding of a view, which has passed the limits of its message already.
func (d *Decoder) resetView(b []byte) {
	*d = Decoder{
		b:             b,
		maxString:     math.MaxInt32,
		maxByteString: math.MaxInt32,
		maxArray:      math.MaxInt32,
		maxDepth:      maxNestingLevel,
		memory:        max(DefaultMaxDecodedBytes, 16*len(b)),
		checked:       true,
	}
}

// Err returns the first error, an [*uastatus.Error] with BadDecodingError or BadEncodingLimitsExceeded (or the code given
// to Fail), or nil.
func (d *Decoder) Err() error { return d.err }

// Pos returns the number of bytes read. It is the length of the input after an error.
func (d *Decoder) Pos() int { return d.pos }

// Remaining returns the number of bytes not yet read; 0 after an error.
func (d *Decoder) Remaining() int { return len(d.b) - d.pos }

// Rest returns the bytes not yet read, aliasing the input; empty after an error.
func (d *Decoder) Rest() []byte { return d.b[d.pos:] }

// Fail makes d fail with the given code unless it has failed already. what is a short constant text for the log.
func (d *Decoder) Fail(code ua.StatusCode, what string) {
	if d.err == nil {
		d.err = uastatus.New(code, fmt.Sprintf("decode %s at byte %d", what, d.pos), nil)
	}
	d.pos = len(d.b)
}

// errShort is shared: running out of bytes is what most bad input comes to, and it should not cost anything.
var errShort = uastatus.New(ua.StatusBadDecodingError, "decode: message ends too early", nil)

func (d *Decoder) short() {
	if d.err == nil {
		d.err = errShort
	}
	d.pos = len(d.b)
}

func (d *Decoder) bad(what string)   { d.Fail(ua.StatusBadDecodingError, what) }
func (d *Decoder) limit(what string) { d.Fail(ua.StatusBadEncodingLimitsExceeded, what) }

// enter takes one level of the nesting budget; leave gives it back.
func (d *Decoder) enter() bool {
	if d.depth >= d.maxDepth {
		d.limit("nesting level")
		return false
	}
	d.depth++
	return true
}

func (d *Decoder) leave() { d.depth-- }

// Byte reads a Byte (OPC 10000-6 §5.2.2.2, Integer).
func (d *Decoder) Byte() byte {
	if d.pos >= len(d.b) {
		d.short()
		return 0
	}
	v := d.b[d.pos]
	d.pos++
	return v
}

// SByte reads an SByte.
func (d *Decoder) SByte() int8 { return int8(d.Byte()) }

// Bool reads a Boolean (OPC 10000-6 §5.2.2.1, Boolean): every value but 0 is true.
func (d *Decoder) Bool() bool { return d.Byte() != 0 }

// UInt16 reads a UInt16.
func (d *Decoder) UInt16() uint16 {
	if len(d.b)-d.pos < 2 {
		d.short()
		return 0
	}
	v := binary.LittleEndian.Uint16(d.b[d.pos:])
	d.pos += 2
	return v
}

// Int16 reads an Int16.
func (d *Decoder) Int16() int16 { return int16(d.UInt16()) }

// UInt32 reads a UInt32.
func (d *Decoder) UInt32() uint32 {
	if len(d.b)-d.pos < 4 {
		d.short()
		return 0
	}
	v := binary.LittleEndian.Uint32(d.b[d.pos:])
	d.pos += 4
	return v
}

// Int32 reads an Int32.
func (d *Decoder) Int32() int32 { return int32(d.UInt32()) }

// UInt64 reads a UInt64.
func (d *Decoder) UInt64() uint64 {
	if len(d.b)-d.pos < 8 {
		d.short()
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b[d.pos:])
	d.pos += 8
	return v
}

// Int64 reads an Int64.
func (d *Decoder) Int64() int64 { return int64(d.UInt64()) }

// Float reads a Float.
func (d *Decoder) Float() float32 { return math.Float32frombits(d.UInt32()) }

// Double reads a Double.
func (d *Decoder) Double() float64 { return math.Float64frombits(d.UInt64()) }

// DateTime reads a DateTime.
func (d *Decoder) DateTime() DateTime { return DateTime(d.UInt64()) }

// StatusCode reads a StatusCode.
func (d *Decoder) StatusCode() ua.StatusCode { return ua.StatusCode(d.UInt32()) }

// GUID reads a Guid as its 16 bytes on the wire (OPC 10000-6 §5.2.2.6, Guid).
func (d *Decoder) GUID() (g [16]byte) {
	copy(g[:], d.take(16))
	return g
}

// take returns the next n bytes. n is not negative.
func (d *Decoder) take(n int) []byte {
	if n > len(d.b)-d.pos {
		d.short()
		return nil
	}
	v := d.b[d.pos : d.pos+n : d.pos+n]
	d.pos += n
	return v
}

// sized reads a length and that many bytes: nil for the length -1, an error for less than that.
func (d *Decoder) sized(limit int) []byte {
	n := int(d.Int32())
	if uint(n) > uint(limit) {
		d.badLength(n)
		return nil
	}
	if n > len(d.b)-d.pos {
		d.short()
		return nil
	}
	v := d.b[d.pos : d.pos+n : d.pos+n]
	d.pos += n
	if d.err != nil {
		return nil
	}
	return v
}

// badLength fails unless n is -1 (null).
func (d *Decoder) badLength(n int) {
	switch {
	case n == -1:
	case n < 0:
		d.bad("negative length")
	default:
		d.limit("length")
	}
}

// StringBytes reads a String or XmlElement without copying: nil for a null one. The bytes are not checked to be UTF-8, see
// the package documentation.
func (d *Decoder) StringBytes() []byte { return d.sized(d.maxString) }

// String reads a String; null and empty are both "".
func (d *Decoder) String() string { return string(d.sized(d.maxString)) }

// ByteString reads a ByteString without copying: nil for a null one.
func (d *Decoder) ByteString() []byte { return d.sized(d.maxByteString) }

// ArrayLen reads the length of an array whose elements take at least minElementSize (≥ 1) bytes each: -1 for a null
// array. A length that the limits or the bytes left cannot hold is an error, and -1 is returned.
func (d *Decoder) ArrayLen(minElementSize int) int {
	n := int(d.Int32())
	if uint(n) > uint(d.maxArray) {
		d.badLength(n)
		return -1
	}
	if int64(n)*int64(minElementSize) > int64(len(d.b)-d.pos) {
		d.short()
		return -1
	}
	if d.err != nil {
		return -1
	}
	return n
}

// slabLen is ArrayLen for elements that are decoded into itemSize bytes of memory each.
func (d *Decoder) slabLen(minElementSize int, itemSize uintptr) int {
	n := d.ArrayLen(minElementSize)
	if n > 0 {
		d.memory -= n * int(itemSize)
		if d.memory < 0 {
			d.limit("decoded size")
			return -1
		}
	}
	return n
}

// TypeID reads the NodeId of a message's encoding (OPC 10000-6 §5.2.9, Messages) and returns its numeric identifier. A
// NodeId that is not numeric in namespace 0 is BadDecodingError.
func (d *Decoder) TypeID() uint32 {
	id := d.NodeID()
	if id.Type != IDNumeric || id.Namespace != 0 {
		d.bad("message type id")
		return 0
	}
	return id.Numeric
}
