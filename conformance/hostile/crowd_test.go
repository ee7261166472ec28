package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

func TestB1X27SilentSockets(t *testing.T) {
	each(t, all, func(o *stack.Options) { o.Limits.HelloTimeout = 3 * time.Second }, func(t *testing.T, s *site) {
		var silent, greetless []net.Conn
		for range 50 {
			silent = append(silent, s.socket())
		}
		for range 10 {
			if s.on != probe.TCP {
				silent = append(silent, s.secret())
			}
			if s.on.Chunked() {
				greetless = append(greetless, s.dial())
			}
		}
		if s.session() == nil {
			t.Error("no session beside silent sockets")
		}
		for _, c := range greetless {
			s.closedWith(c, ua.StatusBadTimeout)
		}
		for _, c := range silent {
			if _, err := io.Copy(io.Discard, c); isTimeout(err) {
				t.Fatal("a silent socket stayed open")
			}
		}
	})
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func TestB2ElevenHundredSockets(t *testing.T) {
	inTurn(t, all, func(o *stack.Options) { o.RateLimits.Disabled = true }, func(t *testing.T, s *site) {
		for range size(s, 1100, 1100) {
			s.socket()
		}
		if s.session() == nil {
			t.Error("no session beside 1100 sockets")
		}
	})
}

func TestB3ChannelsWithoutSessionAreReclaimed(t *testing.T) {
	each(t, lasting, func(o *stack.Options) { o.Limits.MaxSessions, o.Limits.MaxChannels = 5, 10 }, func(t *testing.T, s *site) {
		var hogs []*probe.Conn
		for range 7 { // with the healthy one all are taken that are not kept for bootstrap and reconnect
			c := s.channel()
			if _, err := c.Call(context.Background(), &ua.GetEndpointsRequest{}); err != nil {
				t.Fatal(err)
			}
			hogs = append(hogs, c)
		}
		pause(1100 * time.Millisecond)
		if s.session() == nil {
			t.Fatal("no channel was given up for a newcomer")
		}
		s.ends(hogs[0], ua.StatusBadSecureChannelClosed, uastatus.BadServerTooBusy)
		if _, err := hogs[5].Call(context.Background(), &ua.GetEndpointsRequest{}); err != nil {
			t.Errorf("one was enough, yet another was closed: %v", err)
		}
	})
}

func TestB6B7X28NeverActivatedSessions(t *testing.T) {
	each(t, all, func(o *stack.Options) { o.Limits.MaxSessions, o.Limits.ActivationTimeout = 20, 5*time.Second }, func(t *testing.T, s *site) {
		for range 20 { // ten a channel at most, 200 in all
			c := s.channel()
			for range 10 {
				c.Create(context.Background(), nil)
			}
		}
		pause(1100 * time.Millisecond) // none is given up before it is a second old
		if s.session() == nil {
			t.Error("a client that activates found no place")
		}
	})
}

func TestB8OldestInactiveGoes(t *testing.T) {
	each(t, all, func(o *stack.Options) { o.Limits.MaxSessions, o.Limits.ActivationTimeout = 10, 10*time.Second }, func(t *testing.T, s *site) {
		var created []*probe.Session
		for range 3 {
			c := s.channel()
			for range 3 {
				ses, err := c.Create(context.Background(), nil)
				if err != nil {
					t.Fatal(err)
				}
				created = append(created, ses)
			}
		}
		pause(1100 * time.Millisecond)
		s.session()
		s.status(created[0].Activate(context.Background(), probe.Anonymous), "the oldest", ua.StatusBadSessionIDInvalid)
		if err := created[8].Activate(context.Background(), probe.Anonymous); err != nil {
			t.Errorf("the newest: %v", err)
		}
	})
}

func TestB9FewerChannelsThanSessions(t *testing.T) {
	_, err := stack.NewServer(stack.Options{Limits: stack.Limits{MaxSessions: 100, MaxChannels: 40}, Security: stack.Security{PKI: pkiDir}})
	if err == nil || !strings.Contains(err.Error(), "MaxChannels") {
		t.Errorf("%v: start must fail and name MaxChannels", err)
	}
}

func TestB10B17ManySessions(t *testing.T) {
	each(t, all, func(o *stack.Options) {
		o.Limits.MaxSessions, o.Limits.MaxSessionTimeout = 2000, time.Minute
		o.RateLimits.Disabled = true
	}, func(t *testing.T, s *site) {
		n := size(s, 1500, 50)
		var held []*probe.Session
		for range n {
			held = append(held, s.session())
		}
		for _, ses := range held {
			if _, err := ses.Call(context.Background(), read(s.node())); err != nil {
				t.Fatal(err)
			}
		}
		for _, ses := range held {
			ses.End(context.Background())
		}
	})
}

func TestB11SessionsAreListedAndClosed(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		found := s.srv.Sessions().Len()
		if found != 2 {
			t.Errorf("%d sessions listed", found)
		}
		for each := range s.sessions() {
			if each.ID().UA().String() == ses.ID.String() {
				s.srv.Sessions().Terminate(each, true)
			}
		}
		s.refused(ses, read(s.node()), ua.StatusBadSessionIDInvalid, ua.StatusBadSessionClosed)
	})
}

