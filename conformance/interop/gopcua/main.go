// Command gopcua runs the interop scenario against one server with the gopcua
// client. Arguments and output are described in the package above it.
package main

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

const strongest = ua.SecurityPolicyURIAes256Sha256RsaPss

// args are the scenario's flags.
type args struct {
	endpoint, applicationURI, cert, key, serverCert, userCert, userKey string
	user, password, namespace, steps, types                            string
	tokenLifetime                                                      int
}

// line is one JSON line of the report.
type line struct {
	Step   string   `json:"step"`
	Event  string   `json:"event,omitempty"`
	OK     bool     `json:"ok"`
	Detail string   `json:"detail,omitempty"`
	Items  []string `json:"items,omitempty"`
}

// scenario runs the steps and gathers what each of them covered.
type scenario struct {
	args  args
	items []string
}

func main() {
	var a args
	flag.StringVar(&a.endpoint, "endpoint", "", "endpoint `URL` of the server")
	flag.StringVar(&a.applicationURI, "application-uri", "", "application URI in the certificate")
	flag.StringVar(&a.cert, "cert", "", "application certificate, DER")
	flag.StringVar(&a.key, "key", "", "application key, PKCS #8 PEM")
	flag.StringVar(&a.serverCert, "server-cert", "", "the server's certificate, DER")
	flag.StringVar(&a.userCert, "user-cert", "", "user certificate, DER")
	flag.StringVar(&a.userKey, "user-key", "", "user key, PKCS #8 PEM")
	flag.StringVar(&a.user, "user", "", "user name")
	flag.StringVar(&a.password, "password", "", "password")
	flag.StringVar(&a.namespace, "namespace", "", "namespace URI of the demo nodes")
	flag.StringVar(&a.steps, "steps", "", "steps to run, separated by commas")
	flag.StringVar(&a.types, "types", "", "types to read and write, separated by commas")
	flag.IntVar(&a.tokenLifetime, "token-lifetime", 4000, "lifetime of a security token in `ms`")
	flag.Parse()
	if !run(a) {
		os.Exit(1)
	}
}

func run(a args) bool {
	good := true
	for step := range strings.SplitSeq(a.steps, ",") {
		s := &scenario{args: a}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		err := s.step(ctx, step)
		cancel()
		if err != nil {
			good = false
			emit(line{Step: step, Detail: err.Error(), Items: s.items})
			continue
		}
		emit(line{Step: step, OK: true, Detail: time.Since(begun).Round(time.Millisecond).String(), Items: s.items})
	}
	return good
}

func emit(l line) {
	// Standard output is the report; an error here leaves nobody to tell.
	_ = json.NewEncoder(os.Stdout).Encode(l)
}

func (s *scenario) step(ctx context.Context, name string) error {
	switch name {
	case "discovery":
		return s.discovery(ctx)
	case "security":
		return s.security(ctx)
	case "values":
		return s.anonymous(ctx, s.values)
	case "browse":
		return s.anonymous(ctx, s.browse)
	case "calls":
		return s.anonymous(ctx, s.calls)
	case "subscription":
		return s.anonymous(ctx, s.subscription)
	case "renewal":
		return s.renewal(ctx)
	case "reconnect":
		return s.reconnect(ctx)
	}
	return fmt.Errorf("unknown step %q", name)
}

func (s *scenario) discovery(ctx context.Context) error {
	servers, err := opcua.FindServers(ctx, s.args.endpoint)
	if err != nil {
		return err
	}
	if len(servers) == 0 || servers[0].ApplicationURI == "" {
		return errors.New("FindServers found nobody")
	}
	endpoints, err := opcua.GetEndpoints(ctx, s.args.endpoint)
	for _, e := range endpoints {
		s.items = append(s.items, endpointName(e))
	}
	return err
}

func endpointName(e *ua.EndpointDescription) string {
	_, policy, _ := strings.Cut(e.SecurityPolicyURI, "#")
	return policy + "/" + strings.TrimPrefix(e.SecurityMode.String(), "MessageSecurityMode")
}

