package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/network/lease"
	"github.com/sunaba-project/sunaba/criserver/network/netns"
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
	serve(t, "/proc/self/ns/net", 7000, "node")
	for i := range ra.IPs {
		w.wantAnswer(a.NetNS, "tcp", join(rb.IPs[i], 80), "b")
		w.wantAnswer(b.NetNS, "tcp", join(ra.IPs[i], 80), "a")
		w.wantAnswer("", "tcp", join(ra.IPs[i], 80), "a")
		w.wantAnswer("", "udp", join(rb.IPs[i], 80), "b")
		if err := ping(a.NetNS, rb.IPs[i]); err != nil {
			t.Errorf("ping %v: %v", rb.IPs[i], err)
		}
		// A pod that talks to the node is seen with its own address.
		node := []netip.Prefix{nodeV4, nodeV6}[i].Addr()
		if from := w.wantAnswer(a.NetNS, "tcp", join(node, 7000), "node"); from != ra.IPs[i] {
			t.Errorf("the node saw %v, want %v", from, ra.IPs[i])
		}
	}
	w.wantAnswer(a.NetNS, "tcp", "127.0.0.1:80", "a")
	w.wantAnswer(a.NetNS, "tcp", "[::1]:80", "a")
	must(t, netns.Do(a.NetNS, func() error {
		l, err := handle(t).LinkByName(podInterface)
		if err == nil && l.Attrs().MTU != 1400 {
			err = fmt.Errorf("MTU %d, want the uplink's 1400", l.Attrs().MTU)
		}
		return err
	}))
}

func TestPodReachesTheWorldAsTheNode(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	p := w.pod(o, nil)
	w.setup(w.start(o), p)
	serve(t, w.ns, 80, "world")
	for to, as := range map[netip.Prefix]netip.Prefix{worldV4: nodeV4, worldV6: nodeV6} {
		for _, proto := range []string{"tcp", "udp"} {
			if from := w.wantAnswer(p.NetNS, proto, join(to.Addr(), 80), "world"); from != as.Addr() {
				t.Errorf("the world saw %v, want %v", from, as.Addr())
			}
		}
	}
}

// A cloud's metadata service gives the node's own credentials to whoever asks: pods do not reach
// it, unless that is configured. What has a link-local address on the node itself, and clients with
// one, are none of that.
func TestLinkLocal(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprint(open), func(t *testing.T) { testLinkLocal(t, open) })
	}
}

func testLinkLocal(t *testing.T, open bool) {
	w := newWorld(t)
	metadata, client := netip.MustParsePrefix("169.254.169.254/32"), netip.MustParsePrefix("169.254.7.7/32")
	must(t, netns.Do(w.ns, func() error { setUp(t, handle(t), "wan0", metadata, client); return nil }))
	h := handle(t)
	up, err := h.LinkByName("up0")
	must(t, err)
	for _, to := range []netip.Prefix{metadata, client} {
		must(t, h.RouteAdd(&netlink.Route{LinkIndex: up.Attrs().Index, Gw: worldV4.Addr().AsSlice(),
			Dst: &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}}))
	}
	own := netip.MustParsePrefix("169.254.20.10/32") // as a name server's cache has it
	setUp(t, h, "up0", own)
	o := w.options("a")
	o.Embedded.LinkLocal = open
	p := w.pod(o, nil)
	p.Ports = []PortMapping{{Protocol: "tcp", HostPort: 8080, ContainerPort: 80}}
	w.setup(w.start(o), p)
	serve(t, w.ns, 80, "metadata")
	serve(t, "/proc/self/ns/net", 53, "cache")
	serve(t, p.NetNS, 80, "pod")
	if open {
		w.wantAnswer(p.NetNS, "tcp", join(metadata.Addr(), 80), "metadata")
	} else {
		w.wantSilence(p.NetNS, "tcp", join(metadata.Addr(), 80))
	}
	w.wantAnswer("", "tcp", join(metadata.Addr(), 80), "metadata")
	w.wantAnswer(p.NetNS, "tcp", join(worldV4.Addr(), 80), "metadata")
	w.wantAnswer(p.NetNS, "tcp", join(own.Addr(), 53), "cache")
	w.wantAnswer(p.NetNS, "tcp", join(worldV6.Addr(), 80), "metadata") // with the neighbours that it takes
	must(t, netns.Do(w.ns, func() error {                              // a client whose own address is link-local
		d := net.Dialer{Timeout: 20 * time.Second, LocalAddr: &net.TCPAddr{IP: client.Addr().AsSlice()}}
		c, err := d.Dial("tcp", join(nodeV4.Addr(), 8080))
		if err == nil {
			c.Close()
		}
		return err
	}))
	must(t, h.AddrDel(up, &netlink.Addr{IPNet: &net.IPNet{IP: own.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}}))
}

