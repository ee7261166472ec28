// Package telemetry sets up what a program of this module tells its operators:
// structured logs and a registry of Prometheus metrics.
package telemetry

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Formats lists what NewLogger takes as format.
func Formats() []string { return []string{"text", "json"} }

// NewLogger returns a logger that writes to w. format is text or json, level
// debug, info, warn or error, in any case, also with an offset as in "info+2".
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		opts.ReplaceAttr = durationsAsText
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("log format %q: want text or json", format)
}

// durationsAsText writes 1.5s into JSON, as into text, instead of a number of
// nanoseconds that nobody can tell from one of milliseconds.
func durationsAsText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// NewRegistry returns a registry that holds cs besides the metrics of the Go
// runtime and of the process.
func NewRegistry(cs ...prometheus.Collector) (*prometheus.Registry, error) {
	r := prometheus.NewRegistry()
	cs = append(cs, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var errs []error
	for _, c := range cs {
		errs = append(errs, r.Register(c))
	}
	return r, errors.Join(errs...)
}

// Secret is a string that logs and prints as [redacted].
type Secret string

const redacted = "[redacted]"

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// String implements fmt.Stringer, so that %v and %s do not show it either.
func (Secret) String() string { return redacted }

// GoString implements fmt.GoStringer for %#v.
func (Secret) GoString() string { return redacted }
