package uatcp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/transport"
)

// Real exhaustion of descriptors: who is refused comes in later, all by itself.
func TestDescriptorsExhausted(t *testing.T) {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Skip(err)
	}
	s := start(t, false, Options{})
	var files []*os.File
	low := old
	low.Cur = uint64(openDescriptors(t)) + 10
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Skip(err)
	}
	restore := sync.OnceFunc(func() {
		for _, f := range files {
			_ = f.Close()
		}
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	})
	defer restore()
	c := s.dial(t) // the client's descriptor first
	_ = c.Close()
	s.expectClosed(t, transport.PeerClosed)
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Skip(err)
	}
	defer c.Close()
	s2, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Skip(err)
	}
	defer s2.Close()
	for {
		f, err := os.Open("/dev/null")
		if err != nil {
			break
		}
		files = append(files, f)
	}
	raw, err := rawDial(s.Addr().(*net.TCPAddr).Port, files)
	if err != nil {
		t.Skip(err)
	}
	defer raw.Close()
	for i := 0; s.AcceptErrors() == 0; i++ {
		if i > 5000 {
			t.Fatal("accept did not fail")
		}
		time.Sleep(time.Millisecond) // the kernel's doing
	}
	restore()
	_ = raw.SetDeadline(time.Now().Add(10 * time.Second))
	send1(t, raw, hello())
	readFrame(t, raw)
}

// rawDial frees one descriptor for a client, so that none is left to accept it.
func rawDial(port int, files []*os.File) (net.Conn, error) {
	if len(files) == 0 {
		return nil, errors.New("no descriptor to give up")
	}
	_ = files[len(files)-1].Close()
	return net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}