// A chain that drops by default, as Docker's: the bridge's traffic must pass it.
func TestForwardChainThatDrops(t *testing.T) {
	w := newWorld(t)
	w.dropForward()
	o := w.options("a")
	n := w.start(o)
	p := w.pod(o, nil)
	w.setup(n, p)
	serve(t, w.ns, 80, "world")
	for range 2 { // Status does not add the rules once more
		must(t, n.Status(t.Context()))
	}
	if rules := w.forwardRules(); rules != 2 {
		t.Errorf("%d rules in the forward chain, want 2", rules)
	}
	w.wantAnswer(p.NetNS, "tcp", join(worldV4.Addr(), 80), "world")
	must(t, n.Close())
	must(t, Destroy(o))
	if rules := w.forwardRules(); rules != 0 {
		t.Errorf("%d rules are left in the forward chain", rules)
	}
}

func TestPodWithoutIPv6(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n := w.start(o)
	off := w.pod(o, map[string]string{"net.ipv6.conf.all.disable_ipv6": "1"})
	if r := w.setup(n, off); len(r.IPs) != 1 || !r.IPs[0].Is4() {
		t.Errorf("addresses %v: want one IPv4 address", r.IPs)
	}
	o = w.options("b")
	o.Embedded.SubnetV6 = "none"
	n = w.start(o)
	if r := w.setup(n, w.pod(o, nil)); len(r.IPs) != 1 || !r.IPs[0].Is4() {
		t.Errorf("addresses %v with subnet none: want one IPv4 address", r.IPs)
	}
	const off6 = "net/ipv6/conf/all/disable_ipv6"
	must(t, setSysctl(off6, "1"))
	t.Cleanup(func() { must(t, setSysctl(off6, "0")) })
	o = w.options("c")
	n = w.start(o)
	must(t, n.Status(t.Context()))
	p := w.pod(o, nil)
	if r := w.setup(n, p); len(r.IPs) != 1 || !r.IPs[0].Is4() {
		t.Errorf("addresses %v on a node without IPv6: want one IPv4 address", r.IPs)
	}
	serve(t, w.ns, 80, "world")
	w.wantAnswer(p.NetNS, "tcp", join(worldV4.Addr(), 80), "world")
}

// A node that gets its addresses from router advertisements goes on listening to them when it
// becomes a router.
func TestForwardingKeepsRouterAdvertisements(t *testing.T) {
	newWorld(t)
	must(t, setSysctl("net/ipv6/conf/all/forwarding", "0"))
	must(t, setSysctl("net/ipv6/conf/up0/accept_ra", "1"))
	must(t, setSysctl("net/ipv6/conf/lo/accept_ra", "0"))
	before, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/accept_ra")
	must(t, err)
	must(t, forwardPackets(true))
	for name, want := range map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv6/conf/up0/accept_ra": "2", "ipv6/conf/lo/accept_ra": "0",
		"ipv6/conf/default/accept_ra": strings.TrimSpace(string(before)),
	} {
		if got, err := os.ReadFile(filepath.Join("/proc/sys/net", name)); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s = %s (%v), want %s", name, got, err, want)
		}
	}
}

