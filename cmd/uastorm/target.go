package main

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/load"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/gopcua/opcua/ua"
	"github.com/spf13/pflag"
)

// temporary is the --pki that leaves nothing behind.
const temporary = "temporary"

const passwordVariable = "UASTORM_PASSWORD"

// targetFlags say whom to test, and as whom.
type targetFlags struct {
	owned             bool
	policy, mode      string
	identity          string
	passwordFile      string
	userCertificate   string
	userKey           string
	serverCertificate string
	tlsCA             string
	pki               string
	timeout           time.Duration
	sessionTimeout    time.Duration
	sources           int

	gate *security.CryptoGate
}

func (f *targetFlags) add(s *pflag.FlagSet) {
	s.BoolVar(&f.owned, "i-own-this-server", false, "allow a target that is neither on this machine nor in a private network")
	s.StringVar(&f.policy, "policy", "auto", "security `policy`: None, Basic256Sha256, Aes128_Sha256_RsaOaep, …; auto is the strongest that the server offers")
	s.StringVar(&f.mode, "mode", "auto", "security `mode`: None, Sign, SignAndEncrypt; auto is the strongest of the policy")
	s.StringVar(&f.identity, "identity", "anonymous", "`who` uses the sessions: anonymous, user:NAME or certificate")
	s.StringVar(&f.passwordFile, "password-file", "", "`file` with the password of user:NAME, one line (else the variable "+passwordVariable+")")
	s.StringVar(&f.userCertificate, "user-certificate", "", "`file` with the user's certificate, DER or PEM, for --identity certificate")
	s.StringVar(&f.userKey, "user-key", "", "`file` with its private key, PEM")
	s.StringVar(&f.serverCertificate, "server-certificate", "", "`file` with the certificate that the server must have, DER or PEM (default: whatever its endpoint says)")
	s.StringVar(&f.tlsCA, "tls-ca", "", "`file` with the authorities, PEM, that the TLS certificate of opc.wss and opc.https must be signed by, for the URL's host name (default: any certificate will do, a load test has no secrets)")
	s.StringVar(&f.pki, "pki", "", "`folder` of uastorm's own certificate, made at the first secured run (default breakwater/uastorm in the user's configuration folder); \""+temporary+"\" makes one for this run")
	s.DurationVar(&f.timeout, "timeout", 30*time.Second, "longest `time` of one call, or of connecting")
	s.DurationVar(&f.sessionTimeout, "session-timeout", 10*time.Minute, "session timeout to ask for")
	s.IntVar(&f.sources, "sources", 0, "`number` of source addresses in 127.0.0.0/8 when the target is on loopback; 0 is one for each client")
}

// address refuses targets that are none of ours.
func (f *targetFlags) address(ctx context.Context, url string) (load.Address, error) {
	a, err := load.Resolve(ctx, url, f.owned)
	return a, refused(ctx, err)
}

// refused is the end of a command whose target is none, is not ours, or cannot be
// found.
func refused(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, load.ErrForeign):
		return fails(exitUsage, fmt.Errorf("%w; a load test hurts: only against your own server, and then with --i-own-this-server", err))
	case errors.Is(err, load.ErrURL), errors.Is(err, load.ErrUnspecified):
		return fails(exitUsage, err)
	}
	return unreached(ctx, err)
}

// security reads what the flags name.
func (f *targetFlags) security() (s load.Security, err error) {
	if f.timeout < 100*time.Millisecond || f.timeout > 10*time.Minute {
		return s, fmt.Errorf("--timeout %v, need 100ms to 10m", f.timeout)
	}
	if f.sessionTimeout < 10*time.Second || f.sessionTimeout > 24*time.Hour {
		return s, fmt.Errorf("--session-timeout %v, need 10s to 24h", f.sessionTimeout)
	}
	s.Timeout, s.Key = f.timeout, f.key
	if f.policy != "auto" {
		if s.Policy = security.PolicyByName(f.policy); s.Policy == nil {
			var names []string
			for _, p := range security.Policies() {
				names = append(names, p.Name)
			}
			return s, fmt.Errorf("--policy %q; there are auto, %s", f.policy, strings.Join(names, ", "))
		}
	}
	switch f.mode {
	case "auto":
	case "None":
		s.Mode = ua.MessageSecurityModeNone
	case "Sign":
		s.Mode = ua.MessageSecurityModeSign
	case "SignAndEncrypt":
		s.Mode = ua.MessageSecurityModeSignAndEncrypt
	default:
		return s, fmt.Errorf("--mode %q; there are auto, None, Sign, SignAndEncrypt", f.mode)
	}
	if f.serverCertificate != "" {
		if s.ServerCertificate, err = certificateFile(f.serverCertificate); err != nil {
			return s, err
		}
	}
	if f.tlsCA != "" {
		text, err := os.ReadFile(f.tlsCA)
		if err != nil {
			return s, err
		}
		s.RootCAs = x509.NewCertPool()
		if !s.RootCAs.AppendCertsFromPEM(text) {
			return s, fmt.Errorf("--tls-ca %s: no certificate", f.tlsCA)
		}
	}
	s.Identity, err = f.user()
	return s, err
}

