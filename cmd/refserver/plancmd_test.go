package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
)

func TestPlan(t *testing.T) {
	ownFolder(t)
	out, err := refserver(t, "", "plan")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mode                               Balanced\n", "Connection            2010      2010      2008      1               1          -        -        2010\n",
		"16.2 MiB", "requests running inline at once"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for s := range isolation.Stage(isolation.Stages) {
		// The table has one line for each stage and the list below it another.
		if n := strings.Count(out, s.String()+"  "); n < 2 || !strings.Contains(out, stack.WhenFull(s)+"\n") {
			t.Errorf("%s is on %d lines, or not what happens when it is full", s, n)
		}
	}
}

func TestPlanAsJSON(t *testing.T) {
	dir := ownFolder(t)
	file := filepath.Join(dir, "c.yaml")
	text := `listen: ["opc.tcp://127.0.0.1:4840", "opc.tcp://127.0.0.2:4840"]
limits: {maxSessions: 100, maxChannels: 200}
budget: {maxBytes: 128 MiB}
isolation:
  mode: TrustedReservations
  trustedOwners: [{key: control-room, weight: 2, reservations: {Connection: {reserved: 10, hardLimit: 20}}}]
  trustedIngress: [{address: 127.0.0.2, owner: control-room}]
  stages: {RequestExecution: {capacity: 50, ownerHardLimit: 20}, ParkedRequest: {controlReserved: 0}}
`
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BREAKWATER_LIMITS_MAX_QUEUED_REQUESTS", "300")
	out, err := refserver(t, "", "plan", "--json", "--config", file)
	if err != nil {
		t.Fatal(err)
	}
	var v planView
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	if v.Mode != "TrustedReservations" || len(v.Stages) != isolation.Stages || len(v.TrustedOwners) != 1 {
		t.Fatalf("%+v", v)
	}
	for _, tt := range []struct {
		what      string
		got, want any
	}{
		{"Connection", v.Stages[isolation.Connection].Kept, floorsView{Bootstrap: 1, Reconnect: 1, Trusted: 10}},
		{"Connection, shared", v.Stages[isolation.Connection].Shared, int64(188)},
		{"the file's capacity", v.Stages[isolation.RequestExecution].Capacity, int64(50)},
		{"the file's hard limit", v.Stages[isolation.RequestExecution].OwnerHardLimit, int64(20)},
		{"a floor of 0", v.Stages[isolation.ParkedRequest].Kept.Control, int64(0)},
		{"the environment's total", v.Stages[isolation.RequestQueue].Total, int64(300)},
		{"bytes", v.Stages[isolation.ReassemblyBytes].Bytes, true},
		{"the owner's weight", v.TrustedOwners[0].Weight, 2},
		{"the owner's connections", v.TrustedOwners[0].Stages["Connection"], floorView{Kept: 10, HardLimit: 20}},
		{"the owner's unit where nothing is listed", v.TrustedOwners[0].Stages["Handshake"].Kept, int64(1)},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %v, want %v", tt.what, tt.got, tt.want)
		}
	}
	text2, err := refserver(t, "", "plan", "--config", file)
	if err != nil || !strings.Contains(text2, "control-room   2       Connection            10        20\n") {
		t.Errorf("%v in\n%s", err, text2)
	}
}

// TestPlanWarnsOfTooFewOwners: what serve would log, plan says before.
func TestPlanWarnsOfTooFewOwners(t *testing.T) {
	ownFolder(t)
	for value, warns := range map[string]bool{"2010": false, "2009": true} {
		t.Setenv("BREAKWATER_ISOLATION_MAX_TRACKED_OWNERS", value)
		out, err := refserver(t, "", "plan")
		if err != nil || strings.Contains(out, "owners past that are refused") != warns {
			t.Errorf("%s: %v in\n%s", value, err, out)
		}
	}
}

// TestPlanNamesWhatCannotWork: errors name the key of the configuration file and
// the least value that does.
func TestPlanNamesWhatCannotWork(t *testing.T) {
	ownFolder(t)
	for _, tt := range []struct{ name, variable, value, want string }{
		{"too few channels", "LIMITS_MAX_CHANNELS", "1002", "limits.maxChannels: is 1002: every session and one newcomer must fit beside the floors; the smallest value that works is 1003"},
		{"a capacity", "ISOLATION_STAGES", "{Connection: {capacity: 1002}}", "isolation.stages.Connection.capacity: is 1002"},
		{"a floor below one message", "ISOLATION_STAGES", "{ReassemblyBytes: {bootstrapReserved: 1 MiB}}", "isolation.stages.ReassemblyBytes.bootstrapReserved: is 1048576"},
		{"too little budget", "BUDGET_MAX_BYTES", "32 MiB", "budget.maxBytes: is 33554432"},
		{"too small a burst", "RATE_LIMITS_CONNECTION_BURST", "2", "rateLimits.connectionBurst: is 2: ConnectionsPerSecond and ConnectionBurst must exceed the 2 protected tokens; the smallest value that works is 3"},
		{"a rate below 0", "RATE_LIMITS_CONNECTIONS_PER_SECOND_PER_ADDRESS", "-1", "rateLimits.connectionsPerSecondPerAddress: is negative"},
		{"retry", "RETRY_MIN", "1m", "retry.max: is 30s, below the minimum of 1m0s"},
		{"an unknown mode", "ISOLATION_MODE", "balanced", `isolation.mode: "balanced" is none of [Balanced SharedOnly FairShare TrustedReservations]`},
		{"an unknown stage", "ISOLATION_STAGES", "{Conection: {capacity: 1}}", `isolation.stages: "Conection" is none of the stages Connection, `},
		{"an unknown key", "ISOLATION_STAGES", "{Connection: {capasity: 1}}", `unknown key "capasity"`},
		{"an unknown cost", "ISOLATION_REQUEST_COST", "free", `isolation.requestCost: "free" is neither message nor encoded`},
		{"trusted owners are missing", "ISOLATION_MODE", "TrustedReservations", "isolation.trustedOwners: is 0"},
		{"nobody can be the trusted owner", "ISOLATION_TRUSTED_OWNERS", "[{key: a}]", `isolation.trustedOwners[0].key: no rule of isolation.trustedIngress leads to "a"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("BREAKWATER_"+tt.variable, tt.value)
			for _, command := range [][]string{{"plan"}, {"config", "check"}} { // serve validates the same options
				if _, err := refserver(t, "", command...); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v: %v, want %q in it", command, err, tt.want)
				}
			}
		})
	}
}
