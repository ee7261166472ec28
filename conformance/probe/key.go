package probe

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/gopcua/opcua/ua"
)

// NewKey makes a self-signed application certificate for uri with an RSA key
// of 2048 bits, whose private operations run on gate.
func NewKey(gate *security.CryptoGate, uri, name string) (*security.Key, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(uri)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	tpl := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: []string{"Breakwater"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment | x509.KeyUsageKeyEncipherment |
			x509.KeyUsageDataEncipherment | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: false,
		URIs: []*url.URL{u}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return security.NewKey([][]byte{der}, key, key, gate)
}

func leaf(der []byte) (*rsa.PublicKey, error) {
	certs, err := x509.ParseCertificates(der)
	if err != nil || len(certs) == 0 {
		return nil, fmt.Errorf("probe: server certificate: %w", err)
	}
	k, ok := certs[0].PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("probe: server key is %T", certs[0].PublicKey)
	}
	return k, nil
}

// Endpoints asks a server for its endpoints over a channel of its own.
func Endpoints(ctx context.Context, o Options) ([]*ua.EndpointDescription, error) {
	c, err := Open(ctx, o.discovery())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	rs, err := Call[*ua.GetEndpointsResponse](ctx, c, &ua.GetEndpointsRequest{EndpointURL: o.URL})
	if err != nil {
		return nil, err
	}
	return rs.Endpoints, nil
}
