package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/spf13/cobra"
)

func (a *app) newPKI() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pki",
		Short: "List, trust, reject, show and renew certificates",
		Long: `Look after the PKI folder. A REF is a thumbprint, the first digits of one as
"pki list" prints it, or a file. Running servers notice changes of trust.

Certificates of users, who log in with them, have a folder of their own, users in
the PKI folder: --user is about that one.`,
		Example: `  refserver pki list
  refserver pki trust 4F2A9C        a certificate that was refused, by its thumbprint
  refserver pki trust client.der    a certificate from a file
  refserver pki trust --user ada.der let ada log in with her certificate
  refserver pki show                this server's own certificate
  refserver pki renew --new-key`,
		Args: cobra.NoArgs,
	}
	cmd.PersistentFlags().BoolVar(&a.userPKI, "user", false, "certificates of users instead of applications")
	cmd.AddCommand(a.newPKIList(), a.newPKITrust(), a.newPKIReject(), a.newPKIShow(), a.newPKIRenew())
	return cmd
}

func (a *app) openPKI(create bool) (*pki.Store, *config, error) {
	c, err := a.load()
	if err != nil {
		return nil, nil, err
	}
	if err := c.locate(); err != nil {
		return nil, nil, err
	}
	dir := c.PKI
	if a.userPKI {
		dir = filepath.Join(dir, userPKIFolder)
	}
	// Only a first start, or a certificate to trust, makes a folder.
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && !create {
		return nil, nil, fmt.Errorf("there is no folder %s yet; the server's first start makes it, or pki trust", dir)
	}
	store, err := pki.Open(dir, pki.Options{Logger: a.toolLogger()})
	return store, c, err
}

// userPKIFolder is where stack keeps certificates of users, in the PKI folder.
const userPKIFolder = "users"

func (a *app) newPKIList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List certificates: own, trusted, issuers, rejected",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			store, _, err := a.openPKI(false)
			if err != nil {
				return err
			}
			entries, err := store.List()
			w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "FOLDER\tTHUMBPRINT\tVALID UNTIL\tSUBJECT\tAPPLICATION URI")
			for _, e := range entries {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.Folder, e.Thumbprint, e.NotAfter.Format("2006-01-02"), e.Subject, e.ApplicationURI)
			}
			return errors.Join(err, w.Flush())
		},
	}
}

func (a *app) newPKITrust() *cobra.Command {
	return &cobra.Command{
		Use:   "trust REF",
		Short: "Trust a certificate that was refused, or one in a file",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			store, _, err := a.openPKI(true)
			if err != nil {
				return err
			}
			e, err := store.Trust(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "trusted %s %s\n", e.Thumbprint, e.Subject)
			return err
		},
	}
}

func (a *app) newPKIReject() *cobra.Command {
	return &cobra.Command{
		Use:   "reject REF",
		Short: "Trust a certificate no longer",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			store, _, err := a.openPKI(false)
			if err != nil {
				return err
			}
			e, err := store.Reject(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "rejected %s %s\n", e.Thumbprint, e.Subject)
			return err
		},
	}
}

func (a *app) newPKIShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show [REF]",
		Short: "Describe a certificate; without REF this server's own",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			store, _, err := a.openPKI(false)
			if err != nil {
				return err
			}
			ref := ""
			if len(args) > 0 {
				ref = args[0]
			} else if a.userPKI {
				return errors.New("name a thumbprint or a file")
			} else if own, err := ownCertificate(store); err != nil {
				return err
			} else {
				ref = own.Thumbprint
			}
			text, err := store.Show(ref)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, text)
			return err
		},
	}
}

func ownCertificate(store *pki.Store) (pki.Entry, error) {
	entries, err := store.List()
	for _, e := range entries {
		if e.Folder == pki.FolderOwn {
			return e, nil
		}
	}
	return pki.Entry{}, errors.Join(fmt.Errorf("%s holds no certificate of this server yet; its first start makes one", store.Dir()), err)
}

func (a *app) newPKIRenew() *cobra.Command {
	var newKey bool
	cmd := &cobra.Command{
		Use:   "renew",
		Short: "Make a new certificate for this server",
		Long: `Make a new self-signed certificate for this server, with the key it has or with
a new one. Restart the server, and let the clients trust the new certificate.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.userPKI {
				return errors.New("users make their certificates themselves")
			}
			store, c, err := a.openPKI(false)
			if err != nil {
				return err
			}
			own, err := ownCertificate(store)
			if err != nil {
				return err
			}
			info := pki.AppInfo{ApplicationURI: own.ApplicationURI, ApplicationName: c.ApplicationName, Hosts: c.hosts()}
			if c.ApplicationURI != "" {
				info.ApplicationURI = c.ApplicationURI
			}
			e, err := store.Renew(info, newKey)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "made %s, valid until %s; restart the server\n", e.Thumbprint, e.NotAfter.Format("2006-01-02"))
			return err
		},
	}
	cmd.Flags().BoolVar(&newKey, "new-key", false, "make a new key as well")
	return cmd
}

// hosts are the names for the certificate: this machine's, those that are
// listened on and those that are advertised.
func (c *config) hosts() []string {
	hosts := pki.LocalHosts()
	add := func(host string) {
		if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	for _, raw := range c.Listen {
		if u, err := url.Parse(raw); err == nil {
			add(u.Hostname())
		}
	}
	for _, host := range c.Advertise {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		add(host)
	}
	return hosts
}
