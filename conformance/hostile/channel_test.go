package hostile

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"math/big"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

func TestX2SecondIssue(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		for _, o := range []probe.Options{s.options(), s.secured(security.Basic256Sha256)} {
			c := s.channelWith(o)
			sealed, err := c.Channel.SealOpen(context.Background(), nil, openBody(0, c.Mode))
			if err != nil {
				t.Fatal(err)
			}
			c.Channel.Write(sealed)
			s.ends(c, ua.StatusBadRequestTypeInvalid)
		}
	})
}

func TestX2EndlessRenewals(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		c := s.channel()
		for range 3000 {
			sealed, err := c.Channel.SealOpen(context.Background(), nil, openBody(1, c.Mode))
			if err != nil {
				break
			}
			if _, err := c.Channel.Write(sealed); err != nil {
				break
			}
		}
		// The server may close or drag its feet, but the healthy client loses nothing.
	})
}

// certificate signs one certificate; parent nil means itself.
func certificate(t *testing.T, name string, pub *rsa.PrivateKey, parent *x509.Certificate, signer *rsa.PrivateKey) *x509.Certificate {
	t.Helper()
	u, _ := url.Parse(probe.ApplicationURI)
	tpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, URIs: []*url.URL{u},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageDataEncipherment | x509.KeyUsageContentCommitment}
	if parent == nil {
		parent = tpl
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, parent, &pub.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestX3CertificatesThatSignEachOther(t *testing.T) {
	each(t, policies, func(o *stack.Options) { o.Security.TrustAll = false }, func(t *testing.T, s *site) {
		ka, _ := rsa.GenerateKey(rand.Reader, 2048)
		kb, _ := rsa.GenerateKey(rand.Reader, 2048)
		a0, b0 := certificate(t, "A", ka, nil, ka), certificate(t, "B", kb, nil, kb)
		a, b := certificate(t, "A", ka, b0, kb), certificate(t, "B", kb, a0, ka)
		for _, chain := range [][][]byte{{a.Raw, b.Raw}, {a.Raw, b.Raw, a.Raw, b.Raw, a.Raw, b.Raw, a.Raw, b.Raw, a.Raw, b.Raw, a.Raw, b.Raw}} {
			k, err := security.NewKey(chain, ka, ka, gate)
			if err != nil {
				t.Fatal(err)
			}
			o := s.secured(security.Basic256Sha256)
			o.Key = k
			s.status(s.shake(o), "a chain in a circle", refusedTrust...)
		}
	})
}

func TestX21DeprecatedPoliciesAreOff(t *testing.T) {
	each(t, policies, nil, func(t *testing.T, s *site) {
		for _, p := range []*security.Policy{security.Basic128Rsa15, security.Basic256} {
			s.status(s.shake(s.secured(p)), p.Name, ua.StatusBadSecurityPolicyRejected)
		}
	})
}

func TestX21PaddingFailuresLookAlike(t *testing.T) {
	each(t, chunked, func(o *stack.Options) {
		o.Security.Policies, o.Security.DeprecatedPolicies = []*security.Policy{security.Basic128Rsa15, security.Basic256Sha256}, true
	}, func(t *testing.T, s *site) {
		for _, p := range []*security.Policy{security.Basic128Rsa15, security.Basic256Sha256} {
			for _, at := range []int{-1, -300} { // in the last block, and in the one before
				c := s.greeted()
				b := openRaw(t, s, p)
				b[len(b)+at] ^= 0x55
				c.Write(b)
				s.closedWith(c, ua.StatusBadSecurityChecksFailed)
			}
		}
	})
}

// openRaw builds a secured OpenSecureChannel message with the client half over a dead connection.
func openRaw(t *testing.T, s *site, p *security.Policy) []byte {
	t.Helper()
	c := s.channelWith(s.secured(p))
	zero := uint32(0)
	b, err := c.Channel.SealOpen(context.Background(), &zero, openBody(0, ua.MessageSecurityModeSignAndEncrypt))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestX23D11TrustThatIsTakenBack(t *testing.T) {
	each(t, policies, func(o *stack.Options) { o.Security.TrustAll, o.Security.PKI = false, t.TempDir() }, func(t *testing.T, s *site) {
		dir := s.srv.PKI().Dir()
		o := s.secured(security.Basic256Sha256)
		s.status(s.shake(o), "before it is trusted", refusedTrust...)
		rejected, _ := filepath.Glob(filepath.Join(dir, "rejected", "*"))
		if len(rejected) == 0 {
			t.Error("the unknown certificate is not in rejected/")
		}
		if _, err := s.srv.PKI().Trust(pki.Thumbprint(key.Certificate())); err != nil {
			t.Fatal(err)
		}
		c := s.channelWith(o)
		s.activate(c, probe.Anonymous)
		if _, err := s.srv.PKI().Reject(pki.Thumbprint(key.Certificate())); err != nil {
			t.Fatal(err)
		}
		s.status(s.shake(o), "after trust was taken back", refusedTrust...)
		s.eventually("the channel that was open is closed", func() bool { return s.srv.Stats().Channels == 1 })
	})
}

// shake does what shows the client's certificate first: OpenSecureChannel, and
// where there is none CreateSession.
func (s *site) shake(o probe.Options) error {
	c, err := probe.Open(context.Background(), o)
	if err != nil {
		return err
	}
	defer c.Close()
	if !s.on.Chunked() {
		_, err = c.Create(context.Background(), nil)
	}
	return err
}

// refusedTrust is how a certificate is refused. What is wrong with it, only a
// fault may say.
var refusedTrust = []ua.StatusCode{ua.StatusBadSecurityChecksFailed, ua.StatusBadCertificateUntrusted, ua.StatusBadCertificateChainIncomplete}

func TestD1D2RenewalsUnderTraffic(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		o := s.secured(security.Basic256Sha256)
		o.Lifetime = 10 * time.Second // renewed by hand; an expired token is another row
		ses := s.activate(s.channelWith(o), probe.Anonymous)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 8 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := ses.Call(context.Background(), read(s.node())); err != nil {
						t.Errorf("a read during renewals: %v", err)
						return
					}
				}
			})
		}
		for range 8 {
			if err := ses.Channel.Renew(context.Background()); err != nil {
				t.Errorf("renew: %v", err)
				break
			}
			pause(50 * time.Millisecond)
		}
		close(stop)
		wg.Wait()
	})
}

