package browser_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// patience is how long a browser on a busy machine may take for all of it.
const patience = 4 * time.Minute

// browser is a headless Chromium with one page, driven by the DevTools protocol.
type browser struct {
	t       *testing.T // that looks at it now
	ctx     context.Context
	socket  *websocket.Conn
	session string // of the page
	nextID  int
}

// start starts Chromium. Without one on the machine the test is skipped;
// BREAKWATER_CHROMIUM names one elsewhere.
func start(t *testing.T) *browser {
	t.Helper()
	name := os.Getenv("BREAKWATER_CHROMIUM")
	if name == "" {
		for _, known := range []string{"chromium", "chromium-browser", "google-chrome"} {
			if found, err := exec.LookPath(known); err == nil {
				name = found
				break
			}
		}
	}
	if name == "" {
		t.Skip("no Chromium on this machine")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	// Chromium goes on writing its profile while it ends, so that the folder may
	// outlive a first attempt to remove it.
	profile, err := os.MkdirTemp("", "breakwater-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, name, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--password-store=basic",
		"--ignore-certificate-errors", "--remote-debugging-port=0", "--user-data-dir="+profile,
		"about:blank")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	b := &browser{t: t, ctx: ctx}
	t.Cleanup(func() {
		if b.socket != nil {
			b.socket.CloseNow()
		}
		cancel()
		<-ended
		for range 50 {
			if os.RemoveAll(profile) == nil {
				return
			}
		}
	})
	b.attach(filepath.Join(profile, "DevToolsActivePort"), ended)
	// What the page says of its state may last for less than our next look.
	b.call("Page.enable", nil, nil)
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `
		window.said = [];
		new MutationObserver(() => {
			const text = document.getElementById("state")?.textContent;
			if (text && text !== said.at(-1)) said.push(text);
		}).observe(document, {childList: true, subtree: true, characterData: true});`}, nil)
	return b
}

// show goes to a page and shows it width × height points large.
func (b *browser) show(t *testing.T, url string, width, height int) {
	t.Helper()
	b.t = t
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 2, "mobile": width < 600}, nil)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
}

// attach connects to Chromium's only page, once the file says where it listens.
func (b *browser) attach(file string, ended <-chan struct{}) {
	b.t.Helper()
	var lines []string
	b.poll("DevTools", func() bool {
		select {
		case <-ended:
			b.t.Fatal("Chromium ended at once")
		default:
		}
		text, err := os.ReadFile(file)
		lines = strings.Fields(string(text))
		return err == nil && len(lines) == 2
	})
	socket, _, err := websocket.Dial(b.ctx, "ws://127.0.0.1:"+lines[0]+lines[1], nil)
	if err != nil {
		b.t.Fatal(err)
	}
	socket.SetReadLimit(64 << 20)
	b.socket = socket
	var targets struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	b.command("", "Target.getTargets", nil, &targets)
	for _, target := range targets.TargetInfos {
		if target.Type != "page" {
			continue
		}
		var attached struct{ SessionID string }
		b.command("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
		b.session = attached.SessionID
		return
	}
	b.t.Fatal("Chromium has no page")
}

// command sends one command of the DevTools protocol and waits for its answer.
func (b *browser) command(session, method string, params, into any) {
	b.t.Helper()
	b.nextID++
	m := map[string]any{"id": b.nextID, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	text, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.socket.Write(b.ctx, websocket.MessageText, text); err != nil {
		b.t.Fatal(err)
	}
	for {
		_, text, err := b.socket.Read(b.ctx)
		if err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(text, &answer); err != nil {
			b.t.Fatal(err)
		}
		switch {
		case answer.ID != b.nextID: // an event
		case answer.Error != nil:
			b.t.Fatalf("%s: %s", method, answer.Error)
		default:
			if into != nil {
				if err := json.Unmarshal(answer.Result, into); err != nil {
					b.t.Fatal(err)
				}
			}
			return
		}
	}
}

func (b *browser) call(method string, params, into any) {
	b.t.Helper()
	b.command(b.session, method, params, into)
}

// eval evaluates a JavaScript expression in the page into a Go value.
func (b *browser) eval(expression string, into any) {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if answer.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, answer.ExceptionDetails)
	}
	if into != nil {
		if err := json.Unmarshal(answer.Result.Value, into); err != nil {
			b.t.Fatalf("%s: %v", expression, err)
		}
	}
}

// text returns the text of the first element of a selector; "" without one.
func (b *browser) text(selector string) (s string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.querySelector(%q)?.textContent ?? ''", selector), &s)
	return s
}

// until waits until an element's text satisfies ok, and returns it.
func (b *browser) until(selector string, ok func(text string) bool) (text string) {
	b.t.Helper()
	b.poll(selector, func() bool {
		text = b.text(selector)
		return ok(text)
	})
	return text
}

// said waits until the page has said something about its state since it was
// loaded or since forget, and returns the first such text.
func (b *browser) said(ok func(state string) bool) (found string) {
	b.t.Helper()
	b.poll("#state", func() bool {
		var said []string
		b.eval("said", &said)
		i := slices.IndexFunc(said, ok)
		if i >= 0 {
			found = said[i]
		}
		return i >= 0
	})
	return found
}

// forget forgets what the page said.
func (b *browser) forget() {
	b.t.Helper()
	b.eval("said.length = 0", nil)
}

// poll asks until the answer is yes.
func (b *browser) poll(what string, yes func() bool) {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// screenshot writes the page as PNG into the folder that BREAKWATER_SCREENSHOTS
// names, for people to look at; without it, it does nothing.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	folder := os.Getenv("BREAKWATER_SCREENSHOTS")
	if folder == "" {
		return
	}
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name), png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
