package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// configText is the commented configuration file that `config init` writes. A
// test keeps it equal to defaultConfig.
//
//go:embed refserver.yaml
var configText []byte

// config holds all settings; refserver.yaml documents each of them.
type config struct {
	ApplicationName string           `yaml:"applicationName"`
	ApplicationURI  string           `yaml:"applicationUri"`
	Listen          []string         `yaml:"listen"`
	Advertise       []string         `yaml:"advertise"`
	ProxyPeers      []string         `yaml:"proxyPeers"`
	PKI             string           `yaml:"pki"`
	Users           string           `yaml:"users"`
	NodeSets        []string         `yaml:"nodesets"`
	ShutdownTimeout time.Duration    `yaml:"shutdownTimeout"`
	Security        securityConfig   `yaml:"security"`
	Demo            demoConfig       `yaml:"demo"`
	Admin           adminConfig      `yaml:"admin"`
	Log             logConfig        `yaml:"log"`
	Runtime         runtimeConfig    `yaml:"runtime"`
	Limits          limitsConfig     `yaml:"limits"`
	RateLimits      rateLimitsConfig `yaml:"rateLimits"`
	Retry           retryConfig      `yaml:"retry"`
	Budget          budgetConfig     `yaml:"budget"`
	Shadow          bool             `yaml:"shadow"`
	Isolation       isolationConfig  `yaml:"isolation"`
	HTTP            httpConfig       `yaml:"http"`
	TLS             tlsConfig        `yaml:"tls"`
	Governors       governorsConfig  `yaml:"governors"`
}

type securityConfig struct {
	Policies           []string `yaml:"policies"`
	Modes              []string `yaml:"modes"`
	None               bool     `yaml:"none"`
	Anonymous          bool     `yaml:"anonymous"`
	UserNames          bool     `yaml:"userNames"`
	Certificates       bool     `yaml:"certificates"`
	DeprecatedPolicies bool     `yaml:"deprecatedPolicies"`
	TrustAll           bool     `yaml:"trustAll"`
	OpenSSL            bool     `yaml:"openssl"`
}

type demoConfig struct {
	Enabled   bool          `yaml:"enabled"`
	Variables int           `yaml:"variables"`
	Interval  time.Duration `yaml:"interval" negative:"off"`
}

type adminConfig struct {
	Listen         string   `yaml:"listen"`
	Hosts          []string `yaml:"hosts"`
	TLSCertificate string   `yaml:"tlsCertificate"`
	TLSKey         string   `yaml:"tlsKey"`
	Token          string   `yaml:"token"`
}

type logConfig struct {
	Format string `yaml:"format"`
	Level  string `yaml:"level"`
}

type runtimeConfig struct {
	CryptoWorkers int  `yaml:"cryptoWorkers"`
	MemoryLimit   size `yaml:"memoryLimit"`
}

type limitsConfig struct {
	MaxSessions                      int           `yaml:"maxSessions"`
	MaxChannels                      int           `yaml:"maxChannels"`
	MaxMessageSize                   size          `yaml:"maxMessageSize"`
	MaxChunkCount                    int           `yaml:"maxChunkCount"`
	ReceiveBufferSize                size          `yaml:"receiveBufferSize"`
	SendBufferSize                   size          `yaml:"sendBufferSize"`
	MaxExecutingRequests             int           `yaml:"maxExecutingRequests"`
	MaxQueuedRequests                int           `yaml:"maxQueuedRequests"`
	RunSlots                         int           `yaml:"runSlots" negative:"no bound"`
	MaxPublishRequests               int           `yaml:"maxPublishRequests"`
	MaxParkedRequests                int           `yaml:"maxParkedRequests"`
	MaxOutstandingPerConnection      int           `yaml:"maxOutstandingPerConnection"`
	WriteQueue                       size          `yaml:"writeQueue"`
	WriteTimeout                     time.Duration `yaml:"writeTimeout"`
	HelloTimeout                     time.Duration `yaml:"helloTimeout"`
	HandshakeTimeout                 time.Duration `yaml:"handshakeTimeout"`
	AssemblyTimeout                  time.Duration `yaml:"assemblyTimeout"`
	MinSessionTimeout                time.Duration `yaml:"minSessionTimeout"`
	MaxSessionTimeout                time.Duration `yaml:"maxSessionTimeout"`
	ActivationTimeout                time.Duration `yaml:"activationTimeout"`
	EvictDetachedSessions            bool          `yaml:"evictDetachedSessions"`
	MinTokenLifetime                 time.Duration `yaml:"minTokenLifetime"`
	MaxTokenLifetime                 time.Duration `yaml:"maxTokenLifetime"`
	MinPublishingInterval            time.Duration `yaml:"minPublishingInterval"`
	MaxPublishingInterval            time.Duration `yaml:"maxPublishingInterval"`
	MaxSubscriptionsPerSession       int           `yaml:"maxSubscriptionsPerSession"`
	MaxMonitoredItemsPerSubscription int           `yaml:"maxMonitoredItemsPerSubscription"`
	MaxMonitoredItemQueueSize        int           `yaml:"maxMonitoredItemQueueSize"`
	MaxRetransmissionQueueSize       int           `yaml:"maxRetransmissionQueueSize"`
	MaxNodesPerRead                  int           `yaml:"maxNodesPerRead"`
	MaxNodesPerWrite                 int           `yaml:"maxNodesPerWrite"`
	MaxNodesPerMethodCall            int           `yaml:"maxNodesPerMethodCall"`
	MaxNodesPerBrowse                int           `yaml:"maxNodesPerBrowse"`
	MaxNodesPerRegisterNodes         int           `yaml:"maxNodesPerRegisterNodes"`
	MaxNodesPerTranslateBrowsePaths  int           `yaml:"maxNodesPerTranslateBrowsePaths"`
	MaxMonitoredItemsPerCall         int           `yaml:"maxMonitoredItemsPerCall"`
	MaxBrowseContinuationPoints      int           `yaml:"maxBrowseContinuationPoints"`
	MaxStringLength                  size          `yaml:"maxStringLength"`
	MaxByteStringLength              size          `yaml:"maxByteStringLength"`
	MaxArrayLength                   int           `yaml:"maxArrayLength"`
	MaxNestingLevel                  int           `yaml:"maxNestingLevel"`
}

