package main

import (
	"io"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/breakwater-ua/breakwater/internal/command"
)

// app is what all subcommands share.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer

	configFile string // --config
	pkiDir     string // --pki
	usersFile  string // --users
	userPKI    bool   // pki --user
}

const rootLong = `refserver is an OPC UA server over opc.tcp, WebSocket and HTTPS with a demo
address space.

Without a subcommand it serves. The first start makes an application certificate
and a PKI folder; clients that connect securely are refused until their
certificate is trusted, and the log line of a refusal is the command that does it.

Settings come from, in rising order: built-in defaults, a YAML file (--config, or
refserver.yaml in the configuration folder), environment variables BREAKWATER_*
(BREAKWATER_ADMIN_LISTEN for admin.listen), and flags.`

const rootExample = `  refserver                                     serve on ports 4840 (opc.tcp) and 4843 (opc.wss, opc.https)
  refserver --listen opc.tcp://127.0.0.1:48400  serve opc.tcp on loopback only
  refserver --listen-shared :4840               serve all three on one port
  refserver --trust-all --demo-variables 100000 accept any certificate, for a mass test
  refserver user add alice --admin              let alice in; asks for the password
  refserver pki list                            which certificates are trusted, which were refused
  refserver pki trust 4F2A9C                    trust the refused one whose thumbprint begins so
  refserver plan                                what is kept for whom, and what a full server says
  refserver config init                         write a commented configuration file`

func newRoot(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	serve := a.newServe()
	root := &cobra.Command{
		Use:           "refserver",
		Short:         "OPC UA reference server with a demo address space",
		Long:          rootLong,
		Example:       rootExample,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	s := &serveFlags{}
	s.add(root.Flags())
	root.RunE = func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, s) }
	p := root.PersistentFlags()
	p.StringVar(&a.configFile, "config", "", "YAML `file` with settings (default refserver.yaml in the configuration folder, if it is there)")
	p.StringVar(&a.pkiDir, "pki", "", "PKI `folder` (default pki in the configuration folder)")
	p.StringVar(&a.usersFile, "users", "", "users `file` (default users.yaml in the configuration folder)")
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(serve, a.newPlan(), a.newConfig(), a.newPKI(), a.newUser(), command.NewVersion("refserver", stdout))
	return root
}

// load reads the settings that flags of every command may override.
func (a *app) load() (*config, error) {
	c, strays, err := loadConfig(a.configFile)
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		flag string
		to   *string
	}{{a.pkiDir, &c.PKI}, {a.usersFile, &c.Users}} {
		if f.flag == "" {
			continue
		}
		if *f.to, err = filepath.Abs(f.flag); err != nil {
			return nil, err
		}
	}
	if len(strays) > 0 {
		a.toolLogger().Warn("environment variables that name no setting", "variables", strays)
	}
	return c, nil
}

// toolLogger logs what a command that is no server has to say beside its output.
func (a *app) toolLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
