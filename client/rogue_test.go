package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// A rogue is a scripted server in a synctest bubble: it behaves, as far as a
// client can tell, except where a script says otherwise.
type rogue struct {
	*testing.T
	ctx context.Context
	network
	key      *security.Key // nil: policy None only
	lifetime time.Duration // of tokens, 0: as asked

	mu     sync.Mutex
	counts map[string]int
	named  bool                                      // the user of opts has a name
	script map[string]func(n int, rq ua.Request) any // by service; n counts from 1. nil: behave
	tokens int
	nonce  []byte // the last
	parked []parkedRequest
	subs   uint32
	ch     *securechannel.Channel // the last that spoke
	id     uint32                 // the last request's
}

type parkedRequest struct {
	ch *securechannel.Channel
	id uint32
	rq *ua.PublishRequest
}

// What scripts return besides responses.
type (
	raw     []byte        // a body as it stands
	silent  struct{}      // no answer
	hangUp  struct{}      // the channel closes
	behaved struct{}      // as if there were no script
	busy    time.Duration // BadServerTooBusy with a hint
)

func inRogue(t *testing.T, f func(r *rogue)) { inRogueWith(t, nil, f) }

func inRogueWith(t *testing.T, setup func(r *rogue), f func(r *rogue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rogue{T: t, ctx: t.Context(), counts: make(map[string]int), script: make(map[string]func(int, ua.Request) any)}
		if setup != nil {
			setup(r)
		}
		cfg := securechannel.ServerConfig{Handler: r, Logger: quiet(), Offers: []securechannel.Offer{{Policy: security.None, Mode: ua.MessageSecurityModeNone}}}
		cfg.MinTokenLifetime = time.Second
		if r.lifetime > 0 {
			cfg.MaxTokenLifetime = r.lifetime
		}
		if r.key != nil {
			cfg.Key = r.key
			cfg.Validate = func(_ context.Context, _ *securechannel.Channel, chain []byte, _ *security.Policy) (*x509.Certificate, error) {
				return x509.ParseCertificate(chain)
			}
			cfg.Offers = append(cfg.Offers, securechannel.Offer{Policy: security.Basic256Sha256, Mode: ua.MessageSecurityModeSign})
		}
		sc, err := securechannel.NewServer(cfg)
		if err != nil {
			t.Fatal(err)
		}
		gate, err := transport.NewGate(transport.GateOptions{Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		r.ln = memnet.Listen("192.0.2.2:4840")
		ln, err := uatcp.New(r.ln, uatcp.Options{NewSink: sc.NewSink, Gate: gate, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _ = ln.Serve(ctx) })
		f(r)
		cancel()
		wg.Wait()
	})
}

func (r *rogue) opts() Options {
	o := Options{Policy: security.None, Transport: TCP{Dial: r.dial}, Logger: quiet(), Reconnect: steady}
	if r.named {
		o.Identity, o.InsecurePlaintextPassword = &UserName{Name: "ada", Password: []byte("pw")}, true
	}
	return o
}

// on scripts a service.
func (r *rogue) on(service string, f func(n int, rq ua.Request) any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script[service] = f
	r.counts[service] = 0
}

// asked is how often a service was called since it was scripted.
func (r *rogue) asked(service string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[service]
}

func (r *rogue) Opened(*securechannel.Channel)                        {}
func (r *rogue) Closed(*securechannel.Channel, transport.CloseReason) {}

func (r *rogue) Message(ch *securechannel.Channel, m *securechannel.Message) {
	var d uabinary.Decoder
	d.Reset(m.Body, nil)
	msg, err := uabinary.DecodeMessage(&d)
	if err != nil {
		r.Errorf("a client's request: %v", err)
		return
	}
	rq := msg.(ua.Request)
	name := service(rq)
	r.mu.Lock()
	r.ch, r.id = ch, m.RequestID
	r.counts[name]++
	n, script := r.counts[name], r.script[name]
	r.mu.Unlock()
	var answer any = behaved{}
	if script != nil {
		answer = script(n, rq)
	}
	if _, ok := answer.(behaved); ok {
		answer = r.behave(ch, m, rq)
	}
	r.reply(ch, m.RequestID, rq, answer)
}

func (r *rogue) reply(ch *securechannel.Channel, id uint32, rq ua.Request, answer any) {
	h := &ua.ResponseHeader{RequestHandle: rq.Header().RequestHandle, Timestamp: time.Now()}
	switch a := answer.(type) {
	case silent:
		return
	case hangUp:
		ch.Close(transport.ProtocolError, ua.StatusGood)
		return
	case raw:
		_ = ch.Reply(id, a)
		return
	case busy:
		h.ServiceResult = 0x80EE0000
		h.AdditionalHeader = ua.NewExtensionObject(&ua.AdditionalParametersType{Parameters: []*ua.KeyValuePair{
			{Key: &ua.QualifiedName{Name: "RetryAfterMs"}, Value: ua.MustVariant(time.Duration(a).Milliseconds())}}})
		answer = &ua.ServiceFault{}
	case ua.StatusCode:
		h.ServiceResult = a
		answer = &ua.ServiceFault{}
	}
	answer.(ua.Response).SetHeader(h)
	var e uabinary.Encoder
	uabinary.EncodeMessage(&e, answer)
	if e.Err() != nil {
		r.Errorf("encode %T: %v", answer, e.Err())
	}
	_ = ch.Reply(id, e.B)
}

// push answers the oldest Publish request with a message.
func (r *rogue) push(sub, sequence uint32, available []uint32, data ...any) {
	r.Helper()
	r.mu.Lock()
	if len(r.parked) == 0 {
		r.mu.Unlock()
		r.Error("no Publish request at the server")
		return
	}
	p := r.parked[0]
	r.parked = r.parked[1:]
	r.mu.Unlock()
	r.reply(p.ch, p.id, p.rq, &ua.PublishResponse{SubscriptionID: sub, AvailableSequenceNumbers: available, NotificationMessage: message(sequence, data...)})
}

func message(sequence uint32, data ...any) *ua.NotificationMessage {
	m := &ua.NotificationMessage{SequenceNumber: sequence, PublishTime: time.Now()}
	for _, d := range data {
		if v, ok := d.(int64); ok {
			d = &ua.DataChangeNotification{MonitoredItems: []*ua.MonitoredItemNotification{
				{ClientHandle: 1, Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(v)}}}}
		}
		m.NotificationData = append(m.NotificationData, ua.NewExtensionObject(d))
	}
	return m
}