type rateLimitsConfig struct {
	Disabled                          bool          `yaml:"disabled"`
	ConnectionsUnlimited              bool          `yaml:"connectionsUnlimited"`
	EstablishmentUnlimited            bool          `yaml:"establishmentUnlimited"`
	ConnectionsPerSecond              int           `yaml:"connectionsPerSecond"`
	ConnectionBurst                   int           `yaml:"connectionBurst"`
	ConnectionsPerSecondPerAddress    int           `yaml:"connectionsPerSecondPerAddress"`
	PoliteRefusalsPerSecond           int           `yaml:"politeRefusalsPerSecond" negative:"never"`
	MaxConcurrentSessionEstablishment int           `yaml:"maxConcurrentSessionEstablishment"`
	SessionEstablishmentQueueLimit    int           `yaml:"sessionEstablishmentQueueLimit"`
	MaxCryptoWait                     time.Duration `yaml:"maxCryptoWait" negative:"no bound"`
	DiscoveryPerSecond                int           `yaml:"discoveryPerSecond" negative:"no such limit"`
	DiscoveryBurst                    int           `yaml:"discoveryBurst"`
	ListenBacklog                     int           `yaml:"listenBacklog"`
}

type retryConfig struct {
	Min time.Duration `yaml:"min"`
	Max time.Duration `yaml:"max"`
}

// defaultConfig returns the settings that apply when nothing says otherwise;
// paths are filled in by locate.
func defaultConfig() *config {
	return &config{
		ApplicationName: "Breakwater reference server",
		Listen:          []string{"opc.tcp://:4840", "opc.wss://:4843", "opc.https://:4843"},
		Advertise:       []string{},
		ProxyPeers:      []string{},
		NodeSets:        []string{},
		ShutdownTimeout: 10 * time.Second,
		Security: securityConfig{
			Policies:  []string{"Basic256Sha256", "Aes128_Sha256_RsaOaep", "Aes256_Sha256_RsaPss"},
			Modes:     []string{"Sign", "SignAndEncrypt"},
			None:      true,
			Anonymous: true, UserNames: true, Certificates: true,
		},
		Demo:  demoConfig{Enabled: true, Interval: time.Second},
		Admin: adminConfig{Listen: "127.0.0.1:4841", Hosts: []string{}},
		Log:   logConfig{Format: "text", Level: "info"},
		Limits: limitsConfig{
			MaxSessions:    1000,
			MaxMessageSize: 4 << 20, MaxChunkCount: 512, ReceiveBufferSize: 65535, SendBufferSize: 65535,
			MaxExecutingRequests: 100, MaxQueuedRequests: 200, MaxPublishRequests: 20, MaxOutstandingPerConnection: 64,
			WriteQueue: 4 << 20, WriteTimeout: 30 * time.Second,
			HelloTimeout: 10 * time.Second, HandshakeTimeout: 2 * time.Minute, AssemblyTimeout: 30 * time.Second,
			MinSessionTimeout: 10 * time.Second, MaxSessionTimeout: time.Hour, ActivationTimeout: 30 * time.Second,
			MinTokenLifetime: time.Minute, MaxTokenLifetime: time.Hour,
			MinPublishingInterval: 50 * time.Millisecond, MaxPublishingInterval: time.Hour,
			MaxSubscriptionsPerSession: 100, MaxMonitoredItemsPerSubscription: 10_000,
			MaxMonitoredItemQueueSize: 1000, MaxRetransmissionQueueSize: 20,
			MaxNodesPerRead: 10_000, MaxNodesPerWrite: 10_000, MaxNodesPerMethodCall: 1000, MaxNodesPerBrowse: 10_000,
			MaxNodesPerRegisterNodes: 10_000, MaxNodesPerTranslateBrowsePaths: 10_000, MaxMonitoredItemsPerCall: 10_000,
			MaxBrowseContinuationPoints: 50, MaxArrayLength: 1_000_000, MaxNestingLevel: 100,
		},
		RateLimits: rateLimitsConfig{ConnectionsPerSecond: 500, ConnectionBurst: 1000, PoliteRefusalsPerSecond: 2000, MaxCryptoWait: 2 * time.Second, DiscoveryPerSecond: 500, DiscoveryBurst: 1000, ListenBacklog: 512},
		Retry:      retryConfig{Min: 50 * time.Millisecond, Max: 30 * time.Second},
		HTTP:       httpConfig{None: true, MaxSessionless: 32, AllowedOrigins: []string{}, RequestBurst: 100},
		Governors:  defaultGovernors(),
		Isolation: isolationConfig{
			Mode: "Balanced", MaxOwnerKeyLength: 256, DefaultWeight: 1, RequestCost: "message",
			BootstrapReservedBytes: auto, ReconnectReservedBytes: auto,
			Stages: map[string]stageConfig{}, TrustedOwners: []trustedOwnerConfig{}, TrustedIngress: []ingressConfig{},
		},
	}
}