// D4, D6, D7: numbers go on over renewals, may begin anywhere, and wrap as RSA policies wrap.
func TestD4D6D7SequenceNumbers(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		ses := s.session()
		ses.Channel.SetSequenceNumber(4294966271 - 3) // the legacy wrap is ahead
		for range 6 {
			if _, err := ses.Call(context.Background(), read(s.node())); err != nil {
				s.status(err, "a jump", ua.StatusBadSecurityChecksFailed)
				return // a gap is refused, which is the other right answer
			}
		}
	})
}

func TestD9ReplayedChunk(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		ses := s.activate(s.channelWith(s.secured(security.Basic256Sha256)), probe.Anonymous)
		rq := read(s.node())
		rq.SetHeader(probe.Header(ses.Token))
		b, err := probe.Encode(rq)
		if err != nil {
			t.Fatal(err)
		}
		sealed := ses.Channel.Seal(securechannel.RawChunk{RequestID: 900, Body: b})
		ses.Channel.Write(sealed)
		ses.Channel.Write(sealed)
		s.ends(ses.Conn, ua.StatusBadSecurityChecksFailed)
	})
}

func TestD11Tampering(t *testing.T) {
	each(t, chunked, nil, func(t *testing.T, s *site) {
		for _, at := range []int{-1, -20, -40, 16, 30} {
			ses := s.activate(s.channelWith(s.secured(security.Basic256Sha256)), probe.Anonymous)
			sealed := ses.Channel.Seal(securechannel.RawChunk{RequestID: 900, Body: bytes.Repeat([]byte{1}, 100)})
			if at < 0 {
				at += len(sealed)
			}
			sealed[at] ^= 0x01
			ses.Channel.Write(sealed)
			s.ends(ses.Conn, ua.StatusBadSecurityChecksFailed)
		}
	})
}

