package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/security"
)

// C1: a busy server's hint decides when the client comes back, at whichever step
// of the handshake it is given.
func TestC1HintsAreHonoured(t *testing.T) {
	for _, step := range []string{"GetEndpoints", "CreateSession", "ActivateSession"} {
		t.Run(step, func(t *testing.T) {
			inRogue(t, func(r *rogue) {
				r.on(step, func(n int, _ ua.Request) any {
					if n == 1 {
						return busy(7 * time.Second)
					}
					return behaved{}
				})
				begun := time.Now()
				s, err := Connect(r.ctx, plantURL, r.opts())
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took != 7*time.Second {
					t.Errorf("online after %v, the server said 7 s", took)
				}
				s.Close(r.ctx)
			})
		})
	}
}

// C7: attempts at a target that is down grow apart.
func TestC7BackoffGrows(t *testing.T) {
	inRogue(t, func(r *rogue) {
		r.network.set(true)
		o := r.opts()
		o.Reconnect = reconnect.Policy{JitterFactor: -1, MaxRetries: 6}
		begun := time.Now()
		_, err := Connect(r.ctx, plantURL, o)
		if took := time.Since(begun); !errors.Is(err, reconnect.ErrGaveUp) || took != (1+2+4+8+16+30)*time.Second || r.count() != 7 {
			t.Errorf("%v after %v and %d attempts", err, took, r.count())
		}
	})
}

// C8: the connection dies, or the server falls silent, at each step of the
// handshake, on the way up and on the way back; each state recovers.
func TestC8EachStepRecovers(t *testing.T) {
	for _, step := range []string{"GetEndpoints", "CreateSession", "ActivateSession"} {
		for _, how := range []any{hangUp{}, silent{}, ua.StatusBadInternalError, raw{1, 2}, &ua.WriteResponse{}} {
			t.Run(fmt.Sprintf("%s/%T", step, how), func(t *testing.T) {
				inRogue(t, func(r *rogue) {
					once := func(n int, _ ua.Request) any {
						if n == 1 {
							return how
						}
						return behaved{}
					}
					r.on(step, once)
					s, err := Connect(r.ctx, plantURL, r.opts())
					if err != nil {
						t.Fatal(err)
					}
					if step != "GetEndpoints" {
						time.Sleep(time.Minute)
						r.on(step, once)
						r.on("ActivateSession", func(n int, rq ua.Request) any {
							if step == "ActivateSession" {
								return once(n, rq)
							}
							if n == 1 {
								return ua.StatusBadSessionIDInvalid // a new session is needed
							}
							return behaved{}
						})
						r.cut()
						time.Sleep(2 * time.Minute)
						until(t, s, Online)
					}
					if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil {
						t.Error(err)
					}
					s.Close(r.ctx)
				})
			})
		}
	}
}

