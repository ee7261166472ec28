package client

import (
	"testing"

	"github.com/breakwater-ua/breakwater/uabinary"
)

func encoded(t testing.TB, msg any) []byte {
	t.Helper()
	var e uabinary.Encoder
	uabinary.EncodeMessage(&e, msg)
	if e.Err() != nil {
		t.Fatal(e.Err())
	}
	return e.B
}