func TestH4ManyHandshakes(t *testing.T) {
	inTurn(t, all, func(o *stack.Options) { o.RateLimits.Disabled = true }, func(t *testing.T, s *site) {
		before := descriptors()
		for range size(s, 60, 15) {
			c, err := probe.Open(context.Background(), s.secured(security.Basic256Sha256))
			if err != nil {
				t.Fatal(err)
			}
			if ses, err := c.Create(context.Background(), nil); err != nil {
				t.Error(err)
			} else if _, err = ses.Call(context.Background(), &ua.CloseSessionRequest{}); err != nil {
				t.Error(err)
			}
			c.Close()
		}
		s.eventually("descriptors are flat", func() bool { return descriptors() <= before+2 })
	})
}

func TestX6LongBrowsePath(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		p := &ua.BrowsePath{StartingNode: ua.NewNumericNodeID(0, 2253), RelativePath: &ua.RelativePath{}}
		for i := range 8000 {
			p.RelativePath.Elements = append(p.RelativePath.Elements, &ua.RelativePathElement{ReferenceTypeID: ua.NewNumericNodeID(0, 47), IsInverse: i%2 == 1,
				IncludeSubtypes: true, TargetName: &ua.QualifiedName{Name: []string{"ServerStatus", "Server"}[i%2]}})
		}
		rs, err := probe.Call[*ua.TranslateBrowsePathsToNodeIDsResponse](context.Background(), ses, &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: []*ua.BrowsePath{p, p, p}})
		if err != nil {
			t.Fatal(err)
		}
		s.status(rs.Results[0].StatusCode, "8,000 elements", ua.StatusBadTooManyOperations, ua.StatusBadQueryTooComplex)
	})
}

func TestX25F1ContinuationPointsDoNotRunOut(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		var first []byte
		for i := range 200 {
			rs, err := probe.Call[*ua.BrowseResponse](context.Background(), ses, browse(2253, 1))
			if err != nil || rs.Results[0].StatusCode != ua.StatusOK || len(rs.Results[0].ContinuationPoint) == 0 {
				t.Fatalf("browse %d: %v %+v", i, err, rs)
			}
			if i == 0 {
				first = rs.Results[0].ContinuationPoint
			}
		}
		next, err := probe.Call[*ua.BrowseNextResponse](context.Background(), ses, &ua.BrowseNextRequest{ContinuationPoints: [][]byte{first}})
		if err != nil {
			t.Fatal(err)
		}
		s.status(next.Results[0].StatusCode, "the oldest point", ua.StatusBadContinuationPointInvalid)
	})
}

func browse(node uint32, limit uint32) *ua.BrowseRequest {
	return &ua.BrowseRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, RequestedMaxReferencesPerNode: limit,
		NodesToBrowse: []*ua.BrowseDescription{{NodeID: ua.NewNumericNodeID(0, node), ReferenceTypeID: ua.NewNumericNodeID(0, 33), IncludeSubtypes: true, ResultMask: 63}}}
}

func TestF4CapabilitiesAreNumbers(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		for _, id := range []uint32{2735, 2736, 2737, 11705, 11714} { // continuation points, operation limits
			rs, err := probe.Call[*ua.ReadResponse](context.Background(), ses, read(ua.NewNumericNodeID(0, id)))
			if err != nil || rs.Results[0].Status != ua.StatusOK || rs.Results[0].Value == nil || rs.Results[0].Value.Value() == nil {
				t.Errorf("i=%d has no value: %v", id, err)
			}
		}
	})
}

func TestF7BrowseNextFindsAll(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ns := s.srv.AddressSpace().Namespace("urn:hostile")
		for i := range 1000 {
			ns.Variable("Wide."+string(rune('a'+i%26))+big.NewInt(int64(i)).String(), int32(i))
		}
		ses := s.session()
		rq := browse(0, 100)
		rq.NodesToBrowse[0].NodeID = ua.NewStringNodeID(s.ns, "Wide")
		rs, err := probe.Call[*ua.BrowseResponse](context.Background(), ses, rq)
		if err != nil {
			t.Fatal(err)
		}
		r := rs.Results[0]
		n := len(r.References)
		for len(r.ContinuationPoint) > 0 {
			next, err := probe.Call[*ua.BrowseNextResponse](context.Background(), ses, &ua.BrowseNextRequest{ContinuationPoints: [][]byte{r.ContinuationPoint}})
			if err != nil {
				t.Fatal(err)
			}
			r = next.Results[0]
			n += len(r.References)
		}
		if n != 1000 {
			t.Errorf("%d of 1000 children", n)
		}
	})
}