// C10: the server forgets the session while publishes are in flight: one
// recovery, and no Publish until it is done.
func TestC10ForgottenSession(t *testing.T) {
	inRogue(t, func(r *rogue) {
		r.on("ActivateSession", nil)
		s, sub := subscribed(t, r, 3)
		time.Sleep(time.Minute)
		r.on("CreateSession", func(_ int, rq ua.Request) any {
			time.Sleep(0)
			return behaved{}
		})
		r.on("Publish", nil)
		r.on("TransferSubscriptions", func(int, ua.Request) any {
			if n := r.asked("Publish"); n != 0 {
				t.Errorf("%d Publish requests during the recovery", n)
			}
			return &ua.TransferSubscriptionsResponse{Results: []*ua.TransferResult{{}, {}, {}}}
		})
		r.mu.Lock()
		parked := r.parked
		r.parked = nil
		r.mu.Unlock()
		for _, p := range parked {
			r.reply(p.ch, p.id, p.rq, ua.StatusBadSessionIDInvalid)
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		if n := r.asked("CreateSession"); n != 1 {
			t.Errorf("%d sessions were created, want 1", n)
		}
		if n := r.waiting(); n != 4 {
			t.Errorf("%d Publish requests, want 4", n)
		}
		_ = sub
		s.Close(r.ctx)
	})
}

// subscribed connects and makes subscriptions with an item each.
func subscribed(t *testing.T, r *rogue, n int) (*Session, []*Subscription) {
	t.Helper()
	s, err := Connect(r.ctx, plantURL, r.opts())
	if err != nil {
		t.Fatal(err)
	}
	var subs []*Subscription
	for range n {
		sub, err := s.Subscribe(r.ctx, SubscriptionOptions{}, Monitor{NodeID: ua.NewTwoByteNodeID(9)})
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	synctest.Wait()
	return s, subs
}

// C10, the other end of it: a server that forgets every session at once. The
// backoff is not reset by a session that dies.
func TestC10SessionsThatDieAtOnce(t *testing.T) {
	inRogue(t, func(r *rogue) {
		r.on("CreateSession", nil)
		r.on("Publish", func(int, ua.Request) any { return ua.StatusBadSessionIDInvalid })
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Subscribe(r.ctx, SubscriptionOptions{})
		time.Sleep(10 * time.Minute)
		if n := r.asked("CreateSession"); n < 10 || n > 26 {
			t.Errorf("%d sessions in 10 minutes", n)
		}
		s.Close(r.ctx)
	})
}

// C10, for channels: a server that answers on a channel that it does not know any
// more is left at once, by a call, a keep-alive or a Publish request.
func TestC10ForgottenChannel(t *testing.T) {
	for _, name := range []string{"Read", "Publish"} {
		t.Run(name, func(t *testing.T) {
			inRogue(t, func(r *rogue) {
				s, _ := subscribed(t, r, 1)
				time.Sleep(time.Minute)
				dials := r.count()
				r.on(name, func(n int, _ ua.Request) any {
					if n == 1 {
						return ua.StatusBadSecureChannelIDInvalid
					}
					return behaved{}
				})
				r.push(1, 1, nil, int64(1))
				time.Sleep(2 * time.Minute)
				if n := r.count() - dials; n != 1 || s.State().State != Online {
					t.Errorf("%d new connections, %+v", n, s.State())
				}
				s.Close(r.ctx)
			})
		})
	}
}

// C11: many notice the loss at once; one recovery, with growing delays, reset only
// after a session that lived.
func TestC11SingleFlight(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s.mu.Lock()
		old := s.link.server.token.StringID()
		s.mu.Unlock()
		r.on("Read", func(_ int, rq ua.Request) any {
			if rq.Header().AuthenticationToken.StringID() == old {
				return ua.StatusBadSessionIDInvalid
			}
			return behaved{}
		})
		r.on("CreateSession", nil)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil && !errors.Is(err, ua.StatusBadSessionIDInvalid) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		r.on("Read", nil)
		until(t, s, Online)
		time.Sleep(time.Second)
		if n := r.asked("CreateSession"); n != 1 {
			t.Errorf("%d recoveries", n)
		}
		s.Close(r.ctx)
	})
}

// C14: renewals carry the channel's id; the channel lives on for hours with
// tokens of a minute. The server half refuses anything else.
func TestC14Renewal(t *testing.T) {
	inRogueWith(t, func(r *rogue) { r.lifetime = time.Minute }, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		dials := r.count()
		for range 180 {
			time.Sleep(time.Minute)
			if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil {
				t.Fatal(err)
			}
		}
		if n := r.count() - dials; n != 0 {
			t.Errorf("%d reconnects", n)
		}
		s.Close(r.ctx)
	})
}

// C14, D1: eight callers while tokens of two seconds are renewed under them.
func TestC14RenewalUnderTraffic(t *testing.T) {
	inRogueWith(t, func(r *rogue) { r.lifetime = 2 * time.Second }, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		dials := r.count()
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for range 200 {
					if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Duration(97+i) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if n := r.count() - dials; n != 0 {
			t.Errorf("%d reconnects", n)
		}
		s.Close(r.ctx)
	})
}

