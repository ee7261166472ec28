package main

import (
	"errors"
	"io"
	"os"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/report"
)

// outputFiles are where a run's figures go beside the terminal. They are opened
// before the run, which may take an hour.
type outputFiles struct {
	lines *measure.Lines // nil: not asked for
	page  io.Writer      // nil: not asked for
	open  []io.Closer
}

// open creates the files that the flags name; - is standard output.
func (r *runner) open() (f outputFiles, err error) {
	create := func(name string) (io.Writer, error) {
		if name == "-" {
			return r.stdout, nil
		}
		w, err := os.Create(name)
		if err != nil {
			return nil, err
		}
		f.open = append(f.open, w)
		return w, nil
	}
	if r.output.json != "" {
		w, err := create(r.output.json)
		if err != nil {
			return f, err
		}
		f.lines = measure.NewLines(w)
	}
	if r.output.report != "" {
		if f.page, err = create(r.output.report); err != nil {
			return f, errors.Join(err, f.close())
		}
	}
	return f, nil
}

// write writes what comes at the end of a run.
func (f *outputFiles) write(res *measure.Result) (err error) {
	if f.lines != nil {
		err = f.lines.Result(res)
	}
	if f.page != nil {
		err = errors.Join(err, report.Write(f.page, res))
	}
	return err
}

func (f *outputFiles) close() (err error) {
	for _, w := range f.open {
		err = errors.Join(err, w.Close())
	}
	f.open = nil
	return err
}
