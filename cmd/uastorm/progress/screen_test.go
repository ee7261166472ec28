package progress

import (
	"fmt"
	"strings"
	"testing"
)

// A screen is a terminal as far as the view uses one. Anything else that is
// written to it is an error.
type screen struct {
	width    int
	rows     [][]rune
	row, col int
	writes   int
	fault    string
}

func (s *screen) Write(p []byte) (int, error) {
	s.writes++
	for text := string(p); text != ""; {
		if after, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexFunc(after, func(r rune) bool { return r >= '@' })
			s.control(after[:end], after[end])
			text = after[end+1:]
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		switch {
		case r == '\r':
			s.col = 0
		case r == '\n':
			s.row, s.col = s.row+1, 0
			s.grow()
		case r < ' ':
			s.fault = fmt.Sprintf("control character %q", r)
		default:
			if s.col+cells(r) > s.width {
				s.row, s.col = s.row+1, 0
			}
			s.grow()
			for len(s.rows[s.row]) < s.col+1 {
				s.rows[s.row] = append(s.rows[s.row], ' ')
			}
			s.rows[s.row][s.col] = r
			s.col += cells(r)
		}
	}
	return len(p), nil
}

func (s *screen) grow() {
	for len(s.rows) <= s.row {
		s.rows = append(s.rows, nil)
	}
}

func (s *screen) control(args string, final byte) {
	s.grow()
	switch final {
	case 'A':
		n := 0
		fmt.Sscan(args, &n)
		if s.row -= n; s.row < 0 {
			s.fault = "the cursor leaves the screen"
			s.row = 0
		}
	case 'K':
		s.rows[s.row] = s.rows[s.row][:min(s.col, len(s.rows[s.row]))]
	case 'J':
		s.rows[s.row] = s.rows[s.row][:min(s.col, len(s.rows[s.row]))]
		s.rows = s.rows[:s.row+1]
	case 'm':
	default:
		s.fault = "control sequence " + args + string(final)
	}
}

// resize makes the screen narrower or wider, as terminals that wrap do.
func (s *screen) resize(width int) {
	var all [][]rune
	for _, r := range s.rows {
		for len(r) > width {
			all = append(all, r[:width])
			r = r[width:]
		}
		all = append(all, r)
	}
	s.rows, s.width = all, width
	s.row = len(all) - 1
}

func (s *screen) String() string {
	var b strings.Builder
	for _, r := range s.rows {
		b.WriteString(strings.TrimRight(string(r), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func TestTextsCannotSteerTheTerminal(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain – ütf", "plain – ütf"},
		{"\x1b[2Jgone", "[2Jgone"},
		{"\x1b]0;title\x07", "]0;title"},
		{"a\u009b31mb", "a31mb"},
		{"a\r\nb\tc", "abc"},
		{"user\u202egpj.exe", "usergpj.exe"},
		{"bad\xff", "bad"},
	} {
		if got := clean(c.in); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.in, got, c.want)
		}
	}
}

func TestPartsThatDoNotFitAreLeftOut(t *testing.T) {
	for _, c := range []struct {
		width int
		want  string
	}{
		{80, "sessions 1,234  up 5/s  down 0/s"},
		{24, "sessions 1,234  up 5/s"},
		{22, "sessions 1,234  up 5/s"},
		{21, "sessions 1,234"},
		{10, "sessions 1"},
		{9, "sessions"},
	} {
		if got := fit(c.width, "sessions 1,234", "up 5/s", "", "down 0/s"); got != c.want {
			t.Errorf("in %d columns %q, want %q", c.width, got, c.want)
		}
	}
	if got := fit(7, "漢字漢字"); got != "漢字漢" {
		t.Errorf("wide runes in 7 columns: %q", got)
	}
}
