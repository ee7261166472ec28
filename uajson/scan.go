package uajson

import (
	"bytes"
	"hash/maphash"
	"slices"
	"unicode/utf8"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// span says where an object or array ends. Spans are numbered in the order in which they open.
type span struct {
	end  uint32 // offset behind the closing bracket
	next uint32 // number of the first span that opens behind it
}

// open is an object or array that the scanner is in.
type open struct {
	span   uint32
	keys   uint32 // where its keys begin
	object bool
}

// key is a name in an object that is still open.
type key struct {
	hash       uint64
	start, end uint32 // without the quotes
}

// index is the outline of a JSON text: it makes skipping an object or array one step, so that a text whose objects have
// their fields in any order is read in linear time.
type index struct {
	spans   []span
	opens   []open
	keys    []key
	seed    maphash.Seed
	scratch [2][]byte
}

// maxKept is how many entries of each list an index keeps for the next text.
const maxKept = 8 << 10

func (x *index) trim() {
	if cap(x.spans) > maxKept {
		x.spans = nil
	}
	if cap(x.keys) > maxKept {
		x.keys = nil
	}
	for i := range x.scratch {
		if cap(x.scratch[i]) > maxKept {
			x.scratch[i] = nil
		}
	}
}

// errJSON is shared: most bad input comes to it, and it should not cost anything.
var errJSON = uastatus.New(ua.StatusBadDecodingError, "decode: not JSON", nil)

func errSyntax(what string) error {
	return uastatus.New(ua.StatusBadDecodingError, "decode: "+what, nil)
}

func errLimit(what string) error {
	return uastatus.New(ua.StatusBadEncodingLimitsExceeded, "decode: "+what, nil)
}

// maxNumber bounds the text of a number, in bytes. The longest Double that means something has less than 800.
const maxNumber = 1024

// scan checks that b is one JSON text (RFC 8259) in UTF-8 with white space around it, that no object has a name twice (OPC
// 10000-6 §5.4.2.16, ExtensionObject: that is a decoding error), and that it is not nested deeper than maxDepth. It takes
// linear time, and memory of 8 bytes for each object and array.
func (x *index) scan(b []byte, maxDepth int) error {
	x.spans, x.opens, x.keys = x.spans[:0], x.opens[:0], x.keys[:0]
	p := skipSpace(b, 0)
	for {
		// A value begins at p.
		if p >= len(b) {
			return errJSON
		}
		switch c := b[p]; c {
		case '{', '[':
			if len(x.opens) >= maxDepth {
				return errLimit("JSON nesting level")
			}
			x.opens = append(x.opens, open{span: uint32(len(x.spans)), keys: uint32(len(x.keys)), object: c == '{'})
			x.spans = append(x.spans, span{})
			p = skipSpace(b, p+1)
			if p < len(b) && b[p] == c+2 { // '}' and ']' are 2 behind
				break
			}
			if c == '{' {
				var err error
				if p, err = x.key(b, p); err != nil {
					return err
				}
			}
			continue
		case '"':
			end, ok := scanString(b, p)
			if !ok {
				return errJSON
			}
			p = end
		case 't':
			if !bytes.HasPrefix(b[p:], []byte("true")) {
				return errJSON
			}
			p += 4
		case 'f':
			if !bytes.HasPrefix(b[p:], []byte("false")) {
				return errJSON
			}
			p += 5
		case 'n':
			if !bytes.HasPrefix(b[p:], []byte("null")) {
				return errJSON
			}
			p += 4
		default:
			end, ok := scanNumber(b, p)
			if !ok {
				return errJSON
			}
			if end-p > maxNumber {
				return errLimit("length of a number")
			}
			p = end
		}
		// What follows a value, up to the next one.
		for {
			p = skipSpace(b, p)
			if len(x.opens) == 0 {
				if p != len(b) {
					return errSyntax("something follows the JSON text")
				}
				return nil
			}
			o := x.opens[len(x.opens)-1]
			if p >= len(b) {
				return errJSON
			}
			if b[p] == ',' {
				p = skipSpace(b, p+1)
				if o.object {
					var err error
					if p, err = x.key(b, p); err != nil {
						return err
					}
				}
				break
			}
			if o.object && b[p] != '}' || !o.object && b[p] != ']' {
				return errJSON
			}
			p++
			x.spans[o.span] = span{uint32(p), uint32(len(x.spans))}
			if o.object && x.repeated(b, x.keys[o.keys:]) {
				return errSyntax("a name occurs twice in an object")
			}
			x.keys = x.keys[:o.keys]
			x.opens = x.opens[:len(x.opens)-1]
		}
	}
}

// key takes a name and the colon, and returns where the value begins.
func (x *index) key(b []byte, p int) (int, error) {
	if p >= len(b) || b[p] != '"' {
		return 0, errJSON
	}
	end, ok := scanString(b, p)
	if !ok {
		return 0, errJSON
	}
	name := b[p+1 : end-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		x.scratch[0] = appendUnescaped(x.scratch[0][:0], name)
		name = x.scratch[0]
	}
	x.keys = append(x.keys, key{maphash.Bytes(x.seed, name), uint32(p + 1), uint32(end - 1)})
	p = skipSpace(b, end)
	if p >= len(b) || b[p] != ':' {
		return 0, errJSON
	}
	return skipSpace(b, p+1), nil
}

// repeated reports whether two of the keys are the same. It takes n·log n, whatever the keys are, because nobody knows the
// seed of the hash.
func (x *index) repeated(b []byte, keys []key) bool {
	if len(keys) <= 8 {
		for i := range keys {
			for j := range i {
				if keys[i].hash == keys[j].hash && x.sameKey(b, keys[i], keys[j]) {
					return true
				}
			}
		}
		return false
	}
	slices.SortFunc(keys, func(a, b key) int {
		switch {
		case a.hash < b.hash:
			return -1
		case a.hash > b.hash:
			return 1
		}
		return 0
	})
	for i := 1; i < len(keys); i++ {
		if keys[i].hash == keys[i-1].hash && x.sameKey(b, keys[i], keys[i-1]) {
			return true
		}
	}
	return false
}

func (x *index) sameKey(b []byte, k, l key) bool {
	x.scratch[0] = appendUnescaped(x.scratch[0][:0], b[k.start:k.end])
	x.scratch[1] = appendUnescaped(x.scratch[1][:0], b[l.start:l.end])
	return bytes.Equal(x.scratch[0], x.scratch[1])
}

func skipSpace(b []byte, p int) int {
	for p < len(b) && (b[p] == ' ' || b[p] == '\n' || b[p] == '\r' || b[p] == '\t') {
		p++
	}
	return p
}

// scanString returns the offset behind the string whose opening quote is at p. It must be UTF-8 without control characters,
// and an escaped surrogate must be half of a pair: neither could be carried in a String (OPC 10000-6 §5.2.2.4).
func scanString(b []byte, p int) (int, bool) {
	for p++; p < len(b); {
		c := b[p]
		switch {
		case c == '"':
			return p + 1, true
		case c == '\\':
			if p+1 >= len(b) {
				return 0, false
			}
			switch b[p+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				p += 2
			case 'u':
				r, ok := hex4(b, p+2)
				if !ok {
					return 0, false
				}
				p += 6
				if r >= 0xD800 && r < 0xDC00 {
					low, ok := uint32(0), false
					if p+1 < len(b) && b[p] == '\\' && b[p+1] == 'u' {
						low, ok = hex4(b, p+2)
					}
					if !ok || low < 0xDC00 || low > 0xDFFF {
						return 0, false
					}
					p += 6
				} else if r >= 0xDC00 && r < 0xE000 {
					return 0, false
				}
			default:
				return 0, false
			}
		case c < 0x20:
			return 0, false
		case c < utf8.RuneSelf:
			p++
		default:
			r, n := utf8.DecodeRune(b[p:])
			if r == utf8.RuneError && n == 1 {
				return 0, false
			}
			p += n
		}
	}
	return 0, false
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte, p int) (uint32, bool) {
	if p+4 > len(b) {
		return 0, false
	}
	var v uint32
	for _, c := range b[p : p+4] {
		d, ok := unhex(c)
		if !ok {
			return 0, false
		}
		v = v<<4 | uint32(d)
	}
	return v, true
}

func unhex(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// scanNumber returns the offset behind the number at p.
func scanNumber(b []byte, p int) (int, bool) {
	digits := func() bool {
		start := p
		for p < len(b) && b[p] >= '0' && b[p] <= '9' {
			p++
		}
		return p > start
	}
	if p < len(b) && b[p] == '-' {
		p++
	}
	if p < len(b) && b[p] == '0' {
		p++
	} else if !digits() {
		return 0, false
	}
	if p < len(b) && b[p] == '.' {
		p++
		if !digits() {
			return 0, false
		}
	}
	if p < len(b) && (b[p] == 'e' || b[p] == 'E') {
		p++
		if p < len(b) && (b[p] == '+' || b[p] == '-') {
			p++
		}
		if !digits() {
			return 0, false
		}
	}
	return p, true
}
