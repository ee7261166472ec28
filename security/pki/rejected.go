package pki

import (
	"crypto/x509"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// refused logs a refusal, keeps an unknown certificate in rejected/ and returns err. leaf is
// nil when the blob was not even a certificate. Strangers decide how often this happens, so
// both have a bounded rate.
func (s *Store) refused(leaf *x509.Certificate, v Check, err error) error {
	if !s.reports.Allow() {
		s.quiet.Add(1)
		return err
	}
	code := uastatus.Code(err)
	attrs := []any{"code", uastatus.Name(code), "cause", err.Error()}
	if v.Remote.IsValid() {
		attrs = append(attrs, "remote", v.Remote)
	}
	if v.ChannelID != 0 {
		attrs = append(attrs, "channel", v.ChannelID)
	}
	if v.User {
		attrs = append(attrs, "kind", "user")
	}
	if n := s.quiet.Swap(0); n > 0 {
		attrs = append(attrs, "unlogged", n)
	}
	if leaf == nil {
		s.log.Warn("certificate refused", attrs...)
		return err
	}
	attrs = append(attrs, "thumbprint", thumbprint(leaf), "subject", name(leaf), "applicationUri", ApplicationURI(leaf))
	if code == ua.StatusBadCertificateUntrusted || code == ua.StatusBadCertificateChainIncomplete {
		attrs = append(attrs, "trust", s.trustCommand(leaf))
		if e := s.keepRejected(leaf); e != nil {
			s.log.Error("refused certificate not kept", "folder", s.path(FolderRejected), "error", e)
		}
	}
	s.log.Warn("certificate refused", attrs...)
	return err
}

// trustCommand is the command line that would have let leaf in.
func (s *Store) trustCommand(leaf *x509.Certificate) string {
	dir := s.dir
	if strings.ContainsAny(dir, " \t'\"$`\\") {
		dir = strconv.Quote(dir)
	}
	return s.opts.Command + " trust " + thumbprint(leaf) + " --pki " + dir
}

// keepRejected writes leaf into rejected/, or makes it the newest there, and removes the
// oldest files over the limit.
func (s *Store) keepRejected(leaf *x509.Certificate) error {
	if s.opts.RejectedLimit < 0 {
		return nil
	}
	s.rejectedMu.Lock()
	defer s.rejectedMu.Unlock()
	path := s.path(FolderRejected, fileName(leaf))
	now := time.Now()
	if os.Chtimes(path, now, now) == nil {
		return nil
	}
	if err := os.MkdirAll(s.path(FolderRejected), 0o755); err != nil {
		return err
	}
	if err := writeFile(path, leaf.Raw, 0o644); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.path(FolderRejected))
	if err != nil {
		return err
	}
	var infos []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && hasExtension(e.Name(), false) {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for len(infos) > s.opts.RejectedLimit {
		if err := os.Remove(s.path(FolderRejected, infos[0].Name())); err != nil {
			return err
		}
		infos = infos[1:]
	}
	return nil
}