func TestB18B19ClientsThatCrash(t *testing.T) {
	each(t, all, func(o *stack.Options) { o.Limits.MaxSessions, o.Limits.MaxSessionTimeout = 5, 3*time.Second }, func(t *testing.T, s *site) {
		for i := range 7 {
			var ses *probe.Session
			s.eventually("a place after a crash", func() bool {
				c, err := probe.Open(context.Background(), s.options())
				if err != nil {
					return false
				}
				if ses, err = c.Create(context.Background(), nil); err != nil {
					s.status(err, fmt.Sprint("crash ", i), ua.StatusBadTooManySessions)
					c.Close()
					return false
				}
				return ses.Activate(context.Background(), probe.Anonymous) == nil
			})
			ses.Cut() // crashes
			ses.Conn.Close()
		}
	})
}

func TestB18SessionIsTakenUpAgain(t *testing.T) {
	each(t, policies, nil, func(t *testing.T, s *site) {
		o := s.secured(security.Basic256Sha256)
		ses := s.activate(s.channelWith(o), probe.Anonymous)
		ses.Cut()
		again := ses.On(s.channelWith(o))
		if s.on.Chunked() { // else the token is enough
			if err := again.Activate(context.Background(), probe.Anonymous); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := again.Call(context.Background(), read(s.node())); err != nil {
			t.Error(err)
		}
	})
}

func TestB22BurstOfConnects(t *testing.T) {
	inTurn(t, all, nil, func(t *testing.T, s *site) {
		ok := make(chan bool, 500)
		for range 500 {
			go func() {
				c, err := net.DialTimeout("tcp", s.addr, 10*time.Second)
				if err == nil {
					c.Close()
				}
				ok <- err == nil
			}()
		}
		for range 500 {
			if !<-ok {
				t.Error("a connect was dropped by the system")
				return
			}
		}
	})
}

func TestB14B23ReconnectsLeakNothing(t *testing.T) {
	each(t, all, func(o *stack.Options) { o.RateLimits.Disabled = true }, func(t *testing.T, s *site) {
		n := size(s, 300, 30)
		o := s.secured(security.Basic256Sha256)
		ses := s.activate(s.channelWith(o), probe.Anonymous)
		for range n / 10 { // secured, each moves the session
			c, err := probe.Open(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			next := ses.On(c)
			if s.on == probe.WSSJSON { // it cannot move
				ses.End(context.Background())
				if next, err = c.Create(context.Background(), nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := next.Activate(context.Background(), probe.Anonymous); err != nil {
				t.Fatal(err)
			}
			ses.Conn.Close()
			ses = next
		}
		ses.End(context.Background())
		for range n {
			c, err := probe.Open(context.Background(), s.options())
			if err != nil {
				t.Fatal(err)
			}
			c.Cut()
			c.Close()
		}
	})
}
