package subscription

import (
	"fmt"
	"math"
	"testing"
)

func TestRetransmissionQueueIsBounded(t *testing.T) { // hostile.md A26
	l := Limits{MaxRetransmissionMessages: 3, MaxRetransmissionBytes: 100}.resolved()
	var r retransmission
	for i := range uint32(10) {
		r.add(message{i + 1, make([]byte, 10)}, &l, 0)
	}
	if got := fmt.Sprint(r.sequences()); got != "[8 9 10]" || r.bytes != 30 {
		t.Errorf("holds %s, %d bytes", got, r.bytes)
	}
	r.add(message{11, make([]byte, 85)}, &l, 0)
	if got := fmt.Sprint(r.sequences()); got != "[10 11]" {
		t.Errorf("after a large message it holds %s", got)
	}
	r.add(message{12, make([]byte, 500)}, &l, 0)
	if got := fmt.Sprint(r.sequences()); got != "[12]" {
		t.Errorf("the newest is not kept: %s", got)
	}
	if r.acknowledge(11) || !r.acknowledge(12) || r.acknowledge(12) || r.bytes != 0 {
		t.Errorf("acknowledging: %d bytes left", r.bytes)
	}
}

// Memory of all subscriptions together: who comes last gives up what is its own.
func TestRetransmissionTotalIsBounded(t *testing.T) {
	l := Limits{MaxTotalRetransmissionBytes: 1 << 20}.resolved()
	var r retransmission
	for i := range uint32(5) {
		r.add(message{i + 1, make([]byte, 100<<10)}, &l, 700<<10)
	}
	if got := fmt.Sprint(r.sequences()); got != "[3 4 5]" {
		t.Errorf("holds %s beside 700 KiB of others", got)
	}
	r.add(message{6, make([]byte, 100<<10)}, &l, 1<<20)
	if len(r.messages) != 0 {
		t.Errorf("keeps a large message although the total is used up: %v", r.sequences())
	}
	r.add(message{7, make([]byte, 100)}, &l, 1<<20)
	if got := fmt.Sprint(r.sequences()); got != "[7]" {
		t.Errorf("does not keep a small one: %s", got)
	}
}

func TestSequenceNumbersSkipZero(t *testing.T) { // OPC 10000-4 §7.26 NotificationMessage
	if n := nextSequence(math.MaxUint32); n != 1 {
		t.Errorf("after the largest comes %d", n)
	}
	if n := nextSequence(0); n != 1 {
		t.Errorf("the first is %d", n)
	}
}
