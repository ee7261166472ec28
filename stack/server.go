package stack

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/admission/retry"
	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/subscription"
	"github.com/gopcua/opcua/ua"
	"golang.org/x/time/rate"
)

// ErrServerClosed is returned by Run, Listen and Serve after Shutdown.
var ErrServerClosed = errors.New("stack: server closed")

// A Server is an OPC UA server. Make one with NewServer, run it with Run, or
// with Serve on listeners of your own, and end it by Run's context or Shutdown.
type Server struct {
	opts     Options // resolved
	log      *slog.Logger
	space    *addressspace.Space
	tables   *tables
	budget   *budget.ChunkReassemblyBudget
	key      *security.Key
	gate     *security.CryptoGate // nil without a key
	ownGate  bool
	pki      *pki.Store // nil without a folder
	users    *pki.Store // user certificates; nil unless the Authenticator takes them
	sessions *session.Store
	engine   *subscription.Engine
	set      *service.Set
	announce *announcer
	dispatch *dispatcher
	calls    *calls

	governors governors
	tls       *tlsMaterial // nil until something is served over TLS
	started   time.Time

	provider   *isolation.Provider
	planner    *retry.Planner
	perAddress *isolation.AddressLimiter // nil: no limit
	establish  *establishment
	discovery  discovery
	cost       *requestCost
	limits     sync.Mutex // taken by ApplyLimits; guards inForce, plan and perAddress
	published  publishedLevel
	inForce    Options // resolved, with the limits that ApplyLimits has changed
	plan       *isolation.Plan
	alarms     *rate.Limiter // bounds log lines that clients can cause

	state      atomic.Int32 // ua.ServerState
	shutdownAt atomic.Int64 // Unix nanoseconds; 0 = none announced

	listening
	closing  chan struct{} // closed when Shutdown begins
	once     sync.Once
	shutdown error         // of the first Shutdown
	closed   chan struct{} // closed when it has ended
}

// NewServer makes a server from options: it opens the PKI folder, creates the
// application certificate when there is none, loads namespace 0 and the
// NodeSets. It opens no socket. A server that was made must be ended, by
// Run's context or by Shutdown.
func NewServer(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{opts: o.resolved(), started: time.Now().UTC(), closing: make(chan struct{}), closed: make(chan struct{})}
	s.log = s.opts.Logger
	if wanted := o.Limits.channels(); wanted > s.opts.Limits.MaxChannels {
		s.log.Warn("fewer connections than wanted: the process may not open more files (ulimit -n)", "wanted", wanted, "possible", s.opts.Limits.MaxChannels)
	}
	s.alarms = rate.NewLimiter(1, 10)
	s.state.Store(int32(ua.ServerStateRunning))
	if err := s.compose(); err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

// compose builds the parts from the bottom up.
func (s *Server) compose() error {
	o := &s.opts
	if err := s.openKey(); err != nil {
		return err
	}
	space, err := addressspace.New(addressspace.Options{ApplicationURI: o.ApplicationURI})
	if err != nil {
		return err
	}
	s.space = space
	s.tables = newTables(space, o.ApplicationURI)
	if len(o.NodeSets) > 0 {
		r, err := space.Import(o.NodeSets...)
		if err != nil {
			return &OptionError{Field: "NodeSets", Reason: err.Error()}
		}
		level := slog.LevelInfo
		if r.Dangling > 0 || r.Unreachable > 0 || r.Skipped > 0 {
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "node sets imported", "nodes", r.Nodes, "models", r.Models,
			"danglingReferences", r.Dangling, "unreachableNodes", r.Unreachable, "permissionsNotEnforced", r.Skipped)
	}
	if s.budget = o.Budget.Shared; s.budget == nil {
		if s.budget, err = budget.NewWithThreshold(o.Budget.MaxBytes, o.Budget.SessionlessBytes); err != nil {
			return &OptionError{Field: "Budget", Reason: err.Error()}
		}
	}
	if err := s.divide(); err != nil {
		return err
	}
	o.Governors = o.Governors.clone()
	if s.governors, err = newGovernors(&o.Governors); err != nil {
		return err
	}
	if err := s.openUsers(); err != nil {
		return err
	}
	auth := authenticator{anonymous: o.Security.AllowAnonymous, host: o.Authenticator}
	s.announce = s.newAnnouncer(auth.TokenTypes())
	s.engine = subscription.NewEngine(s.subscriptionOptions())
	s.establish = s.newEstablishment()
	s.sessions = session.NewStore(s.sessionOptions(auth))
	s.set = &service.Set{
		Space: space, Sessions: s.sessions, Subscriptions: s.engine, Discovery: s.announce,
		Logger: s.log,
	}
	s.set.SetLimits(o.Limits.Operations)
	s.dispatch = s.newDispatcher()
	s.calls = s.newCalls()
	if err := s.bindServerObject(); err != nil {
		return err
	}
	s.inForce = *o
	return s.newListening()
}

// openKey finds or makes the application instance certificate.
func (s *Server) openKey() error {
	o := &s.opts
	if o.Security.Key != nil {
		s.key, s.gate = o.Security.Key, o.Security.Key.Gate()
		if o.ApplicationURI == "" {
			o.ApplicationURI = pki.ApplicationURI(s.key.Leaf())
		}
		if o.Security.PKI == "" {
			if o.ApplicationURI == "" {
				o.ApplicationURI = s.defaultURI()
			}
			return nil
		}
	}
	dir := o.Security.PKI
	if dir == "" && len(o.Security.Policies) == 0 {
		if o.ApplicationURI == "" {
			o.ApplicationURI = s.defaultURI()
		}
		return nil // policy None needs no certificate
	}
	if dir == "" {
		config, err := os.UserConfigDir()
		if err != nil {
			return &OptionError{Field: "Security.PKI", Reason: "is empty and there is no user configuration folder: " + err.Error()}
		}
		dir = filepath.Join(config, "breakwater", "pki")
	}
	store, err := pki.Open(dir, pki.Options{TrustAll: o.Security.TrustAll, Logger: s.log})
	if err != nil {
		return fmt.Errorf("stack: PKI folder %s: %w", dir, err)
	}
	s.pki = store
	if s.key != nil {
		return nil
	}
	s.gate, s.ownGate = security.NewCryptoGate(o.Security.CryptoWorkers), true
	uri := o.ApplicationURI
	if uri == "" {
		uri = s.defaultURI()
	}
	var chain [][]byte
	var private *rsa.PrivateKey
	var created bool
	chain, private, created, err = store.LoadOrCreate(pki.AppInfo{ApplicationURI: uri, ApplicationName: o.ApplicationName, Hosts: s.hosts()})
	if err != nil {
		return fmt.Errorf("stack: application certificate in %s: %w", dir, err)
	}
	if s.key, err = security.NewKey(chain, private, private, s.gate); err != nil {
		return err
	}
	if created {
		s.log.Info("application certificate created", "folder", dir, "applicationUri", uri)
	}
	switch have := pki.ApplicationURI(s.key.Leaf()); {
	case o.ApplicationURI == "":
		o.ApplicationURI = have
	case have != o.ApplicationURI:
		return &OptionError{Field: "ApplicationURI", Reason: fmt.Sprintf("is %q, the certificate in %s says %q; renew it or leave the field empty", o.ApplicationURI, dir, have)}
	}
	return nil
}

// openUsers opens the folder of trusted user certificates beside the
// application's.
func (s *Server) openUsers() error {
	o := &s.opts
	if s.pki == nil || o.Authenticator == nil || !slices.Contains(o.Authenticator.TokenTypes(), ua.UserTokenTypeCertificate) {
		return nil
	}
	dir := filepath.Join(s.pki.Dir(), "users")
	store, err := pki.Open(dir, pki.Options{TrustAll: o.Security.TrustAll, Logger: s.log})
	if err != nil {
		return fmt.Errorf("stack: folder of user certificates %s: %w", dir, err)
	}
	s.users = store
	return nil
}

// defaultURI names the installation by host and application.
func (s *Server) defaultURI() string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == ' ', r == '_':
			return '-'
		}
		return -1
	}, s.opts.ApplicationName)
	return "urn:" + hostname() + ":breakwater:" + name
}

