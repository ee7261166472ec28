package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/gopcua/opcua/ua"
)

// banner prints what an engineer needs to connect.
func (r *running) banner(out io.Writer) error {
	fmt.Fprintf(out, "%s %s\n\n", r.config.ApplicationName, version().short)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	for _, e := range endpointRows(r.server.Endpoints()) {
		row("endpoint", "%s", e)
	}
	for i, url := range r.server.URLs() {
		if i > 0 { // the rows above name the first
			row("also at", "%s", url)
		}
	}
	row("application", "%s", r.server.ApplicationURI())
	if key := r.server.Key(); key != nil {
		row("certificate", "SHA-1 %s", pki.Thumbprint(key.Certificate()))
	}
	if store := r.server.PKI(); store != nil {
		row("PKI folder", "%s", store.Dir())
	}
	if r.config.Security.UserNames {
		users, err := session.OpenUsers(r.config.Users, session.UsersOptions{})
		if err != nil {
			return err
		}
		row("users", "%s (%d; refserver user add NAME)", r.config.Users, len(users.List()))
	}
	if r.admin != nil {
		row("admin", "%s (token in %s)", r.admin.url, r.config.Admin.Token)
	}
	row("runtime", "%s", r.plan)
	if err := w.Flush(); err != nil {
		return err
	}
	if r.config.Security.TrustAll {
		fmt.Fprint(out, "\n  !! --trust-all: EVERY client certificate is accepted. Never use this in a plant. !!\n")
	}
	if r.config.Security.None && r.config.Security.Anonymous {
		fmt.Fprint(out, "\n  ! The endpoint without security lets anybody read and write (security.none, security.anonymous).\n")
	}
	_, err := fmt.Fprintln(out)
	return err
}

// endpointRows sums up endpoints as one line per URL and policy.
func endpointRows(endpoints []*ua.EndpointDescription) []string {
	var rows []string
	modes := map[string][]string{}
	for _, e := range endpoints {
		_, policy, _ := strings.Cut(e.SecurityPolicyURI, "#")
		row := e.EndpointURL + "  " + policy
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
		if e.SecurityMode != ua.MessageSecurityModeNone {
			modes[row] = append(modes[row], strings.TrimPrefix(e.SecurityMode.String(), "MessageSecurityMode"))
		}
	}
	for i, row := range rows {
		if m := modes[row]; len(m) > 0 {
			rows[i] = row + " (" + strings.Join(m, ", ") + ")"
		}
	}
	return rows
}
