package uabinary

import "encoding/binary"

// PlainReadValueID reads what follows the NodeId of a ReadValueId (OPC 10000-4 §7.29) in one step when it is the usual: an
// attribute with a null IndexRange and a null DataEncoding. ok is false, and nothing has been read, when it is not; the
// fields are to be read one by one then.
func (d *Decoder) PlainReadValueID() (attribute uint32, ok bool) {
	const size = 4 + 4 + 2 + 4
	if len(d.b)-d.pos < size {
		return 0, false
	}
	b := d.b[d.pos : d.pos+size]
	if binary.LittleEndian.Uint64(b[4:]) != 0xffff_0000_ffff_ffff || binary.LittleEndian.Uint16(b[12:]) != 0xffff {
		return 0, false
	}
	d.pos += size
	return binary.LittleEndian.Uint32(b), true
}
