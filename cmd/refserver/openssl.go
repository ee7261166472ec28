package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/opensslkey"
	"github.com/breakwater-ua/breakwater/security/pki"
)

// checkOpenSSL reports security.openssl in a program that was built without it.
func (c *config) checkOpenSSL() error {
	if c.Security.OpenSSL && !opensslkey.Available {
		return errors.New("security.openssl: this refserver was built without OpenSSL; build it with -tags openssl (needs cgo and libcrypto 3)")
	}
	return nil
}

// opensslKey loads the server's key from the PKI folder into OpenSSL. The caller
// closes the key's gate after the server's end.
func (c *config) opensslKey(log *slog.Logger) (*security.Key, error) {
	store, err := pki.Open(c.PKI, pki.Options{TrustAll: c.Security.TrustAll, Logger: log})
	if err != nil {
		return nil, err
	}
	own, err := ownCertificate(store)
	if err != nil {
		return nil, fmt.Errorf("security.openssl: %w, without this setting", err)
	}
	info := pki.AppInfo{ApplicationURI: own.ApplicationURI, ApplicationName: c.ApplicationName, Hosts: c.hosts()}
	chain, private, _, err := store.LoadOrCreate(info)
	if err != nil {
		return nil, err
	}
	fast, err := opensslkey.New(private)
	if err != nil {
		return nil, fmt.Errorf("security.openssl: %w", err)
	}
	gate := security.NewCryptoGate(c.Runtime.CryptoWorkers)
	key, err := security.NewKey(chain, fast, fast, gate)
	if err != nil {
		gate.Close()
		return nil, err
	}
	return key, nil
}
