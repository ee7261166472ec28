package https

import (
	"crypto/tls"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Of a crowd that connects at once, as many handshakes compute as there are
// processors; the others wait their turn, and all get it.
func TestHandshakesTakeTurns(t *testing.T) {
	var now, most atomic.Int32
	cert, _ := pair()
	o := Options{TLS: &tls.Config{Certificates: []tls.Certificate{cert}, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		most.Store(max(most.Load(), now.Add(1)))
		time.Sleep(time.Millisecond) // of computing
		now.Add(-1)
		return nil, nil
	}}}
	bubble(t, o, func(t *testing.T, s *server) {
		var crowd sync.WaitGroup
		for range 50 {
			crowd.Go(func() { s.secure(t, "http/1.1") })
		}
		crowd.Wait()
		if got, want := int(most.Load()), cap(s.turns); got != want {
			t.Errorf("%d handshakes computed at once, want %d", got, want)
		}
		synctest.Wait()
		if n := len(s.turns); n != 0 {
			t.Errorf("%d turns are not given back", n)
		}
	})
}

// Nobody has a turn while the server waits for him: a newcomer's handshake is done
// at once, whatever others have stopped at.
func TestSlowHandshakesHaveNoTurn(t *testing.T) {
	hello := recordedHello(t)
	// The same ClientHello in two records (RFC 8446 §5.1).
	const first = 20
	split := append([]byte{hello[0], hello[1], hello[2], 0, first}, hello[recordHeader:recordHeader+first]...)
	rest := binary.BigEndian.AppendUint16([]byte{hello[0], hello[1], hello[2]}, uint16(len(hello)-recordHeader-first))
	rest = append(rest, hello[recordHeader+first:]...)
	for name, sent := range map[string][]byte{
		"in the header":             hello[:3],
		"in the first record":       hello[:40],
		"after the first record":    split,
		"in the second record":      append(split[:len(split):len(split)], rest[:10]...),
		"after the ClientHello":     hello,
		"a ClientHello of two":      append(split[:len(split):len(split)], rest...),
		"a record that is too long": {recordHandshake, 3, 1, 0xff, 0xff, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, s *server) {
				s.mem.Buffer = 64 // so that the answer waits for its reader, too
				for range 3 * cap(s.turns) {
					c := s.dial(t)
					go func() { _, _ = c.Write(sent) }()
				}
				synctest.Wait()
				s.mem.Buffer = 0
				begun := time.Now()
				s.secure(t, "http/1.1")
				if d := time.Since(begun); d != 0 {
					t.Errorf("a newcomer waited %v", d)
				}
				if n := len(s.turns); n != 0 {
					t.Errorf("%d turns are held by those who are waited for", n)
				}
			})
		})
	}
}
