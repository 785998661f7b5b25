package network

import (
	"testing"
)

func TestPodsReachEachOther(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n := w.start(o)
	must(t, n.Status(t.Context()))
	a, b := w.pod(o, nil), w.pod(o, nil)
	ra, rb := w.setup(n, a), w.setup(n, b)
	if len(ra.IPs) != 2 || len(rb.IPs) != 2 || !ra.IPs[0].Is4() || !ra.IPs[1].Is6() {
		t.Fatalf("addresses %v and %v: want an IPv4 and an IPv6 one each", ra.IPs, rb.IPs)
	}
	serve(t, a.NetNS, 80, "a")
	serve(t, b.NetNS, 80, "b")
	for i := range ra.IPs {
		w.wantAnswer(a.NetNS, "tcp", join(rb.IPs[i], 80), "b")
		w.wantAnswer(b.NetNS, "tcp", join(ra.IPs[i], 80), "a")
		w.wantAnswer("", "tcp", join(ra.IPs[i], 80), "a")
		w.wantAnswer("", "udp", join(rb.IPs[i], 80), "b")
		if err := ping(a.NetNS, rb.IPs[i]); err != nil {
			t.Errorf("ping %v: %v", rb.IPs[i], err)
		}
	}
}
