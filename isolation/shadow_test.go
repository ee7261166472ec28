package isolation

import "testing"

// overload.md §16: shadow mode counts what would be refused and lets it pass,
// but never for bytes, nor past the cap on connections.
func TestShadow(t *testing.T) {
	for _, tc := range []struct {
		stage  Stage
		amount int64 // asked for in one go; the stage has 4, 1 + 1 of them for floors
		limit  int64 // of the owner
		off    Reason
		on     Reason
	}{
		{Connection, 2, 4, Granted, Granted},
		{Connection, 3, 4, Capacity, Granted},   // out of the floors
		{Connection, 2, 1, OwnerLimit, Granted}, // past its own limit
		{Connection, 5, 4, OwnerLimit, OwnerLimit},
		{Connection, 5, 9, Capacity, Capacity}, // the cap itself
		{Handshake, 5, 9, Capacity, Granted},
		{SessionEstablishment, 3, 4, Capacity, Granted},
		{SessionEstablishment, 2, 1, OwnerLimit, Granted},
		{RequestQueue, 9, 9, Capacity, Granted},
		{ParkedRequest, 9, 4, OwnerLimit, Granted},
		{ReassemblyBytes, 3, 4, Capacity, Capacity},
		{ReassemblyBytes, 2, 1, OwnerLimit, OwnerLimit},
		{RequestQueueBytes, 3, 4, Capacity, Capacity},
		{RequestQueueBytes, 2, 1, OwnerLimit, OwnerLimit},
		{RequestExecution, 3, 4, Capacity, Capacity}, // makes wait, refuses nobody
	} {
		plan := tiny(Balanced, 4, 1, 1, 0, 100)
		plan.Stages[tc.stage].HardLimit = tc.limit
		p := NewProvider(plan)
		o := issue(t, p, "a", Established)
		for _, shadow := range []bool{false, true} {
			p.Shadow(shadow)
			want := tc.off
			if shadow {
				want = tc.on
			}
			var l Lease
			if got := p.TryAcquire(&l, tc.stage, o, tc.amount); got != want {
				t.Errorf("%d of %v, owner limit %d, shadow %v: %v, want %v", tc.amount, tc.stage, tc.limit, shadow, got, want)
			}
			l.Release()
		}
		var passed uint64
		if tc.on != tc.off {
			passed = 1
		}
		if got := p.Shadowed(tc.stage, tc.off); got != passed {
			t.Errorf("%d of %v: %d counted as passed over, want %d", tc.amount, tc.stage, got, passed)
		}
		if refused := p.Refused(tc.stage, tc.off); tc.off != Granted && refused != 2-passed {
			t.Errorf("%d of %v: %d counted as refused", tc.amount, tc.stage, refused)
		}
		if p.Used(tc.stage) != 0 || p.Owners() != 0 {
			t.Errorf("%v: left behind", tc.stage)
		}
	}
}

// A full owner table is passed over, too, for the requests that run at once as
// for the others, but not for partial messages; closed and foreign owners are
// refused as ever.
func TestShadowOwnerTable(t *testing.T) {
	p := NewProvider(tiny(Balanced, 100, 0, 0, 0, 1))
	p.Shadow(true)
	a, b := issue(t, p, "a", Established), issue(t, p, "b", Established)
	var held, l Lease
	p.TryAcquire(&held, Connection, a, 1)
	if r := p.TryAcquire(&l, ReassemblyBytes, b, 1); r != OwnerTableFull {
		t.Errorf("bytes: %v", r)
	}
	for range 2 {
		if r, _ := p.AdmitInline(&l, b, 1); r != Granted {
			t.Errorf("inline: %v", r)
		}
		l.Release()
	}
	if r := p.TryAcquire(&l, RequestQueue, b, 1); r != Granted {
		t.Errorf("queue: %v", r)
	}
	if l.Enqueue() != Granted {
		t.Error("stays where it is")
	}
	l.Release()
	if n, m := p.Shadowed(RequestQueueBytes, OwnerTableFull), p.Shadowed(RequestQueue, OwnerTableFull); n != 2 || m != 1 {
		t.Errorf("%d and %d counted", n, m)
	}
	if r := p.TryAcquire(&l, Connection, issue(t, NewProvider(tiny(Balanced, 1, 0, 0, 0, 1)), "a", Established), 1); r != InvalidOwner {
		t.Errorf("another provider's owner: %v", r)
	}
	p.Close()
	if r := p.TryAcquire(&l, Connection, a, 1); r != Closed {
		t.Errorf("closed: %v", r)
	}
	held.Release()
}

// A request that changes its place is let into a full queue, and when the mode
// ends the queue refuses until enough of what was granted has returned.
func TestShadowEnds(t *testing.T) {
	plan := tiny(FairShare, 2, 0, 0, 0, 100)
	plan.Stages[RequestQueueBytes].Capacity, plan.Stages[RequestQueueBytes].Shared, plan.Stages[RequestQueueBytes].HardLimit = 100, 100, 100
	p := NewProvider(plan)
	p.Shadow(true)
	o := issue(t, p, "a", Established)
	leases := make([]Lease, 4)
	for i := range leases {
		if r, _ := p.AdmitInline(&leases[i], o, 1); r != Granted {
			t.Fatal(r)
		}
		if r := leases[i].Enqueue(); r != Granted {
			t.Fatalf("lease %d: %v", i, r)
		}
	}
	if n := p.Shadowed(RequestQueue, OwnerLimit); n != 2 {
		t.Errorf("%d counted", n)
	}
	p.Shadow(false)
	var l Lease
	for i, want := range []Reason{OwnerLimit, OwnerLimit, OwnerLimit, Granted} {
		if _, r := p.AdmitQueued(&l, o, 1, false); r != want {
			t.Errorf("with %d of 2 in use: %v", 4-i, r)
		}
		leases[i].Release()
	}
	l.Release()
}
