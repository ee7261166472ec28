package report

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A chromium is a headless browser that a test talks to over the DevTools
// protocol, through pipes (--remote-debugging-pipe): messages of JSON, each with
// a NUL at its end.
type chromium struct {
	t       *testing.T
	in      io.WriteCloser
	out     chan message
	id      int
	session string
	// complaints are what pages said in the console, violations of their
	// Content-Security-Policy included, and addresses they asked for.
	complaints, asked []string
}

type message struct {
	ID        int             `json:"id,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// answerTimeout bounds each answer of the browser. It is no measure of
// anything: a machine with much else to do may take long.
const answerTimeout = 2 * time.Minute

// browser starts Chromium; the test is skipped where there is none, but not in
// CI. It ends with the test, whose subtests may share it: take gives it to one.
func browser(t *testing.T) *chromium {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			program = p
			break
		}
	}
	if program == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("Chromium is not installed, and CI is to have it (apt-packages.txt)")
		}
		t.Skip("Chromium is not installed: the report is not looked at")
	}
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--hide-scrollbars", "--force-color-profile=srgb", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4 there
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.WaitDelay = 5 * time.Second // its children may hold stderr longer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	c := &chromium{t: t, in: in, out: make(chan message, 64)}
	var reading sync.WaitGroup
	gone := make(chan struct{})
	reading.Go(func() {
		defer close(c.out)
		buffer := json.NewDecoder(nulToSpace{out})
		for {
			var m message
			if err := buffer.Decode(&m); err != nil {
				return
			}
			select {
			case c.out <- m:
			case <-gone:
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = c.send("Browser.close", nil, "")
		close(gone)
		kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		kill.Stop()
		in.Close()
		out.Close()
		reading.Wait()
		if t.Failed() {
			t.Logf("Chromium ended: %v\n%s", err, said.String())
		}
	})
	var target struct{ TargetID, SessionID string }
	c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	c.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	c.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		c.call(domain+".enable", nil, nil)
	}
	c.call("Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil)
	return c
}

// take makes a subtest the one that fails when the browser does.
func (c *chromium) take(t *testing.T) *chromium {
	c.t = t
	return c
}

// nulToSpace makes a stream for a decoder of JSON.
type nulToSpace struct{ r io.Reader }

func (n nulToSpace) Read(p []byte) (int, error) {
	k, err := n.r.Read(p)
	for i, b := range p[:k] {
		if b == 0 {
			p[i] = ' '
		}
	}
	return k, err
}

func (c *chromium) send(method string, params any, session string) error {
	c.id++
	m := map[string]any{"id": c.id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = c.in.Write(append(b, 0))
	return err
}

// call sends a command and decodes its result into answer.
func (c *chromium) call(method string, params, answer any) {
	c.t.Helper()
	if err := c.send(method, params, c.session); err != nil {
		c.t.Fatal(err)
	}
	id := c.id
	m := c.await(method, func(m message) bool { return m.ID == id })
	if m.Error != nil {
		c.t.Fatalf("%s: %s", method, m.Error.Message)
	}
	if answer != nil {
		if err := json.Unmarshal(m.Result, answer); err != nil {
			c.t.Fatalf("%s: %v", method, err)
		}
	}
}

// await waits for a message and notes what pages complain of meanwhile.
func (c *chromium) await(what string, is func(message) bool) message {
	c.t.Helper()
	late := time.NewTimer(answerTimeout)
	defer late.Stop()
	for {
		select {
		case m, ok := <-c.out:
			if !ok {
				c.t.Fatalf("Chromium went away before it answered %s", what)
			}
			switch m.Method {
			case "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled":
				c.complaints = append(c.complaints, string(m.Params))
			case "Network.requestWillBeSent":
				var p struct{ Request struct{ URL string } }
				if err := json.Unmarshal(m.Params, &p); err == nil {
					c.asked = append(c.asked, p.Request.URL)
				}
			}
			if is(m) {
				return m
			}
		case <-late.C:
			c.t.Fatalf("Chromium does not answer %s", what)
		}
	}
}

// open shows a file on a screen of a width in CSS pixels.
func (c *chromium) open(file string, width int, dark bool) {
	c.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	c.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]string{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	c.asked, c.complaints = nil, nil
	var loading struct{ LoaderID, ErrorText string }
	c.call("Page.navigate", map[string]any{"url": "file://" + file}, &loading)
	if loading.ErrorText != "" {
		c.t.Fatalf("%s: %s", file, loading.ErrorText)
	}
	c.await("load", func(m message) bool {
		var p struct{ LoaderID, Name string }
		return m.Method == "Page.lifecycleEvent" && json.Unmarshal(m.Params, &p) == nil && p.LoaderID == loading.LoaderID && p.Name == "load"
	})
}

// eval gives the value of an expression in the page.
func (c *chromium) eval(expression string, value any) {
	c.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	c.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if answer.ExceptionDetails != nil {
		c.t.Fatalf("%s: %s", expression, answer.ExceptionDetails)
	}
	if err := json.Unmarshal(answer.Result.Value, value); err != nil {
		c.t.Fatalf("%s: %v", expression, err)
	}
}

// screenshot is the whole page as PNG.
func (c *chromium) screenshot() []byte {
	c.t.Helper()
	var answer struct{ Data string }
	c.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true, "optimizeForSpeed": true}, &answer)
	return decoded(c.t, answer.Data)
}

// print is the page as PDF.
func (c *chromium) print() []byte {
	c.t.Helper()
	var answer struct{ Data string }
	c.call("Page.printToPDF", map[string]any{"preferCSSPageSize": true, "paperWidth": 8.27, "paperHeight": 11.69}, &answer)
	return decoded(c.t, answer.Data)
}

func decoded(t *testing.T, data string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// keep writes a picture where CI keeps its artefacts (REPORT_PICTURES), if it
// does.
func keep(t *testing.T, name string, b []byte) {
	t.Helper()
	dir := os.Getenv("REPORT_PICTURES")
	if dir == "" {
		return
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), b, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// file writes a page or a picture for the browser.
func file(t *testing.T, name string, write func(io.Writer) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(path, "%?# ") {
		t.Fatal(fmt.Errorf("%s is no address", path))
	}
	return path
}