// C16: the revised timeout decides the keep-alive, half of it and at least 1 s.
func TestC16KeepAlive(t *testing.T) {
	for _, c := range []struct {
		revised float64
		want    int // keep-alives in a minute
	}{{2000, 60}, {60_000, 2}, {1, 60}, {0, 2}, {-5, 2}, {20_000, 6}} {
		t.Run(fmt.Sprint(c.revised), func(t *testing.T) {
			inRogue(t, func(r *rogue) {
				r.on("CreateSession", func(_ int, rq ua.Request) any {
					rs := r.created(r.last(), rq.(*ua.CreateSessionRequest))
					rs.RevisedSessionTimeout = c.revised
					return rs
				})
				s, err := Connect(r.ctx, plantURL, r.opts())
				if err != nil {
					t.Fatal(err)
				}
				r.on("Read", nil)
				time.Sleep(time.Minute + time.Millisecond)
				if n := r.asked("Read"); n != c.want {
					t.Errorf("%d keep-alives in a minute, want %d", n, c.want)
				}
				s.Close(r.ctx)
			})
		})
	}
}

func (r *rogue) last() *securechannel.Channel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ch
}

// C18: Publish requests at a server that answers none are bounded; one for each
// subscription and one more.
func TestC18PublishRequestsAreBounded(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		if n := r.waiting(); n != 2 {
			t.Errorf("1 subscription: %d Publish requests", n)
		}
		for range 30 {
			if _, err := s.Subscribe(r.ctx, SubscriptionOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if n := r.waiting(); n != 10 {
			t.Errorf("31 subscriptions: %d Publish requests, want 10", n)
		}
		_ = subs
		s.Close(r.ctx)
	})
}

// C18: a server that takes fewer is given fewer, and refused ones do not come in
// a tight loop.
func TestC18TooManyPublishRequests(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, _ := subscribed(t, r, 1)
		r.on("Publish", func(int, ua.Request) any {
			if r.waiting() >= 3 {
				return ua.StatusBadTooManyPublishRequests
			}
			return behaved{}
		})
		for range 8 {
			if _, err := s.Subscribe(r.ctx, SubscriptionOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if n, asked := r.waiting(), r.asked("Publish"); n != 3 || asked > 20 {
			t.Errorf("%d at the server, %d asked", n, asked)
		}
		r.on("Publish", func(int, ua.Request) any { return ua.StatusBadInternalError })
		r.push(1, 1, nil, int64(1))
		time.Sleep(10 * time.Minute)
		if n := r.asked("Publish"); n > 50 {
			t.Errorf("%d Publish requests in 10 minutes to a server that refuses them", n)
		}
		s.Close(r.ctx)
	})
}

// C19: the connection goes dead without a word; every waiter gets an error, and
// the session comes back.
func TestC19FaultsReachEachWaiter(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		r.on("Read", func(int, ua.Request) any { return silent{} })
		ctx, cancel := context.WithTimeout(r.ctx, time.Hour)
		defer cancel()
		begun := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				_, err := s.ReadValue(ctx, ua.NewTwoByteNodeID(1))
				if !errors.Is(err, ua.StatusBadConnectionClosed) || time.Since(begun) > time.Minute {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
			})
		}
		wg.Wait()
		r.on("Read", nil)
		if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil {
			t.Error(err)
		}
		s.Close(r.ctx)
	})
}