func TestLeasesSurviveTheDaemon(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n, err := start(o)
	must(t, err)
	a, b := w.pod(o, nil), w.pod(o, nil)
	a.Ports = []PortMapping{{HostPort: 8080, ContainerPort: 80}}
	ra := w.setup(n, a)
	serve(t, a.NetNS, 80, "a")
	must(t, n.Close())
	w.wantAnswer("", "tcp", "127.0.0.1:8080", "a") // also with no daemon

	if _, err := New(Options{}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("New without a state directory: %v", err)
	}
	n = w.start(o)
	if _, err := start(o); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a second server on the same state: %v, want FailedPrecondition", err)
	}
	w.wantAnswer("", "tcp", "127.0.0.1:8080", "a")
	b.Ports = a.Ports
	if _, err := n.Setup(t.Context(), b); !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), "test/pod-1") || !strings.Contains(err.Error(), "test/pod-2") {
		t.Errorf("the same host port: %v, want AlreadyExists with both names", err)
	}
	b.Ports = nil
	rb := w.setup(n, b)
	for i := range ra.IPs {
		if ra.IPs[i] == rb.IPs[i] || !sameSubnet(ra.IPs[i], rb.IPs[i]) {
			t.Errorf("addresses %v and %v: want different ones of the same subnet", ra.IPs[i], rb.IPs[i])
		}
	}
	w.wantAnswer(b.NetNS, "tcp", join(ra.IPs[0], 80), "a")
	for range 2 {
		must(t, n.Teardown(t.Context(), a, ra))
	}
	w.wantSilence("", "tcp", "127.0.0.1:8080")
}

func sameSubnet(a, b netip.Addr) bool {
	bits := 20
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p.Contains(b)
}

func TestExhaustion(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	o.Embedded.SubnetV4, o.Embedded.Quarantine = "10.99.7.0/29", 3*time.Second
	n := w.start(o)
	seen := map[netip.Addr]bool{}
	var last Pod
	var lastResult Result
	for range 5 {
		last = w.pod(o, nil)
		lastResult = w.setup(n, last)
		seen[lastResult.IPs[0]] = true
	}
	if len(seen) != 5 {
		t.Errorf("5 pods have %d addresses", len(seen))
	}
	p := w.pod(o, nil)
	before := takeSnapshot(t, w.dir)
	if _, err := n.Setup(t.Context(), p); !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "10.99.7.0/29") {
		t.Errorf("a sixth pod: %v, want ResourceExhausted with the subnet", err)
	}
	must(t, before.compare(takeSnapshot(t, w.dir)))
	must(t, n.Teardown(t.Context(), last, lastResult))
	if _, err := n.Setup(t.Context(), p); !errdefs.IsResourceExhausted(err) {
		t.Errorf("an address that was freed just now: %v, want ResourceExhausted", err)
	}
	time.Sleep(o.Embedded.Quarantine)
	if r := w.setup(n, p); r.IPs[0] != lastResult.IPs[0] {
		t.Errorf("address %v, want the freed %v", r.IPs[0], lastResult.IPs[0])
	}
}

func TestFailedSetupLeavesNothing(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n := w.start(o)
	taken := w.pod(o, nil)
	taken.Ports = []PortMapping{{HostPort: 8080, ContainerPort: 80}}
	w.setup(n, taken)

	tests := map[string]struct {
		change func(*Pod)
		want   func(error) bool
	}{
		"no namespace":      {func(p *Pod) { p.NetNS = filepath.Join(w.dir, "nowhere") }, errdefs.IsNotFound},
		"a file":            {func(p *Pod) { p.NetNS = filepath.Join(o.StateDir, "subnets.json") }, errdefs.IsNotFound},
		"no path":           {func(p *Pod) { p.NetNS = "" }, errdefs.IsInvalidArgument},
		"unknown protocol":  {func(p *Pod) { p.Ports = []PortMapping{{Protocol: "icmp", HostPort: 1, ContainerPort: 1}} }, errdefs.IsInvalidArgument},
		"no container port": {func(p *Pod) { p.Ports = []PortMapping{{HostPort: 1}} }, errdefs.IsInvalidArgument},
		"no address":        {func(p *Pod) { p.Ports = []PortMapping{{HostPort: 1, ContainerPort: 1, HostIP: "here"}} }, errdefs.IsInvalidArgument},
		"taken host port":   {func(p *Pod) { p.Ports = []PortMapping{{HostPort: 8080, ContainerPort: 80, HostIP: "127.0.0.1"}} }, errdefs.IsAlreadyExists},
		"loopback of IPv6":  {func(p *Pod) { p.Ports = []PortMapping{{HostPort: 1, ContainerPort: 1, HostIP: "::1"}} }, errdefs.IsInvalidArgument},
		"eth0 is there": {func(p *Pod) {
			p.Ports = []PortMapping{{HostPort: 8081, ContainerPort: 80}}
			must(t, netns.Do(p.NetNS, func() error {
				attrs := netlink.NewLinkAttrs()
				attrs.Name = podInterface
				return handle(t).LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
			}))
		}, func(err error) bool { return errors.Is(err, unix.EEXIST) }},
		"route is there": {func(p *Pod) { // fails after everything else is done
			must(t, netns.Do(p.NetNS, func() error {
				h := handle(t)
				lo, err := h.LinkByName("lo")
				must(t, err)
				return h.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0"))})
			}))
		}, func(err error) bool { return errors.Is(err, unix.EEXIST) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := w.pod(o, nil)
			id := p.ID
			test.change(&p)
			before, rules := takeSnapshot(t, w.dir), w.elements(o)
			if _, err := n.Setup(t.Context(), p); !test.want(err) {
				t.Errorf("error %v", err)
			}
			must(t, before.compare(takeSnapshot(t, w.dir)))
			if now := w.elements(o); !maps.Equal(rules, now) {
				t.Errorf("host ports %v, before %v", now, rules)
			}
			if _, held := n.(*switching).embedded.book.Get(id); held {
				t.Error("a lease is left")
			}
		})
	}
}

