package stack

import (
	"context"
	"math"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/subscription"
	"github.com/gopcua/opcua/ua"
)

func (s *Server) newAnnouncer(tokens []ua.UserTokenType) *announcer {
	a := &announcer{
		name: s.opts.ApplicationName, applicationURI: s.opts.ApplicationURI, productURI: s.opts.ProductURI,
		key: s.key, offers: s.opts.offers(), tlsOffers: s.opts.tlsOffers(), tokens: tokens, hostname: hostname(),
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
		ActivationTimeout:       l.ActivationTimeout,
		EvictDetached:           l.EvictDetachedSessions,
		Gate:                    s.establish.admit,
		Preference:              s.establish.preference,
		Key:                     s.key,
		ApplicationURI:          o.ApplicationURI,
		MaxRequestMessageSize:   uint32(l.MaxMessageSize),
		Endpoints:               s.announce.SessionEndpoints,
		Authenticator:           auth,
		ValidateUserCertificate: s.validateUser,
		OnActivate: func(sess *session.Session, from session.Channel, _ bool) {
			s.establish.completed()
			s.calls.activated(sess)
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
	return so
}

func (s *Server) subscriptionOptions() subscription.Options {
	return subscription.Options{
		Space:    s.space,
		Answered: func(ch session.Channel, id uint32) { s.dispatch.parked.release(parkedKey{ch, id}) },
		Limits:   s.opts.Limits.subscription(),
		Logger:   s.log,
	}
}

// responseSlack lets the largest value that a request could write be read.
const responseSlack = 64 << 10

func (s *Server) newDispatcher() *dispatcher {
	o := &s.opts
	table := service.NewTable()
	fifo := s.provider.Plan().Mode == isolation.SharedOnly
	d := &dispatcher{
		srv: s, table: table, set: s.set, admission: o.Admission,
		decoding: o.Limits.decoding(),
		maxReply: o.Limits.MaxMessageSize + responseSlack,
		counters: newCounters(table),
		provider: s.provider,
		planner:  s.planner,
		owners:   newOwners(s.provider, o.Classifier),
		cost:     s.cost.of,
		short:    newWaiting(fifo, (*isolation.Lease).Run),
		slow:     newWaiting(fifo, (*isolation.Lease).Execute),
	}
	d.owners.unprovisioned = func(err error) {
		if s.alarms.Allow() {
			s.log.Error("the classifier named an owner that cannot be had: its requests are refused", "error", err)
		}
	}
	d.sessionless.configure(o)
	d.governors, d.governed = s.governors, s.governors.commands != nil
	d.requests.New = func() any { return new(request) }
	d.base, d.halt = context.WithCancelCause(context.Background())
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

// subscription are the limits of the subscription engine.
func (l *Limits) subscription() subscription.Limits {
	return subscription.Limits{
		MinPublishingInterval: l.MinPublishingInterval, MaxPublishingInterval: l.MaxPublishingInterval,
		MaxSubscriptionsPerSession:       l.MaxSubscriptionsPerSession,
		MaxMonitoredItemsPerSubscription: l.MaxMonitoredItemsPerSubscription,
		MaxOperationsPerCall:             or(l.Operations.WithDefaults().MaxMonitoredItemsPerCall, math.MaxInt32),
		MaxQueueSize:                     l.MaxMonitoredItemQueueSize,
		MaxRetransmissionMessages:        l.MaxRetransmissionQueueSize,
		MaxPublishRequestsPerSession:     l.MaxPublishRequests,
	}
}