func hostname() string {
	if h, err := os.Hostname(); err == nil && h != "" {
		return strings.ToLower(h)
	}
	return "localhost"
}

// AddressSpace returns the server's nodes, to be filled before and while it runs.
func (s *Server) AddressSpace() *addressspace.Space { return s.space }

// ApplicationURI returns the server's ApplicationUri.
func (s *Server) ApplicationURI() string { return s.opts.ApplicationURI }

// Key returns the application instance certificate with its key; nil when the
// server offers policy None only and was given none.
func (s *Server) Key() *security.Key { return s.key }

// PKI returns the store of certificates, nil when the server has none.
func (s *Server) PKI() *pki.Store { return s.pki }

// Sessions returns the session table, for tools that list or end sessions.
func (s *Server) Sessions() *session.Store { return s.sessions }

// Endpoints returns what GetEndpoints tells clients that name no known host.
func (s *Server) Endpoints() []*ua.EndpointDescription {
	return s.announce.describe(s.announce.addresses(place{}))
}

func (s *Server) secondsTillShutdown() uint32 {
	at := s.shutdownAt.Load()
	if at == 0 {
		return 0
	}
	return uint32(max(0, (time.Until(time.Unix(0, at))+time.Second-1)/time.Second))
}

// discard ends what compose had started when it failed.
func (s *Server) discard() {
	if s.sessions != nil {
		s.sessions.Shutdown()
	}
	if s.engine != nil {
		s.engine.Close()
	}
	if s.ownGate {
		s.gate.Close()
	}
}

// authenticator adds the anonymous identity to what the host's decides about.
type authenticator struct {
	anonymous bool
	host      session.Authenticator
}

func (a authenticator) Authenticate(ctx context.Context, t *session.Attempt) (*session.Identity, error) {
	if t.Kind == ua.UserTokenTypeAnonymous && a.anonymous {
		return session.Anonymous{}.Authenticate(ctx, t)
	}
	if a.host == nil {
		return nil, ua.StatusBadIdentityTokenRejected
	}
	return a.host.Authenticate(ctx, t)
}

func (a authenticator) TokenTypes() []ua.UserTokenType {
	var kinds []ua.UserTokenType
	if a.anonymous {
		kinds = append(kinds, ua.UserTokenTypeAnonymous)
	}
	if a.host != nil {
		for _, k := range a.host.TokenTypes() {
			if k != ua.UserTokenTypeAnonymous || !a.anonymous {
				kinds = append(kinds, k)
			}
		}
	}
	return kinds
}
