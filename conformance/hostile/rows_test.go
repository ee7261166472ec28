package hostile

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/conformance/probe"
)

// scenarios are the numbers of all rows, of attacks and of failures in the field.
const scenarios = `X1 X2 X3 X4 X5 X6 X7 X8 X9 X10 X11 X12 X13 X15b X16 X17 X18 X19 X20 X21 X22 X23 X24 X25 X26 X27 X28 X29 X30 X31 X32 X33 X34 X35 X36 X37 X38 X39 X40
A1 A2 A3 A4 A5 A6 A7 A8 A9 A11 A13 A14 A17 A18 A19 A20 A21 A22 A23 A24 A25 A26
B1 B2 B3 B6 B7 B8 B9 B10 B11 B14 B17 B18 B19 B21 B22 B23 B27
C1 C3 C5 C7 C8 C10 C11 C12 C13 C14 C16 C18 C19 D1 D2 D4 D6 D7 D9 D11 D12 E1 E4 E8 E9 E10 E11 E12
F1 F4 F6 F7 F8 G1 G3 H4 I3 I6 I7 I8 I9 I10 I11 I12 I14 I16`

// elsewhere says why no test of this package sends a row to a listener: it cannot
// be sent there, or the tests that are named do.
var elsewhere = []struct {
	rows string
	on   listeners
	why  string
}{
	{"X2 C14 D1 D2 D4 D6 D7 D9", messages, "there is no SecureChannel: no OpenSecureChannel, no renewal, no sequence numbers"},
	{"X19 A7 A8 A9 X39 I11", messages, "a message is a frame or a body: no chunks, and no message header"},
	{"X17 A3 A11 A13", messages, "no limits are negotiated"},
	{"X38 I9", messages, "no message type stands in front; a body can name no address to dial"},
	{"X3 X21 X23 D11", listeners{probe.WSSJSON}, "opcua+uajson has no security policy but None, so no application certificate"},
	{"X31", listeners{probe.HTTPSBinary, probe.HTTPSJSON}, "an answer larger than the buffers of the system: transport/https.TestSlowReader, transport/https.TestUnreadStreams, transport/https.TestUnreadConnections, transport/https.TestTrickledAnswer"},
	{"B3", listeners{probe.HTTPSBinary, probe.HTTPSJSON}, "a channel is there as long as its session; connections are given up in transport/https.TestReclaim"},
	{"X29", listeners{probe.TCP}, "nothing is compressed in opc.tcp"},
	{"X29", listeners{probe.WSS, probe.WSSJSON}, "compression is not negotiated: transport/https.TestWebSocketUpgrade"},
	{"X29", listeners{probe.HTTPSBinary, probe.HTTPSJSON}, "Content-Encoding is refused: transport/https.TestBadBodies"},
	{"X30", listeners{probe.TCP}, "there is no TLS"},
	{"X30", listeners{probe.WSS, probe.WSSJSON, probe.HTTPSBinary, probe.HTTPSJSON}, "transport/https.TestSlowBeforeFirstRequest, transport/https.TestHandshakeStage"},
	{"X12", all, "two services of one address space, below any listener: stack.TestHostileX12BrowseWhileNodesChange"},
	{"X22", all, "no policy with a key exchange is offered"},
	{"X35", all, "the server makes no connections"},
	{"B9", all, "refused before there is a listener: TestB9FewerChannelsThanSessions"},
	{"G1", all, "what is right, over each: conformance.TestConformance"},
	{"G3", listeners{probe.TCP}, "no frames"},
	{"G3", listeners{probe.HTTPSBinary, probe.HTTPSJSON}, "no frames of ours; bodies: transport/https.TestBadBodies"},
	{"G3", listeners{probe.WSS}, "transport/https.TestChunksInFrames, transport/https.TestFramesThatAreNone"},
	{"G3", listeners{probe.WSSJSON}, "transport/https.TestJSONWebSocketRefusals"},
	{"C3", all, "the client's: client.TestC3CutResumesTheOldSession"},
	{"C5", all, "the client's: client.TestC5ServerRestartRecreates"},
	{"C7", all, "the client's: client.TestC7BackoffGrows"},
	{"C8", all, "the client's: client.TestC8EachStepRecovers"},
	{"C11", all, "the client's: client.TestC11SingleFlight"},
	{"C18", all, "the client's: client.TestC18PublishRequestsAreBounded"},
	{"C19", all, "the client's: client.TestC19FaultsReachEachWaiter"},
	{"D12", all, "the client's: client.TestD12Handshake"},
	{"F8", all, "the client's: client.TestF8EmptyResults"},
	{"I3", all, "the client's: client.TestI3UnexpectedResponses"},
	{"X15b", all, "the client's: client.TestX15bRogueAddressSpace"},
}