func TestSetupAgain(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n := w.start(o)
	p := w.pod(o, nil)
	serve(t, p.NetNS, 80, "p")
	// As after a crash between Setup and the caller's record: the link and the lease are there
	// already.
	first, second := w.setup(n, p), Result{}
	second, err := n.Setup(t.Context(), p)
	must(t, err)
	if !slices.Equal(first.IPs, second.IPs) {
		t.Errorf("addresses %v, then %v", first.IPs, second.IPs)
	}
	w.wantAnswer("", "tcp", join(second.IPs[0], 80), "p")
	// The caller has lost the result.
	must(t, n.Teardown(t.Context(), p, Result{}))
	if left := n.(*switching).embedded.book.All(); len(left) != 0 {
		t.Errorf("leases %v are left", left)
	}
	w.wantSilence("", "tcp", join(second.IPs[0], 80))
}

func TestGC(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n, err := start(o)
	must(t, err)
	alive, dead, held := w.pod(o, nil), w.pod(o, nil), w.pod(o, nil)
	alive.Ports = []PortMapping{{HostPort: 8080, ContainerPort: 80}}
	dead.Ports = []PortMapping{{HostPort: 8081, ContainerPort: 80}}
	for _, p := range []Pod{alive, dead, held} {
		_, err := n.Setup(t.Context(), p)
		must(t, err)
		serve(t, p.NetNS, 80, p.Name)
	}
	hostPod := filepath.Join(o.SandboxesDir, "of-the-node", "ns") // has no network namespace of its own
	must(t, netns.PinNamespaces(hostPod, netns.PinOptions{IPC: true}))
	t.Cleanup(func() { must(t, netns.UnpinNamespaces(hostPod)) })
	keepsAlive, err := os.Open(held.NetNS)
	must(t, err)
	must(t, n.Close())

	n = w.start(o)
	must(t, n.GC(t.Context(), []string{alive.ID}))
	w.wantAnswer("", "tcp", "127.0.0.1:8080", alive.Name)
	w.wantSilence("", "tcp", "127.0.0.1:8081")
	if !netns.Pinned(alive.NetNS) || netns.Pinned(dead.NetNS) || netns.Pinned(held.NetNS) || !netns.Pinned(filepath.Join(hostPod, netns.IPCFile)) {
		t.Error("want the pins of dead pods gone, and no others")
	}
	leases := n.(*switching).embedded.book.All()
	if len(leases) != 1 || leases[0].Pod != alive.ID {
		t.Errorf("leases %v, want those of the living pod", leases)
	}
	eventually(t, func() error {
		links := takeSnapshot(t, w.dir)["link"]
		if !slices.Contains(links, hostEnd(alive.ID)) || slices.Contains(links, hostEnd(dead.ID)) || slices.Contains(links, hostEnd(held.ID)) {
			return fmt.Errorf("links %v", links)
		}
		return nil
	})
	must(t, keepsAlive.Close())
	must(t, n.GC(t.Context(), nil))
}

