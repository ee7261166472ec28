package stack

import (
	"slices"
	"testing"
)

// The tables follow the NamespaceArray, and cost nothing while it stays.
func TestTables(t *testing.T) {
	srv, err := NewServer(Options{Security: Security{Policies: NoPolicies, AllowNone: true, AllowAnonymous: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Shutdown(t.Context()) })
	first := srv.tables.current()
	if want := srv.space.NamespaceArray(); !slices.Equal(first.NamespaceURIs, want) || !slices.Equal(first.ServerURIs, []string{srv.ApplicationURI()}) {
		t.Errorf("%+v, want %v", first, want)
	}
	if srv.tables.current() != first {
		t.Error("another snapshot although nothing has changed")
	}
	if n := testing.AllocsPerRun(100, func() { srv.tables.current() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	srv.AddressSpace().Namespace("urn:late")
	if second := srv.tables.current(); second == first || !slices.Contains(second.NamespaceURIs, "urn:late") {
		t.Errorf("a namespace that came late: %+v", second)
	}
}