func (s *scenario) security(ctx context.Context) error {
	endpoints, err := opcua.GetEndpoints(ctx, s.args.endpoint)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		for _, token := range e.UserIdentityTokens {
			kind := strings.TrimPrefix(token.TokenType.String(), "UserTokenType")
			name := endpointName(e) + "/" + kind
			if e.SecurityMode == ua.MessageSecurityModeNone && token.TokenType != ua.UserTokenTypeAnonymous {
				continue // gopcua encrypts user tokens with the channel's policy, which is None here
			}
			err := s.session(ctx, e, token.TokenType, s.args.password, nil, func(ctx context.Context, c *opcua.Client) error {
				v, err := c.Node(ua.NewNumericNodeID(0, id.Server_ServerStatus_State)).Value(ctx)
				if err == nil && v.Value() != int32(0) {
					err = fmt.Errorf("server state %v", v.Value())
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			s.items = append(s.items, name)
		}
	}
	e, err := s.strongest(ctx)
	if err != nil {
		return err
	}
	err = s.session(ctx, e, ua.UserTokenTypeUserName, "wrong", nil, func(context.Context, *opcua.Client) error { return nil })
	if err == nil {
		return errors.New("a wrong password was accepted")
	}
	s.items = append(s.items, "wrong password: "+err.Error())
	return nil
}

func (s *scenario) strongest(ctx context.Context) (*ua.EndpointDescription, error) {
	endpoints, err := opcua.GetEndpoints(ctx, s.args.endpoint)
	if err != nil {
		return nil, err
	}
	return opcua.SelectEndpoint(endpoints, strongest, ua.MessageSecurityModeSignAndEncrypt)
}

// session connects to e as one identity, runs work and closes.
func (s *scenario) session(ctx context.Context, e *ua.EndpointDescription, kind ua.UserTokenType, password string,
	more []opcua.Option, work func(context.Context, *opcua.Client) error,
) error {
	opts := []opcua.Option{
		opcua.ApplicationURI(s.args.applicationURI),
		opcua.SecurityFromEndpoint(e, kind),
		opcua.SecurityPolicy(e.SecurityPolicyURI),
		opcua.SecurityMode(e.SecurityMode),
	}
	if e.SecurityMode != ua.MessageSecurityModeNone {
		key, err := loadKey(s.args.key)
		if err != nil {
			return err
		}
		opts = append(opts, opcua.CertificateFile(s.args.cert), opcua.PrivateKey(key))
	}
	switch kind {
	case ua.UserTokenTypeUserName:
		opts = append(opts, opcua.AuthUsername(s.args.user, password))
	case ua.UserTokenTypeCertificate:
		cert, err := os.ReadFile(s.args.userCert)
		if err != nil {
			return err
		}
		key, err := loadKey(s.args.userKey)
		if err != nil {
			return err
		}
		opts = append(opts, opcua.AuthCertificate(cert), opcua.AuthPrivateKey(key))
	default:
		opts = append(opts, opcua.AuthAnonymous())
	}
	c, err := opcua.NewClient(s.args.endpoint, append(opts, more...)...)
	if err != nil {
		return err
	}
	if err := c.Connect(ctx); err != nil {
		return err
	}
	err = work(ctx, c)
	return errors.Join(err, c.Close(ctx))
}

// loadKey reads PKCS #8; opcua.PrivateKeyFile knows PKCS #1 only.
func loadKey(file string) (*rsa.PrivateKey, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("%s is not PEM", file)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	rsaKey, ok := key.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds no RSA key", file)
	}
	return rsaKey, nil
}

func (s *scenario) anonymous(ctx context.Context, work func(context.Context, *opcua.Client) error) error {
	endpoints, err := opcua.GetEndpoints(ctx, s.args.endpoint)
	if err != nil {
		return err
	}
	e, err := opcua.SelectEndpoint(endpoints, ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	if err != nil {
		return err
	}
	return s.session(ctx, e, ua.UserTokenTypeAnonymous, "", nil, work)
}

// node returns the NodeId of a node of the demo space.
func (s *scenario) node(ctx context.Context, c *opcua.Client, name string) (*ua.NodeID, error) {
	ns, err := c.FindNamespace(ctx, s.args.namespace)
	if err != nil {
		return nil, err
	}
	return ua.NewStringNodeID(ns, "Demo."+name), nil
}

func (s *scenario) values(ctx context.Context, c *opcua.Client) error {
	for name := range strings.SplitSeq(s.args.types, ",") {
		array, err := s.read(ctx, c, "Array."+name)
		if err != nil {
			return err
		}
		elements := reflect.ValueOf(array.Value())
		if elements.Kind() != reflect.Slice || elements.Len() < 2 {
			return fmt.Errorf("array of %s: %v", name, array.Value())
		}
		if name != "Variant" {
			err := s.swap(ctx, c, "Scalar."+name, func(any) any { return elements.Index(1).Interface() })
			if err != nil {
				return err
			}
		}
		if name == "ByteString" {
			continue // ua.NewVariant takes [][]byte for a matrix of Byte
		}
		if err := s.swap(ctx, c, "Array."+name, reversed); err != nil {
			return err
		}
		err = s.swap(ctx, c, "Matrix."+name, func(v any) any {
			out := reflect.ValueOf(reversed(v))
			for i := range out.Len() {
				out.Index(i).Set(reflect.ValueOf(reversed(out.Index(i).Interface())))
			}
			return out.Interface()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// reversed returns a reversed copy of a slice.
func reversed(v any) any {
	in := reflect.ValueOf(v)
	out := reflect.MakeSlice(in.Type(), in.Len(), in.Len())
	for i := range in.Len() {
		out.Index(i).Set(in.Index(in.Len() - 1 - i))
	}
	return out.Interface()
}

func (s *scenario) read(ctx context.Context, c *opcua.Client, name string) (*ua.Variant, error) {
	n, err := s.node(ctx, c, name)
	if err != nil {
		return nil, err
	}
	v, err := c.Node(n).Value(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// swap reads a value, writes another one of the same type, reads it back and restores the first.
func (s *scenario) swap(ctx context.Context, c *opcua.Client, name string, change func(any) any) error {
	n, err := s.node(ctx, c, name)
	if err != nil {
		return err
	}
	old, err := s.read(ctx, c, name)
	if err != nil {
		return err
	}
	for _, value := range []any{change(old.Value()), old.Value()} {
		want, err := ua.NewVariant(value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		res, err := c.Write(ctx, &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{{
			NodeID: n, AttributeID: ua.AttributeIDValue,
			Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: want},
		}}})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if res.Results[0] != ua.StatusOK {
			return fmt.Errorf("%s: write: %w", name, res.Results[0])
		}
		got, err := s.read(ctx, c, name)
		if err != nil {
			return err
		}
		if got.Type() != want.Type() || !reflect.DeepEqual(got.Value(), want.Value()) {
			return fmt.Errorf("%s: wrote %v, read %v", name, want.Value(), got.Value())
		}
	}
	s.items = append(s.items, name)
	return nil
}

func (s *scenario) browse(ctx context.Context, c *opcua.Client) error {
	root := ua.NewNumericNodeID(0, id.RootFolder)
	seen := map[string]bool{root.String(): true}
	for level := []*ua.NodeID{root}; len(level) > 0; {
		var next []*ua.NodeID
		for part := range slices.Chunk(level, 100) {
			refs, err := browseAll(ctx, c, part)
			if err != nil {
				return err
			}
			for _, ref := range refs {
				if target := ref.NodeID.NodeID; ref.NodeID.ServerIndex == 0 && !seen[target.String()] {
					seen[target.String()] = true
					next = append(next, target)
				}
			}
		}
		level = next
	}
	s.items = append(s.items, fmt.Sprintf("%d nodes", len(seen)))
	if len(seen) < 1500 {
		return fmt.Errorf("only %d nodes reachable from Root", len(seen))
	}
	return nil
}

// browseAll returns the forward references of nodes, following continuation points.
func browseAll(ctx context.Context, c *opcua.Client, nodes []*ua.NodeID) ([]*ua.ReferenceDescription, error) {
	req := &ua.BrowseRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0), Timestamp: time.Now()}}
	for _, n := range nodes {
		req.NodesToBrowse = append(req.NodesToBrowse, &ua.BrowseDescription{
			NodeID: n, BrowseDirection: ua.BrowseDirectionForward, IncludeSubtypes: true,
			ReferenceTypeID: ua.NewNumericNodeID(0, id.References), ResultMask: uint32(ua.BrowseResultMaskAll),
		})
	}
	res, err := c.Browse(ctx, req)
	if err != nil {
		return nil, err
	}
	var refs []*ua.ReferenceDescription
	for results := res.Results; len(results) > 0; {
		var more [][]byte
		for _, r := range results {
			if r.StatusCode != ua.StatusOK {
				return nil, r.StatusCode
			}
			refs = append(refs, r.References...)
			if len(r.ContinuationPoint) > 0 {
				more = append(more, r.ContinuationPoint)
			}
		}
		if len(more) == 0 {
			break
		}
		next, err := c.BrowseNext(ctx, &ua.BrowseNextRequest{ContinuationPoints: more})
		if err != nil {
			return nil, err
		}
		results = next.Results
	}
	return refs, nil
}

func (s *scenario) calls(ctx context.Context, c *opcua.Client) error {
	call := func(name string, inputs ...*ua.Variant) (*ua.CallMethodResult, error) {
		object, err := s.node(ctx, c, "Methods")
		if err != nil {
			return nil, err
		}
		method, err := s.node(ctx, c, "Methods."+name)
		if err != nil {
			return nil, err
		}
		return c.Call(ctx, &ua.CallMethodRequest{ObjectID: object, MethodID: method, InputArguments: inputs})
	}
	res, err := call("NoArguments")
	if err != nil || res.StatusCode != ua.StatusOK {
		return fmt.Errorf("method NoArguments: %+v, %w", res, err)
	}
	res, err = call("Add", ua.MustVariant(1.5), ua.MustVariant(2.25))
	if err != nil || res.StatusCode != ua.StatusOK || res.OutputArguments[0].Value() != 3.75 {
		return fmt.Errorf("method Add: %+v, %w", res, err)
	}
	var inputs []*ua.Variant
	for name := range strings.SplitSeq(s.args.types, ",") {
		if slices.Contains([]string{"Variant", "DataValue", "DiagnosticInfo", "Structure"}, name) {
			continue
		}
		v, err := s.read(ctx, c, "Scalar."+name)
		if err != nil {
			return err
		}
		inputs = append(inputs, v)
	}
	res, err = call("AllTypes", inputs...)
	if err != nil || res.StatusCode != ua.StatusOK {
		return fmt.Errorf("method AllTypes: %+v, %w", res, err)
	}
	if !reflect.DeepEqual(res.OutputArguments, inputs) {
		return fmt.Errorf("method AllTypes returned %v", res.OutputArguments)
	}
	res, err = call("Fail")
	if err != nil || res.StatusCode == ua.StatusOK {
		return fmt.Errorf("method Fail: %+v, %w", res, err)
	}
	s.items = append(s.items, "Fail: "+res.StatusCode.Error())
	return nil
}

// counter is a subscription with one item on the demo counter.
type counter struct {
	sub    *opcua.Subscription
	item   uint32
	notify chan *opcua.PublishNotificationData
	seen   int
}

func (s *scenario) subscribe(ctx context.Context, c *opcua.Client) (*counter, error) {
	n, err := s.node(ctx, c, "Simulation.Counter")
	if err != nil {
		return nil, err
	}
	k := &counter{notify: make(chan *opcua.PublishNotificationData, 1024)}
	k.sub, err = c.Subscribe(ctx, &opcua.SubscriptionParameters{Interval: 100 * time.Millisecond}, k.notify)
	if err != nil {
		return nil, err
	}
	req := opcua.NewMonitoredItemCreateRequestWithDefaults(n, ua.AttributeIDValue, 42)
	req.RequestedParameters.SamplingInterval = 100
	res, err := k.sub.Monitor(ctx, ua.TimestampsToReturnBoth, req)
	if err != nil {
		return nil, err
	}
	if res.Results[0].StatusCode != ua.StatusOK {
		return nil, res.Results[0].StatusCode
	}
	k.item = res.Results[0].MonitoredItemID
	return k, nil
}

// wait returns when n more values have arrived; errors on the way are not
// values, they happen while a client reconnects.
func (k *counter) wait(n int, limit time.Duration) error {
	deadline := time.After(limit)
	for n > 0 {
		select {
		case m := <-k.notify:
			if change, ok := m.Value.(*ua.DataChangeNotification); ok && m.Error == nil {
				k.seen += len(change.MonitoredItems)
				n -= len(change.MonitoredItems)
			}
		case <-deadline:
			return fmt.Errorf("%d values arrived, %d are missing", k.seen, n)
		}
	}
	return nil
}

func (s *scenario) subscription(ctx context.Context, c *opcua.Client) error {
	k, err := s.subscribe(ctx, c)
	if err != nil {
		return err
	}
	if err := k.wait(3, 20*time.Second); err != nil {
		return err
	}
	mod, err := k.sub.ModifyMonitoredItems(ctx, ua.TimestampsToReturnBoth, &ua.MonitoredItemModifyRequest{
		MonitoredItemID:     k.item,
		RequestedParameters: &ua.MonitoringParameters{ClientHandle: 42, SamplingInterval: 50, QueueSize: 10, DiscardOldest: true},
	})
	if err != nil {
		return err
	}
	if mod.Results[0].StatusCode != ua.StatusOK {
		return fmt.Errorf("ModifyMonitoredItems: %w", mod.Results[0].StatusCode)
	}
	if _, err := k.sub.ModifySubscription(ctx, opcua.SubscriptionParameters{Interval: 60 * time.Millisecond}); err != nil {
		return err
	}
	if err := k.wait(3, 20*time.Second); err != nil {
		return err
	}
	if _, err := k.sub.Unmonitor(ctx, k.item); err != nil {
		return err
	}
	_ = k.wait(1000, 300*time.Millisecond) // what was on its way
	if k.wait(1, time.Second) == nil {
		return errors.New("values arrived after the item was deleted")
	}
	s.items = append(s.items, fmt.Sprintf("%d values", k.seen))
	return k.sub.Cancel(ctx)
}

func (s *scenario) renewal(ctx context.Context) error {
	e, err := s.strongest(ctx)
	if err != nil {
		return err
	}
	lifetime := time.Duration(s.args.tokenLifetime) * time.Millisecond
	return s.session(ctx, e, ua.UserTokenTypeUserName, s.args.password, []opcua.Option{opcua.Lifetime(lifetime)},
		func(ctx context.Context, c *opcua.Client) error {
			k, err := s.subscribe(ctx, c)
			if err != nil {
				return err
			}
			reads := 0
			for until := time.Now().Add(lifetime * 32 / 10); time.Now().Before(until); reads++ {
				if _, err := c.Node(ua.NewNumericNodeID(0, id.Server_ServerStatus_CurrentTime)).Value(ctx); err != nil {
					return err
				}
				if err := k.wait(1, 20*time.Second); err != nil {
					return err
				}
			}
			s.items = append(s.items, fmt.Sprintf("%v on tokens of %v, %d reads, %d values", lifetime*32/10, lifetime, reads, k.seen))
			return k.sub.Cancel(ctx)
		})
}

func (s *scenario) reconnect(ctx context.Context) error {
	e, err := s.strongest(ctx)
	if err != nil {
		return err
	}
	more := []opcua.Option{opcua.AutoReconnect(true), opcua.ReconnectInterval(200 * time.Millisecond)}
	return s.session(ctx, e, ua.UserTokenTypeUserName, s.args.password, more, func(ctx context.Context, c *opcua.Client) error {
		k, err := s.subscribe(ctx, c)
		if err != nil {
			return err
		}
		if err := k.wait(2, 20*time.Second); err != nil {
			return err
		}
		emit(line{Step: "reconnect", Event: "cut"})
		_ = k.wait(1000, 1500*time.Millisecond) // what was on its way
		if err := k.wait(3, 30*time.Second); err != nil {
			return err
		}
		s.items = append(s.items, fmt.Sprintf("%d values", k.seen))
		_, err = c.Node(ua.NewNumericNodeID(0, id.Server_ServerStatus_CurrentTime)).Value(ctx)
		return err
	})
}
