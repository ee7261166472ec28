package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/load"
	"github.com/spf13/cobra"
)

//go:embed scenarios/*.yaml
var scenarios embed.FS

// maxScenario bounds a scenario file in bytes.
const maxScenario = 1 << 20

func (a *app) newScenario() *cobra.Command {
	var (
		c     common
		s     steadyFlags
		scale float64
		list  bool
		show  string
	)
	cmd := &cobra.Command{
		Use:   "scenario FILE.yaml|NAME URL",
		Short: "Run a sequence of phases with limits, for CI",
		Long: `Run a sequence of phases with limits. A scenario is a YAML file; docs/uastorm.md
describes its keys. Three come with uastorm and are run by their names; --show
prints one as a beginning for your own. They are small, for CI: --scale makes
them larger.`,
		Example: `  uastorm scenario shift-start opc.tcp://localhost:4840
  uastorm scenario hostile-neighbour opc.tcp://localhost:4840 --scale 10 --json out.jsonl
  uastorm scenario --show network-blip > mine.yaml
  uastorm scenario mine.yaml opc.tcp://localhost:4840 --report mine.html`,
		Args: func(_ *cobra.Command, args []string) error {
			if list || show != "" {
				return nil
			}
			if len(args) != 2 {
				return errors.New("need a scenario and the target's URL; --list shows the scenarios there are")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case list:
				return a.listScenarios()
			case show != "":
				text, err := fs.ReadFile(scenarios, path.Join("scenarios", show+".yaml"))
				if err != nil {
					return fmt.Errorf("no scenario %q; there are %s", show, strings.Join(scenarioNames(), ", "))
				}
				_, err = a.stdout.Write(text)
				return err
			}
			p, err := readScenario(args[0])
			if err != nil {
				return fails(exitUsage, err)
			}
			if !(scale > 0 && scale <= 10_000) {
				return fails(exitUsage, fmt.Errorf("--scale %v, need more than 0 and at most 10000", scale))
			}
			p.Scale(scale)
			s.override(&p.Steady, cmd.Flags())
			return c.run(a, cmd, args[1], args[0], p)
		},
	}
	cmd.Flags().Float64Var(&scale, "scale", 1, "`factor` for numbers of clients, rates and floods; durations and limits stay")
	cmd.Flags().BoolVar(&list, "list", false, "list the scenarios that come with uastorm")
	cmd.Flags().StringVar(&show, "show", "", "print the scenario of that `name`")
	s.addNodes(cmd.Flags())
	c.add(cmd.Flags())
	return cmd
}

// scenarioNames lists the embedded scenarios.
func scenarioNames() (names []string) {
	entries, _ := fs.ReadDir(scenarios, "scenarios")
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// readScenario reads an embedded scenario by its name, else a file.
func readScenario(name string) (*load.Plan, error) {
	if slices.Contains(scenarioNames(), name) {
		text, err := fs.ReadFile(scenarios, path.Join("scenarios", name+".yaml"))
		if err != nil {
			return nil, err
		}
		return load.ParsePlan(name+".yaml", text)
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(name, "./\\"):
		return nil, fmt.Errorf("no scenario %q; there are %s, or name a file", name, strings.Join(scenarioNames(), ", "))
	case err != nil:
		return nil, err
	case info.Size() > maxScenario:
		return nil, fmt.Errorf("%s: larger than a scenario can be", name)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return load.ParsePlan(name, text)
}

func (a *app) listScenarios() error {
	for _, n := range scenarioNames() {
		p, err := readScenario(n)
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(strings.TrimSpace(p.Description), "\n")
		if _, err := fmt.Fprintf(a.stdout, "%-18s %s\n", n, first); err != nil {
			return err
		}
	}
	return nil
}
