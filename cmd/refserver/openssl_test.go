package main

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/security/opensslkey"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/stack"
)

func TestOpenSSL(t *testing.T) {
	dir := ownFolder(t)
	t.Setenv("BREAKWATER_SECURITY_OPENSSL", "true")
	_, err := refserver(t, "", "config", "check")
	if !opensslkey.Available {
		if err == nil || !strings.Contains(err.Error(), "-tags openssl") {
			t.Errorf("%v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := refserver(t, "", "serve", "--listen", "opc.tcp://127.0.0.1:0", "--admin", "off"); err == nil || !strings.Contains(err.Error(), "first start") {
		t.Errorf("before there is a certificate: %v", err)
	}
	log := slog.New(slog.DiscardHandler)
	c := defaultConfig()
	c.PKI, c.Users, c.Listen = filepath.Join(dir, "pki"), filepath.Join(dir, "users.yaml"), []string{"opc.tcp://127.0.0.1:0"}
	store, err := pki.Open(c.PKI, pki.Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := store.LoadOrCreate(pki.AppInfo{ApplicationURI: "urn:plant7", ApplicationName: "x", Hosts: []string{"localhost"}}); err != nil {
		t.Fatal(err)
	}
	key, err := c.opensslKey(log) // which signs once, to prove that key and certificate belong together
	if err != nil {
		t.Fatal(err)
	}
	defer key.Gate().Close()
	o, err := c.options(log)
	if err != nil {
		t.Fatal(err)
	}
	o.Security.Key = key
	srv, err := stack.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	if srv.ApplicationURI() != "urn:plant7" || srv.Key() != key {
		t.Errorf("the server is %s and uses another key", srv.ApplicationURI())
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