// configDir is where settings, certificates and users live unless told otherwise.
func configDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("no configuration folder (%w): name files with --config, --pki and --users", err)
	}
	return filepath.Join(dir, "breakwater"), nil
}

// loadConfig reads file, or refserver.yaml in the configuration folder when file
// is empty and it is there, and lets environment variables override it. strays are
// variables that look like ours and name no setting.
func loadConfig(file string) (c *config, strays []string, err error) {
	c = defaultConfig()
	optional := file == ""
	if optional {
		if dir, err := configDir(); err == nil {
			file = filepath.Join(dir, "refserver.yaml")
		}
	}
	if file != "" {
		text, err := os.ReadFile(file)
		switch {
		case optional && errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, nil, err
		default:
			if err := c.decode(text); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", file, err)
			}
			if err := c.anchor(filepath.Dir(file)); err != nil {
				return nil, nil, err
			}
		}
	}
	strays, err = overrideFromEnvironment(c, os.Environ())
	return c, strays, err
}

// check refuses settings that would be taken for others without a word: a
// negative number counts as "not set" further down, an empty list of modes as all
// of them.
func (c *config) check() error {
	if err := refuseNegative(reflect.ValueOf(c).Elem(), ""); err != nil {
		return err
	}
	if len(c.Security.Policies) > 0 && len(c.Security.Modes) == 0 {
		return errors.New("security.modes: is empty; name Sign, SignAndEncrypt or both")
	}
	return nil
}

// refuseNegative looks at every number whose tag does not say what a negative one
// means.
func refuseNegative(v reflect.Value, path string) error {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		key := path + field.Tag.Get("yaml")
		switch {
		case field.Type.Kind() == reflect.Struct:
			if err := refuseNegative(value, key+"."); err != nil {
				return err
			}
		case field.Type == reflect.TypeFor[autoSize](), field.Tag.Get("negative") != "":
		case value.CanInt() && value.Int() < 0:
			return fmt.Errorf("%s: is negative: %v", key, value.Interface())
		}
	}
	return nil
}

// unknownKey is how yaml words an unknown key: with a Go type nobody has heard of.
var unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)

// decode reads YAML over the present settings. Unknown keys are errors.
func (c *config) decode(text []byte) error {
	return decodeOver(c, text)
}

func decodeOver(to any, text []byte) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(to); err != nil {
		if errors.Is(err, io.EOF) { // an empty file
			return nil
		}
		return plainTypes(err)
	}
	var more yaml.Node
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return errors.New("there is a second document behind ---; settings are one document")
	}
	return nil
}

// plainTypes rewords an error of yaml for somebody who knows no Go.
func plainTypes(err error) error {
	var typed *yaml.TypeError
	if !errors.As(err, &typed) {
		return err
	}
	lines := make([]string, len(typed.Errors))
	for i, e := range typed.Errors {
		lines[i] = unknownKey.ReplaceAllString(e, `unknown key "$1"`)
	}
	return errors.New(strings.Join(lines, "; "))
}

// anchor resolves the relative paths of a configuration file against its folder.
func (c *config) anchor(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	paths := []*string{&c.PKI, &c.Users, &c.Admin.TLSCertificate, &c.Admin.TLSKey, &c.Admin.Token, &c.TLS.Certificate, &c.TLS.Key, &c.TLS.ClientCAs}
	for i := range c.NodeSets {
		paths = append(paths, &c.NodeSets[i])
	}
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	return nil
}

// locate fills in the paths nobody has named.
func (c *config) locate() error {
	for _, p := range []struct {
		to   *string
		name string
	}{{&c.PKI, "pki"}, {&c.Users, "users.yaml"}, {&c.Admin.Token, "admin.token"}} {
		if *p.to != "" {
			continue
		}
		dir, err := configDir()
		if err != nil {
			return err
		}
		*p.to = filepath.Join(dir, p.name)
	}
	return nil
}
