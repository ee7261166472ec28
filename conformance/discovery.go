package conformance

import (
	"bytes"
	"slices"
	"strings"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/gopcua/opcua/ua"
)

// discovery opens the channel without security that discovery always gets.
func (t *T) discovery() *probe.Conn {
	o := t.Target.options()
	o.Key = nil
	return t.OpenWith(o)
}

var discoveryCases = []Case{
	{"Discovery Get Endpoints", "answers without a session", "OPC 10000-4 §5.5.4", func(t *T) {
		rs := call[*ua.GetEndpointsResponse](t, t.discovery(), &ua.GetEndpointsRequest{EndpointURL: t.Target.URL})
		if len(rs.Endpoints) == 0 {
			t.Fatalf("no endpoints")
		}
		for _, e := range rs.Endpoints {
			if e.EndpointURL == "" || e.Server == nil || e.Server.ApplicationURI == "" || e.TransportProfileURI == "" {
				t.Errorf("incomplete endpoint %+v", e)
			}
			if (e.SecurityMode == ua.MessageSecurityModeNone) != (e.SecurityPolicyURI == security.None.URI) {
				t.Errorf("mode %v with policy %s", e.SecurityMode, e.SecurityPolicyURI)
			}
			if e.SecurityMode != ua.MessageSecurityModeNone && len(e.ServerCertificate) == 0 {
				t.Errorf("%s %v has no certificate", e.SecurityPolicyURI, e.SecurityMode)
			}
		}
	}},
	{"Discovery Get Endpoints", "policyIds are unique within an endpoint", "OPC 10000-4 §7.42", func(t *T) {
		rs := call[*ua.GetEndpointsResponse](t, t.discovery(), &ua.GetEndpointsRequest{EndpointURL: t.Target.URL})
		for _, e := range rs.Endpoints {
			seen := map[string]bool{}
			for _, p := range e.UserIdentityTokens {
				if p.PolicyID == "" || seen[p.PolicyID] {
					t.Errorf("%s %v: policyId %q is empty or stands twice", e.SecurityPolicyURI, e.SecurityMode, p.PolicyID)
				}
				seen[p.PolicyID] = true
			}
			if len(seen) == 0 {
				t.Errorf("%s %v offers no user token", e.SecurityPolicyURI, e.SecurityMode)
			}
		}
	}},
	{"Discovery Get Endpoints", "a password never crosses an endpoint without security or TLS in the clear", "OPC 10000-4 §7.41", func(t *T) {
		rs := call[*ua.GetEndpointsResponse](t, t.discovery(), &ua.GetEndpointsRequest{EndpointURL: t.Target.URL})
		for _, e := range rs.Endpoints {
			for _, p := range e.UserIdentityTokens {
				if p.TokenType == ua.UserTokenTypeUserName && e.SecurityMode == ua.MessageSecurityModeNone && strings.HasPrefix(e.EndpointURL, "opc.tcp:") &&
					(p.SecurityPolicyURI == "" || p.SecurityPolicyURI == security.None.URI) {
					t.Errorf("policy %q on %s names no SecurityPolicy", p.PolicyID, e.EndpointURL)
				}
			}
		}
	}},
	{"Discovery Get Endpoints", "profileUris filter the list", "OPC 10000-4 §5.5.4", func(t *T) {
		c := t.discovery()
		profile := t.Target.Transport().Profile()
		rs := call[*ua.GetEndpointsResponse](t, c, &ua.GetEndpointsRequest{EndpointURL: t.Target.URL, ProfileURIs: []string{profile}})
		if len(rs.Endpoints) == 0 {
			t.Errorf("nothing for %s", profile)
		}
		for _, e := range rs.Endpoints {
			if e.TransportProfileURI != profile {
				t.Errorf("got %s", e.TransportProfileURI)
			}
		}
		rs = call[*ua.GetEndpointsResponse](t, c, &ua.GetEndpointsRequest{EndpointURL: t.Target.URL, ProfileURIs: []string{"urn:no:such:profile"}})
		if len(rs.Endpoints) != 0 {
			t.Errorf("%d endpoints for an unknown profile", len(rs.Endpoints))
		}
	}},
	{"Discovery Get Endpoints", "locales it does not have are no error", "OPC 10000-4 §5.5.4", func(t *T) {
		call[*ua.GetEndpointsResponse](t, t.discovery(), &ua.GetEndpointsRequest{EndpointURL: t.Target.URL, LocaleIDs: []string{"xx-YY", "de"}})
	}},
	{"Discovery Find Servers Self", "finds itself", "OPC 10000-4 §5.5.2", func(t *T) {
		rs := call[*ua.FindServersResponse](t, t.discovery(), &ua.FindServersRequest{EndpointURL: t.Target.URL})
		if len(rs.Servers) == 0 {
			t.Fatalf("no servers")
		}
		if s := rs.Servers[0]; s.ApplicationURI == "" || len(s.DiscoveryURLs) == 0 || s.ApplicationName == nil || s.ApplicationName.Text == "" {
			t.Errorf("incomplete description %+v", s)
		}
	}},
	{"Discovery Find Servers Self", "serverUris filter the list", "OPC 10000-4 §5.5.2", func(t *T) {
		c := t.discovery()
		all := call[*ua.FindServersResponse](t, c, &ua.FindServersRequest{EndpointURL: t.Target.URL})
		uri := all.Servers[0].ApplicationURI
		one := call[*ua.FindServersResponse](t, c, &ua.FindServersRequest{EndpointURL: t.Target.URL, ServerURIs: []string{uri}})
		if len(one.Servers) != 1 || one.Servers[0].ApplicationURI != uri {
			t.Errorf("filter for %s found %d servers", uri, len(one.Servers))
		}
		none := call[*ua.FindServersResponse](t, c, &ua.FindServersRequest{EndpointURL: t.Target.URL, ServerURIs: []string{"urn:nobody"}})
		if len(none.Servers) != 0 {
			t.Errorf("filter for nobody found %d servers", len(none.Servers))
		}
	}},
	{"Discovery Get Endpoints", "CreateSession repeats the same list", "OPC 10000-4 §5.7.2", func(t *T) {
		rs := call[*ua.GetEndpointsResponse](t, t.discovery(), &ua.GetEndpointsRequest{EndpointURL: t.Target.URL})
		s := t.Create(t.Open())
		key := func(e *ua.EndpointDescription) string {
			return e.EndpointURL + "|" + e.SecurityPolicyURI + "|" + e.SecurityMode.String() + "|" + e.TransportProfileURI
		}
		var want, got []string
		for _, e := range rs.Endpoints {
			if t.ours(e) {
				want = append(want, key(e))
			}
		}
		for _, e := range s.Created.ServerEndpoints {
			if t.ours(e) {
				got = append(got, key(e))
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("GetEndpoints listed %v, CreateSession %v", want, got)
		}
		if len(s.Created.ServerCertificate) > 0 && !bytes.Equal(s.Created.ServerCertificate, rs.Endpoints[0].ServerCertificate) {
			t.Errorf("another certificate than GetEndpoints")
		}
	}},
}
