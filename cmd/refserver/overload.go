package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
	"go.yaml.in/yaml/v3"
)

// isolationConfig says how the server is divided between owners
// (docs/overload.md).
type isolationConfig struct {
	Mode                   string                 `yaml:"mode"`
	MaxTrackedOwners       int                    `yaml:"maxTrackedOwners"`
	MaxOwnerKeyLength      int                    `yaml:"maxOwnerKeyLength"`
	DefaultWeight          int                    `yaml:"defaultWeight"`
	RequestCost            string                 `yaml:"requestCost"`
	MaxRetainedMessage     size                   `yaml:"maxRetainedMessageBytes"`
	BootstrapReservedBytes autoSize               `yaml:"bootstrapReservedBytes"`
	ReconnectReservedBytes autoSize               `yaml:"reconnectReservedBytes"`
	Stages                 map[string]stageConfig `yaml:"stages"`
	TrustedOwners          []trustedOwnerConfig   `yaml:"trustedOwners"`
	TrustedIngress         []ingressConfig        `yaml:"trustedIngress"`
}

// stageConfig overrides one stage; what is left out is computed.
type stageConfig struct {
	Capacity          *size `yaml:"capacity"`
	BootstrapReserved *size `yaml:"bootstrapReserved"`
	ReconnectReserved *size `yaml:"reconnectReserved"`
	ControlReserved   *size `yaml:"controlReserved"`
	OwnerHardLimit    *size `yaml:"ownerHardLimit"`
}

type trustedOwnerConfig struct {
	Key          string                       `yaml:"key"`
	Weight       int                          `yaml:"weight"`
	Reservations map[string]reservationConfig `yaml:"reservations"`
}

type reservationConfig struct {
	Reserved  size `yaml:"reserved"`
	HardLimit size `yaml:"hardLimit"`
}

// ingressConfig gives what arrives at an address of this machine to a trusted
// owner.
type ingressConfig struct {
	Address string `yaml:"address"`
	Owner   string `yaml:"owner"`
}

type budgetConfig struct {
	MaxBytes         size `yaml:"maxBytes"`
	SessionlessBytes size `yaml:"sessionlessBytes"`
}

// autoSize is a size, or auto: computed.
type autoSize int64

const auto autoSize = -1

// UnmarshalYAML implements yaml.Unmarshaler.
func (z *autoSize) UnmarshalYAML(n *yaml.Node) error {
	if n.Value == "auto" {
		*z = auto
		return nil
	}
	var s size
	if err := s.UnmarshalYAML(n); err != nil {
		return err
	}
	*z = autoSize(s)
	return nil
}

func (z autoSize) amount() *int64 {
	if z == auto {
		return nil
	}
	return isolation.Amount(int64(z))
}

func (z *size) amount() *int64 {
	if z == nil {
		return nil
	}
	return isolation.Amount(int64(*z))
}

var modes = []isolation.Mode{isolation.Balanced, isolation.SharedOnly, isolation.FairShare, isolation.TrustedReservations}

// stack fills in what the section says. listen are the URLs of the server.
func (c *isolationConfig) stack(o *stack.Options, listen []string) error {
	iso := isolation.Options{
		MaxTrackedOwners: c.MaxTrackedOwners, MaxOwnerKeyLength: c.MaxOwnerKeyLength, DefaultWeight: c.DefaultWeight,
		MaxRetainedMessageBytes: int64(c.MaxRetainedMessage),
		BootstrapReservedBytes:  c.BootstrapReservedBytes.amount(), ReconnectReservedBytes: c.ReconnectReservedBytes.amount(),
	}
	i := slices.IndexFunc(modes, func(m isolation.Mode) bool { return m.String() == c.Mode })
	if i < 0 {
		return fmt.Errorf("isolation.mode: %q is none of %v", c.Mode, modes)
	}
	iso.Mode = modes[i]
	switch c.RequestCost {
	case "message":
		o.RequestCost = stack.CostMessage
	case "encoded":
		o.RequestCost = stack.CostEncoded
	default:
		return fmt.Errorf("isolation.requestCost: %q is neither message nor encoded", c.RequestCost)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Stages)) {
		s, err := stageByName("isolation.stages", name)
		if err != nil {
			return err
		}
		from := c.Stages[name]
		iso.Stages = append(iso.Stages, isolation.StageOptions{
			Stage: s, Capacity: from.Capacity.amount(), BootstrapReserved: from.BootstrapReserved.amount(),
			ReconnectReserved: from.ReconnectReserved.amount(), ControlReserved: from.ControlReserved.amount(),
			OwnerHardLimit: from.OwnerHardLimit.amount(),
		})
	}
	for i, from := range c.TrustedOwners {
		owner := isolation.TrustedOwner{Key: from.Key, Weight: from.Weight}
		for _, name := range slices.Sorted(maps.Keys(from.Reservations)) {
			s, err := stageByName(fmt.Sprintf("isolation.trustedOwners[%d].reservations", i), name)
			if err != nil {
				return err
			}
			r := from.Reservations[name]
			owner.Reservations = append(owner.Reservations, isolation.Reservation{Stage: s, Reserved: int64(r.Reserved), HardLimit: int64(r.HardLimit)})
		}
		iso.TrustedOwners = append(iso.TrustedOwners, owner)
	}
	o.Isolation = iso
	in, err := newTrustedIngress(c.TrustedIngress, c.TrustedOwners, listen)
	if err != nil {
		return err
	}
	if in != nil {
		o.Classifier = in
	}
	return nil
}

