package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxFileSize bounds one certificate or revocation list file.
const maxFileSize = 16 << 20

var errTooLarge = fmt.Errorf("file is larger than %d bytes", maxFileSize)

func hasExtension(name string, list bool) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".der", ".pem":
		return true
	case ".cer", ".crt":
		return !list
	case ".crl":
		return list
	}
	return false
}

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		err = errTooLarge
	}
	return data, err
}

// blocks returns the DER contents of data: the PEM blocks with that type, or data itself when
// it is not PEM.
func blocks(data []byte, pemType string) ([][]byte, error) {
	if !bytes.Contains(data, []byte("-----BEGIN ")) {
		return [][]byte{data}, nil
	}
	var out [][]byte
	for {
		var b *pem.Block
		if b, data = pem.Decode(data); b == nil {
			break
		}
		if b.Type == pemType {
			out = append(out, b.Bytes)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no PEM block %q", pemType)
	}
	return out, nil
}

// parseCertificates reads a certificate file: DER, several in a row too, or PEM.
func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	ders, err := blocks(data, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	for _, der := range ders {
		c, err := x509.ParseCertificates(der)
		if err != nil {
			return nil, err
		}
		certs = append(certs, c...)
	}
	if len(certs) == 0 {
		return nil, errors.New("empty file")
	}
	return certs, nil
}

func parseLists(data []byte) ([]*revocationList, error) {
	ders, err := blocks(data, "X509 CRL")
	if err != nil {
		return nil, err
	}
	var lists []*revocationList
	for _, der := range ders {
		l, err := x509.ParseRevocationList(der)
		if err != nil {
			return nil, err
		}
		lists = append(lists, newRevocationList(l))
	}
	return lists, nil
}

// writeFile writes through a temporary file in the same folder, so that nobody ever reads
// half of it. The mode is set before the first byte is written.
func writeFile(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after the rename there is nothing to remove
	err = f.Chmod(mode)
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

// fileName makes a certificate's file name from its common name, of which only harmless
// characters remain, and its thumbprint: nothing a stranger writes into a certificate leads
// out of the folder.
func fileName(c *x509.Certificate) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		case r == ' ', r == '@', r == '.', r == '/', r == ':':
			return '_'
		}
		return -1
	}, c.Subject.CommonName)
	name = strings.Trim(name, "-_")
	if len(name) > 40 {
		name = name[:40]
	}
	if name == "" {
		name = "certificate"
	}
	return name + "-" + thumbprint(c) + ".der"
}
