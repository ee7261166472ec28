package overloadtest

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
)

func TestMain(m *testing.M) {
	if RunChild() {
		return
	}
	os.Exit(m.Run())
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("starts three processes and needs the source addresses of 127.0.0.0/8")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// bystandersUnharmed: no read fails and no value is missing.
func bystandersUnharmed(t *testing.T, when string, r activeReport) {
	t.Helper()
	if r.FailedReads > 0 || r.Lost > 0 || len(r.Failures) > 0 {
		t.Errorf("%s: %d of %d reads failed, %d of %d values were lost: %q", when, r.FailedReads, r.Reads.N, r.Lost, r.Notifications, r.Failures)
	}
	if r.Reads.N == 0 || r.Notifications == 0 {
		t.Errorf("%s: %d reads, %d notifications: nothing was measured", when, r.Reads.N, r.Notifications)
	}
}

// ways are the listeners that a test's load comes over. The active sessions are
// always over opc.tcp.
var ways = []struct {
	name    string
	schemes []string
}{
	{"opc.tcp", nil},
	{"opc.wss", []string{"opc.wss"}},
	{"opc.https", []string{"opc.https"}},
	{"all", []string{"opc.tcp", "opc.wss", "opc.https"}},
}

// TestStorm: all clients of a storm get a session, and the active ones do not
// notice. The limiter is set low enough that a storm this small meets it.
func TestStorm(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) { testStorm(t, way.schemes) })
	}
}

func testStorm(t *testing.T, schemes []string) {
	n := StormSizes{Schemes: schemes, Active: 20, Clients: 100, Loopers: 10, Quiet: time.Second, Loop: 2 * time.Second, Limit: 2 * time.Minute}
	if schemes != nil {
		n.Active, n.Clients, n.Loopers, n.Loop = 5, 60, 5, time.Second
	}
	r, err := storm(testContext(t), unpinned, serverConfig{Protection: balanced, MaxSessions: 200, ConnectionsPerSecond: 20, ConnectionBurst: 40}, n)
	if err != nil {
		t.Fatal(err)
	}
	bystandersUnharmed(t, "before the storm", r.Quiet)
	bystandersUnharmed(t, "during the storm", r.During)
	bystandersUnharmed(t, "during the loops", r.Loopers)
	s := r.Storm
	t.Logf("attempts %d (at most %d of one client), hints %d, unhinted %d, silent %d, timeouts %d, codes %v", s.Attempts, s.MaxAttempts, s.Hints, s.Unhinted, s.Silent, s.Timeouts, s.Codes)
	if s.Connected != n.Clients {
		t.Errorf("%d of %d clients have a session", s.Connected, n.Clients)
	}
	if r.Peak.Sessions != n.Clients+n.Active {
		t.Errorf("the server has %d sessions, want %d", r.Peak.Sessions, n.Clients+n.Active)
	}
	if s.Hints == 0 && s.Silent == 0 { // over TLS the door can only close
		t.Error("nobody was refused: the storm met no limit")
	}
	if s.Unhinted > 0 {
		t.Errorf("%d refusals came without a hint", s.Unhinted)
	}
	for code := range s.Codes {
		if code != "BadServerTooBusy" && code != "BadTcpServerTooBusy" {
			t.Errorf("a client was refused with %s", code)
		}
	}
	if s.Other > 0 {
		t.Errorf("%d attempts failed in another way: %v", s.Other, s.Codes)
	}
}

// TestFlood: messages that never end cost no more than the budget, and do not
// reach the room that is kept for the trusted ingress.
func TestFlood(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) { testFlood(t, way.schemes) })
	}
}

func testFlood(t *testing.T, schemes []string) {
	const message = 1 << 20
	n := FloodSizes{Schemes: schemes, Active: 5, Connections: 60, For: 4 * time.Second, BulkBytes: 3 * message / 4, Bulks: 5}
	r, err := flood(testContext(t), unpinned, serverConfig{Protection: balanced, MaxSessions: 100, MaxMessageSize: message, BudgetBytes: 18 << 20}, n) // little more than the four messages that must fit
	if err != nil {
		t.Fatal(err)
	}
	bystandersUnharmed(t, "before the flood", r.Quiet)
	bystandersUnharmed(t, "during the flood", r.During)
	t.Logf("%d channels, %d chunks, %d bytes, ends %v, silent %d, budget peak %d of %d", r.Flood.Connections, r.Flood.Chunks, r.Flood.Bytes, r.Flood.Codes, r.Flood.Silent, r.Peak.BudgetPeak, r.Peak.BudgetMax)
	if r.Peak.BudgetPeak > r.Peak.BudgetMax {
		t.Errorf("the budget went to %d of %d", r.Peak.BudgetPeak, r.Peak.BudgetMax)
	}
	// Which bound comes first, that of a message or that of all together, depends on
	// how fast this machine sends.
	if r.Peak.NoRoom == 0 && r.Flood.Codes["BadTcpMessageTooLarge"] == 0 {
		t.Errorf("the flood met no bound: %+v", r.Flood)
	}
	if r.Bulks != n.Bulks {
		t.Errorf("%d of %d large requests of the trusted ingress got through", r.Bulks, n.Bulks)
	}
}

// TestHog: an owner with many connections gets no more of the execution than one
// with a single connection, and every request has one answer.
func TestHog(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) { testHog(t, way.schemes) })
	}
}

func testHog(t *testing.T, schemes []string) {
	n := HogSizes{Schemes: schemes, Connections: 16, Depth: 48, SecondDepth: 32, Method: true, For: 3 * time.Second}
	if schemes != nil {
		n.For = 2 * time.Second
	}
	r, err := hogs(testContext(t), unpinned, serverConfig{Protection: balanced, MaxSessions: 100, Executing: 8}, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("hog %+v, second %+v, share %.2f", r.Hog, r.Second, r.Share())
	if share := r.Share(); share < 0.35 {
		t.Errorf("the second owner got %.0f %% of the execution: %d to %d", 100*share, r.Second.Good, r.Hog.Good)
	}
	if r.Hog.Busy == 0 {
		t.Error("the hog was never refused: there was no contention")
	}
	if r.Hog.Busy != r.Hog.Hinted || r.Second.Busy != r.Second.Hinted {
		t.Errorf("%d and %d busy answers, %d and %d hints", r.Hog.Busy, r.Second.Busy, r.Hog.Hinted, r.Second.Hinted)
	}
	if r.Hog.Other+r.Second.Other > 0 {
		t.Errorf("%d and %d answers of another kind, or twice", r.Hog.Other, r.Second.Other)
	}
	if u := r.During.stage(isolation.RequestExecution); u.Used > u.Capacity {
		t.Errorf("%d of %d are executing", u.Used, u.Capacity)
	}
}
