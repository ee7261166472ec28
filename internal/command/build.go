// Package command is what the commands of this module share: which build they
// are, and how signals end them.
package command

import (
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// A Build says which build of a command this is. What is not known is empty.
type Build struct {
	Short    string // module version or "devel"
	Revision string // of version control
	Time     time.Time
	Go       string // the toolchain's version
}

// ThisBuild reads it from the binary.
var ThisBuild = sync.OnceValue(func() Build {
	v := Build{Short: "devel"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.Short = m
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time, _ = time.Parse(time.RFC3339, s.Value)
		}
	}
	return v
})

// NewVersion is the subcommand that prints the build of a program.
func NewVersion(program string, stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := ThisBuild()
			fmt.Fprintf(stdout, "%s %s\n", program, v.Short)
			if v.Revision != "" {
				fmt.Fprintf(stdout, "revision  %s (%s)\n", v.Revision, v.Time.Format(time.RFC3339))
			}
			_, err := fmt.Fprintf(stdout, "go        %s\n", v.Go)
			return err
		},
	}
}