func TestX17LimitsComeFromUs(t *testing.T) {
	each(t, chunked, small, func(t *testing.T, s *site) {
		nc := s.dial()
		nc.Write(probe.Hello(65535, 65535, 0, 0, s.url))
		kind, ack, err := probe.ReadMessage(nc)
		if err != nil || kind != "ACK" {
			t.Fatal(err)
		}
		if size, count := binary.LittleEndian.Uint32(ack[12:]), binary.LittleEndian.Uint32(ack[16:]); size == 0 || count == 0 || count > 20 {
			t.Errorf("ACK announces message size %d and chunk count %d", size, count)
		}
	})
}

// C1 (server's half): establishment over capacity is refused as busy, before any cryptography.
func TestC1EstablishmentOverCapacity(t *testing.T) {
	each(t, all, func(o *stack.Options) {
		withUser(t, o)
		o.RateLimits.MaxConcurrentSessionEstablishment = 3 // one, beside the floors of bootstrap and reconnect
		o.Limits.ActivationTimeout = 20 * time.Second
	}, func(t *testing.T, s *site) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		codes := map[ua.StatusCode]int{}
		var created []*probe.Session
		for range 8 {
			ses, err := s.channelWith(s.secured(security.Basic256Sha256)).Create(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			created = append(created, ses)
		}
		for _, ses := range created {
			wg.Go(func() {
				err := ses.Activate(context.Background(), ann) // argon2id: slow on purpose
				mu.Lock()
				codes[uastatus.Code(err)]++
				mu.Unlock()
			})
		}
		wg.Wait()
		if codes[ua.StatusOK] == 0 || codes[uastatus.BadServerTooBusy] == 0 || codes[ua.StatusOK]+codes[uastatus.BadServerTooBusy] != 8 {
			t.Errorf("%v: want some served and the rest BadServerTooBusy", codes)
		}
	})
}

// C10 (server's half): when a session ends, every Publish in flight is answered once.
func TestC10PublishesOfASessionThatEnds(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		s.subscribe(ses, 200, 30)
		var waiting []*probe.Pending
		for range 10 {
			p, err := ses.Send(&ua.PublishRequest{})
			if err != nil {
				t.Fatal(err)
			}
			waiting = append(waiting, p)
		}
		for each := range s.sessions() {
			if each.ID().UA().String() == ses.ID.String() {
				s.srv.Sessions().Terminate(each, true)
			}
		}
		for _, p := range waiting {
			_, err := p.Wait(context.Background())
			if err != nil {
				s.status(err, "a Publish in flight", ua.StatusBadSessionClosed, ua.StatusBadSessionIDInvalid, ua.StatusBadNoSubscription)
			}
		}
	})
}

func TestE11TransferSendsValues(t *testing.T) {
	each(t, all, func(o *stack.Options) { withUser(t, o) }, func(t *testing.T, s *site) {
		o := s.secured(security.Basic256Sha256)
		a, b := s.activate(s.channelWith(o), ann), s.activate(s.channelWith(o), ann)
		sub := s.subscribe(a, 100, 60)
		s.monitor(a, sub)
		rs, err := probe.Call[*ua.TransferSubscriptionsResponse](context.Background(), b, &ua.TransferSubscriptionsRequest{SubscriptionIDs: []uint32{sub}, SendInitialValues: true})
		if err != nil || rs.Results[0].StatusCode != ua.StatusOK {
			t.Fatalf("%v %+v", err, rs)
		}
		p, err := probe.Call[*ua.PublishResponse](context.Background(), b, &ua.PublishRequest{})
		if err != nil || len(p.NotificationMessage.NotificationData) == 0 {
			t.Errorf("no values after the transfer: %v", err)
		}
		b.Call(context.Background(), &ua.DeleteSubscriptionsRequest{SubscriptionIDs: []uint32{sub}})
	})
}
