package client

import (
	"context"
	"io"
	"log"
	"net"
	"testing"
	"time"

	"github.com/gopcua/opcua/server"
	"github.com/gopcua/opcua/server/attrs"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
)

type noLog struct{}

func (noLog) Debug(string, ...any) {}
func (noLog) Info(string, ...any)  {}
func (noLog) Warn(string, ...any)  {}
func (noLog) Error(string, ...any) {}

// A stranger's server: gopcua's, which can serve policy None only.
func TestGopcuaServer(t *testing.T) {
	log.SetOutput(io.Discard) // its address space logs at start
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close() // gopcua wants the number
	srv := server.New(server.EnableSecurity("None", ua.MessageSecurityModeNone), server.EnableAuthMode(ua.UserTokenTypeAnonymous),
		server.EndPoint("127.0.0.1", port), server.SetLogger(noLog{}))
	ns := server.NewNodeNameSpace(srv, "urn:stranger")
	node := ua.NewNumericNodeID(ns.ID(), 1000)
	ns.AddNode(server.NewNode(node, map[ua.AttributeID]*ua.DataValue{
		ua.AttributeIDNodeClass:   server.DataValueFromValue(uint32(ua.NodeClassVariable)),
		ua.AttributeIDBrowseName:  server.DataValueFromValue(attrs.BrowseName("v")),
		ua.AttributeIDAccessLevel: server.DataValueFromValue(byte(ua.AccessLevelTypeCurrentRead | ua.AccessLevelTypeCurrentWrite)),
	}, nil, func() *ua.DataValue { return server.DataValueFromValue(1.5) }))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer srv.Close()

	s, err := Connect(ctx, "opc.tcp://"+l.Addr().String(), Options{Policy: security.None, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	v, err := s.ReadValue(ctx, node)
	if err != nil || v.Value.Value() != 1.5 {
		t.Errorf("%+v, %v", v, err)
	}
	sub, err := s.Subscribe(ctx, SubscriptionOptions{Interval: 100 * time.Millisecond}, Monitor{NodeID: node})
	if err != nil {
		t.Fatal(err)
	}
	srv.ChangeNotification(node)
	for _, v := range sub.Values(ctx) {
		if v.Value.Value() != 1.5 {
			t.Errorf("%+v", v)
		}
		break
	}
	if err := ctx.Err(); err != nil {
		t.Error("no notification")
	}
}
