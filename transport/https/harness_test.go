package https

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// pair is a certificate for the server of the tests, and who trusts it.
var pair = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return certify(key, &key.PublicKey)
})

func certify(key any, public any) (tls.Certificate, *x509.CertPool) {
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), DNSNames: []string{"plant"},
		IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, public, key)
	if err != nil {
		panic(err)
	}
	leaf, _ := x509.ParseCertificate(der)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// calls is a handler that answers at once, unless it is told to hold.
type calls struct {
	t     testing.TB
	hold  bool
	held  chan transport.Call
	gone  chan *transport.Peer
	seen  func(transport.Call)
	large int // bytes of padding in the answers
}

func (h *calls) Call(c transport.Call) {
	if h.seen != nil {
		h.seen(c)
	}
	if h.hold {
		h.held <- c
		return
	}
	if err := c.Respond(h.answer(c.Body()), ua.StatusGood, 0); err != nil {
		h.t.Error(err)
	}
}

func (h *calls) Gone(p *transport.Peer) { h.gone <- p }

// answer is a ReadResponse, or for what cannot be decoded a fault.
func (h *calls) answer(body []byte) []byte {
	var d uabinary.Decoder
	d.Reset(body, nil)
	d.TypeID()
	rh := d.RequestHeader()
	if d.Err() != nil {
		return transport.AppendFault(nil, 0, ua.StatusBadDecodingError, time.Now())
	}
	b := uabinary.AppendTypeID(nil, id.ReadResponse_Encoding_DefaultBinary)
	b = uabinary.AppendResponseHeader(b, &uabinary.ResponseHeader{RequestHandle: rh.RequestHandle})
	b = uabinary.AppendInt32(b, 1)
	v, err := uabinary.NewVariant(make([]byte, h.large))
	if err != nil {
		panic(err)
	}
	b = uabinary.AppendDataValue(b, &uabinary.DataValue{Value: v, Mask: ua.DataValueValue})
	return uabinary.AppendInt32(b, -1)
}

// request is a ReadRequest with a handle.
func request(handle uint32) []byte {
	b := uabinary.AppendTypeID(nil, id.ReadRequest_Encoding_DefaultBinary)
	b = uabinary.AppendRequestHeader(b, &uabinary.RequestHeader{RequestHandle: handle})
	b = uabinary.AppendDouble(b, 0)
	b = uabinary.AppendUint32(b, 0)
	return uabinary.AppendInt32(b, 0)
}

// fault reads what an answer in binary says.
func result(t testing.TB, body []byte) (typeID, handle uint32, code ua.StatusCode) {
	t.Helper()
	var d uabinary.Decoder
	d.Reset(body, nil)
	typeID = d.TypeID()
	d.DateTime()
	handle, code = d.UInt32(), d.StatusCode()
	if d.Err() != nil {
		t.Fatalf("answer %x: %v", body, d.Err())
	}
	return typeID, handle, code
}

// server is a Listener and all that it must leave clean.
type server struct {
	*Listener
	h         *calls
	mem       *memnet.Listener
	gate      *transport.Gate
	deadlines *transport.Deadlines
	provider  *isolation.Provider
	budget    *budget.ChunkReassemblyBudget
	governor  *admission.HTTPGovernor
	closed    chan transport.CloseReason
	cancel    context.CancelFunc
	done      sync.WaitGroup
}

