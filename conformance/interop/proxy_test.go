package interop

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

const policyNone = "http://opcfoundation.org/UA/SecurityPolicy#None"

// proxy forwards TCP connections to a server, records what passes and cuts
// connections when told to.
type proxy struct {
	target string
	ln     *net.TCPListener
	wg     sync.WaitGroup

	mu    sync.Mutex
	live  map[*net.TCPConn]bool
	flows []*flow
}

// flow is the recording of one connection.
type flow struct {
	mu       sync.Mutex
	segments []segment
}

// segment is what one read delivered.
type segment struct {
	at         time.Time
	fromServer bool
	data       []byte
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target, ln: ln, live: map[*net.TCPConn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) endpoint() string { return "opc.tcp://" + p.ln.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.ln.AcceptTCP()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		server := up.(*net.TCPConn)
		f := &flow{}
		p.mu.Lock()
		p.live[client], p.live[server] = true, true
		p.flows = append(p.flows, f)
		p.mu.Unlock()
		p.wg.Go(func() { p.forward(client, server, f) })
	}
}

// forward moves bytes both ways until both have ended.
func (p *proxy) forward(client, server *net.TCPConn, f *flow) {
	var both sync.WaitGroup
	both.Go(func() { copyRecorded(server, client, f, false) })
	both.Go(func() { copyRecorded(client, server, f, true) })
	both.Wait()
	p.mu.Lock()
	delete(p.live, client)
	delete(p.live, server)
	p.mu.Unlock()
	_ = client.Close()
	_ = server.Close()
}

// copyRecorded moves bytes until from ends, then half-closes to.
func copyRecorded(to, from *net.TCPConn, f *flow, fromServer bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			f.add(fromServer, buf[:n])
			if _, werr := to.Write(buf[:n]); werr != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = to.CloseWrite()
}

// cut resets every connection, as a broken network would.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.live {
		_ = c.SetLinger(0)
		_ = c.Close()
		delete(p.live, c)
	}
}

// unsecured returns the recordings of connections whose channel has no security.
func (p *proxy) unsecured() []*flow {
	p.mu.Lock()
	defer p.mu.Unlock()
	var plain []*flow
	for _, f := range p.flows {
		if f.unsecured() {
			plain = append(plain, f)
		}
	}
	return plain
}

func (f *flow) add(fromServer bool, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.segments = append(f.segments, segment{at: time.Now(), fromServer: fromServer, data: bytes.Clone(data)})
}

// unsecured reports whether the client's OpenSecureChannel names the policy None.
func (f *flow) unsecured() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var sent []byte
	for _, s := range f.segments {
		if !s.fromServer {
			sent = append(sent, s.data...)
		}
		if len(sent) > 64<<10 {
			break
		}
	}
	at := bytes.Index(sent, []byte("OPNF"))
	// The policy URI follows the chunk header, the channel id and its own length.
	const header = 8 + 4 + 4
	return at >= 0 && bytes.HasPrefix(sent[min(at+header, len(sent)):], []byte(policyNone))
}