// tests calls f for each test of a package.
func tests(t *testing.T, folder string, f func(*ast.FuncDecl)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				f(fn)
			}
		}
	}
}

// covered are the listeners that the tests of this package send each row to, as
// their names and their calls of each and inTurn say.
func covered(t *testing.T) map[string]map[probe.Transport]bool {
	have := map[string]map[probe.Transport]bool{}
	number := regexp.MustCompile(`^[A-IX]\d+b?`)
	tests(t, ".", func(fn *ast.FuncDecl) {
		var on listeners
		ast.Inspect(fn, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.Ident); ok && (f.Name == "each" || f.Name == "inTurn") {
				set, ok := call.Args[1].(*ast.Ident)
				if !ok || byName[set.Name] == nil {
					t.Errorf("%s: the listeners have no name", fn.Name.Name)
					return false
				}
				on = append(on, byName[set.Name]...)
			}
			return true
		})
		rest := strings.TrimPrefix(fn.Name.Name, "Test")
		for n := number.FindString(rest); n != ""; n = number.FindString(rest) {
			if have[n] == nil {
				have[n] = map[probe.Transport]bool{}
			}
			for _, l := range on {
				have[n][l] = true
			}
			rest = strings.TrimPrefix(rest, n)
		}
	})
	return have
}

// TestEveryRowOnEveryListener: each row has, for each listener, a test or a reason.
func TestEveryRowOnEveryListener(t *testing.T) {
	have := covered(t)
	rows := strings.Fields(scenarios)
	for n := range have {
		if !slices.Contains(rows, n) {
			t.Errorf("a test is named after %s, which is no row", n)
		}
	}
	reasons := map[string]map[probe.Transport]bool{}
	for _, e := range elsewhere {
		for n := range strings.FieldsSeq(e.rows) {
			if reasons[n] == nil {
				reasons[n] = map[probe.Transport]bool{}
			}
			for _, l := range e.on {
				if reasons[n][l] {
					t.Errorf("%s has two reasons for %s", n, l)
				}
				reasons[n][l] = true
			}
		}
	}
	for n := range maps.Keys(reasons) {
		if !slices.Contains(rows, n) {
			t.Errorf("a reason is given for %s, which is no row", n)
		}
	}
	for _, n := range rows {
		for _, l := range all {
			switch tested, excused := have[n][l], reasons[n][l]; {
			case tested && excused:
				t.Errorf("%s is tested over %s, and there is a reason not to", n, l)
			case !tested && !excused:
				t.Errorf("%s has neither a test nor a reason over %s", n, l)
			}
		}
	}
}

// TestReasonsNameTests: the tests that stand for a row elsewhere are there.
func TestReasonsNameTests(t *testing.T) {
	reference := regexp.MustCompile(`([a-z/]*)\.?(Test\w+)`)
	have := map[string]map[string]bool{}
	for _, e := range elsewhere {
		for _, m := range reference.FindAllStringSubmatch(e.why, -1) {
			folder := "."
			if m[1] != "" {
				folder = filepath.Join("..", "..", m[1])
			}
			if have[folder] == nil {
				have[folder] = map[string]bool{}
				tests(t, folder, func(fn *ast.FuncDecl) { have[folder][fn.Name.Name] = true })
			}
			if !have[folder][m[2]] {
				t.Errorf("%s: %s has no %s", e.rows, folder, m[2])
			}
		}
	}
}
