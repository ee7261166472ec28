package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// scanned are the folders whose content decides about trust.
var scanned = [...]string{FolderTrusted, FolderTrustedCRL, FolderIssuers, FolderIssuersCRL}

// settle is how long a modification time must be past before "unchanged" can be believed:
// file systems stamp with the granularity of a kernel tick or worse, so a second change
// right after the first may leave the same time.
const settle = 100 * time.Millisecond

// cacheLimit bounds the remembered validations of one trust list.
const cacheLimit = 4096

// trustList is the immutable content of the folders at one version. Results of validations
// are remembered in it and die with it (hostile.md X23).
type trustList struct {
	version uint64
	digest  [32]byte
	trusted map[[32]byte]bool // SHA-256 of the certificates in trusted/certs
	issuers map[string][]*x509.Certificate
	crls    map[string][]*revocationList // by raw issuer name

	cacheMu sync.Mutex
	cache   map[[32]byte]remembered
}

type remembered struct {
	cert  *x509.Certificate
	until time.Time
}

func (t *trustList) isTrusted(c *x509.Certificate) bool { return t.trusted[sha256.Sum256(c.Raw)] }

func (t *trustList) recall(key [32]byte, now time.Time) *x509.Certificate {
	t.cacheMu.Lock()
	defer t.cacheMu.Unlock()
	if r, ok := t.cache[key]; ok && now.Before(r.until) {
		return r.cert
	}
	return nil
}

func (t *trustList) remember(key [32]byte, c *x509.Certificate, until time.Time) {
	t.cacheMu.Lock()
	defer t.cacheMu.Unlock()
	if len(t.cache) >= cacheLimit {
		clear(t.cache)
	}
	t.cache[key] = remembered{c, until}
}

// scanState is what the last look at the folders found. Store.mu guards it.
type scanState struct {
	dirTimes  [len(scanned)]time.Time
	files     map[string]*scannedFile // by path
	lastFiles time.Time               // when all files were last looked at
	unsettled bool                    // something changed too recently to trust its time
}

type scannedFile struct {
	size    int64
	modTime time.Time
	settled bool
	digest  [32]byte
	certs   []*x509.Certificate
	lists   []*revocationList
}

// refresh brings the trust list up to date. It costs four stat calls when nothing changed.
func (s *Store) refresh(force bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var times [len(scanned)]time.Time
	for i, path := range s.folders {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed: nothing in it is trusted
		case err != nil:
			return err
		default:
			times[i] = info.ModTime()
		}
	}
	if !force && times == s.scan.dirTimes && !s.scan.unsettled && now.Sub(s.scan.lastFiles) < fileCheckInterval {
		return nil
	}
	next := scanState{dirTimes: times, files: make(map[string]*scannedFile, len(s.scan.files)), lastFiles: now}
	for i, f := range scanned {
		if now.Sub(times[i]) < settle {
			next.unsettled = true
		}
		if err := s.scanFolder(f, now, &next); err != nil {
			return err // the old state stays; the next call tries again
		}
	}
	s.scan = next
	old := s.list.Load()
	t := s.buildTrustList(&next)
	if old != nil && old.digest == t.digest {
		return nil
	}
	t.version = 1
	if old != nil {
		t.version = old.version + 1
		s.log.Info("trust list changed", "pki", s.dir, "version", t.version, "trusted", len(t.trusted))
	}
	s.list.Store(t)
	return nil
}

func (s *Store) scanFolder(folder string, now time.Time, next *scanState) error {
	lists := folder == FolderTrustedCRL || folder == FolderIssuersCRL
	entries, err := os.ReadDir(s.path(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !hasExtension(e.Name(), lists) {
			continue
		}
		path := s.path(folder, e.Name())
		info, err := os.Stat(path) // through symbolic links: mounted secrets are such
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return err
		}
		if old := s.scan.files[path]; old != nil && old.settled && old.size == info.Size() && old.modTime.Equal(info.ModTime()) {
			next.files[path] = old
			continue
		}
		f := &scannedFile{size: info.Size(), modTime: info.ModTime(), settled: now.Sub(info.ModTime()) >= settle}
		next.unsettled = next.unsettled || !f.settled
		data, err := readLimited(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil && !errors.Is(err, errTooLarge) && !errors.Is(err, fs.ErrPermission) {
			return err // out of descriptors, a failing disk: do not take it for a removal
		}
		f.digest = sha256.Sum256(data)
		if err == nil && lists {
			f.lists, err = parseLists(data)
		} else if err == nil {
			f.certs, err = parseCertificates(data)
		}
		if err != nil && (s.scan.files[path] == nil || s.scan.files[path].digest != f.digest) {
			s.log.Warn("file in the PKI folder ignored", "file", path, "error", err)
		}
		next.files[path] = f
	}
	return nil
}

func (s *Store) buildTrustList(st *scanState) *trustList {
	t := &trustList{
		trusted: make(map[[32]byte]bool),
		issuers: make(map[string][]*x509.Certificate),
		crls:    make(map[string][]*revocationList),
		cache:   make(map[[32]byte]remembered),
	}
	paths := make([]string, 0, len(st.files))
	for p := range st.files {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	trustedPrefix := s.path(FolderTrusted) + string(os.PathSeparator)
	sum := sha256.New()
	for _, p := range paths {
		f := st.files[p]
		sum.Write([]byte(p))
		sum.Write(f.digest[:])
		for _, c := range f.certs {
			if len(p) > len(trustedPrefix) && p[:len(trustedPrefix)] == trustedPrefix {
				t.trusted[sha256.Sum256(c.Raw)] = true
			}
			t.issuers[string(c.RawSubject)] = append(t.issuers[string(c.RawSubject)], c)
		}
		for _, l := range f.lists {
			t.crls[string(l.RawIssuer)] = append(t.crls[string(l.RawIssuer)], l)
		}
	}
	sum.Sum(t.digest[:0])
	// Roots first: a chain that can end shall end.
	for _, list := range t.issuers {
		slices.SortStableFunc(list, func(a, b *x509.Certificate) int { return rank(a) - rank(b) })
	}
	return t
}

func rank(c *x509.Certificate) int {
	if selfIssued(c) {
		return 0
	}
	return 1
}
