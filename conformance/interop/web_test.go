package interop

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// miloWeb is Milo 0.6, the last line with opc.wss and opc.https.
var miloWeb = &peer{
	name: "miloweb", tools: milo.tools, lock: milo.lock, install: milo.install, run: milo.run,
	cannot: map[string]string{
		"None/None/Certificate": "signs with the channel's policy only",
		"Scalar.DiagnosticInfo": "its Variant holds none",
	},
}

// webSteps are the steps for a client of opc.wss and opc.https.
var webSteps = []string{"discovery", "security", "values", "browse", "calls", "subscription"}

// transport is one of those two.
type transport struct {
	name     string
	modes    []string
	endpoint func(*testing.T, *refserver) string
}

var web = []transport{
	// TLS encrypts a message of HTTPS, so that SignAndEncrypt is not offered.
	{"https", []string{"Sign"}, func(_ *testing.T, s *refserver) string { return "opc.https://" + s.web }},
	{"wss", []string{"Sign", "SignAndEncrypt"}, mendWebSocket},
}

// expected lists what a client covers over the transport.
func (w transport) expected() []string {
	var items []string
	for _, e := range endpoints {
		for _, mode := range append(w.modes, "None") {
			if strings.HasSuffix(e, "/"+mode) {
				items = append(items, e)
				for _, who := range identities {
					items = append(items, e+"/"+who)
				}
			}
		}
	}
	for _, name := range types {
		if name != "Variant" {
			items = append(items, "Scalar."+name)
		}
	}
	return items
}

// mendWebSocket puts a proxy before the server that corrects two mistakes of Milo's
// WebSockets, and changes no byte besides. It asks for the sub-protocol opcua+cp,
// the name in a draft, where OPC 10000-6 §7.5.2 (WebSockets, Protocol Mapping) has
// opcua+uacp; and it sends an empty frame before its first request, where a frame
// is a MessageChunk.
func mendWebSocket(t *testing.T, s *refserver) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.pki, "tls", "cert.pem"), filepath.Join(s.pki, "tls", "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		live []net.Conn
	)
	wg.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := tls.Dial("tcp", s.web, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				_ = client.Close()
				continue
			}
			mu.Lock()
			live = append(live, client, server)
			mu.Unlock()
			wg.Go(func() {
				defer server.Close()
				if in := bufio.NewReader(client); renamed(server, in, "opcua+cp", "opcua+uacp") == nil {
					_ = withoutEmpty(server, in)
				}
			})
			wg.Go(func() {
				defer client.Close()
				if in := bufio.NewReader(server); renamed(client, in, "opcua+uacp", "opcua+cp") == nil {
					_, _ = io.Copy(client, in)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range live {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "opc.wss://" + ln.Addr().String()
}

// renamed copies the head of an HTTP message with another name of the sub-protocol.
func renamed(to io.Writer, from *bufio.Reader, old, name string) error {
	var head strings.Builder
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return err
		}
		if key, value, _ := strings.Cut(line, ":"); strings.EqualFold(key, "Sec-WebSocket-Protocol") {
			line = key + ":" + strings.Replace(value, old, name, 1)
		}
		head.WriteString(line)
		if line == "\r\n" {
			_, err := io.WriteString(to, head.String())
			return err
		}
	}
}

// withoutEmpty copies the frames of a client but empty binary ones (RFC 6455 §5.2,
// Base Framing Protocol).
func withoutEmpty(to io.Writer, from *bufio.Reader) error {
	const binary, mask = 0x82, 4
	for {
		head, err := from.Peek(2)
		if err != nil {
			return err
		}
		extended, size := 0, int64(head[1]&0x7F)
		switch size {
		case 126:
			extended = 2
		case 127:
			extended = 8
		}
		frame, err := from.Peek(2 + extended + mask)
		if err != nil {
			return err
		}
		if extended > 0 {
			size = 0
			for _, b := range frame[2 : 2+extended] {
				size = size<<8 | int64(b)
			}
		}
		whole := int64(len(frame)) + size
		if frame[0] == binary && size == 0 {
			_, err = from.Discard(int(whole))
		} else {
			_, err = io.CopyN(to, from, whole)
		}
		if err != nil {
			return err
		}
	}
}
