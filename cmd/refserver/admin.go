package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/telemetry"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"
)

const (
	tokenBytes     = 32 // of randomness in the admin token
	maxTokenFile   = 1 << 10
	adminHeader    = 5 * time.Second
	adminWrite     = 2 * time.Minute // bounds pprof profiles too
	adminIdle      = time.Minute
	adminHeaderMax = 16 << 10
)

// admin is the HTTP interface for whoever looks after the server.
type admin struct {
	url   string
	ready atomic.Bool
	ln    net.Listener
	http  *http.Server
	tls   bool
	log   *slog.Logger

	limits *liveLimits
}

// validate reports settings that cannot work.
func (c *adminConfig) validate() error {
	if c.Listen == "off" {
		return nil
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("admin.listen: %w", err)
	}
	if (c.TLSCertificate == "") != (c.TLSKey == "") {
		return errors.New("admin.tlsCertificate and admin.tlsKey go together")
	}
	if !isLoopback(host) && c.TLSCertificate == "" {
		return fmt.Errorf("admin.listen: %s is not a loopback address, so it needs admin.tlsCertificate and admin.tlsKey", c.Listen)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// openAdmin listens on the admin address. The token is made when there is none.
func openAdmin(ctx context.Context, c adminConfig, srv *stack.Server, limits *liveLimits, log *slog.Logger) (*admin, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	token, err := loadToken(c.Token)
	if err != nil {
		return nil, err
	}
	registry, err := telemetry.NewRegistry(srv.Collector())
	if err != nil {
		return nil, err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("admin.listen: %w (another --admin address would do, or off)", err)
	}
	a := &admin{ln: ln, log: log, tls: c.TLSCertificate != "", limits: limits}
	a.ready.Store(true)
	scheme := "http"
	if a.tls {
		scheme = "https"
		if a.http, err = serverTLS(c.TLSCertificate, c.TLSKey); err != nil {
			return nil, errors.Join(err, ln.Close())
		}
	} else {
		a.http = &http.Server{}
	}
	a.url = scheme + "://" + ln.Addr().String()
	a.http.ReadHeaderTimeout, a.http.ReadTimeout = adminHeader, adminHeader
	a.http.WriteTimeout, a.http.IdleTimeout, a.http.MaxHeaderBytes = adminWrite, adminIdle, adminHeaderMax
	a.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	a.http.Handler = guard(a.routes(srv, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})), token, adminHosts(c), a.log)
	return a, nil
}

// openPaths need no token: what monitors ask for all the time.
var openPaths = []string{"/healthz", "/readyz", "/metrics"}

func (a *admin) routes(srv *stack.Server, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if a.ready.Load() {
			answer(w, http.StatusOK, "ready")
			return
		}
		answer(w, http.StatusServiceUnavailable, "shutting down")
	})
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /admin/stats", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, srv.Stats(), a.log)
	})
	mux.HandleFunc("GET /admin/isolation", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, viewIsolation(srv.Isolation()), a.log)
	})
	mux.HandleFunc("GET /admin/admission", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, srv.AdmissionStatus(), a.log)
	})
	if a.limits != nil {
		mux.HandleFunc("POST /admin/limits", a.limits.post)
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "/healthz /readyz /metrics /admin/stats /admin/isolation /admin/admission /admin/limits /debug/pprof/")
	})
	return mux
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // the peer may have gone
}

// refusalsPerSecond bounds the log lines that strangers can cause.
const refusalsPerSecond = 5

// guard lets requests pass that name one of hosts, come from no foreign page and,
// except for openPaths, carry the token (overload.md §17). Whatever changes
// something has to be JSON, which no foreign form can send. Refusals are logged, at
// most refusalsPerSecond of them.
func guard(next http.Handler, token telemetry.Secret, hosts []string, log *slog.Logger) http.Handler {
	alarms := rate.NewLimiter(refusalsPerSecond, refusalsPerSecond)
	refuse := func(w http.ResponseWriter, r *http.Request, code int, text string) {
		if alarms.Allow() {
			log.Warn("admin request refused", "remote", r.RemoteAddr, "status", code, "path", r.URL.Path, "cause", text)
		}
		answer(w, code, text)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(hosts, hostOf(r.Host)) {
			refuse(w, r, http.StatusMisdirectedRequest, "unknown host; admin.hosts names further ones")
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
				refuse(w, r, http.StatusForbidden, "foreign origin")
				return
			}
		}
		if !slices.Contains(openPaths, r.URL.Path) && !authorized(r, token) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="refserver"`)
			refuse(w, r, http.StatusUnauthorized, "needs the token of admin.token")
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(kind) != "application/json" {
				answer(w, http.StatusUnsupportedMediaType, "needs Content-Type application/json")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func authorized(r *http.Request, token telemetry.Secret) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 1
}

// hostOf strips the port from a Host header.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// adminHosts lists the names by which the admin interface may be called: an
// attacker's page that had its own name point here (DNS rebinding) knows none.
func adminHosts(c adminConfig) []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	host, _, err := net.SplitHostPort(c.Listen)
	if err == nil {
		hosts = append(hosts, strings.ToLower(host))
	}
	if !isLoopback(host) {
		for _, name := range pki.LocalHosts() {
			hosts = append(hosts, strings.ToLower(name))
		}
	}
	for _, name := range c.Hosts {
		hosts = append(hosts, hostOf(name))
	}
	return hosts
}

// serve answers until close.
func (a *admin) serve() {
	var err error
	if a.tls {
		err = a.http.ServeTLS(a.ln, "", "")
	} else {
		err = a.http.Serve(a.ln)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		a.log.Error("admin interface ended", "error", err)
	}
}

// close ends the interface; requests in flight get a second.
func (a *admin) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := a.http.Shutdown(ctx); err != nil {
		return a.http.Close()
	}
	_ = a.ln.Close() // when it was never served
	return nil
}

// loadToken reads the bearer token and makes one when the file is not there.
func loadToken(file string) (telemetry.Secret, error) {
	token, err := readToken(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	raw := make([]byte, tokenBytes)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	token = telemetry.Secret(hex.EncodeToString(raw))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) { // another server was faster
		return readToken(file)
	}
	if err != nil {
		return "", err
	}
	_, err = io.WriteString(f, string(token)+"\n")
	return token, errors.Join(err, f.Close())
}

func readToken(file string) (telemetry.Secret, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s has mode %04o and may be read by others; make it 0600, or delete it for a new token", file, info.Mode().Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if len(token) < tokenBytes {
		return "", fmt.Errorf("%s holds no token of at least %d characters; delete it for a new one", file, tokenBytes)
	}
	return telemetry.Secret(token), nil
}
