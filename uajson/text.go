package uajson

import (
	"bytes"
	"unicode/utf8"
)

// appendUnescaped appends what the inside of a string that scanString took stands for.
func appendUnescaped(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		c := raw[i+1]
		raw = raw[i+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hex4(raw, 0)
			raw = raw[4:]
			if r >= 0xD800 && r < 0xDC00 {
				low, _ := hex4(raw, 2)
				raw = raw[6:]
				r = 0x10000 + (r-0xD800)<<10 + (low - 0xDC00)
			}
			dst = utf8.AppendRune(dst, rune(r))
		default: // " \ and /
			dst = append(dst, c)
		}
	}
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends s as the inside of a string. What is no UTF-8 becomes U+FFFD, because JSON has nothing else for it
// (RFC 8259 §8.1, Character Encoding).
func appendEscaped(dst, s []byte) []byte {
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\uFFFD"...)
			start = i + 1
		}
		i += n
	}
	return append(dst, s[start:]...)
}

func appendQuoted(dst, s []byte) []byte {
	dst = append(dst, '"')
	dst = appendEscaped(dst, s)
	return append(dst, '"')
}
