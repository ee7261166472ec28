package securechannel

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/gopcua/opcua/ua"
)

const echoVariable = "BREAKWATER_TEST_ECHO_SERVER"

// TestMain runs the test binary as an echo server when it is asked to, so that
// BenchmarkServerCPU measures a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv(echoVariable) != "" {
		if err := echoProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// echoProcess prints its address, then, for each line that it reads, the CPU
// time it has used, in nanoseconds.
func echoProcess() error {
	log := slog.New(slog.DiscardHandler)
	s, err := NewServer(ServerConfig{Handler: quietHandler{}, Logger: log, Offers: []Offer{{security.None, ua.MessageSecurityModeNone}}})
	if err != nil {
		return err
	}
	gate, err := transport.NewGate(transport.GateOptions{ConnectionsUnlimited: true, MaxConnections: -1})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ln, err := uatcp.Listen(ctx, "127.0.0.1:0", uatcp.Options{NewSink: s.NewSink, Gate: gate, Logger: log, Portable: os.Getenv(echoVariable) == "portable"})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = ln.Serve(ctx) })
	fmt.Println(ln.Addr())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println(u.Utime.Nano() + u.Stime.Nano())
	}
	cancel()
	wg.Wait()
	return nil
}

// quietHandler echoes and keeps no record.
type quietHandler struct{}

func (quietHandler) Opened(*Channel)                        {}
func (quietHandler) Closed(*Channel, transport.CloseReason) {}
func (quietHandler) Message(ch *Channel, m *Message)        { _ = ch.Reply(m.RequestID, m.Body) }

// BenchmarkServerCPU reports the CPU time that the server process spends on a
// request, or on a connect cycle: performance.md's measure.
func BenchmarkServerCPU(b *testing.B) {
	for _, form := range []string{"raw", "portable"} {
		b.Run(form, func(b *testing.B) {
			cmd := exec.Command(os.Args[0], "-test.run=^$")
			cmd.Env = append(os.Environ(), echoVariable+"="+form)
			cmd.Stderr = os.Stderr
			in, err := cmd.StdinPipe()
			if err != nil {
				b.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			out := bufio.NewReader(stdout)
			addr, err := out.ReadString('\n')
			if err != nil {
				b.Fatal(err)
			}
			addr = strings.TrimSpace(addr)
			defer func() {
				_ = in.Close()
				_ = cmd.Wait()
			}()
			cpu := func() (ns int64) {
				if _, err := io.WriteString(in, "\n"); err != nil {
					b.Fatal(err)
				}
				if _, err := fmt.Fscanln(out, &ns); err != nil {
					b.Fatal(err)
				}
				return ns
			}
			for _, w := range []struct{ conns, depth int }{{1, 1}, {100, 1}, {8, 8}} {
				b.Run(fmt.Sprintf("conns=%d/depth=%d", w.conns, w.depth), func(b *testing.B) {
					clients := make([]*Client, w.conns)
					for i := range clients {
						clients[i] = dialEcho(b, addr)
					}
					rq := body(100)
					var requests int
					before := cpu()
					for b.Loop() {
						// Each connection in turn keeps depth requests in flight.
						for _, c := range clients {
							c.mu.Lock()
							c.out = c.out[:0]
							for range w.depth {
								c.out = c.appendChunk(c.out, kindMSG, chunkFinal, c.sendSeq.next(), 1, rq)
							}
							_, _ = c.conn.Write(c.out)
							c.mu.Unlock()
						}
						for _, c := range clients {
							for range w.depth {
								if _, _, err := c.Receive(); err != nil {
									b.Fatal(err)
								}
								requests++
							}
						}
					}
					b.ReportMetric(float64(cpu()-before)/float64(requests), "server-ns/request")
					for _, c := range clients {
						_ = c.Close()
						c.Release()
					}
				})
			}
			b.Run("connect", func(b *testing.B) {
				before, n := cpu(), 0
				for b.Loop() {
					c := dialEcho(b, addr)
					_ = c.Close()
					c.Release()
					n++
				}
				b.ReportMetric(float64(cpu()-before)/float64(n), "server-ns/cycle")
			})
		})
	}
}

func dialEcho(b *testing.B, addr string) *Client {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	c, err := Dial(context.Background(), conn, ClientConfig{EndpointURL: "opc.tcp://" + addr})
	if err != nil {
		b.Fatal(err)
	}
	return c
}