// D12: what a client has to check when a session is made. Each lie is refused,
// and named.
func TestD12Handshake(t *testing.T) {
	testKeys()
	type lie struct {
		name    string
		want    ua.StatusCode
		create  func(r *rogue, rs *ua.CreateSessionResponse)
		active  func(r *rogue, rs *ua.ActivateSessionResponse)
		options func(o *Options)
	}
	again := make([]byte, 32)
	for _, l := range []lie{
		{name: "truth", want: ua.StatusOK},
		{name: "no signature", want: ua.StatusBadApplicationSignatureInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerSignature = nil }},
		{name: "empty signature", want: ua.StatusBadApplicationSignatureInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerSignature.Signature = nil }},
		{name: "wrong signature", want: ua.StatusBadApplicationSignatureInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerSignature.Signature[3] ^= 1 }},
		{name: "another algorithm", want: ua.StatusBadApplicationSignatureInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) {
			rs.ServerSignature.Algorithm = security.Basic256.SignatureURI()
		}},
		{name: "short nonce", want: ua.StatusBadNonceInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerNonce = rs.ServerNonce[:31] }},
		{name: "no nonce", want: ua.StatusBadNonceInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerNonce = nil }},
		{name: "short nonce in ActivateSession", want: ua.StatusBadNonceInvalid, active: func(_ *rogue, rs *ua.ActivateSessionResponse) { rs.ServerNonce = rs.ServerNonce[:8] }},
		{name: "nonce used twice", want: ua.StatusBadNonceInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerNonce = again },
			active: func(_ *rogue, rs *ua.ActivateSessionResponse) { rs.ServerNonce = again }},
		{name: "another certificate", want: ua.StatusBadSecurityChecksFailed, create: func(r *rogue, rs *ua.CreateSessionResponse) {
			rs.ServerCertificate = certified(r, 2, "urn:other", r.key.Gate()).Certificate()
		}},
		{name: "no endpoints", want: ua.StatusBadSecurityChecksFailed, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerEndpoints = nil }},
		{name: "stronger endpoint hidden in discovery", want: ua.StatusBadSecurityChecksFailed, create: func(_ *rogue, rs *ua.CreateSessionResponse) {
			better := *rs.ServerEndpoints[1]
			better.SecurityMode = ua.MessageSecurityModeSignAndEncrypt
			rs.ServerEndpoints = append(rs.ServerEndpoints, &better)
		}},
		{name: "token policy changed", want: ua.StatusBadSecurityChecksFailed, create: func(_ *rogue, rs *ua.CreateSessionResponse) {
			rs.ServerEndpoints[1].UserIdentityTokens = []*ua.UserTokenPolicy{{PolicyID: "anonymous", TokenType: ua.UserTokenTypeAnonymous, SecurityPolicyURI: security.None.URI}}
		}},
		{name: "null entries in the endpoints", want: ua.StatusOK, create: func(_ *rogue, rs *ua.CreateSessionResponse) {
			rs.ServerEndpoints[0].Server = nil
		}},
		{name: "no token", want: ua.StatusBadSessionIDInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.AuthenticationToken = nil }},
		{name: "endpoints unchecked by name", want: ua.StatusOK, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerEndpoints = nil },
			options: func(o *Options) { o.InsecureSkipEndpointCheck = true }},
		{name: "refused by the callback", want: ua.StatusBadCertificateUntrusted, options: func(o *Options) {
			o.VerifyServer = func(context.Context, Server) error { return errors.New("not ours") }
		}},
	} {
		t.Run(l.name, func(t *testing.T) {
			var gate *security.CryptoGate
			inRogueWith(t, func(r *rogue) {
				gate = security.NewCryptoGate(1)
				r.key = certified(t, 0, "urn:rogue", gate)
			}, func(r *rogue) {
				defer gate.Close()
				o := r.opts()
				o.Policy, o.Key = nil, certified(t, 1, "urn:client", gate)
				o.Reconnect = reconnect.Policy{MaxRetries: -1}
				o.VerifyServer = func(_ context.Context, s Server) error {
					if string(s.Chain) != string(r.key.Certificate()) || s.Policy != security.Basic256Sha256 {
						return errors.New("another server")
					}
					return nil
				}
				if l.options != nil {
					l.options(&o)
				}
				r.on("CreateSession", func(_ int, rq ua.Request) any {
					rs := r.created(r.last(), rq.(*ua.CreateSessionRequest))
					if l.create != nil {
						l.create(r, rs)
					}
					return rs
				})
				r.on("ActivateSession", func(int, ua.Request) any {
					rs := &ua.ActivateSessionResponse{ServerNonce: r.freshNonce()}
					if l.active != nil {
						l.active(r, rs)
					}
					return rs
				})
				s, err := Connect(r.ctx, plantURL, o)
				if l.want == ua.StatusOK {
					if err != nil {
						t.Fatal(err)
					}
					if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil {
						t.Error(err)
					}
					s.Close(r.ctx)
					return
				}
				if !errors.Is(err, l.want) {
					t.Errorf("%v, want %v", err, l.want)
				}
				if s != nil {
					s.Close(r.ctx)
				}
			})
		})
	}
}

