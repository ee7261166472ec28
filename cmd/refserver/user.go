package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/breakwater-ua/breakwater/session"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// maxPasswordLine bounds what --password-stdin reads.
const maxPasswordLine = 4096

func (a *app) newUser() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Add, delete and list the users who may log in by name and password",
		Long: `Add, delete and list the users who may log in by name and password. They are
kept in the users file with argon2id hashes; a running server notices changes.`,
		Example: `  refserver user add alice                 asks for the password
  pass show plant | refserver user add alice --admin --password-stdin
  refserver user list`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(a.newUserAdd(), a.newUserPassword(), a.newUserDelete(), a.newUserList())
	return cmd
}

func (a *app) users() (*session.Users, error) {
	c, err := a.load()
	if err != nil {
		return nil, err
	}
	if err := c.locate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(c.Users), 0o700); err != nil {
		return nil, err
	}
	return session.OpenUsers(c.Users, session.UsersOptions{Logger: a.toolLogger()})
}

func (a *app) newUserAdd() *cobra.Command {
	var user session.User
	var fromStdin bool
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a user; asks for the password",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			users, err := a.users()
			if err != nil {
				return err
			}
			password, err := a.password(fromStdin)
			if err != nil {
				return err
			}
			user.Name = args[0]
			if err := users.Add(user, password); err != nil {
				return fmt.Errorf("%s: %w", user.Name, err)
			}
			_, err = fmt.Fprintf(a.stdout, "added %s\n", user.Name)
			return err
		},
	}
	cmd.Flags().BoolVar(&user.Admin, "admin", false, "may call administrative methods")
	cmd.Flags().StringVar(&user.Tenant, "tenant", "", "admission `scope` the user counts in")
	cmd.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password from standard input, one line")
	return cmd
}

func (a *app) newUserPassword() *cobra.Command {
	var fromStdin bool
	cmd := &cobra.Command{
		Use:   "password NAME",
		Short: "Give a user a new password",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			users, err := a.users()
			if err != nil {
				return err
			}
			password, err := a.password(fromStdin)
			if err != nil {
				return err
			}
			if err := users.SetPassword(args[0], password); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(a.stdout, "changed the password of %s\n", args[0])
			return err
		},
	}
	cmd.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password from standard input, one line")
	return cmd
}

func (a *app) newUserDelete() *cobra.Command {
	return &cobra.Command{
		Use:     "del NAME",
		Aliases: []string{"delete", "rm"},
		Short:   "Delete a user; sessions that are open stay so",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			users, err := a.users()
			if err != nil {
				return err
			}
			if err := users.Delete(args[0]); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(a.stdout, "deleted %s\n", args[0])
			return err
		},
	}
}

func (a *app) newUserList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the users",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			users, err := a.users()
			if err != nil {
				return err
			}
			for _, u := range users.List() {
				line := u.Name
				if u.Admin {
					line += "  admin"
				}
				if u.Tenant != "" {
					line += "  tenant " + u.Tenant
				}
				if _, err := fmt.Fprintln(a.stdout, line); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// password reads a new password: one line of standard input, or twice from the
// terminal without echo.
func (a *app) password(fromStdin bool) ([]byte, error) {
	if fromStdin {
		line, err := bufio.NewReader(io.LimitReader(a.stdin, maxPasswordLine)).ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if len(line) == 0 {
			return nil, errors.New("standard input holds no password")
		}
		return line, nil
	}
	f, ok := a.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, errors.New("standard input is no terminal; use --password-stdin")
	}
	var typed [2][]byte
	for i, prompt := range []string{"Password: ", "Once more: "} {
		fmt.Fprint(a.stderr, prompt)
		line, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.stderr)
		if err != nil {
			return nil, err
		}
		typed[i] = line
	}
	if !bytes.Equal(typed[0], typed[1]) {
		return nil, errors.New("the two passwords differ")
	}
	return typed[0], nil
}
