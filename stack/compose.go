package stack

import (
	"context"
	"math"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strings"

	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/subscription"
	"github.com/gopcua/opcua/ua"
)

func (s *Server) newAnnouncer(tokens []ua.UserTokenType) *announcer {
	a := &announcer{
		name: s.opts.ApplicationName, applicationURI: s.opts.ApplicationURI, productURI: s.opts.ProductURI,
		key: s.key, offers: s.opts.offers(), tokens: tokens, hostname: hostname(),
	}
	for _, h := range s.opts.Advertise {
		a.advertise = append(a.advertise, strings.ToLower(h))
	}
	urls, _ := s.opts.urls() // validated
	a.setURLs(urls)
	return a
}

func (a *announcer) configured() []*url.URL {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.urls
}

func (s *Server) sessionOptions(auth session.Authenticator) session.Options {
	o, l := &s.opts, &s.opts.Limits
	so := session.Options{
		MaxSessions: l.MaxSessions,
		MinTimeout:  l.MinSessionTimeout, MaxTimeout: l.MaxSessionTimeout,
		ActivationTimeout:          l.ActivationTimeout,
		MaxConcurrentEstablishment: o.RateLimits.MaxConcurrentSessionEstablishment,
		Key:                        s.key,
		ApplicationURI:             o.ApplicationURI,
		MaxRequestMessageSize:      uint32(l.MaxMessageSize),
		Endpoints:                  s.announce.Endpoints,
		Authenticator:              auth,
		ValidateUserCertificate:    s.validateUser,
		OnActivate: func(sess *session.Session, from session.Channel, _ bool) {
			if from != nil { // what is parked on the channel it left will not be answered there
				s.engine.ChannelClosed(sess, from)
			}
		},
		OnClose: func(sess *session.Session, deleteSubscriptions bool) {
			s.engine.SessionClosed(sess, deleteSubscriptions)
			s.set.SessionClosed(sess)
		},
		Logger: s.log,
	}
	if o.RateLimits.Disabled || o.RateLimits.EstablishmentUnlimited {
		so.Gate = func(context.Context, session.Channel) (func(), ua.StatusCode) { return func() {}, ua.StatusOK }
	}
	return so
}

func (s *Server) subscriptionOptions() subscription.Options {
	l := &s.opts.Limits
	return subscription.Options{
		Space:    s.space,
		Answered: func(session.Channel, uint32) { s.dispatch.parked.Add(-1) },
		Limits: subscription.Limits{
			MinPublishingInterval: l.MinPublishingInterval, MaxPublishingInterval: l.MaxPublishingInterval,
			MaxSubscriptionsPerSession:       l.MaxSubscriptionsPerSession,
			MaxMonitoredItemsPerSubscription: l.MaxMonitoredItemsPerSubscription,
			MaxOperationsPerCall:             or(l.Operations.WithDefaults().MaxMonitoredItemsPerCall, math.MaxInt32),
			MaxQueueSize:                     l.MaxMonitoredItemQueueSize,
			MaxRetransmissionMessages:        l.MaxRetransmissionQueueSize,
			MaxPublishRequestsPerSession:     l.MaxPublishRequests,
		},
		Logger: s.log,
	}
}

// responseSlack lets the largest value that a request could write be read.
const responseSlack = 64 << 10

func (s *Server) newDispatcher() *dispatcher {
	o := &s.opts
	table := service.NewTable()
	establish := or(o.RateLimits.MaxConcurrentSessionEstablishment, max(8*runtime.NumCPU(), 128))
	s.slots = &slots{
		maxBlocking:      int64(o.Limits.MaxExecutingRequests + o.Limits.MaxQueuedRequests),
		maxEstablishment: int64(2 * establish), // the session store has the limit proper; this bounds goroutines
	}
	if o.RateLimits.Disabled || o.RateLimits.EstablishmentUnlimited {
		s.slots.maxEstablishment = 1 << 30
	}
	d := &dispatcher{
		srv: s, table: table, set: s.set, admission: o.Admission,
		decoding:  o.Limits.decoding(),
		maxReply:  o.Limits.MaxMessageSize + responseSlack,
		maxParked: int64(o.Limits.MaxParkedRequests),
		executing: make(chan struct{}, o.Limits.MaxExecutingRequests),
		counters:  newCounters(table),
	}
	d.requests.New = func() any { return new(request) }
	d.base, d.halt = context.WithCancelCause(context.Background())
	if d.admission == nil {
		d.admission = s.slots
	}
	return d
}

// hosts lists the names and addresses for the certificate: the machine's, those
// of the configured URLs, and the advertised ones.
func (s *Server) hosts() []string {
	all := []string{hostname(), "localhost"}
	urls, _ := s.opts.urls()
	for _, u := range urls {
		all = append(all, u.Hostname())
	}
	for _, h := range s.opts.Advertise {
		if host, _, err := net.SplitHostPort(h); err == nil {
			h = host
		}
		all = append(all, h)
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, ok := a.(*net.IPNet); ok && !p.IP.IsLinkLocalUnicast() {
			all = append(all, p.IP.String())
		}
	}
	var out []string
	for _, h := range all {
		ip := net.ParseIP(h)
		if h == "" || ip != nil && ip.IsUnspecified() || slices.Contains(out, h) {
			continue
		}
		out = append(out, h)
	}
	return out
}