// F8: fewer results than operations, none at all, or nothing in them.
func TestF8EmptyResults(t *testing.T) {
	node := ua.NewTwoByteNodeID(1)
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		r.on("Read", func(int, ua.Request) any { return &ua.ReadResponse{} })
		r.on("Write", func(int, ua.Request) any { return &ua.WriteResponse{Results: make([]ua.StatusCode, 3)} })
		r.on("Call", func(int, ua.Request) any { return &ua.CallResponse{} })
		r.on("Browse", func(int, ua.Request) any { return &ua.BrowseResponse{} })
		r.on("CreateMonitoredItems", func(int, ua.Request) any { return &ua.CreateMonitoredItemsResponse{} })
		r.on("DeleteSubscriptions", func(int, ua.Request) any { return &ua.DeleteSubscriptionsResponse{} })
		want := func(err error) {
			t.Helper()
			if !errors.Is(err, ua.StatusBadUnknownResponse) {
				t.Errorf("%v", err)
			}
		}
		_, err = s.ReadValue(r.ctx, node)
		want(err)
		_, err = s.ReadValues(r.ctx, node, node)
		want(err)
		want(s.WriteValue(r.ctx, node, 1.5))
		_, err = s.Call(r.ctx, node, node)
		want(err)
		for _, err := range s.Browse(r.ctx, Children(node)) {
			want(err)
		}
		_, err = s.Subscribe(r.ctx, SubscriptionOptions{}, Monitor{NodeID: node})
		want(err)
		sub, err := s.Subscribe(r.ctx, SubscriptionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want(sub.Close(r.ctx))
		r.on("Browse", func(int, ua.Request) any {
			return &ua.BrowseResponse{Results: []*ua.BrowseResult{{References: []*ua.ReferenceDescription{{}}}}}
		})
		for ref, err := range s.Browse(r.ctx, Children(node)) {
			if err == nil && ref.NodeID.NodeID == nil {
				t.Error("a reference to nothing")
			}
		}
		s.Close(r.ctx)
	})
}

