package stack

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

func TestSlots(t *testing.T) {
	table := service.NewTable()
	entry := func(name string) *service.Entry {
		for i, e := range table.Entries() {
			if e.Name == name {
				return &table.Entries()[i]
			}
		}
		t.Fatal(name)
		return nil
	}
	s := &slots{maxBlocking: 10, maxEstablishment: 3}
	var wg sync.WaitGroup
	var admitted atomic.Int64
	for range 40 { // 40 racing on 10: exactly 10
		wg.Go(func() {
			a := &Arrival{Service: entry("Call"), Blocking: true}
			switch code := s.Admit(a); {
			case code == ua.StatusOK:
				admitted.Add(1)
			case code != uastatus.BadServerTooBusy || a.RetryAfter <= 0:
				t.Errorf("refused with %v, hint %v", code, a.RetryAfter)
			}
		})
	}
	wg.Wait()
	if n := admitted.Load(); n != 10 {
		t.Errorf("%d admitted, want 10", n)
	}
	// Establishment and inline requests are not affected.
	for range 3 {
		if code := s.Admit(&Arrival{Service: entry("CreateSession"), Blocking: true}); code != ua.StatusOK {
			t.Errorf("CreateSession: %v", code)
		}
	}
	if code := s.Admit(&Arrival{Service: entry("ActivateSession"), Blocking: true}); code != uastatus.BadServerTooBusy {
		t.Errorf("fourth establishment: %v", code)
	}
	if code := s.Admit(&Arrival{Service: entry("Read")}); code != ua.StatusOK {
		t.Errorf("Read: %v", code)
	}
	for range 10 {
		s.Release(&Arrival{Service: entry("Call"), Blocking: true})
	}
	if code := s.Admit(&Arrival{Service: entry("Call"), Blocking: true}); code != ua.StatusOK {
		t.Errorf("after release: %v", code)
	}
}
