package stack_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/stack"
)

// everywhere are the options of a server that serves all transports on one
// loopback port.
func everywhere() stack.Options {
	o := options()
	o.Endpoints = []string{"opc.tcp://127.0.0.1:0", "opc.wss://127.0.0.1:0", "opc.https://127.0.0.1:0"}
	return o
}

// A browser is an HTTP client that trusts any server.
func browser(t *testing.T, certificates ...tls.Certificate) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// post sends a request in OPC UA Binary and returns its answer.
func post(t testing.TB, c *http.Client, srv *stack.Server, body []byte, header ...string) (any, *http.Response) {
	t.Helper()
	rq, err := http.NewRequest(http.MethodPost, "https://"+srv.Addrs()[0].String()+"/", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	rq.Header.Set("Content-Type", "application/octet-stream")
	for i := 0; i < len(header); i += 2 {
		rq.Header.Set(header[i], header[i+1])
	}
	rs, err := c.Do(rq)
	if err != nil {
		t.Fatal(err)
	}
	defer rs.Body.Close()
	b, err := io.ReadAll(rs.Body)
	if err != nil {
		t.Fatal(err)
	}
	if rs.StatusCode != http.StatusOK {
		return nil, rs
	}
	return decode(t, b), rs
}

// postJSON sends a request as JSON and returns the fields of its answer.
func postJSON(t testing.TB, c *http.Client, srv *stack.Server, body string) map[string]any {
	t.Helper()
	rs, err := c.Post("https://"+srv.Addrs()[0].String()+"/", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer rs.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(rs.Body).Decode(&out); err != nil || rs.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", rs.Status, err)
	}
	return out
}

// All transports on one port: opc.tcp, and a session over HTTPS in OPC UA Binary
// over connections that come and go.
func TestOnePortForAll(t *testing.T) {
	srv := start(t, everywhere())
	if n := len(srv.Addrs()); n != 1 {
		t.Fatalf("%d listeners", n)
	}
	p := &peer{T: t}
	call := func(rq any) any {
		t.Helper()
		c := browser(t) // a connection of its own
		msg, rs := post(t, c, srv, p.encode(rq))
		if msg == nil {
			t.Fatalf("%T: %s", rq, rs.Status)
		}
		c.CloseIdleConnections()
		return msg
	}
	p.token = call(createOf(p)).(*ua.CreateSessionResponse).AuthenticationToken
	if r := call(activateOf(p)).(*ua.ActivateSessionResponse); r.ResponseHeader.ServiceResult != ua.StatusOK {
		t.Fatal(r.ResponseHeader.ServiceResult)
	}
	if r := call(readOf(p, numeric(2259))).(*ua.ReadResponse); r.Results[0].Value.Value() != int32(0) {
		t.Errorf("State is %v", r.Results[0].Value.Value())
	}
	call(&ua.CloseSessionRequest{RequestHeader: p.header()})
	if c, err := secured(t, srv, ua.UserTokenTypeAnonymous); err != nil {
		t.Error(err)
	} else if v, err := c.Node(numeric(2259)).Value(context.Background()); err != nil || v.Value() != int32(0) {
		t.Errorf("over opc.tcp: %v %v", v, err)
	}
}

// OPC 10000-6 §7.4.5: JSON over HTTPS; every endpoint is announced with its
// transport profile, whichever way the question comes, and filters are minded.
func TestDiscoveryOverHTTPS(t *testing.T) {
	srv := start(t, everywhere())
	c := browser(t)
	p := &peer{T: t}
	port := strings.TrimPrefix(srv.Addrs()[0].String(), "127.0.0.1:")
	msg, _ := post(t, c, srv, p.encode(&ua.GetEndpointsRequest{RequestHeader: p.header(), EndpointURL: "https://127.0.0.1:" + port}))
	count := make(map[string]int)
	for _, ep := range msg.(*ua.GetEndpointsResponse).Endpoints {
		profile := ep.TransportProfileURI[strings.LastIndex(ep.TransportProfileURI, "/")+1:]
		count[profile+" "+ep.EndpointURL[:strings.Index(ep.EndpointURL, ":")]+" "+ep.SecurityMode.String()]++
		if !strings.HasSuffix(ep.EndpointURL, "//127.0.0.1:"+port) {
			t.Errorf("%s", ep.EndpointURL)
		}
	}
	want := map[string]int{}
	for _, x := range []string{"uatcp-uasc-uabinary opc.tcp", "wss-uasc-uabinary opc.wss"} {
		for _, mode := range []ua.MessageSecurityMode{ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt} {
			want[x+" "+mode.String()] = 3
		}
		want[x+" "+ua.MessageSecurityModeNone.String()] = 1
	}
	for _, x := range []string{"https-uabinary opc.https", "https-uajson opc.https"} {
		want[x+" "+ua.MessageSecurityModeSign.String()] = 3
		want[x+" "+ua.MessageSecurityModeNone.String()] = 1
	}
	want["wss-uajson opc.wss "+ua.MessageSecurityModeNone.String()] = 1
	if fmt.Sprint(count) != fmt.Sprint(want) {
		t.Errorf("endpoints %v\nwant %v", count, want)
	}
	msg, _ = post(t, c, srv, p.encode(&ua.GetEndpointsRequest{RequestHeader: p.header(), ProfileURIs: []string{wssJSONProfile}}))
	if eps := msg.(*ua.GetEndpointsResponse).Endpoints; len(eps) != 1 || eps[0].TransportProfileURI != wssJSONProfile {
		t.Errorf("filtered: %v", eps)
	}
	msg, _ = post(t, c, srv, p.encode(&ua.FindServersRequest{RequestHeader: p.header()}))
	if s := msg.(*ua.FindServersResponse).Servers; len(s) != 1 || len(s[0].DiscoveryURLs) != 3 {
		t.Errorf("servers: %+v", s)
	}
	if created, _ := post(t, c, srv, p.encode(createOf(p))); created != nil {
		for _, ep := range created.(*ua.CreateSessionResponse).ServerEndpoints {
			if ep.TransportProfileURI != httpsProfile {
				t.Errorf("CreateSession shows %s", ep.TransportProfileURI)
			}
		}
	}
	out := postJSON(t, c, srv, `{"UaTypeId":"i=426","RequestHeader":{"RequestHandle":7},"EndpointUrl":""}`)
	if eps, _ := out["Endpoints"].([]any); len(eps) != len(msgEndpoints(t, c, srv, p)) {
		t.Errorf("as JSON: %v", out)
	}
}

func msgEndpoints(t *testing.T, c *http.Client, srv *stack.Server, p *peer) []*ua.EndpointDescription {
	msg, _ := post(t, c, srv, p.encode(&ua.GetEndpointsRequest{RequestHeader: p.header()}))
	return msg.(*ua.GetEndpointsResponse).Endpoints
}

// pairFile writes a self-signed pair and returns its serial number.
func pairFile(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: b}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// The server makes itself a pair that only its owner may read, and keeps it.
func TestOwnTLSCertificate(t *testing.T) {
	o := strict(t)
	o.Endpoints = []string{"opc.https://127.0.0.1:0"}
	var leafs [2]*x509.Certificate
	for i := range leafs {
		srv, err := stack.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		if err := srv.Listen(ctx); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- srv.Run(ctx) }()
		c, err := tls.Dial("tcp", srv.Addrs()[0].String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		leafs[i] = c.ConnectionState().PeerCertificates[0]
		c.Close()
		cancel()
		<-ended
	}
	if !leafs[0].Equal(leafs[1]) {
		t.Error("another certificate after a restart")
	}
	if k, ok := leafs[0].PublicKey.(*ecdsa.PublicKey); !ok || k.Curve != elliptic.P256() {
		t.Errorf("the key is a %T", leafs[0].PublicKey)
	}
	if err := leafs[0].VerifyHostname("localhost"); err != nil {
		t.Error(err)
	}
	if err := leafs[0].VerifyHostname("127.0.0.1"); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(filepath.Join(o.Security.PKI, "tls", "key.pem"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// Files that change are read again; a pair that cannot be used changes nothing.
func TestTLSReload(t *testing.T) {
	dir := t.TempDir()
	o := stack.Options{Security: stack.Security{Policies: stack.NoPolicies, AllowNone: true, AllowAnonymous: true}}
	synctest.Test(t, func(t *testing.T) {
		o.TLS.CertificateFile, o.TLS.KeyFile = pairFile(t, dir, 1)
		bubble(t, o, func(s *site) {
			ln := memnet.Listen("192.0.2.2:4843")
			ended := make(chan error, 1)
			go func() { ended <- s.srv.ServeTLS(ln) }()
			serial := func() int64 {
				t.Helper()
				conn, err := ln.Dial(t.Context(), netip.MustParseAddrPort("192.0.2.1:1"))
				if err != nil {
					t.Fatal(err)
				}
				c := tls.Client(conn, insecure())
				defer c.Close()
				if err := c.Handshake(); err != nil {
					t.Fatal(err)
				}
				return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
			}
			if n := serial(); n != 1 {
				t.Errorf("serial %d", n)
			}
			if err := os.WriteFile(o.TLS.CertificateFile, []byte("rubbish"), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			if n := serial(); n != 1 || !testLog.contains("TLS certificate cannot be used") {
				t.Errorf("serial %d after a bad file", n)
			}
			pairFile(t, dir, 2)
			time.Sleep(3 * time.Second)
			if n := serial(); n != 2 {
				t.Errorf("serial %d after another pair", n)
			}
			s.down()
			<-ended
		})
	})
}

// waitFor polls what a watcher of files brings about.
func waitFor(t *testing.T, f func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(15 * time.Second)
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it does not come")
		}
	}
}

// Mutual TLS: who shows no certificate of the authorities is refused in the handshake.
func TestMutualTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := pairFile(t, dir, 3)
	o := everywhere()
	o.TLS.ClientCAs, o.TLS.RequireClientCertificate = cert, true
	srv := start(t, o)
	p := &peer{T: t}
	if _, err := browser(t).Post("https://"+srv.Addrs()[0].String()+"/", "application/octet-stream", strings.NewReader("")); err == nil {
		t.Error("let in without a certificate")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if msg, rs := post(t, browser(t, pair), srv, p.encode(&ua.GetEndpointsRequest{RequestHeader: p.header()})); msg == nil {
		t.Errorf("with a certificate: %s", rs.Status)
	}
}
