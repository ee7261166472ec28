package progress

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

// Options say where and what is shown.
type Options struct {
	// Title and Target head the block.
	Title, Target string
	// Processors is how many the generator may use.
	Processors int
	// Terminal redraws in place with control sequences (ECMA-48). False writes
	// lines only.
	Terminal bool
	// Color marks failures in colour, besides the words. For Terminal only.
	Color bool
	// Width gives the columns of the terminal, asked at each redraw. Nil is 80.
	Width func() int
	// Every is how often a line is written when there is no terminal. Zero is 5
	// seconds.
	Every time.Duration
}

// ForFile gives the options that fit a file: a terminal is redrawn, in colour
// unless the environment has NO_COLOR or a dumb TERM.
func ForFile(f *os.File, o Options) Options {
	fd := int(f.Fd())
	dumb := os.Getenv("TERM") == "dumb"
	o.Terminal = term.IsTerminal(fd) && !dumb
	o.Color = o.Terminal && os.Getenv("NO_COLOR") == ""
	o.Width = func() int {
		w, _, err := term.GetSize(fd)
		if err != nil {
			return 0
		}
		return w
	}
	return o
}

// A View shows a run.
type View struct {
	options Options
	w       io.Writer

	mu     sync.Mutex
	drawn  []line // the block on the screen; nil: none
	latest *measure.Sample
	merged *measure.Sample // since the last line, without a terminal
	errors map[string]uint64
	closed bool
}

// New makes a view that writes to w. Writes fail in silence: a terminal that
// has gone is no reason to end a load test.
func New(w io.Writer, o Options) *View {
	if o.Width == nil {
		o.Width = func() int { return 80 }
	}
	if o.Every == 0 {
		o.Every = 5 * time.Second
	}
	return &View{options: o, w: w, errors: map[string]uint64{}}
}

// Sample shows a sample.
func (v *View) Sample(s *measure.Sample) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, n := range s.Errors {
		v.errors[name] += n
	}
	v.latest = s
	if v.closed {
		return
	}
	if v.options.Terminal {
		v.draw(nil)
		return
	}
	if v.merged == nil {
		first := *s
		v.merged = &first
	} else {
		v.merged.Merge(s)
	}
	// A sample may be a little short of its second.
	if v.merged.Seconds >= v.options.Every.Seconds()-0.1 {
		v.writeLine()
	}
}

// Event shows an event: above the block, or as a line.
func (v *View) Event(e measure.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	l := line{text: measure.Clock(e.At) + "  " + clean(e.Text)}
	if v.options.Terminal {
		v.draw([]line{l})
		return
	}
	_, _ = io.WriteString(v.w, l.text+"\n")
}

// Close ends the view: the last state stays on the screen, and what is written
// afterwards starts on a line of its own. Later samples and events are not
// shown.
func (v *View) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	v.closed = true
	if !v.options.Terminal && v.merged != nil {
		v.writeLine()
	}
}

func (v *View) writeLine() {
	_, _ = io.WriteString(v.w, strings.Join(v.summary(v.merged), "; ")+"\n")
	v.merged = nil
}

// width is the terminal's, one column less: the last one makes some wrap.
func (v *View) width() int {
	w := v.options.Width()
	if w <= 0 {
		w = 80
	}
	return max(w-1, 10)
}

// draw puts new lines above the block and redraws that, with one Write and
// without erasing what is to stay: nothing flickers.
func (v *View) draw(above []line) {
	width := v.width()
	var b strings.Builder
	if rows := rowsOf(v.drawn, width+1); rows > 0 {
		b.WriteString(up(rows))
	}
	for _, l := range above {
		v.put(&b, l.clipped(width))
	}
	v.drawn = nil
	if v.latest != nil {
		v.drawn = v.block(v.latest, width)
	}
	for _, l := range v.drawn {
		v.put(&b, l)
	}
	b.WriteString(eraseBelow)
	_, _ = io.WriteString(v.w, b.String())
}

func (v *View) put(b *strings.Builder, l line) {
	if v.options.Color && l.style != "" {
		b.WriteString(l.style + l.text + styleEnd)
	} else {
		b.WriteString(l.text)
	}
	b.WriteString(eraseLine + "\n")
}
