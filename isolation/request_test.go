package isolation

import "testing"

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