// start serves in memory, or with loopback on a socket.
func start(t testing.TB, loopback bool, o Options) *server {
	t.Helper()
	before := buffer.Outstanding()
	cert, _ := pair()
	s := &server{h: &calls{t: t, held: make(chan transport.Call, 1000), gone: make(chan *transport.Peer, 1000)},
		closed: make(chan transport.CloseReason, 5000), deadlines: transport.NewDeadlines()}
	if o.Gate == nil {
		var err error
		if o.Gate, err = transport.NewGate(transport.GateOptions{ConnectionsUnlimited: true, Isolation: o.Isolation}); err != nil {
			t.Fatal(err)
		}
	}
	if o.Budget == nil {
		o.Budget, _ = budget.New(64 << 20)
	}
	if !o.OPCTCP && !o.WSS {
		o.HTTPS = true
	}
	s.gate, s.budget, s.provider, s.governor = o.Gate, o.Budget, o.Isolation, o.Governor
	o.Deadlines, o.Calls = s.deadlines, s.h
	o.Logger = slog.New(slog.DiscardHandler)
	o.Closed = func(_ netip.AddrPort, r transport.CloseReason) { s.closed <- r }
	if o.TLS == nil {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	}
	var err error
	if loopback {
		s.Listener, err = Listen(context.Background(), "127.0.0.1:0", o)
	} else {
		s.mem = memnet.Listen("10.0.0.1:4843")
		s.Listener, err = New(s.mem, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.done.Go(func() {
		if err := s.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		s.stop()
		s.clean(t, before)
	})
	return s
}

func (s *server) stop() {
	s.cancel()
	s.done.Wait()
	s.deadlines.Close()
}

// clean checks that nothing is left.
func (s *server) clean(t testing.TB, buffers int) {
	t.Helper()
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections left", n)
	}
	if u := s.gate.Usage(); u.Connections != 0 || u.Handshakes != 0 {
		t.Errorf("gate after the end: %+v", u)
	}
	if n := s.deadlines.Len(); n != 0 {
		t.Errorf("%d deadlines left", n)
	}
	if n := s.budget.Reserved(); n != 0 {
		t.Errorf("budget: %d bytes left", n)
	}
	if s.provider != nil {
		for st := range isolation.Stage(isolation.Stages) {
			if n := s.provider.Used(st); n != 0 {
				t.Errorf("%v: %d left", st, n)
			}
		}
	}
	if s.governor != nil {
		if st := s.governor.Status(); st.Node.Data.Count+st.Node.Control.Count != 0 {
			t.Errorf("governor: %+v", st)
		}
	}
	if n := buffer.Outstanding(); n != buffers {
		t.Errorf("%d buffers left:\n%s", n-buffers, buffer.Leaks())
	}
}

func (s *server) dial(t testing.TB) net.Conn {
	t.Helper()
	var c net.Conn
	var err error
	if s.mem != nil {
		c, err = s.mem.Dial(context.Background(), netip.MustParseAddrPort("10.0.0.2:999"))
	} else {
		c, err = net.Dial("tcp", s.Addr().String())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// tls is a connection after its handshake.
func (s *server) secure(t testing.TB, protocols ...string) *tls.Conn {
	t.Helper()
	_, pool := pair()
	c := tls.Client(s.dial(t), &tls.Config{RootCAs: pool, ServerName: "plant", NextProtos: protocols})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c
}

// client speaks HTTP; h2 or HTTP/1.1.
func (s *server) client(t testing.TB, h2 bool) *http.Client {
	t.Helper()
	tr := &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
		if h2 {
			return s.secure(t, "h2"), nil
		}
		return s.secure(t, "http/1.1"), nil
	}, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!h2)
	tr.Protocols.SetHTTP2(h2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// answer is what came back.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

const (
	binaryType = "application/octet-stream"
	jsonType   = "application/json"
)

func post(t testing.TB, c *http.Client, kind string, body []byte, headers ...string) answer {
	t.Helper()
	return do(t, c, http.MethodPost, kind, bytes.NewReader(body), headers...)
}

func do(t testing.TB, c *http.Client, method, kind string, body io.Reader, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequest(method, "https://plant/UA/Server", body)
	if err != nil {
		t.Fatal(err)
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, b}
}

// raw sends bytes and reads one answer, and says whether the server then closes.
func raw(t testing.TB, c net.Conn, send string) answer {
	t.Helper()
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	return readAnswer(t, bufio.NewReader(c))
}

func readAnswer(t testing.TB, r *bufio.Reader) answer {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, b}
}

// ends checks that the server closes the connection.
func ends(t testing.TB, c net.Conn) {
	t.Helper()
	if b, err := io.ReadAll(c); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !isReset(err) {
		t.Fatalf("%q, %v", b, err)
	}
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (s *server) expectClosed(t testing.TB, want transport.CloseReason) {
	t.Helper()
	if r := <-s.closed; r != want {
		t.Fatalf("closed as %v, want %v", r, want)
	}
}

func buffered(b []byte) *buffer.Buffer {
	in := buffer.Get(len(b))
	in.B = append(in.B, b...)
	return in
}