// I3: answers of another type, empty ones, garbage; to each service.
func TestI3UnexpectedResponses(t *testing.T) {
	node := ua.NewTwoByteNodeID(1)
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		for name, answer := range map[string]any{
			"another type": &ua.CancelResponse{}, "nothing": raw{}, "half a type id": raw{1, 0}, "unknown type id": raw{1, 0, 0xff, 0xff, 0, 0},
			"a request": raw(encoded(t, &ua.ReadRequest{RequestHeader: &ua.RequestHeader{}})), "cut short": raw(encoded(t, &ua.ReadResponse{ResponseHeader: &ua.ResponseHeader{}}))[:10],
			"a good fault": &ua.ServiceFault{},
		} {
			for _, service := range []string{"Read", "Write", "Call", "Browse", "CreateSubscription", "CreateMonitoredItems", "DeleteSubscriptions", "TranslateBrowsePathsToNodeIDs"} {
				r.on(service, func(int, ua.Request) any { return answer })
			}
			check := func(what string, err error) {
				t.Helper()
				if err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, %s: %v", name, what, err)
				}
			}
			_, err := s.ReadValue(r.ctx, node)
			check("read", err)
			check("write", s.WriteValue(r.ctx, node, 1.5))
			_, err = s.Call(r.ctx, node, node)
			check("call", err)
			for _, err := range s.Browse(r.ctx, Children(node)) {
				check("browse", err)
			}
			_, err = s.Subscribe(r.ctx, SubscriptionOptions{})
			check("subscribe", err)
			_, err = subs[0].Monitor(r.ctx, Monitor{NodeID: node})
			check("monitor", err)
			_, err = s.Do(r.ctx, &ua.TranslateBrowsePathsToNodeIDsRequest{})
			check("do", err)
		}
		// Publish: the same, and messages without content.
		r.on("Publish", func(n int, rq ua.Request) any {
			switch n {
			case 1:
				return &ua.CancelResponse{}
			case 2:
				return raw{}
			case 3:
				return &ua.PublishResponse{}
			case 4:
				return &ua.PublishResponse{SubscriptionID: 1, NotificationMessage: &ua.NotificationMessage{SequenceNumber: 1, NotificationData: []*ua.ExtensionObject{
					nil, ua.NewExtensionObject(nil), ua.NewExtensionObject(&ua.DataChangeNotification{MonitoredItems: []*ua.MonitoredItemNotification{{ClientHandle: 77}, {ClientHandle: 1}}})}}}
			}
			return behaved{}
		})
		r.push(1, 1, nil)
		r.push(1, 1, nil)
		time.Sleep(5 * time.Minute)
		if n := r.asked("Publish"); n < 6 {
			t.Errorf("publishing stopped after %d requests", n)
		}
		if n := subs[0].Queued(); n != 1 { // the null value of item 1
			t.Errorf("%d notifications", n)
		}
		if st := s.State(); st.State != Online {
			t.Errorf("%+v", st)
		}
		s.Close(r.ctx)
	})
}

// X15b: a server that is hostile to those who look at it: endless pages, endless
// references, names that never end, loops in the hierarchy. Markup comes through
// as it is, for the user interface to escape.
func TestX15bRogueAddressSpace(t *testing.T) {
	root := ua.NewNumericNodeID(0, 85)
	page := func(next bool, refs ...*ua.ReferenceDescription) *ua.BrowseResult {
		b := &ua.BrowseResult{References: refs}
		if next {
			b.ContinuationPoint = []byte{1}
		}
		return b
	}
	ref := func(id uint32, name string) *ua.ReferenceDescription {
		return &ua.ReferenceDescription{NodeID: ua.NewExpandedNodeID(ua.NewNumericNodeID(1, id), "", 0), BrowseName: &ua.QualifiedName{Name: name},
			DisplayName: ua.NewLocalizedText(name), TypeDefinition: ua.NewExpandedNodeID(ua.NewTwoByteNodeID(0), "", 0), ReferenceTypeID: ua.NewTwoByteNodeID(35)}
	}
	inRogue(t, func(r *rogue) {
		o := r.opts()
		o.MaxReferences = 500
		s, err := Connect(r.ctx, plantURL, o)
		if err != nil {
			t.Fatal(err)
		}
		browse := func(first, next *ua.BrowseResult) (n int, err error) {
			r.on("Browse", func(int, ua.Request) any { return &ua.BrowseResponse{Results: []*ua.BrowseResult{first}} })
			r.on("BrowseNext", func(int, ua.Request) any { return &ua.BrowseNextResponse{Results: []*ua.BrowseResult{next}} })
			for _, e := range s.Browse(r.ctx, Children(root)) {
				if e != nil {
					return n, e
				}
				n++
			}
			return n, nil
		}
		if n, err := browse(page(true, ref(1, "a")), page(true)); n != 1 || err == nil || r.asked("BrowseNext") > 20 {
			t.Errorf("endless empty pages: %d, %v, %d", n, err, r.asked("BrowseNext"))
		}
		if n, err := browse(page(true, ref(1, "a")), page(true, ref(2, "b"))); n != 500 || !errors.Is(err, ua.StatusBadEncodingLimitsExceeded) {
			t.Errorf("endless references: %d, %v", n, err)
		}
		if n, err := browse(page(false, ref(1, strings.Repeat("x", 5000))), page(false)); n != 0 || !errors.Is(err, ua.StatusBadEncodingLimitsExceeded) {
			t.Errorf("long name: %d, %v", n, err)
		}
		r.on("Browse", func(int, ua.Request) any {
			return &ua.BrowseResponse{Results: []*ua.BrowseResult{page(false, ref(1, "<script>"), ref(2, "b"), &ua.ReferenceDescription{NodeID: ua.NewExpandedNodeID(root, "", 0), BrowseName: &ua.QualifiedName{}, DisplayName: &ua.LocalizedText{}, TypeDefinition: ua.NewExpandedNodeID(ua.NewTwoByteNodeID(0), "", 0), ReferenceTypeID: ua.NewTwoByteNodeID(35)})}}
		})
		n := 0
		for v, err := range s.Walk(r.ctx, root, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 && v.BrowseName.Name != "<script>" {
				t.Errorf("%+v", v.BrowseName)
			}
			n++
		}
		if n != 2 {
			t.Errorf("a hierarchy of loops: %d nodes", n)
		}
		id := uint32(10)
		r.on("Browse", func(int, ua.Request) any {
			id += 2
			return &ua.BrowseResponse{Results: []*ua.BrowseResult{page(false, ref(id, "a"), ref(id+1, "b"))}}
		})
		for _, e := range s.Walk(r.ctx, root, 0) {
			err = e
		}
		if !errors.Is(err, ua.StatusBadEncodingLimitsExceeded) {
			t.Errorf("an endless hierarchy: %v", err)
		}
		// Leaving early frees the continuation point.
		released := false
		r.on("Browse", func(int, ua.Request) any {
			return &ua.BrowseResponse{Results: []*ua.BrowseResult{page(true, ref(1, "a"), ref(2, "b"))}}
		})
		r.on("BrowseNext", func(_ int, rq ua.Request) any {
			released = rq.(*ua.BrowseNextRequest).ReleaseContinuationPoints
			return &ua.BrowseNextResponse{Results: []*ua.BrowseResult{{}}}
		})
		for range s.Browse(r.ctx, Children(root)) {
			break
		}
		if !released {
			t.Error("the continuation point was not released")
		}
		s.Close(r.ctx)
	})
}

