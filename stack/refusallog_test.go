package stack_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security/pki"
)

// A journal is a log that tests read.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

// has reports whether one line has all parts.
func (j *journal) has(parts ...string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
lines:
	for line := range strings.Lines(j.b.String()) {
		for _, p := range parts {
			if !strings.Contains(line, p) {
				continue lines
			}
		}
		return true
	}
	return false
}

// Each refusal for security's sake names the client's address and the code.
func TestRefusalsNameTheClient(t *testing.T) {
	var log journal
	o := strict(t)
	o.Endpoints = []string{"opc.tcp://127.0.0.1:0", "opc.https://127.0.0.1:0"}
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	srv := start(t, o, plant)

	// opc.tcp: in OpenSecureChannel; there is no channel yet.
	if _, err := secured(t, srv, ua.UserTokenTypeAnonymous); err == nil {
		t.Fatal("an unknown certificate was let in")
	}
	for _, line := range []string{`msg="certificate refused"`, `msg="secure channel closed"`} {
		if !log.has(line, "code=BadCertificateUntrusted", "remote=127.0.0.1:") {
			t.Errorf("no such line: %s", line)
		}
	}

	// HTTPS: in CreateSession.
	s := newSigner(t, srv)
	if code := codeOf(s.send(s.create())); code != ua.StatusBadSecurityChecksFailed {
		t.Fatalf("an unknown certificate: %v", code)
	}
	if !log.has(`msg="certificate refused"`, "remote=127.0.0.1:", "channel=", "code=BadCertificateUntrusted") {
		t.Error("HTTPS: the refusal of the certificate names no channel")
	}
	if !log.has(`msg="session refused"`, "remote=127.0.0.1:", "channel=", "code=BadSecurityChecksFailed") {
		t.Error("HTTPS: the refusal of the session names no channel")
	}

	// A certificate that is not trusted any more.
	thumb := pki.Thumbprint(s.certificate)
	if _, err := srv.PKI().Trust(thumb); err != nil {
		t.Fatal(err)
	}
	c, err := secured(t, srv, ua.UserTokenTypeAnonymous, opcua.AutoReconnect(false))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := srv.PKI().Reject(thumb); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		return log.has(`msg="channel closed: its certificate is not trusted any more"`, "remote=127.0.0.1:", "channel=", "code=BadCertificateUntrusted")
	})
}