// unused refuses flags that change nothing with this target.
func (f *targetFlags) unused(a load.Address) error {
	switch {
	case f.tlsCA != "" && a.Scheme() == load.SchemeTCP:
		return errors.New("--tls-ca changes nothing over opc.tcp; see --server-certificate")
	case f.sources > 0 && !load.NewSources(a.Host.Addr(), f.sources).Rotate():
		return fmt.Errorf("--sources changes nothing: connections to %v have one source address", a.Host.Addr())
	}
	return nil
}

func (f *targetFlags) user() (id load.Identity, err error) {
	name, isUser := strings.CutPrefix(f.identity, "user:")
	switch {
	case f.identity == "anonymous":
	case isUser && name != "":
		if strings.Contains(name, ":") {
			return id, errors.New("--identity user:NAME takes no password: see --password-file")
		}
		id.User = name
		password, ok := os.LookupEnv(passwordVariable)
		if f.passwordFile != "" {
			text, err := os.ReadFile(f.passwordFile)
			if err != nil {
				return id, err
			}
			password, _, _ = strings.Cut(string(text), "\n")
			password, ok = strings.TrimSuffix(password, "\r"), true
		}
		if !ok {
			return id, fmt.Errorf("user %s needs a password: --password-file or the variable %s", name, passwordVariable)
		}
		id.Password = []byte(password)
	case f.identity == "certificate":
		if f.userCertificate == "" || f.userKey == "" {
			return id, errors.New("--identity certificate needs --user-certificate and --user-key")
		}
		id.Key, err = f.userKeyPair()
	default:
		return id, fmt.Errorf("--identity %q; there are anonymous, user:NAME, certificate", f.identity)
	}
	return id, err
}

func (f *targetFlags) userKeyPair() (*security.Key, error) {
	der, err := certificateFile(f.userCertificate)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(f.userKey)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM", f.userKey)
	}
	key, err := privateKey(block)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.userKey, err)
	}
	return security.NewKey([][]byte{der}, key, key, f.cryptoGate())
}

// certificateFile reads one certificate, DER or PEM.
func certificateFile(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if block, _ := pem.Decode(b); block != nil {
		b = block.Bytes
	}
	c, err := x509.ParseCertificate(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c.Raw, nil
}

// cryptoGate runs all private-key work, on threads that leave the clock its turn.
func (f *targetFlags) cryptoGate() *security.CryptoGate {
	if f.gate == nil {
		f.gate = security.NewCryptoGate(max(1, runtime.NumCPU()))
	}
	return f.gate
}

func (f *targetFlags) close() {
	if f.gate != nil {
		f.gate.Close()
	}
}

// key makes or loads uastorm's certificate.
func (f *targetFlags) key() (*security.Key, error) {
	dir := f.pki
	switch dir {
	case temporary:
		var err error
		if dir, err = os.MkdirTemp("", "uastorm"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
	case "":
		base, err := os.UserConfigDir()
		if err != nil {
			return nil, fmt.Errorf("%w; see --pki", err)
		}
		dir = filepath.Join(base, "breakwater", "uastorm")
	}
	store, err := pki.Open(dir, pki.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	chain, key, _, err := store.LoadOrCreate(pki.AppInfo{ApplicationURI: load.ApplicationURI, ApplicationName: load.ApplicationName})
	if err != nil {
		return nil, err
	}
	return security.NewKey(chain, key, key, f.cryptoGate())
}

// privateKey reads an RSA key, PKCS #1 or #8.
func privateKey(block *pem.Block) (*rsa.PrivateKey, error) {
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := any.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("a %T, need RSA", any)
	}
	return key, nil
}
