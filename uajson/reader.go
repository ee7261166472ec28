package uajson

import (
	"bytes"
	"hash/maphash"
	"math"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// place is where a JSON value begins, and the number of the first span that opens there or later.
type place struct{ p, span uint32 }

// reader turns JSON into OPC UA Binary. The text has been scanned before, so that what is read is JSON; what can be wrong is
// what it means. The error is sticky, as that of uabinary.Decoder.
type reader struct {
	index
	in  []byte
	out []byte
	err error
	ctx *Context

	base, maxOut                      int // of out
	maxString, maxByteString, maxList int
	depth, maxDepth                   int

	verbose, older bool // signs of a Form that were seen
	places         []place
	text           []byte
	uri            []byte
	guid           [16]byte
}

func newReader() *reader { return &reader{index: index{seed: maphash.MakeSeed()}} }

func (r *reader) free() {
	r.index.trim()
	r.in, r.out, r.err, r.ctx = nil, nil, nil, nil
	if cap(r.text) > maxKept {
		r.text = nil
	}
	if cap(r.uri) > maxKept {
		r.uri = nil
	}
	if cap(r.places) > maxKept {
		r.places = nil
	}
	readers.Put(r)
}

// run reads json with what, and returns dst with the result.
func (r *reader) run(c *Context, dst, json []byte, l *uabinary.Limits, what func(*reader, place) Form) ([]byte, Form, error) {
	var limits uabinary.Limits
	if l != nil {
		limits = *l
	}
	size := orDefault(limits.MaxMessageSize, uabinary.DefaultMaxMessageSize)
	r.maxString = orDefault(limits.MaxStringLength, uabinary.DefaultMaxStringLength)
	r.maxByteString = orDefault(limits.MaxByteStringLength, uabinary.DefaultMaxByteStringLength)
	r.maxList = orDefault(limits.MaxArrayLength, uabinary.DefaultMaxArrayLength)
	r.maxDepth = min(orDefault(limits.MaxNestingLevel, uabinary.DefaultMaxNestingLevel), maxNestingLevel)
	if len(json) > size || len(json) > math.MaxInt32 {
		return dst, Compact, errLimit("message size")
	}
	json = bytes.TrimPrefix(json, []byte("\uFEFF"))
	if err := r.scan(json, jsonDepth(r.maxDepth)); err != nil {
		return dst, Compact, err
	}
	r.in, r.out, r.err, r.ctx = json, dst, nil, c
	r.base, r.maxOut = len(dst), size
	r.depth, r.verbose, r.older = 0, false, false
	r.places = r.places[:0]
	form := what(r, place{uint32(skipSpace(json, 0)), 0})
	switch {
	case r.older:
		form = form&^(encodings|InBody) | Reversible
	case r.verbose:
		form |= Verbose
	}
	if r.full() {
		r.limit("message size")
	}
	if r.err != nil {
		return dst, form, r.err
	}
	return r.out, form, nil
}

// maxNestingLevel is the most that a nesting budget can be, as in uabinary.
const maxNestingLevel = 1000

// jsonDepth is how deep a text may be nested for a nesting budget: a level of it takes an object, and a structure around the
// next one takes a few more objects and arrays.
func jsonDepth(levels int) int { return 8*levels + 64 }

func orDefault(v, def int) int {
	if v <= 0 {
		return def
	}
	return v
}

func (r *reader) fail(code ua.StatusCode, what string) {
	if r.err == nil {
		r.err = uastatus.New(code, "decode "+what, nil)
	}
}

func (r *reader) bad(what string)   { r.fail(ua.StatusBadDecodingError, what) }
func (r *reader) limit(what string) { r.fail(ua.StatusBadEncodingLimitsExceeded, what) }

// full reports whether more has been written than a message may have: a few bytes of JSON stand for a structure of hundreds.
func (r *reader) full() bool { return len(r.out)-r.base > r.maxOut }

// enter takes one level of the nesting budget; leave gives it back.
func (r *reader) enter() bool {
	if r.depth >= r.maxDepth {
		r.limit("nesting level")
		return false
	}
	r.depth++
	return true
}

func (r *reader) leave() { r.depth-- }

// char returns the first byte of the value at v, which tells its type.
func (r *reader) char(v place) byte { return r.in[v.p] }

func (r *reader) isNull(v place) bool { return r.in[v.p] == 'n' }

// skip returns the place behind the value at v.
func (r *reader) skip(v place) place {
	switch r.in[v.p] {
	case '{', '[':
		s := r.spans[v.span]
		return place{s.end, s.next}
	case '"':
		return place{uint32(r.stringEnd(v)), v.span}
	}
	p := v.p
	for p < uint32(len(r.in)) {
		switch r.in[p] {
		case ',', '}', ']', ' ', '\n', '\r', '\t':
			return place{p, v.span}
		}
		p++
	}
	return place{p, v.span}
}

// stringEnd returns the offset behind the string at v.
func (r *reader) stringEnd(v place) int {
	p := int(v.p) + 1
	for {
		i := bytes.IndexByte(r.in[p:], '"')
		p += i + 1
		// It is the end unless an odd number of backslashes is before it.
		n := 0
		for r.in[p-2-n] == '\\' {
			n++
		}
		if n%2 == 0 {
			return p
		}
	}
}

// raw returns the text of the value at v.
func (r *reader) raw(v place) []byte { return r.in[v.p:r.skip(v).p] }

// members walks over an object. next is called first for the first member.
type members struct {
	r    *reader
	at   place
	key  []byte // without the quotes, as in the text
	val  place
	more bool // not the first
}

func (r *reader) members(v place) members { return members{r: r, at: place{v.p + 1, v.span + 1}} }

func (m *members) next() bool {
	in := m.r.in
	p := skipSpace(in, int(m.at.p))
	if m.more {
		// At the comma or the closing brace behind the last value.
		if in[p] == '}' {
			return false
		}
		p = skipSpace(in, p+1)
	} else if in[p] == '}' {
		return false
	}
	m.more = true
	end := m.r.stringEnd(place{uint32(p), 0})
	m.key = in[p+1 : end-1]
	p = skipSpace(in, end)
	m.val = place{uint32(skipSpace(in, p+1)), m.at.span}
	m.at = m.r.skip(m.val)
	return true
}

// name returns the key as it is meant.
func (m *members) name() []byte {
	if bytes.IndexByte(m.key, '\\') < 0 {
		return m.key
	}
	m.r.text = appendUnescaped(m.r.text[:0], m.key)
	return m.r.text
}

// elements walks over an array.
type elements struct {
	r    *reader
	at   place
	val  place
	more bool
}

func (r *reader) elements(v place) elements { return elements{r: r, at: place{v.p + 1, v.span + 1}} }

func (e *elements) next() bool {
	in := e.r.in
	p := skipSpace(in, int(e.at.p))
	if in[p] == ']' {
		return false
	}
	if e.more {
		p = skipSpace(in, p+1)
	}
	e.more = true
	e.val = place{uint32(p), e.at.span}
	e.at = e.r.skip(e.val)
	return true
}

// chars returns what the string at v stands for. It is valid until the next call, and may be part of the text. The value
// must be a string.
func (r *reader) chars(v place) []byte {
	raw := r.in[v.p+1 : r.stringEnd(v)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	r.text = appendUnescaped(r.text[:0], raw)
	return r.text
}
