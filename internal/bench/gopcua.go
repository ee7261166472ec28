package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/server"
	"github.com/gopcua/opcua/server/attrs"
	"github.com/gopcua/opcua/ua"
)

// serveGopcua runs gopcua's own server with the same variables as ours: the
// peer that every ratio is measured against.
func serveGopcua(ctx context.Context, addr string, nodes int, change time.Duration) error {
	log.SetOutput(io.Discard) // its address space logs at start
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	p, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s := server.New(
		server.EnableSecurity("None", ua.MessageSecurityModeNone),
		server.EnableAuthMode(ua.UserTokenTypeAnonymous),
		server.EndPoint(host, p),
		server.SetLogger(quiet{}),
	)
	ns := server.NewNodeNameSpace(s, "urn:breakwater:bench")
	root, err := s.Namespace(0)
	if err != nil {
		return err
	}
	root.Objects().AddRef(ns.Objects(), 35, true)
	// One value per tick is shared by all nodes: what costs is that the server
	// reads and encodes it, not how it is made.
	var value atomic.Uint64
	ids := make([]*ua.NodeID, nodes)
	for i := range nodes {
		ids[i] = ua.NewNumericNodeID(ns.ID(), uint32(firstNode+i))
		name := fmt.Sprintf("v%d", i)
		ns.AddNode(server.NewNode(ids[i], map[ua.AttributeID]*ua.DataValue{
			ua.AttributeIDNodeClass:   server.DataValueFromValue(uint32(ua.NodeClassVariable)),
			ua.AttributeIDBrowseName:  server.DataValueFromValue(attrs.BrowseName(name)),
			ua.AttributeIDAccessLevel: server.DataValueFromValue(byte(ua.AccessLevelTypeCurrentRead | ua.AccessLevelTypeCurrentWrite)),
		}, nil, func() *ua.DataValue { return server.DataValueFromValue(float64(value.Load())) }))
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	ready(addr, ns.ID())
	tick := time.NewTicker(change)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			value.Add(1)
			for _, id := range ids {
				s.ChangeNotification(id)
			}
		}
	}
}

// quiet drops gopcua's log, whose formatting would count as server CPU.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
