package isolation

import (
	"fmt"
	"testing"
)

func TestRequestChangesPlaces(t *testing.T) {
	plan := tiny(Balanced, 10, 1, 1, 1, 100)
	plan.RunSlots = 1
	p := NewProvider(plan)
	a, b := issue(t, p, "a", Established), issue(t, p, "b", Control)
	var la, lb, kept Lease
	if r, sat := p.AdmitParking(&la, a, 2); r != Granted || sat {
		t.Fatal(r, sat)
	}
	if r, sat := p.AdmitParking(&lb, b, 2); r != Capacity || !sat {
		t.Fatalf("no run slot is left: %v, saturated %v", r, sat)
	}
	if s, r := p.AdmitQueued(&lb, b, 2, true); r != Granted {
		t.Fatal(s, r)
	}
	if r := lb.Run(); r != Capacity {
		t.Fatalf("Run with no slot free: %v", r)
	}
	la.Keep(&kept)
	la.Release()
	if r := lb.Run(); r != Granted {
		t.Fatalf("Run: %v", r)
	}
	if p.Used(RequestQueue) != 0 || p.Used(ParkedRequest) != 2 || p.Used(RequestQueueBytes) != 4 {
		t.Errorf("queue %d, parked %d, bytes %d", p.Used(RequestQueue), p.Used(ParkedRequest), p.Used(RequestQueueBytes))
	}
	if r := lb.Execute(); r != Granted {
		t.Fatalf("Execute: %v", r)
	}
	if u, _ := p.Snapshot(); u[RequestExecution].Control != 1 || u[RequestExecution].Shared != 0 {
		t.Errorf("Control draws on its floor first: %+v", u[RequestExecution])
	}
	lb.Release()
	kept.Release()
	for s := range Stage(Stages) {
		if n := p.Used(s); n != 0 {
			t.Errorf("%v: %d left", s, n)
		}
	}
	if used, _ := p.RunSlots(); used != 0 || p.Owners() != 0 {
		t.Errorf("%d run slots, %d owners left", used, p.Owners())
	}
}

func TestAdmitBlockingSaturates(t *testing.T) {
	p := NewProvider(tiny(FairShare, 2, 0, 0, 0, 100))
	o := issue(t, p, "a", Established)
	var l [4]Lease
	for i := range 2 {
		if r, _ := p.AdmitBlocking(&l[i], o, 1); r != Granted {
			t.Fatal(r)
		}
	}
	// Bytes are checked after execution, so it is execution that is full.
	if r, sat := p.AdmitBlocking(&l[2], o, 1); r != OwnerLimit || !sat {
		t.Fatal(r, sat)
	}
	if n := p.Refused(RequestExecution, OwnerLimit); n != 0 {
		t.Errorf("%d refusals counted for a request that may still wait", n)
	}
	l[0].Release()
	if r, _ := p.AdmitBlocking(&l[2], o, 1); r != Granted {
		t.Fatal(r)
	}
}

// A share is capacity ÷ owners present, fractions included.
func TestUnderFairShare(t *testing.T) {
	for _, c := range []struct {
		owners         int // that hold one unit each, the asker not among them
		capacity, held int64
		most           int64
		under          bool
	}{
		{0, 4, 0, 4, true}, {0, 4, 3, 4, true}, {0, 4, 4, 5, false},
		{1, 4, 1, 2, true}, {1, 4, 2, 3, false},
		{2, 4, 1, 2, true}, {2, 4, 2, 3, false}, // 4/3
		{9, 4, 0, 1, true}, {9, 4, 1, 2, false}, // 2/5
	} {
		p := NewProvider(tiny(FairShare, 100, 0, 0, 0, 100))
		var l Lease
		for i := range c.owners {
			p.Admit(new(Lease), issue(t, p, fmt.Sprint("other", i), Established), []Claim{{Connection, 1}})
		}
		o := issue(t, p, "asker", Established)
		if c.held > 0 {
			if r := p.Admit(&l, o, []Claim{{RequestQueue, c.held}}); r != Granted {
				t.Fatal(r)
			}
		}
		p.levels[RequestQueue].capacity = c.capacity
		if most, under := p.UnderFairShare(o, RequestQueue, 1); most != c.most || under != c.under {
			t.Errorf("%+v: %d, %v", c, most, under)
		}
	}
}
