package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/breakwater-ua/breakwater/stack"
)

// settings lists where a field of stack.Options is not named like its key.
var settings = map[string]string{
	"Endpoints":              "listen",
	"NodeSets":               "nodesets",
	"ApplicationURI":         "applicationUri",
	"Classifier":             "isolation.trustedIngress",
	"RequestCost":            "isolation.requestCost",
	"Security.PKI":           "pki",
	"Security.AllowNone":     "security.none",
	"Limits.WriteQueueBytes": "limits.writeQueue",
	"Limits.Operations.MaxNodesPerTranslateBrowsePathsToNodeIDs": "limits.maxNodesPerTranslateBrowsePaths",
	"HTTP.AllowPolicyNone":  "http.none",
	"HTTP.AllowSessionless": "http.sessionless",
	"TLS":                   "tls",
	"TLS.CertificateFile":   "tls.certificate",
	"TLS.KeyFile":           "tls.key",
}

// named is a map's key in brackets, as in Stages[Connection]; a number is an index.
var named = regexp.MustCompile(`\[([A-Za-z]+)\]`)

// settingError words an error of stack.Options for somebody who knows the
// configuration file: by the key instead of the field.
func settingError(err error) error {
	var e *stack.OptionError
	if !errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("%s: %s", settingName(e.Field), e.Reason)
}

func settingName(field string) string {
	if key, ok := settings[field]; ok {
		return key
	}
	parts := strings.Split(strings.Replace(field, "Limits.Operations.", "Limits.", 1), ".")
	for i, p := range parts {
		if p == strings.ToUpper(p) { // HTTP, TLS
			parts[i] = strings.ToLower(p)
			continue
		}
		first := []rune(p)
		first[0] = unicode.ToLower(first[0])
		parts[i] = named.ReplaceAllString(string(first), ".$1")
	}
	return strings.Join(parts, ".")
}
