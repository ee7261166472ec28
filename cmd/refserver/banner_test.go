package main

import (
	"slices"
	"testing"

	"github.com/gopcua/opcua/ua"
)

func TestEndpointRows(t *testing.T) {
	endpoint := func(url, policy string, mode ua.MessageSecurityMode) *ua.EndpointDescription {
		return &ua.EndpointDescription{EndpointURL: url, SecurityPolicyURI: ua.SecurityPolicyURIPrefix + policy, SecurityMode: mode}
	}
	got := endpointRows([]*ua.EndpointDescription{
		endpoint("opc.tcp://a:1", "P", ua.MessageSecurityModeSignAndEncrypt),
		endpoint("opc.tcp://a:1", "P", ua.MessageSecurityModeSign),
		endpoint("opc.tcp://a:1", "Q", ua.MessageSecurityModeSignAndEncrypt),
		endpoint("opc.tcp://a:1", "Q", ua.MessageSecurityModeSign),
		endpoint("opc.tcp://a:1", "None", ua.MessageSecurityModeNone),
		endpoint("opc.https://a:2", "P", ua.MessageSecurityModeSign), // binary
		endpoint("opc.https://a:2", "P", ua.MessageSecurityModeSign), // JSON
	})
	want := []string{"opc.tcp://a:1\tP, Q (SignAndEncrypt, Sign); None", "opc.https://a:2\tP (Sign)"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
