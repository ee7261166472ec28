package main

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// buildVersion says which build this is.
type buildVersion struct {
	short    string // module version or "devel"
	revision string
	time     time.Time
	golang   string
}

var version = sync.OnceValue(func() buildVersion {
	v := buildVersion{short: "devel"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.golang = info.GoVersion
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.short = m
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.revision = s.Value
		case "vcs.time":
			v.time, _ = time.Parse(time.RFC3339, s.Value)
		}
	}
	return v
})

func (a *app) newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := version()
			fmt.Fprintf(a.stdout, "uastorm %s\n", v.short)
			if v.revision != "" {
				fmt.Fprintf(a.stdout, "revision  %s (%s)\n", v.revision, v.time.Format(time.RFC3339))
			}
			_, err := fmt.Fprintf(a.stdout, "go        %s\n", v.golang)
			return err
		},
	}
}
