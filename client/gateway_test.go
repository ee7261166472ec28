package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"

	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

const (
	webHost  = "192.0.2.9:4843"
	httpsURL = "opc.https://" + webHost
	wssURL   = "opc.wss://" + webHost
)

// A gateway is an HTTPS server in front of a plant, which it reaches by opc.tcp: it
// speaks opc.https and opc.wss by the book, and misbehaves when it is told to.
type gateway struct {
	*plant
	cert *x509.Certificate
	ln   *memnet.Listener
	web  *http.Server

	mu       sync.Mutex
	answer   func(n int, w http.ResponseWriter, r *http.Request) bool // true: it has
	requests int
	refused  int // by refuse
	conns    map[*memnet.Conn]bool
	dials    int
	open     int // connections
	peak     int // the most at the same time
	ch       *securechannel.Client
	pending  map[uint32]chan []byte
}

// inGateway runs a test in a bubble with a gateway that speaks HTTP/2 or not.
func inGateway(t *testing.T, h2 bool, f func(g *gateway)) {
	t.Helper()
	inGatewayOf(t, stack.Options{}, h2, f)
}

func inGatewayOf(t *testing.T, o stack.Options, h2 bool, f func(g *gateway)) {
	t.Helper()
	inPlant(t, o, func(p *plant) {
		g := &gateway{plant: p, ln: memnet.Listen(webHost), conns: make(map[*memnet.Conn]bool), pending: make(map[uint32]chan []byte)}
		pair := g.certificate()
		conn, err := p.dial(p.ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		if g.ch, err = securechannel.Dial(p.ctx, conn, securechannel.ClientConfig{EndpointURL: plantURL}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(g.receive)
		g.web = &http.Server{Handler: http.HandlerFunc(g.serve), TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
			ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols), ConnState: g.count}
		g.web.Protocols.SetHTTP1(true)
		g.web.Protocols.SetHTTP2(h2)
		wg.Go(func() { _ = g.web.ServeTLS(g.ln, "", "") })
		f(g)
		_ = g.web.Close()
		_ = g.ch.Close()
		wg.Wait()
		g.ch.Release()
	})
}

func (g *gateway) certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		g.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.ParseIP("192.0.2.9")}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		g.Fatal(err)
	}
	if g.cert, err = x509.ParseCertificate(der); err != nil {
		g.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// reach is how clients get to the gateway.
func (g *gateway) reach(ctx context.Context, address string) (net.Conn, error) {
	if address != webHost {
		g.Errorf("dials %s", address)
	}
	g.mu.Lock()
	g.dials++
	n := g.dials
	g.mu.Unlock()
	c, err := g.ln.Dial(ctx, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(20000+n)))
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.conns[c.(*memnet.Conn)] = true
	g.mu.Unlock()
	return c, nil
}

// cutWeb resets every connection to the gateway.
func (g *gateway) cutWeb() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		c.Reset()
	}
	clear(g.conns)
}

func (g *gateway) count(_ net.Conn, st http.ConnState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch st {
	case http.StateNew:
		g.open++
		g.peak = max(g.peak, g.open)
	case http.StateClosed, http.StateHijacked:
		g.open--
	}
}

func (g *gateway) webOpts() Options {
	o := g.opts()
	o.Transport = ByScheme{Dial: g.reach}
	o.TLS.RootCAs = x509.NewCertPool()
	o.TLS.RootCAs.AddCert(g.cert)
	return o
}

func (g *gateway) receive() {
	for {
		id, body, err := g.ch.Receive()
		if err != nil {
			return
		}
		g.mu.Lock()
		to := g.pending[id]
		delete(g.pending, id)
		g.mu.Unlock()
		if to != nil {
			to <- append([]byte(nil), body...)
		}
	}
}

func (g *gateway) on(f func(n int, w http.ResponseWriter, r *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer, g.requests = f, 0
}

// refuse answers the next request of a service with a ServiceFault.
func (g *gateway) refuse(name string, code ua.StatusCode) {
	g.on(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return true // the test has cut it
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var d uabinary.Decoder
		d.Reset(body, nil)
		msg, err := uabinary.DecodeMessage(&d)
		if err != nil {
			g.Error(err)
			return true
		}
		rq := msg.(ua.Request)
		g.mu.Lock()
		mine := service(rq) == name && g.refused == 0
		if mine {
			g.refused++
		}
		g.mu.Unlock()
		if !mine {
			return false
		}
		var e uabinary.Encoder
		uabinary.EncodeMessage(&e, &ua.ServiceFault{ResponseHeader: &ua.ResponseHeader{RequestHandle: rq.Header().RequestHandle, Timestamp: time.Now(), ServiceResult: code}})
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(e.B)
		return true
	})
}

func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.requests++
	n, f := g.requests, g.answer
	g.mu.Unlock()
	if f != nil && f(n, w, r) {
		return
	}
	if r.Header.Get("Upgrade") != "" {
		g.socket(w, r)
		return
	}
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/octet-stream" || r.Header.Get("OPCUA-SecurityPolicy") != "http://opcfoundation.org/UA/SecurityPolicy#None" {
		g.Errorf("%s with %v", r.Method, r.Header)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the test has cut it
	}
	id, to := g.ch.NextRequestID(), make(chan []byte, 1)
	g.mu.Lock()
	g.pending[id] = to
	g.mu.Unlock()
	if err := g.ch.Send(id, body); err != nil {
		g.Error(err)
		return
	}
	select {
	case body = <-to:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(g.asHTTPS(body))
}

// asHTTPS makes the plant's endpoints the gateway's.
func (g *gateway) asHTTPS(body []byte) []byte {
	var d uabinary.Decoder
	d.Reset(body, nil)
	msg, err := uabinary.DecodeMessage(&d)
	if err != nil {
		g.Error(err)
		return body
	}
	var list []*ua.EndpointDescription
	switch rs := msg.(type) {
	case *ua.GetEndpointsResponse:
		list = rs.Endpoints
	case *ua.CreateSessionResponse:
		list = rs.ServerEndpoints
	default:
		return body
	}
	for _, e := range list {
		e.EndpointURL, e.TransportProfileURI = httpsURL, profileHTTPS
	}
	var e uabinary.Encoder
	uabinary.EncodeMessage(&e, msg)
	return e.B
}

// socket carries chunks between a WebSocket and the plant.
func (g *gateway) socket(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"opcua+uacp"}})
	if err != nil {
		g.Error(err)
		return
	}
	defer ws.CloseNow()
	conn, err := g.dial(r.Context(), "")
	if err != nil {
		_ = ws.Close(websocket.StatusTryAgainLater, "RetryAfterMs=2000")
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer ws.CloseNow()
		read := bufio.NewReader(conn)
		for {
			head, err := read.Peek(8)
			if err != nil {
				return
			}
			chunk := make([]byte, binary.LittleEndian.Uint32(head[4:]))
			if _, err := io.ReadFull(read, chunk); err != nil || ws.Write(g.ctx, websocket.MessageBinary, chunk) != nil {
				return
			}
		}
	})
	for {
		kind, b, err := ws.Read(g.ctx)
		if err != nil {
			break
		}
		if kind != websocket.MessageBinary || len(b) < 8 || int(binary.LittleEndian.Uint32(b[4:])) != len(b) {
			g.Errorf("a %v message of %d bytes is no chunk", kind, len(b))
		}
		if _, err := conn.Write(b); err != nil {
			break
		}
	}
	_ = conn.Close()
	wg.Wait()
}
