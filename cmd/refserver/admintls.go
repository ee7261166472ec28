package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
)

// serverTLS returns an HTTP server with a certificate from PEM files.
func serverTLS(certFile, keyFile string) (*http.Server, error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("admin.tlsCertificate: %w", err)
	}
	return &http.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}}, nil
}
