package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/internal/command"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/session"
)

// banner prints what an engineer needs to connect.
func (r *running) banner(out io.Writer) error {
	fmt.Fprintf(out, "%s %s\n\n", r.config.ApplicationName, command.ThisBuild().Short)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	endpoints := endpointRows(r.server.Endpoints())
	for _, e := range endpoints {
		row("endpoint", "%s", e)
	}
	for _, url := range r.server.URLs() {
		if !slices.ContainsFunc(endpoints, func(e string) bool { return strings.HasPrefix(e, url+"\t") }) {
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

// endpointRows sums up endpoints as one line per URL: policies of the same modes
// side by side.
func endpointRows(endpoints []*ua.EndpointDescription) []string {
	type policy struct {
		name  string
		modes []string
	}
	var urls []string
	policies := map[string][]*policy{}
	for _, e := range endpoints {
		if !slices.Contains(urls, e.EndpointURL) {
			urls = append(urls, e.EndpointURL)
		}
		_, name, _ := strings.Cut(e.SecurityPolicyURI, "#")
		known := policies[e.EndpointURL]
		i := slices.IndexFunc(known, func(p *policy) bool { return p.name == name })
		if i < 0 {
			i = len(known)
			known = append(known, &policy{name: name})
			policies[e.EndpointURL] = known
		}
		mode := strings.TrimPrefix(e.SecurityMode.String(), "MessageSecurityMode")
		if e.SecurityMode != ua.MessageSecurityModeNone && !slices.Contains(known[i].modes, mode) { // once for each transport profile
			known[i].modes = append(known[i].modes, mode)
		}
	}
	rows := make([]string, len(urls))
	for i, url := range urls {
		var groups []string
		for p := policies[url]; len(p) > 0; {
			n := 1
			for n < len(p) && slices.Equal(p[n].modes, p[0].modes) {
				n++
			}
			var names []string
			for _, q := range p[:n] {
				names = append(names, q.name)
			}
			group := strings.Join(names, ", ")
			if len(p[0].modes) > 0 {
				group += " (" + strings.Join(p[0].modes, ", ") + ")"
			}
			groups = append(groups, group)
			p = p[n:]
		}
		rows[i] = url + "\t" + strings.Join(groups, "; ")
	}
	return rows
}
