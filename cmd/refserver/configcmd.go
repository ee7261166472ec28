package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/breakwater-ua/breakwater/telemetry"
)

func (a *app) newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Write or check the configuration file",
		Args:  cobra.NoArgs,
	}
	var force, print bool
	initialize := &cobra.Command{
		Use:   "init",
		Short: "Write a commented configuration file with all defaults",
		Long: `Write a commented configuration file with all defaults to --config, or to
refserver.yaml in the configuration folder. A file that is there is kept unless
--force is given.`,
		Example: `  refserver config init
  refserver config init --config /etc/breakwater/refserver.yaml
  refserver config init --print | less`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if print {
				_, err := a.stdout.Write(configText)
				return err
			}
			file := a.configFile
			if file == "" {
				dir, err := configDir()
				if err != nil {
					return err
				}
				file = filepath.Join(dir, "refserver.yaml")
			}
			if err := writeConfig(file, force); err != nil {
				return err
			}
			fmt.Fprintln(a.stdout, "wrote", file)
			return nil
		},
	}
	initialize.Flags().BoolVar(&force, "force", false, "overwrite a file that is there")
	initialize.Flags().BoolVar(&print, "print", false, "print to standard output instead")
	check := &cobra.Command{
		Use:   "check",
		Short: "Read all settings and say whether the server would start with them",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.load()
			if err != nil {
				return err
			}
			if err := c.locate(); err != nil {
				return err
			}
			if _, err := telemetry.NewLogger(io.Discard, c.Log.Format, c.Log.Level); err != nil {
				return err
			}
			o, err := c.options(nil)
			if err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return settingError(err)
			}
			if err := c.Admin.validate(); err != nil {
				return err
			}
			fmt.Fprintln(a.stdout, "the settings are good")
			return nil
		},
	}
	cmd.AddCommand(initialize, check)
	return cmd
}

func writeConfig(file string, force bool) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if !force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	}
	f, err := os.OpenFile(file, flags, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; --force overwrites it", file)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(configText)
	return errors.Join(err, f.Close())
}
