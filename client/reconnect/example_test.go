package reconnect_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/gopcua/opcua"
)

// gopcua's client connects through Do: a busy server's hint, which arrives in
// the text of an ERR message, decides when it comes back.
func ExampleDo_gopcua() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	done := make(chan struct{})
	go refuse(l, done) // a server whose line is 20 ms long
	attempts := 0
	policy := reconnect.Policy{InitialDelay: 10 * time.Millisecond, MaxRetries: 2}
	err = reconnect.Do(context.Background(), policy, func(ctx context.Context) error {
		attempts++
		c, err := opcua.NewClient("opc.tcp://"+l.Addr().String(), opcua.AutoReconnect(false))
		if err != nil {
			return err
		}
		return c.Connect(ctx)
	})
	code, hint := reconnect.Signal(err)
	fmt.Println(attempts, "attempts;", reconnect.IsBusy(code), hint)
	l.Close()
	<-done
	// Output: 3 attempts; true 20ms
}

// refuse answers every connection as an overloaded server does.
func refuse(l net.Listener, done chan<- struct{}) {
	defer close(done)
	const reason = "RetryAfterMs=20"
	msg := append([]byte{'E', 'R', 'R', 'F', byte(16 + len(reason)), 0, 0, 0, 0, 0, 0x7D, 0x80, byte(len(reason)), 0, 0, 0}, reason...)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Read(make([]byte, 256))
		c.Write(msg)
		c.Close()
	}
}