func (r *rogue) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.parked)
}

func (r *rogue) endpoints() []*ua.EndpointDescription {
	app := &ua.ApplicationDescription{ApplicationURI: "urn:rogue", ApplicationName: ua.NewLocalizedText("rogue")}
	token := []*ua.UserTokenPolicy{{PolicyID: "anonymous", TokenType: ua.UserTokenTypeAnonymous}, {PolicyID: "user", TokenType: ua.UserTokenTypeUserName}}
	list := []*ua.EndpointDescription{{EndpointURL: plantURL, Server: app, SecurityMode: ua.MessageSecurityModeNone,
		SecurityPolicyURI: security.None.URI, UserIdentityTokens: token, TransportProfileURI: profileTCP}}
	if r.key != nil {
		list = append(list, &ua.EndpointDescription{EndpointURL: plantURL, Server: app, SecurityMode: ua.MessageSecurityModeSign, ServerCertificate: r.key.Certificate(),
			SecurityPolicyURI: security.Basic256Sha256.URI, UserIdentityTokens: token, TransportProfileURI: profileTCP, SecurityLevel: 5})
	}
	return list
}

func (r *rogue) freshNonce() []byte {
	n := security.Nonce(32)
	r.mu.Lock()
	r.nonce = n
	r.mu.Unlock()
	return n
}

