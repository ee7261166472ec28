package uabinary

import (
	"slices"
	"unicode/utf8"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Range returns the part of v that r selects, for reading with an IndexRange (OPC 10000-4 §7.27, NumericRange). Upper
// bounds beyond the value are cut. A String is counted in characters, a ByteString in bytes; in an array of either one
// more dimension than the array has selects within the elements, where an element without such a part becomes null.
//
// The code is BadIndexRangeNoData when nothing is selected, the number of dimensions does not fit, or v is a scalar of
// another type. The result aliases v only when r is the whole value.
func (v Variant) Range(r NumericRange) (Variant, ua.StatusCode) {
	if r.IsZero() {
		return v, ua.StatusGood
	}
	if !v.IsArray() {
		return v.substring(r)
	}
	dims := v.Dims() // none for a null array
	if len(dims) == 0 {
		return Variant{}, ua.StatusBadIndexRangeNoData
	}
	within, ok := r.split(v.Type(), len(dims))
	if !ok {
		return Variant{}, ua.StatusBadIndexRangeNoData
	}
	spans := slices.Clone(r.spans[:len(dims)])
	total := 1
	for i := range spans {
		if spans[i].low >= dims[i] {
			return Variant{}, ua.StatusBadIndexRangeNoData
		}
		spans[i].high = min(spans[i].high, dims[i]-1)
		total *= spans[i].len()
	}
	t := v.b[0] & variantType
	b := append(make([]byte, 0, 5+4*len(dims)+total*max(4, int(fixedSize[t]))), v.b[0]&^variantDims)
	b = AppendUint32(b, uint32(total))
	found := within == nil
	src := cursorOn(v)
	rows := rowsOf(dims, spans)
	width := spans[len(spans)-1].len()
	for at, ok := rows.next(); ok; at, ok = rows.next() {
		src.skipTo(at)
		if within == nil {
			b = append(b, src.next(width)...)
			continue
		}
		for range width {
			s := src.next(1)
			low, high, _, ok := within.in(ua.TypeID(t), s[4:])
			if !ok {
				b = AppendUint32(b, null)
				continue
			}
			found = true
			b = AppendByteString(b, s[4+low:4+high])
		}
	}
	if !found {
		return Variant{}, ua.StatusBadIndexRangeNoData
	}
	if len(dims) > 1 {
		b[0] |= variantDims
		b = AppendUint32(b, uint32(len(spans)))
		for _, s := range spans {
			b = AppendUint32(b, uint32(s.len()))
		}
	}
	return Variant{b}, ua.StatusGood
}

// WithRange returns v with the part that r selects replaced, for writing with an IndexRange. part must be of v's type
// (else BadTypeMismatch) and have exactly the selected shape (else BadIndexRangeDataMismatch), which must lie within v
// (else BadIndexRangeNoData). The result aliases neither unless r is the whole value, when it is part.
func (v Variant) WithRange(r NumericRange, part Variant) (Variant, ua.StatusCode) {
	if r.IsZero() {
		return part, ua.StatusGood
	}
	if v.IsNull() {
		return Variant{}, ua.StatusBadIndexRangeNoData
	}
	if part.Type() != v.Type() {
		return Variant{}, ua.StatusBadTypeMismatch
	}
	if !v.IsArray() {
		return v.withSubstring(r, part)
	}
	dims := v.Dims() // none for a null array
	if len(dims) == 0 {
		return Variant{}, ua.StatusBadIndexRangeNoData
	}
	within, ok := r.split(v.Type(), len(dims))
	if !ok {
		return Variant{}, ua.StatusBadIndexRangeNoData
	}
	spans := r.spans[:len(dims)]
	for i, s := range spans {
		if s.high >= dims[i] {
			return Variant{}, ua.StatusBadIndexRangeNoData
		}
	}
	if !part.hasShape(spans) {
		return Variant{}, uastatus.BadIndexRangeDataMismatch
	}
	t := ua.TypeID(v.b[0] & variantType)
	b := append(make([]byte, 0, len(v.b)+len(part.b)), v.b[:5]...)
	src, from := cursorOn(v), cursorOn(part)
	rows := rowsOf(dims, spans)
	width := spans[len(spans)-1].len()
	for at, ok := rows.next(); ok; at, ok = rows.next() {
		b = append(b, src.skipTo(at)...)
		if within == nil {
			src.next(width)
			b = append(b, from.next(width)...)
			continue
		}
		for range width {
			var status ua.StatusCode
			if b, status = replaced(b, t, *within, src.next(1), from.next(1)); status != ua.StatusGood {
				return Variant{}, status
			}
		}
	}
	// What follows the last row: further elements and the dimensions.
	return Variant{append(b, v.b[src.d.pos:]...)}, ua.StatusGood
}

// split returns the span within the elements, or nil, and whether r fits a value of that type and rank.
func (r NumericRange) split(t ua.TypeID, rank int) (within *span, ok bool) {
	if len(r.spans) == rank {
		return nil, true
	}
	if len(r.spans) == rank+1 && (t == ua.TypeIDString || t == ua.TypeIDByteString) {
		return &r.spans[rank], true
	}
	return nil, false
}

// in returns the bytes of s that the span selects, whether all of it is there, and whether any is.
func (p span) in(t ua.TypeID, s []byte) (low, high int, complete, ok bool) {
	if t != ua.TypeIDString {
		if int64(p.low) >= int64(len(s)) {
			return 0, 0, false, false
		}
		high = int(min(int64(p.high)+1, int64(len(s))))
		return int(p.low), high, int64(p.high) < int64(len(s)), true
	}
	var n uint32 // characters before high
	for ; high < len(s) && n <= p.high; n++ {
		if n == p.low {
			low, ok = high, true
		}
		_, size := utf8.DecodeRune(s[high:])
		high += size
	}
	return low, high, n > p.high, ok
}

// replaced appends old, an encoded String or ByteString, with the span replaced by part.
func replaced(b []byte, t ua.TypeID, p span, old, part []byte) ([]byte, ua.StatusCode) {
	low, high, complete, _ := p.in(t, old[4:])
	if !complete {
		return b, ua.StatusBadIndexRangeNoData
	}
	n := len(part) - 4
	if t == ua.TypeIDString {
		n = utf8.RuneCount(part[4:])
	}
	if n != p.len() {
		return b, uastatus.BadIndexRangeDataMismatch
	}
	b = AppendUint32(b, uint32(len(old)-4-(high-low)+len(part)-4))
	b = append(b, old[4:4+low]...)
	b = append(b, part[4:]...)
	return append(b, old[4+high:]...), ua.StatusGood
}

func (v Variant) substring(r NumericRange) (Variant, ua.StatusCode) {
	within, ok := r.split(v.Type(), 0)
	if !ok || within == nil {
		return Variant{}, ua.StatusBadIndexRangeNoData
	}
	s, _ := v.Bytes()
	low, high, _, ok := within.in(v.Type(), s)
	if !ok {
		return Variant{}, ua.StatusBadIndexRangeNoData
	}
	return sizedVariant(v.Type(), s[low:high]), ua.StatusGood
}

func (v Variant) withSubstring(r NumericRange, part Variant) (Variant, ua.StatusCode) {
	within, ok := r.split(v.Type(), 0)
	if !ok || within == nil {
		return Variant{}, ua.StatusBadIndexRangeNoData
	}
	if part.IsArray() {
		return Variant{}, uastatus.BadIndexRangeDataMismatch
	}
	b := append(make([]byte, 0, len(v.b)+len(part.b)), v.b[0])
	b, status := replaced(b, v.Type(), *within, v.b[1:], part.b[1:])
	if status != ua.StatusGood {
		return Variant{}, status
	}
	return Variant{b}, status
}

// hasShape reports whether v is an array with exactly as many elements in each dimension as the spans.
func (v Variant) hasShape(spans []span) bool {
	dims := v.Dims()
	if len(dims) != len(spans) {
		return false
	}
	for i, s := range spans {
		if int(dims[i]) != s.len() {
			return false
		}
	}
	return true
}

// cursor walks the elements of an array once, forwards.
type cursor struct {
	d  Decoder
	t  byte
	at int // elements passed
}

func cursorOn(v Variant) (c cursor) {
	c.d.resetView(v.b)
	c.d.pos = 5
	c.t = v.b[0] & variantType
	return c
}

// next returns the bytes of the next n elements.
func (c *cursor) next(n int) []byte {
	start := c.d.pos
	c.d.skipElements(c.t, n)
	c.at += n
	return c.d.b[start:c.d.pos]
}

// skipTo returns the bytes before element i, which has not been passed.
func (c *cursor) skipTo(i int) []byte { return c.next(i - c.at) }

// rows walks the selected rows (along the last dimension) of a matrix in the order of its elements.
type rows struct {
	dims  []uint32
	spans []span
	index []uint32
	done  bool
}

func rowsOf(dims []uint32, spans []span) rows {
	index := make([]uint32, len(spans))
	for i, s := range spans {
		index[i] = s.low
	}
	return rows{dims, spans, index, false}
}

// next returns the number of the row's first selected element among all elements.
func (r *rows) next() (int, bool) {
	if r.done {
		return 0, false
	}
	at := 0
	for i, n := range r.dims {
		at = at*int(n) + int(r.index[i])
	}
	i := len(r.index) - 2
	for ; i >= 0; i-- {
		if r.index[i]++; r.index[i] <= r.spans[i].high {
			break
		}
		r.index[i] = r.spans[i].low
	}
	r.done = i < 0
	return at, true
}
