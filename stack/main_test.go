package stack_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/stack"
)

// pkiDir is shared by all tests of the package, so that one key is made.
var pkiDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "stack")
	if err != nil {
		panic(err)
	}
	pkiDir = dir
	srv, err := stack.NewServer(options()) // makes the key
	if err == nil {
		err = srv.Shutdown(context.Background())
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// options are those of a test server on a free loopback port.
func options() stack.Options {
	return stack.Options{
		ApplicationName: "Test server",
		Endpoints:       []string{"opc.tcp://127.0.0.1:0"},
		Security:        stack.Security{AllowNone: true, AllowAnonymous: true, PKI: pkiDir, TrustAll: true},
		Logger:          slog.New(slog.NewTextHandler(testLog, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// testLog gathers what the servers of all tests log; tests read it by substring.
var testLog = new(logBuffer)

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), s)
}

// start runs a server until the test ends and then checks that nothing is left.
func start(t testing.TB, o stack.Options, prepare ...func(*stack.Server)) *stack.Server {
	t.Helper()
	before := runtime.NumGoroutine()
	srv, err := stack.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range prepare {
		f(srv)
	}
	if err := srv.Listen(context.Background()); err != nil {
		t.Fatal(err)
	}
	running.Add(1)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil && err != stack.ErrServerClosed {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(20 * time.Second):
			buf := make([]byte, 1<<20)
			t.Fatalf("Run does not end\n%s", buf[:runtime.Stack(buf, true)])
		}
		running.Add(-1)
		nothingLeft(t, srv, before)
	})
	return srv
}

// running counts the servers of start.
var running atomic.Int32

// nothingLeft asserts what must hold after every integration test: no leases, no
// budget, no sessions, no goroutines.
func nothingLeft(t testing.TB, srv *stack.Server, goroutines int) {
	t.Helper()
	st := srv.Stats()
	if st.Channels != 0 || st.Sessions != 0 || st.Subscriptions != 0 || st.MonitoredItems != 0 || st.ParkedPublishes != 0 || st.BlockingRequests != 0 || st.BudgetReserved != 0 {
		t.Errorf("left behind: %+v", st)
	}
	if n := buffer.Outstanding(); n != 0 && running.Load() == 0 { // counted with -tags bufdebug
		t.Errorf("%d buffers left behind\n%s", n, buffer.Leaks())
	}
	if running.Load() != 0 {
		return // the goroutines of the test's other servers come and go
	}
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > goroutines {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Errorf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), goroutines, buf[:runtime.Stack(buf, true)])
			return
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
}

func endpoint(srv *stack.Server) string { return "opc.tcp://" + srv.Addrs()[0].String() }

// clientKey is a self-signed client certificate, made once.
var clientKey = sync.OnceValues(func() ([]byte, *rsa.PrivateKey) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	uri, _ := url.Parse("urn:test:client")
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test client"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageContentCommitment | x509.KeyUsageDataEncipherment | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, URIs: []*url.URL{uri},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return der, key
})
