package measure

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A line is one line of JSON: exactly one of its parts.
type line struct {
	Sample *Sample `json:"sample,omitempty"`
	Event  *Event  `json:"event,omitempty"`
	Result *Result `json:"result,omitempty"`
}

// Lines writes a run as lines of JSON, an [Observer]: each line is an object
// with one member, "sample", "event" or "result". The result comes last and is
// without its samples and events, which stand before it.
type Lines struct {
	mu  sync.Mutex
	enc *json.Encoder
	err error
}

// NewLines writes to w, a line with one Write.
func NewLines(w io.Writer) *Lines {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &Lines{enc: enc}
}

// Sample writes a sample.
func (l *Lines) Sample(s *Sample) { l.write(line{Sample: s}) }

// Event writes an event.
func (l *Lines) Event(e Event) { l.write(line{Event: &e}) }

// Result writes the end of a run, its verdicts included, and returns the first
// error there was in writing any line.
func (l *Lines) Result(r *Result) error {
	short := *r
	short.Samples, short.Events = nil, nil
	l.write(line{Result: &short})
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// write stops at the first error: a reader is to find no holes.
func (l *Lines) write(v line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = l.enc.Encode(v)
	}
}

// maxLine bounds a line that ReadLines takes.
const maxLine = 16 << 20

// ReadLines reads what a Lines wrote back into a Result. It fails when the last
// line is not a result, as after a crash, and when the version is another.
func ReadLines(r io.Reader) (*Result, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	var samples sampling
	samples.stride = 1
	var events []Event
	for n := 1; in.Scan(); n++ {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("measure: line %d: %w", n, err)
		}
		switch {
		case l.Sample != nil:
			samples.keep(*l.Sample)
		case l.Event != nil && len(events) < EventLimit:
			events = append(events, *l.Event)
		case l.Result != nil:
			if l.Result.Version != Version {
				return nil, fmt.Errorf("measure: line %d: a result of version %d, not %d", n, l.Result.Version, Version)
			}
			l.Result.Samples, l.Result.Events = samples.kept, events
			return l.Result, nil
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	return nil, errors.New("measure: the lines end before the run's result")
}
