package progress

import (
	"fmt"
	"strings"
	"unicode"
)

// Control sequences of ECMA-48.
const (
	eraseLine  = "\x1b[K" // from the cursor to the line's end
	eraseBelow = "\x1b[J" // from the cursor to the screen's end
	styleBold  = "\x1b[1m"
	styleBad   = "\x1b[1;31m"
	styleEnd   = "\x1b[0m"
)

// up moves the cursor to the begin of the line n rows above.
func up(n int) string { return fmt.Sprintf("\r\x1b[%dA", n) }

// A line is one of the screen.
type line struct {
	text  string
	style string // empty: plain
}

// clipped cuts a line that is too wide.
func (l line) clipped(width int) line {
	used := 0
	for i, r := range l.text {
		if used += cells(r); used > width {
			return line{strings.TrimRight(l.text[:i], " "), l.style}
		}
	}
	return l
}

// rowsOf is how many rows lines take on a screen of a width: a terminal that
// was made narrower has wrapped them.
func rowsOf(lines []line, width int) int {
	rows := 0
	for _, l := range lines {
		rows += max(1, (textCells(l.text)+width-1)/width)
	}
	return rows
}

func textCells(s string) int {
	n := 0
	for _, r := range s {
		n += cells(r)
	}
	return n
}

// cells is how many columns a rune takes, at most: some say that of the wide
// ones only, and marks that take none count as one.
func cells(r rune) int {
	if r >= 0x1100 && (unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) || r >= 0x1f000 || r >= 0xff00 && r <= 0xff60) {
		return 2
	}
	return 1
}

// clean takes out what could steer a terminal: control characters and such
// that change the direction of writing. Texts may come from the server.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, s)
}

// fit joins parts with two spaces, as many as there is room for; the first is
// there in any case, cut.
func fit(width int, parts ...string) string {
	text := ""
	used := 0
	for i, p := range parts {
		if p == "" {
			continue
		}
		n := textCells(p)
		if i > 0 && used+2+textCells(strings.TrimRight(p, " ")) > width {
			break
		}
		if text != "" {
			text += "  "
			used += 2
		}
		text += p
		used += n
	}
	return strings.TrimRight(line{text: text}.clipped(width).text, " ")
}
