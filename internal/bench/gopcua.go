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

	gopcua "github.com/gopcua/opcua/server"
	"github.com/gopcua/opcua/server/attrs"
	"github.com/gopcua/opcua/ua"
)

// serveGopcua runs gopcua's own server with the same variables as ours: the
// peer that every ratio is measured against.
func serveGopcua(ctx context.Context, c *server, addr string, nodes int, change time.Duration) error {
	log.SetOutput(io.Discard) // its address space logs at start
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	p, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s := gopcua.New(
		gopcua.EnableSecurity("None", ua.MessageSecurityModeNone),
		gopcua.EnableAuthMode(ua.UserTokenTypeAnonymous),
		gopcua.EndPoint(host, p),
		gopcua.SetLogger(quiet{}),
	)
	ns := gopcua.NewNodeNameSpace(s, "urn:breakwater:bench")
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
		ns.AddNode(gopcua.NewNode(ids[i], map[ua.AttributeID]*ua.DataValue{
			ua.AttributeIDNodeClass:   gopcua.DataValueFromValue(uint32(ua.NodeClassVariable)),
			ua.AttributeIDBrowseName:  gopcua.DataValueFromValue(attrs.BrowseName(name)),
			ua.AttributeIDAccessLevel: gopcua.DataValueFromValue(byte(ua.AccessLevelTypeCurrentRead | ua.AccessLevelTypeCurrentWrite)),
		}, nil, func() *ua.DataValue { return gopcua.DataValueFromValue(float64(value.Load())) }))
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	c.ready <- listening{addr, ns.ID()}
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
