package security

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// nice reads a thread's nice value.
func nice(t testing.TB, tid int) int {
	t.Helper()
	raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, tid)
	if err != nil {
		t.Fatal(err)
	}
	return 20 - raw
}

// Every use of the private key happens on a worker's thread, which is nicer than the others
// and gone after Close.
func TestPrivateKeyRunsOnlyOnNicedWorkers(t *testing.T) {
	g := NewCryptoGate(2)
	defer g.Close()
	// Not that of the process: its main thread may have served a gate before.
	runtime.LockOSThread()
	here := nice(t, syscall.Gettid())
	runtime.UnlockOSThread()

	var mu sync.Mutex
	threads := map[int]int{}
	uses := map[string]int{}
	priv := testKey(t, 2048)
	key := watchedKey{priv, func(op string) {
		mu.Lock()
		defer mu.Unlock()
		tid := syscall.Gettid()
		threads[tid] = nice(t, tid)
		uses[op]++
	}}
	k, err := NewKey([][]byte{testCertificate(t, priv)}, key, key, g)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for p := range strangers() {
		wg.Go(func() {
			p.Sign(t.Context(), k, PriorityIssue, []byte("x"))
			c, _ := p.Encrypt(nil, make([]byte, 2*p.PlainBlock(k.Public())), k.Public())
			p.Decrypt(t.Context(), k, PriorityIssue, nil, c)
			c, _ = p.EncryptSecret(k.Public(), []byte("x"), []byte("nonce"))
			p.DecryptSecret(t.Context(), k, PriorityIssue, c, []byte("nonce"))
		})
	}
	wg.Wait()
	if uses["sign"] != 1+5 || uses["decrypt"] != 5*3 {
		t.Errorf("uses: %v", uses)
	}
	if len(threads) > 2 {
		t.Errorf("the key was used on %d threads, there are 2 workers", len(threads))
	}
	for tid, n := range threads {
		if n != min(here+workerNice, 19) {
			t.Errorf("thread %d has nice %d, the process %d", tid, n, here)
		}
	}
	g.Close()
	for tid := range threads {
		gone := false
		for range 1000 { // the thread ends some instants after its goroutine
			if tid == syscall.Getpid() {
				gone = true // the main thread stays, parked for good
				break
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); errors.Is(err, os.ErrNotExist) {
				gone = true
				break
			}
			waitABit()
		}
		if !gone {
			status, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", tid))
			t.Errorf("thread %d is still there: %s", tid, strings.SplitN(string(status), "\n", 4)[2])
		}
	}
}

// waitABit waits for the kernel, which has no clock that a test could move.
func waitABit() { <-time.After(time.Millisecond) }