// created is the proper answer to CreateSession.
func (r *rogue) created(ch *securechannel.Channel, q *ua.CreateSessionRequest) *ua.CreateSessionResponse {
	r.mu.Lock()
	r.tokens++
	n := r.tokens
	r.mu.Unlock()
	rs := &ua.CreateSessionResponse{
		SessionID: ua.NewNumericNodeID(1, uint32(n)), AuthenticationToken: ua.NewByteStringNodeID(0, fmt.Appendf(nil, "token %d", n)),
		RevisedSessionTimeout: 60_000, ServerNonce: r.freshNonce(), ServerEndpoints: r.endpoints(), ServerSignature: &ua.SignatureData{},
	}
	if p := ch.SecurityPolicy(); !p.IsNone() {
		rs.ServerCertificate = r.key.Certificate()
		sig, err := p.Sign(context.Background(), r.key, security.PrioritySession, append(bytes.Clone(q.ClientCertificate), q.ClientNonce...))
		if err != nil {
			r.Error(err)
		}
		rs.ServerSignature = &ua.SignatureData{Algorithm: p.SignatureURI(), Signature: sig}
	}
	return rs
}

func (r *rogue) behave(ch *securechannel.Channel, m *securechannel.Message, rq ua.Request) any {
	switch q := rq.(type) {
	case *ua.GetEndpointsRequest:
		return &ua.GetEndpointsResponse{Endpoints: r.endpoints()}
	case *ua.CreateSessionRequest:
		return r.created(ch, q)
	case *ua.ActivateSessionRequest:
		return &ua.ActivateSessionResponse{ServerNonce: r.freshNonce()}
	case *ua.CloseSessionRequest:
		return &ua.CloseSessionResponse{}
	case *ua.ReadRequest:
		rs := &ua.ReadResponse{}
		for range q.NodesToRead {
			rs.Results = append(rs.Results, &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(int32(0))})
		}
		return rs
	case *ua.CreateSubscriptionRequest:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.subs++
		return &ua.CreateSubscriptionResponse{SubscriptionID: r.subs, RevisedPublishingInterval: q.RequestedPublishingInterval, RevisedLifetimeCount: 1 << 20, RevisedMaxKeepAliveCount: 10}
	case *ua.DeleteSubscriptionsRequest:
		return &ua.DeleteSubscriptionsResponse{Results: make([]ua.StatusCode, len(q.SubscriptionIDs))}
	case *ua.CreateMonitoredItemsRequest:
		rs := &ua.CreateMonitoredItemsResponse{}
		for _, i := range q.ItemsToCreate {
			rs.Results = append(rs.Results, &ua.MonitoredItemCreateResult{MonitoredItemID: i.RequestedParameters.ClientHandle})
		}
		return rs
	case *ua.PublishRequest:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.parked = append(r.parked, parkedRequest{ch, m.RequestID, q})
		return silent{}
	case *ua.RepublishRequest:
		return ua.StatusBadMessageNotAvailable
	}
	return ua.StatusBadServiceUnsupported
}

// testKeys are made once, outside of every bubble.
var testKeys = sync.OnceValue(func() [3]*rsa.PrivateKey {
	var keys [3]*rsa.PrivateKey
	for i := range keys {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		keys[i] = k
	}
	return keys
})

// certified makes a self-signed application certificate for test key i.
func certified(t testing.TB, i int, uri string, gate *security.CryptoGate) *security.Key {
	t.Helper()
	u, _ := url.Parse(uri)
	k := testKeys()[i]
	tpl := &x509.Certificate{SerialNumber: big.NewInt(int64(i) + 1), Subject: pkix.Name{CommonName: uri},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageContentCommitment | x509.KeyUsageDataEncipherment | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, URIs: []*url.URL{u}, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	key, err := security.NewKey([][]byte{der}, k, k, gate)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