func stageByName(key, name string) (isolation.Stage, error) {
	if s, ok := isolation.ParseStage(name); ok {
		return s, nil
	}
	var known []string
	for s := range isolation.Stage(isolation.Stages) {
		known = append(known, s.String())
	}
	return 0, fmt.Errorf("%s: %q is none of the stages %s", key, name, strings.Join(known, ", "))
}

// trustedIngress names the owners of connections by the address of this machine
// at which they arrive: a network card or a port that only the owner's network
// reaches. The peer's own address, which it or a balancer may claim, proves
// nothing and is not looked at.
type trustedIngress []ingress

type ingress struct {
	at    netip.AddrPort // the zero address: any; port 0: any
	claim isolation.OwnerClaim
}

// ClassifyIngress implements isolation.Classifier.
func (t trustedIngress) ClassifyIngress(_, local netip.AddrPort) (isolation.OwnerClaim, bool) {
	address, port := local.Addr().Unmap(), local.Port()
	for i := range t {
		at := t[i].at
		if (at.Port() == 0 || at.Port() == port) && (!at.Addr().IsValid() || at.Addr() == address.WithZone("")) {
			return t[i].claim, true
		}
	}
	return isolation.OwnerClaim{}, false
}

// Classify implements isolation.Classifier: requests go with their connection.
func (trustedIngress) Classify(isolation.ServiceKind, *isolation.ChannelFacts, *isolation.BindingFacts) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{}, false
}

// newTrustedIngress checks the rules: each leads to a trusted owner and matches an
// address the server listens on, and each trusted owner has a way in. nil
// without rules.
func newTrustedIngress(rules []ingressConfig, owners []trustedOwnerConfig, listen []string) (isolation.Classifier, error) {
	var t trustedIngress
	for i, r := range rules {
		key := fmt.Sprintf("isolation.trustedIngress[%d]", i)
		at, err := parseIngress(r.Address)
		if err != nil {
			return nil, fmt.Errorf("%s.address: %w", key, err)
		}
		if !slices.ContainsFunc(owners, func(o trustedOwnerConfig) bool { return o.Key == r.Owner }) {
			return nil, fmt.Errorf("%s.owner: %q is not in isolation.trustedOwners", key, r.Owner)
		}
		if slices.ContainsFunc(t, func(earlier ingress) bool { return earlier.at == at }) {
			return nil, fmt.Errorf("%s.address: %s is listed twice", key, r.Address)
		}
		if !slices.ContainsFunc(listen, func(raw string) bool { return listensAt(raw, at) }) {
			return nil, fmt.Errorf("%s.address: the server does not listen at %s (listen)", key, r.Address)
		}
		t = append(t, ingress{at: at, claim: isolation.OwnerClaim{Key: r.Owner, Class: isolation.Trusted}})
	}
	for i, o := range owners {
		if !slices.ContainsFunc(rules, func(r ingressConfig) bool { return r.Owner == o.Key }) {
			return nil, fmt.Errorf("isolation.trustedOwners[%d].key: no rule of isolation.trustedIngress leads to %q, so the room kept for it could not be used", i, o.Key)
		}
	}
	if t == nil {
		return nil, nil
	}
	// The rule that says most counts.
	slices.SortStableFunc(t, func(a, b ingress) int { return cmp.Compare(b.exact(), a.exact()) })
	return t, nil
}

func (i ingress) exact() (n int) {
	if i.at.Addr().IsValid() {
		n += 2
	}
	if i.at.Port() != 0 {
		n++
	}
	return n
}

// parseIngress reads "10.99.0.1:4840", "10.99.0.1" or ":4850".
func parseIngress(text string) (netip.AddrPort, error) {
	wrong := fmt.Errorf("%q is neither an IP address, with or without a port, nor a :port", text)
	if port, ok := strings.CutPrefix(text, ":"); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return netip.AddrPort{}, wrong
		}
		return netip.AddrPortFrom(netip.Addr{}, uint16(n)), nil
	}
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil && !a.IsUnspecified() {
		return netip.AddrPortFrom(a.Unmap(), 0), nil
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil || at.Addr().IsUnspecified() || at.Port() == 0 {
		return netip.AddrPort{}, wrong
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

// listensAt reports whether connections to at may arrive at a URL's listener.
func listensAt(raw string, at netip.AddrPort) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	if p := portOf(u); at.Port() != 0 && p != "0" && p != strconv.Itoa(int(at.Port())) {
		return false
	}
	a, err := netip.ParseAddr(u.Hostname())
	if err != nil || !at.Addr().IsValid() || a.IsUnspecified() { // a name, or all addresses
		return true
	}
	return a.Unmap() == at.Addr()
}
