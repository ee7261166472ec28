package transport

import (
	"testing"
	"time"
)

func TestLiveLimits(t *testing.T) {
	v := NewLiveLimits(Limits{})
	before := *v.Load()
	if before != (Limits{}).Resolved() {
		t.Fatalf("%+v", before)
	}
	v.Apply(Limits{HelloTimeout: 1, HandshakeTimeout: 2, AssemblyTimeout: 3, WriteTimeout: 4, WriteQueueBytes: 5, MaxOutstandingPerConnection: 6,
		MaxMessageSize: 1 << 20, MaxChunkCount: 7, ReceiveBufferSize: 8192, SendBufferSize: 8192, LingerTimeout: time.Hour})
	want := before // what peers were told stays
	want.HelloTimeout, want.HandshakeTimeout, want.AssemblyTimeout, want.WriteTimeout, want.WriteQueueBytes, want.MaxOutstandingPerConnection = 1, 2, 3, 4, 5, 6
	if got := *v.Load(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