// X17: limits are the client's own. A server that announces none, or more than
// sensible, gets requests of our size; one that lies about them gets halves.
func TestX17OperationLimits(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		most := 0
		r.on("Read", func(n int, rq ua.Request) any {
			q := rq.(*ua.ReadRequest)
			rs := &ua.ReadResponse{}
			if n == 1 { // the limits
				for range q.NodesToRead {
					rs.Results = append(rs.Results, &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(uint32(1<<32 - 1))})
				}
				return rs
			}
			if len(q.NodesToRead) > 300 {
				return ua.StatusBadTooManyOperations
			}
			most = max(most, len(q.NodesToRead))
			for _, node := range q.NodesToRead {
				rs.Results = append(rs.Results, &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(node.NodeID.IntID())})
			}
			return rs
		})
		ids := make([]*ua.NodeID, 25_000)
		for i := range ids {
			ids[i] = ua.NewNumericNodeID(1, uint32(i))
		}
		vs, err := s.ReadValues(r.ctx, ids...)
		if err != nil || len(vs) != len(ids) {
			t.Fatal(len(vs), err)
		}
		for i, v := range vs {
			if v.Value.Value() != uint32(i) {
				t.Fatalf("%d is %v", i, v.Value.Value())
			}
		}
		if most < 100 {
			t.Errorf("at most %d nodes in a request", most)
		}
		s.Close(r.ctx)
	})
}

// A server that cuts the line with an ERR and a hint is given its time, also
// when the session was a good one.
func TestERRHintWhileOnline(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.on("Read", func(n int, _ ua.Request) any {
			if n == 1 {
				return hangUp{}
			}
			return behaved{}
		})
		if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, ua.StatusBadConnectionClosed) {
			t.Error(err)
		}
		until(t, s, Online)
		s.Close(r.ctx)
	})
}
