package main

import (
	"bytes"
	"os"
	"testing"
)

// The embedded file is what the generator writes: nobody edited it, and nobody
// forgot to run go generate.
func TestCompiledFileIsCurrent(t *testing.T) {
	want, err := compile()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../ns0_gen.bin")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("addressspace/ns0_gen.bin is out of date: go generate ./addressspace")
	}
}
