// Package pki keeps the certificates of an application in a folder and decides which peers
// to trust (OPC 10000-4 §6.1.3, Determining if a Certificate is trusted).
//
//	own/certs, own/private       the application's certificate (DER) and its key (PEM, mode 0600)
//	trusted/certs, trusted/crl   certificates and CAs that are trusted, and revocation lists
//	issuers/certs, issuers/crl   CAs that complete chains but are not trusted by themselves
//	rejected                     unknown certificates seen; `pki trust` moves them to trusted
//
// Files are DER or PEM, found by extension (.der .cer .crt .pem, lists also .crl). People and
// tools change them while the server runs; a [Store] notices. It holds no descriptor open.
package pki

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Folder names, relative to the PKI folder.
const (
	FolderOwn         = "own/certs"
	FolderPrivate     = "own/private"
	FolderTrusted     = "trusted/certs"
	FolderTrustedCRL  = "trusted/crl"
	FolderIssuers     = "issuers/certs"
	FolderIssuersCRL  = "issuers/crl"
	FolderRejected    = "rejected"
	defaultRejected   = 100
	defaultMaxChain   = 10
	reportsPerSecond  = 20 // log lines and files in rejected/ that strangers can cause
	reportBurst       = 100
	fileCheckInterval = time.Second // how often files are looked at for change in place
)

// Options of a Store. The zero value works and is strict.
type Options struct {
	// TrustAll accepts certificates nobody trusted, incomplete chains and CAs without
	// revocation list. Signature, validity, ApplicationUri, usage and key length are still
	// checked. For demonstrations and tests; Open warns.
	TrustAll bool
	// SuppressRevocationUnknown accepts certificates whose issuer has no (current) revocation
	// list here. OPC 10000-4 lets an administrator decide so; each case is logged.
	SuppressRevocationUnknown bool
	// MaxChain bounds the length of a chain, leaf and root included. 0 = 10; negative is an error.
	MaxChain int
	// RejectedLimit bounds the number of files in rejected/; the oldest goes. 0 = 100; negative = keep none.
	RejectedLimit int
	// Command stands in log lines in front of "trust <thumbprint> --pki DIR". "" = "refserver pki".
	Command string
	// Logger gets refusals and what is wrong with the folder. nil = slog.Default.
	Logger *slog.Logger
}

// Store is an open PKI folder. It is safe for concurrent use and needs no Close.
type Store struct {
	dir     string
	folders [len(scanned)]string // paths of the scanned folders
	opts    Options
	log     *slog.Logger

	list    atomic.Pointer[trustList] // what the folder held when it was last read
	reports *rate.Limiter
	quiet   atomic.Int64 // refusals not logged since the last one that was

	mu   sync.Mutex // guards scan; never held while certificates are checked
	scan scanState

	rejectedMu sync.Mutex // one writer of rejected/ at a time
}

// Open opens the PKI folder dir and creates what is missing of it.
func Open(dir string, opts Options) (*Store, error) {
	if opts.MaxChain < 0 {
		return nil, fmt.Errorf("pki: Options.MaxChain is %d, it must not be negative", opts.MaxChain)
	}
	if opts.MaxChain == 0 {
		opts.MaxChain = defaultMaxChain
	}
	if opts.RejectedLimit == 0 {
		opts.RejectedLimit = defaultRejected
	}
	if opts.Command == "" {
		opts.Command = "refserver pki"
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	for _, f := range []string{FolderOwn, FolderTrusted, FolderTrustedCRL, FolderIssuers, FolderIssuersCRL, FolderRejected} {
		if err := os.MkdirAll(filepath.Join(dir, f), 0o755); err != nil {
			return nil, fmt.Errorf("pki: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, FolderPrivate), 0o700); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	s := &Store{dir: dir, opts: opts, log: opts.Logger, reports: rate.NewLimiter(reportsPerSecond, reportBurst)}
	if s.log == nil {
		s.log = slog.Default()
	}
	for i, f := range scanned {
		s.folders[i] = s.path(f)
	}
	if err := s.refresh(true); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	if opts.TrustAll {
		s.log.Warn("ALL CERTIFICATES ARE TRUSTED: anybody can connect as any application; for demonstrations and tests only", "pki", dir)
	}
	return s, nil
}

// Dir returns the absolute path of the folder.
func (s *Store) Dir() string { return s.dir }

// TrustAll reports whether unknown certificates are accepted.
func (s *Store) TrustAll() bool { return s.opts.TrustAll }

// Version numbers what the trusted and issuers folders hold; it looks for changes first (four
// stat calls). Whoever remembers that a certificate was valid remembers the version with it
// and validates again when the version has moved on.
func (s *Store) Version() uint64 { return s.current().version }

// current returns the trust list as it is on disk now. Additions and removals are seen at
// once, a file overwritten in place within fileCheckInterval. When the folder cannot be read
// the last list stays in force and the log says so.
func (s *Store) current() *trustList {
	if err := s.refresh(false); err != nil && s.reports.Allow() {
		s.log.Error("the PKI folder cannot be read, the last known state stays in force", "pki", s.dir, "error", err)
	}
	return s.list.Load()
}

func (s *Store) path(folder string, name ...string) string {
	return filepath.Join(append([]string{s.dir, filepath.FromSlash(folder)}, name...)...)
}
