package main

import (
	"errors"
	"io"
	"os"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/report"
	"github.com/spf13/cobra"
)

func (a *app) newReport() *cobra.Command {
	var html, svg string
	cmd := &cobra.Command{
		Use:   "report FILE.jsonl",
		Short: "Make the report of a run from what it wrote with --json",
		Long: `Make the report of a run from what it wrote with --json. It exits with 0 also
when that run has failed: it is the report that was asked for, and its verdict
stands in it.`,
		Example: `  uastorm report out.jsonl
  uastorm report out.jsonl --html out.html --svg out.svg`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			res, err := measure.ReadLines(f)
			if err != nil {
				return err
			}
			if html == "" && svg == "" {
				return report.Text(a.stdout, res)
			}
			return errors.Join(writeReport(html, res, report.Write), writeReport(svg, res, report.SVG))
		},
	}
	cmd.Flags().StringVar(&html, "html", "", "`file` for the page (default: a summary on standard output)")
	cmd.Flags().StringVar(&svg, "svg", "", "`file` for the picture of sessions and latency alone")
	return cmd
}

// writeReport writes one form of a report to a file, unless name is empty.
func writeReport(name string, res *measure.Result, form func(io.Writer, *measure.Result) error) error {
	if name == "" {
		return nil
	}
	w, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(form(w, res), w.Close())
}
