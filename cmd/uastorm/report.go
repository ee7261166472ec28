package main

import (
	"errors"
	"os"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/report"
	"github.com/spf13/cobra"
)

func (a *app) newReport() *cobra.Command {
	html := ""
	cmd := &cobra.Command{
		Use:   "report FILE.jsonl",
		Short: "Make the report of a run from what it wrote with --json",
		Example: `  uastorm report out.jsonl
  uastorm report out.jsonl --html out.html`,
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
			if html == "" {
				return report.Text(a.stdout, res)
			}
			w, err := os.Create(html)
			if err != nil {
				return err
			}
			return errors.Join(report.Write(w, res), w.Close())
		},
	}
	cmd.Flags().StringVar(&html, "html", "", "`file` for the page (default: a summary on standard output)")
	return cmd
}