func TestParallelSetups(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n := w.start(o)
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[netip.Addr]string{}
	for worker := range 8 {
		wg.Go(func() {
			for i := range 25 {
				p := Pod{ID: fmt.Sprintf("%012x%052x", worker*100+i+1, 0), Name: fmt.Sprintf("w%d-%d", worker, i)}
				p.Ports = []PortMapping{{HostPort: int32(10000 + worker*100 + i), ContainerPort: 80}}
				dir := filepath.Join(o.SandboxesDir, p.ID, "ns")
				p.NetNS = filepath.Join(dir, netns.NetFile)
				if err := netns.PinNamespaces(dir, netns.PinOptions{Net: true, UTS: true, Hostname: p.Name}); err != nil {
					t.Error(err)
					return
				}
				r, err := n.Setup(context.Background(), p)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, ip := range r.IPs {
					if other, ok := seen[ip]; ok {
						t.Errorf("pods %s and %s both got %v", other, p.Name, ip)
					}
					seen[ip] = p.Name
				}
				mu.Unlock()
				if i%2 == 0 {
					if err := errors.Join(n.Teardown(context.Background(), p, r), netns.UnpinNamespaces(dir)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != 400 {
		t.Errorf("%d addresses for 200 pods, want 400", len(seen))
	}
	must(t, n.GC(t.Context(), nil))
	if left := w.elements(o); len(left) != 0 {
		t.Errorf("host ports %v are left", left)
	}
	must(t, os.RemoveAll(o.SandboxesDir))
}

func TestMends(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n := w.start(o)
	p := w.pod(o, nil)
	p.Ports = []PortMapping{{HostPort: 8080, ContainerPort: 80}}
	r := w.setup(n, p)
	serve(t, p.NetNS, 80, "p")

	w.flushRuleset()
	w.wantSilence("", "tcp", "127.0.0.1:8080")
	must(t, n.Status(t.Context()))
	w.wantAnswer("", "tcp", "127.0.0.1:8080", "p")

	w.flushRuleset()
	q := w.pod(o, nil)
	q.Ports = []PortMapping{{HostPort: 8081, ContainerPort: 80}}
	rq := w.setup(n, q)
	serve(t, q.NetNS, 80, "q")
	w.wantAnswer("", "tcp", "127.0.0.1:8080", "p")
	w.wantAnswer("", "tcp", "127.0.0.1:8081", "q")

	must(t, deleteLink(handle(t), o.Embedded.Bridge))
	s := w.pod(o, nil)
	rs := w.setup(n, s)
	serve(t, s.NetNS, 80, "s")
	w.wantAnswer("", "tcp", join(rs.IPs[0], 80), "s")
	w.wantAnswer("", "tcp", join(r.IPs[1], 80), "p")
	w.wantAnswer(s.NetNS, "tcp", join(rq.IPs[0], 80), "q")
	w.wantAnswer("", "tcp", "127.0.0.1:8080", "p")
}

// The kernel refuses the rules: here because the tables belong to another program.
func TestWithoutFirewall(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	release := w.ownTables(o)
	n := w.start(o)
	if err := n.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing beyond it") {
		t.Errorf("status: %v, want that masquerading is missing", err)
	}
	a, b := w.pod(o, nil), w.pod(o, nil)
	ra := w.setup(n, a)
	w.setup(n, b)
	serve(t, a.NetNS, 80, "a")
	w.wantAnswer("", "tcp", join(ra.IPs[0], 80), "a")
	w.wantAnswer(b.NetNS, "tcp", join(ra.IPs[1], 80), "a")
	c := w.pod(o, nil)
	c.Ports = []PortMapping{{HostPort: 8080, ContainerPort: 80}}
	if _, err := n.Setup(t.Context(), c); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "nftables") {
		t.Errorf("a host port without nftables: %v, want FailedPrecondition", err)
	}
	release()
	must(t, n.Status(t.Context()))
	w.setup(n, c)
}

func TestForeignBridge(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	attrs := netlink.NewLinkAttrs()
	attrs.Name = o.Embedded.Bridge
	h := handle(t)
	must(t, h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	n, err := start(o)
	must(t, err)
	if err := n.Status(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "was not created by sunaba") {
		t.Errorf("status: %v", err)
	}
	must(t, n.Close())
	if err := Destroy(o); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("destroy: %v, want FailedPrecondition", err)
	}
	must(t, deleteLink(h, o.Embedded.Bridge))
	must(t, Destroy(o))
	must(t, Destroy(o))
}

func TestServersSideBySide(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	nets := make([]Network, 6)
	for i := range nets {
		wg.Go(func() {
			n, err := start(w.options(fmt.Sprint(i)))
			if err != nil {
				t.Error(err)
			}
			nets[i] = n
		})
	}
	wg.Wait()
	seen := map[netip.Prefix]bool{}
	for i, n := range nets {
		must(t, n.Status(t.Context()))
		for _, p := range n.(*switching).embedded.base.subnets.all() {
			if seen[p] {
				t.Errorf("two servers chose %v", p)
			}
			seen[p] = true
		}
		must(t, n.Close())
		must(t, Destroy(w.options(fmt.Sprint(i))))
	}
}

// The configured subnets change while pods run: they keep their addresses and their gateway.
func TestChangedSubnet(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	o.Embedded.SubnetV4 = "10.99.8.0/24"
	n, err := start(o)
	must(t, err)
	old := w.pod(o, nil)
	_, err = n.Setup(t.Context(), old)
	must(t, err)
	must(t, n.Close())
	o.Embedded.SubnetV4 = "10.99.9.0/24"
	n = w.start(o)
	young := w.pod(o, nil)
	r := w.setup(n, young)
	if !netip.MustParsePrefix("10.99.9.0/24").Contains(r.IPs[0]) {
		t.Errorf("address %v, want one of the new subnet", r.IPs[0])
	}
	serve(t, young.NetNS, 80, "young")
	serve(t, w.ns, 80, "world")
	w.wantAnswer(old.NetNS, "tcp", join(r.IPs[0], 80), "young")
	w.wantAnswer(old.NetNS, "tcp", join(worldV4.Addr(), 80), "world")
	must(t, n.Teardown(t.Context(), old, Result{}))
}

// The cluster tells the node's range while pods run: new pods are in it, also after a restart, old
// ones go on.
func TestRange(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n := w.start(o)
	old := w.pod(o, nil)
	before := w.setup(n, old)
	ranged := n.(Ranged)
	for _, bad := range [][]string{{"10.99.8.1/24"}, {"10.99.8.0/24", "10.99.9.0/24"}, {"no range"}} {
		if err := ranged.UseRange(bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for range 2 {
		must(t, ranged.UseRange([]string{"10.99.8.0/24", "fd99:8::/64"}))
	}
	inRange := func(n Network, p Pod) netip.Addr {
		t.Helper()
		r := w.setup(n, p)
		for _, ip := range r.IPs {
			if !netip.MustParsePrefix("10.99.8.0/24").Contains(ip) && !netip.MustParsePrefix("fd99:8::/64").Contains(ip) {
				t.Errorf("address %v is not in the node's range", ip)
			}
		}
		return r.IPs[0]
	}
	young := w.pod(o, nil)
	addr := inRange(n, young)
	serve(t, young.NetNS, 80, "young")
	serve(t, old.NetNS, 80, "old")
	serve(t, w.ns, 80, "world")
	w.wantAnswer(old.NetNS, "tcp", join(addr, 80), "young")
	w.wantAnswer(young.NetNS, "tcp", join(before.IPs[0], 80), "old")
	for _, p := range []Pod{old, young} {
		w.wantAnswer(p.NetNS, "tcp", join(worldV4.Addr(), 80), "world")
	}
	must(t, n.Teardown(t.Context(), old, before))
	must(t, n.Teardown(t.Context(), young, Result{}))
	must(t, n.Close())
	n, err := start(o)
	must(t, err)
	third := w.pod(o, nil)
	inRange(n, third)
	must(t, n.Teardown(t.Context(), third, Result{}))
	must(t, n.Close())
	o.Embedded.SubnetV4 = "10.99.7.0/24" // the configuration comes first
	n, err = start(o)
	must(t, err)
	if r := w.setup(n, w.pod(o, nil)); !netip.MustParsePrefix("10.99.7.0/24").Contains(r.IPs[0]) {
		t.Errorf("address %v, want one of the configured subnet", r.IPs[0])
	}
	must(t, n.(Ranged).UseRange([]string{"10.99.6.0/24"}))
	if r := w.setup(n, w.pod(o, nil)); !netip.MustParsePrefix("10.99.7.0/24").Contains(r.IPs[0]) {
		t.Errorf("address %v, want one of the configured subnet", r.IPs[0])
	}
	must(t, n.Close())
}

func TestNames(t *testing.T) {
	for _, test := range []struct{ root, want string }{
		{"", "sunaba0"}, {"/var/lib/sunaba", "sunaba0"}, {"/var/lib/sunaba/", "sunaba0"}, {"/srv/other", "snb1c8a9161"},
	} {
		if got := DefaultBridgeName(test.root); got != test.want {
			t.Errorf("bridge of %q: %q, want %q", test.root, got, test.want)
		}
	}
	end := hostEnd(strings.Repeat("0123456789abcdef", 4))
	if len(end) > 15 || !isHostEnd(end) || isHostEnd(DefaultBridgeName("/srv/other")) || isHostEnd("snbxyz012345678") {
		t.Errorf("host end %q", end)
	}
	for _, name := range []string{"", "a-name-of-16-byte", "a/b", "..", "a b", "br%d"} {
		if err := checkBridgeName(name); err == nil && name != "" {
			t.Errorf("bridge name %q passed", name)
		}
	}
}

func TestSettle(t *testing.T) {
	prefix := netip.MustParsePrefix
	first, second := prefix("10.118.0.0/20"), prefix("10.118.16.0/20")
	v6 := prefix("fd12::/64")
	held := []lease.Lease{{Pod: "p", Addrs: []netip.Addr{netip.MustParseAddr("10.118.0.5")}}}
	tests := map[string]struct {
		remembered choice
		given      netip.Prefix
		taken      []netip.Prefix
		leases     []lease.Lease
		want       choice
	}{
		"first start":                  {want: choice{V4: first}},
		"a route overlaps":             {taken: []netip.Prefix{prefix("10.118.3.0/24")}, want: choice{V4: second}},
		"a wide route overlaps":        {taken: []netip.Prefix{prefix("10.0.0.0/8")}, want: choice{V4: prefix("172.29.0.0/20")}},
		"remembered":                   {remembered: choice{V4: second}, want: choice{V4: second}},
		"remembered, taken":            {remembered: choice{V4: first}, taken: []netip.Prefix{first}, want: choice{V4: second}},
		"remembered, taken, with pods": {remembered: choice{V4: first}, taken: []netip.Prefix{first}, leases: held, want: choice{V4: first}},
		"given":                        {remembered: choice{V4: first}, given: second, want: choice{V4: second}},
		"given, with pods":             {remembered: choice{V4: first}, given: second, leases: held, want: choice{V4: second, Former: []netip.Prefix{first}}},
		"former without pods":          {remembered: choice{V4: second, Former: []netip.Prefix{first}}, want: choice{V4: second}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want.V6 = v6
			got, err := settle(test.remembered, test.given, v6, true, test.taken, test.leases)
			must(t, err)
			if !slices.Equal(got.all(), test.want.all()) || got.V6 != v6 {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	if c, err := settle(choice{V6: v6}, first, netip.Prefix{}, false, nil, nil); err != nil || c.V6.IsValid() {
		t.Errorf("without IPv6: %v, %v", c, err)
	}
	if c, err := settle(choice{}, first, netip.Prefix{}, true, nil, nil); err != nil || !prefix("fd00::/8").Contains(c.V6.Addr()) || c.V6.Bits() != 64 {
		t.Errorf("chosen IPv6 subnet: %v, %v", c, err)
	}
	if _, err := settle(choice{}, netip.Prefix{}, v6, true, candidatesV4, nil); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("every candidate taken: %v", err)
	}
	for _, bad := range []string{"10.0.0.1/24", "10.0.0.0", "10.0.0.0/31", "fd00::/64", "0.0.0.0/0"} {
		if _, err := parseSubnet(bad, false); !errdefs.IsInvalidArgument(err) {
			t.Errorf("subnet %q: %v, want InvalidArgument", bad, err)
		}
	}
}

// When Setup returns, the first packet gets through: a lost one would be sent again.
func TestReachableAtOnce(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n := w.start(o)
	for i := range 40 {
		p := w.pod(o, nil)
		serve(t, p.NetNS, 80, "p")
		r, err := n.Setup(t.Context(), p)
		must(t, err)
		got, _, again, err := askOnce("", "tcp", join(r.IPs[i%2], 80), 20*time.Second)
		if err != nil || got != "p" || again > 0 {
			t.Errorf("pod %d: answer %q by %v, %v; %d packets were lost", i, got, r.IPs[i%2], err, again)
		}
		must(t, errors.Join(n.Teardown(t.Context(), p, r), netns.UnpinNamespaces(filepath.Dir(p.NetNS))))
	}
}
