package interop

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua"
)

const (
	applicationURI = "urn:breakwater:interop:client"
	demoNamespace  = "urn:breakwater:demo"
	userName       = "tester"
	password       = "correct horse battery staple"
	tokenLifetime  = 4 * time.Second
)

// refserver is a running reference server with what its clients need to know.
type refserver struct {
	address string // host:port of its opc.tcp listener
	web     string // host:port of its listener for opc.wss and opc.https
	pki     string // its PKI folder
	files   map[string]string
}

// startServer builds refserver from the tree and starts it on a loopback port
// with one user, one trusted application and one trusted X.509 user.
func startServer(ctx context.Context, t *testing.T) *refserver {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "refserver")
	command(t, nil, "go", "build", "-o", bin, "../../cmd/refserver")

	s := &refserver{files: map[string]string{}}
	for _, name := range []string{"client", "user"} {
		cert, key := filepath.Join(dir, name+".der"), filepath.Join(dir, name+".pem")
		writeCertificate(t, name, cert, key)
		s.files[name+".der"], s.files[name+".pem"] = cert, key
	}
	config := filepath.Join(dir, "refserver.yaml")
	s.pki = filepath.Join(dir, "pki")
	text := fmt.Sprintf("listen: [\"opc.tcp://127.0.0.1:0\", \"opc.wss://127.0.0.1:0\", \"opc.https://127.0.0.1:0\"]\npki: %q\nusers: %q\nadmin:\n  listen: \"off\"\nlimits:\n  minTokenLifetime: 1s\n",
		s.pki, filepath.Join(dir, "users.yaml"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, []byte(password+"\n"), bin, "user", "add", userName, "--password-stdin", "--config", config)
	command(t, nil, bin, "pki", "trust", s.files["client.der"], "--config", config)
	command(t, nil, bin, "pki", "trust", "--user", s.files["user.der"], "--config", config)

	// Not ctx, which ends before the cleanup that ends the server in order.
	run := exec.Command(bin, "serve", "--config", config, "--log-level", "warn")
	run.WaitDelay = 10 * time.Second
	stdout, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	run.Stderr = &log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan [2]string, 1)
	var out sync.WaitGroup
	out.Go(func() {
		defer close(listening)
		endpoint := regexp.MustCompile(`opc\.(tcp|wss)://(127\.0\.0\.1:\d+)`)
		found := map[string]string{}
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if m := endpoint.FindStringSubmatch(lines.Text()); m != nil && len(found) < 2 {
				if found[m[1]] = m[2]; len(found) == 2 {
					listening <- [2]string{found["tcp"], found["wss"]}
				}
			}
		}
	})
	t.Cleanup(func() {
		_ = run.Process.Signal(syscall.SIGTERM)
		out.Wait()
		if err := run.Wait(); err != nil {
			t.Errorf("refserver did not end well: %v", err)
		}
		if t.Failed() {
			t.Logf("refserver's log:\n%s", log.String())
		}
	})
	select {
	case found := <-listening:
		s.address, s.web = found[0], found[1]
	case <-time.After(30 * time.Second):
	}
	if s.address == "" {
		t.Fatalf("refserver announced no endpoints:\n%s", log.String())
	}
	s.saveCertificate(ctx, t, filepath.Join(dir, "server.der"))
	return s
}

// saveCertificate asks the server for its certificate, as an engineer would
// before trusting it.
func (s *refserver) saveCertificate(ctx context.Context, t *testing.T, file string) {
	t.Helper()
	endpoints, err := opcua.GetEndpoints(ctx, "opc.tcp://"+s.address)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range endpoints {
		if len(e.ServerCertificate) > 0 {
			if err := os.WriteFile(file, e.ServerCertificate, 0o600); err != nil {
				t.Fatal(err)
			}
			s.files["server.der"] = file
			return
		}
	}
	t.Fatal("no endpoint carries a certificate")
}

func command(t *testing.T, stdin []byte, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
}

// writeCertificate makes a self-signed application instance certificate
// (OPC 10000-6 §6.2.2, Application Instance Certificate) and its key.
func writeCertificate(t *testing.T, name, certFile, keyFile string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	uri, err := url.Parse(applicationURI)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "Breakwater interop " + name, Organization: []string{"Breakwater"}},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(0, 1, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment | x509.KeyUsageKeyEncipherment |
			x509.KeyUsageDataEncipherment | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{uri},
		DNSNames:              []string{host, "localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(certFile, der, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}
