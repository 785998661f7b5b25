package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	nl "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/network/firewall"
	"github.com/sunaba-project/sunaba/criserver/network/lease"
	"github.com/sunaba-project/sunaba/criserver/network/netns"
)

// What passes a bridge goes through the node's firewall too, or not: it is a sysctl, and both ways
// must work.
func TestHostPorts(t *testing.T) {
	for _, filtered := range []string{"0", "1"} {
		t.Run("bridge-nf-call="+filtered, func(t *testing.T) {
			for _, name := range []string{"bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables"} {
				if err := setSysctl("net/"+name, filtered); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}
			testHostPorts(t)
		})
	}
}

func testHostPorts(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n := w.start(o)
	p, other := w.pod(o, nil), w.pod(o, nil)
	p.Ports = []PortMapping{
		{HostPort: 8080, ContainerPort: 80},
		{HostPort: 8080, ContainerPort: 80}, // twice the same is fine
		{Protocol: "UDP", HostPort: 8080, ContainerPort: 80},
		{Protocol: "TCP", HostPort: 8081, ContainerPort: 80, HostIP: "127.0.0.1"},
		{Protocol: "TCP", HostPort: 8082, ContainerPort: 80, HostIP: nodeV4.Addr().String()},
		{Protocol: "TCP", HostPort: 8083, ContainerPort: 80, HostIP: "::"},
		{Protocol: "SCTP", HostPort: 8084, ContainerPort: 80},
		{Protocol: "TCP", ContainerPort: 81}, // no host port
	}
	r := w.setup(n, p)
	w.setup(n, other)
	serve(t, p.NetNS, 80, "p")
	gateway := firstOf(r.IPs[0])
	v4, v6 := nodeV4.Addr().String(), "["+nodeV6.Addr().String()+"]"

	type call struct{ from, network, addr string }
	const node = ""
	answered := []call{
		{node, "tcp", "127.0.0.1:8080"}, {node, "tcp", "localhost:8080"}, {node, "tcp", v4 + ":8080"}, {node, "tcp", v6 + ":8080"},
		{node, "udp", "127.0.0.1:8080"}, {node, "udp", v4 + ":8080"}, {node, "udp", v6 + ":8080"},
		{w.ns, "tcp", v4 + ":8080"}, {w.ns, "tcp", v6 + ":8080"}, {w.ns, "udp", v4 + ":8080"}, {w.ns, "udp", v6 + ":8080"},
		{other.NetNS, "tcp", v4 + ":8080"}, {other.NetNS, "tcp", v6 + ":8080"}, {other.NetNS, "udp", v4 + ":8080"},
		{other.NetNS, "tcp", join(gateway, 8080)},
		{p.NetNS, "tcp", v4 + ":8080"}, {p.NetNS, "tcp", v6 + ":8080"}, {p.NetNS, "udp", v4 + ":8080"},
		{node, "tcp", "127.0.0.1:8081"},
		{node, "tcp", v4 + ":8082"}, {w.ns, "tcp", v4 + ":8082"},
		{node, "tcp", v6 + ":8083"}, {w.ns, "tcp", v6 + ":8083"},
	}
	silent := []call{
		{node, "tcp", v4 + ":8081"}, {w.ns, "tcp", v4 + ":8081"}, {node, "tcp", "[::1]:8081"},
		{node, "tcp", "127.0.0.1:8082"}, {w.ns, "tcp", v6 + ":8082"},
		{node, "tcp", v4 + ":8083"}, {node, "tcp", "[::1]:8083"}, {node, "tcp", v4 + ":81"},
	}
	for _, c := range answered {
		w.wantAnswer(c.from, c.network, c.addr, "p")
	}
	for _, c := range silent {
		w.wantSilence(c.from, c.network, c.addr)
	}
	// A host port is the node's: what passes through it to other hosts' same port is not touched.
	serve(t, w.ns, 8080, "world")
	w.wantAnswer(node, "tcp", join(worldV4.Addr(), 8080), "world")
	w.wantAnswer(other.NetNS, "tcp", join(worldV6.Addr(), 8080), "world")
	// From outside, the client keeps its address.
	if from := w.wantAnswer(w.ns, "tcp", v4+":8080", "p"); from != worldV4.Addr() {
		t.Errorf("the pod saw %v, want %v", from, worldV4.Addr())
	}

	must(t, n.Teardown(context.Background(), p, r))
	for _, c := range answered[:4] {
		w.wantSilence(c.from, c.network, c.addr)
	}
	if left := w.elements(o); len(left) != 0 {
		t.Errorf("host ports %v are left", left)
	}
}

func firstOf(a netip.Addr) netip.Addr {
	p, _ := a.Prefix(20)
	return p.Addr().Next()
}

// The bridge lets packets of 127.0.0.1 through for host ports; a pod must not reach the node's
// local services by it.
func TestPodCannotReachLoopbackOfNode(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n := w.start(o)
	p := w.pod(o, map[string]string{"net.ipv4.conf.all.route_localnet": "1"})
	r := w.setup(n, p)
	l, err := net.Listen("tcp", "127.0.0.1:7001")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "secret %s\n", c.RemoteAddr())
			c.Close()
		}
	}()
	must(t, netns.Do(p.NetNS, func() error { // the pod sends 127.0.0.1 to the node
		h := handle(t)
		lo, err := h.LinkByName("lo")
		must(t, err)
		must(t, h.AddrDel(lo, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("127.0.0.1/8"))}))
		eth, err := h.LinkByName(podInterface)
		must(t, err)
		return h.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("127.0.0.0/8")), Gw: firstOf(r.IPs[0]).AsSlice()})
	}))
	w.wantSilence(p.NetNS, "tcp", "127.0.0.1:7001")
	// That this test would notice: without the guard the pod gets there.
	conn, err := nftables.New()
	must(t, err)
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: firewall.TableName(o.Embedded.Bridge)}
	conn.FlushChain(&nftables.Chain{Table: table, Name: "guard"})
	must(t, conn.Flush())
	w.wantAnswer(p.NetNS, "tcp", "127.0.0.1:7001", "secret")
}

// A UDP flow that began before the pod, or with the pod before, must go to the pod that holds the
// port now.
func TestUDPFlowFollowsThePort(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n := w.start(o)
	var client *net.UDPConn
	must(t, netns.Do(w.ns, func() (err error) {
		client, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(nodeV4.Addr(), 5353)))
		return err
	}))
	defer client.Close()
	answer := func(tries int) string {
		b := make([]byte, 512)
		for range tries { // an error of an earlier packet (port unreachable) comes first
			_, _ = client.Write([]byte("hello"))
			_ = client.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			if k, err := client.Read(b); err == nil {
				return string(b[:min(k, 1)])
			}
		}
		return ""
	}
	if got := answer(3); got != "" {
		t.Fatalf("answer %q from nobody", got)
	}
	for _, name := range []string{"a", "b"} {
		p := w.pod(o, nil)
		p.Ports = []PortMapping{{Protocol: "udp", HostPort: 5353, ContainerPort: 53}}
		r := w.setup(n, p)
		serve(t, p.NetNS, 53, name)
		if got := answer(50); got != name {
			t.Errorf("answer %q, want %q", got, name)
		}
		must(t, n.Teardown(t.Context(), p, r))
	}
}

func TestLeasePorts(t *testing.T) {
	tcp := func(ip string, host, container uint16) lease.Port {
		return lease.Port{Protocol: "tcp", HostIP: ip, HostPort: host, ContainerPort: container}
	}
	tests := map[string]struct {
		in   []PortMapping
		want []lease.Port
	}{
		"none":                  {nil, nil},
		"no host port":          {[]PortMapping{{ContainerPort: 80}, {HostPort: -1, ContainerPort: 80}}, nil},
		"default protocol":      {[]PortMapping{{HostPort: 1, ContainerPort: 2}}, []lease.Port{tcp("", 1, 2)}},
		"upper case":            {[]PortMapping{{Protocol: "TCP", HostPort: 1, ContainerPort: 2}}, []lease.Port{tcp("", 1, 2)}},
		"mapped address":        {[]PortMapping{{HostPort: 1, ContainerPort: 2, HostIP: "::ffff:10.0.0.1"}}, []lease.Port{tcp("10.0.0.1", 1, 2)}},
		"long address":          {[]PortMapping{{HostPort: 1, ContainerPort: 2, HostIP: "FD00:0::1"}}, []lease.Port{tcp("fd00::1", 1, 2)}},
		"different addresses":   {[]PortMapping{{HostPort: 1, ContainerPort: 2, HostIP: "10.0.0.1"}, {HostPort: 1, ContainerPort: 3, HostIP: "10.0.0.2"}}, []lease.Port{tcp("10.0.0.1", 1, 2), tcp("10.0.0.2", 1, 3)}},
		"repeated":              {[]PortMapping{{HostPort: 1, ContainerPort: 2}, {HostPort: 1, ContainerPort: 2}}, []lease.Port{tcp("", 1, 2)}},
		"bad: two targets":      {[]PortMapping{{HostPort: 1, ContainerPort: 2}, {HostPort: 1, ContainerPort: 3}}, nil},
		"bad: port":             {[]PortMapping{{HostPort: 65536, ContainerPort: 2}}, nil},
		"bad: container port":   {[]PortMapping{{HostPort: 1, ContainerPort: 65536}}, nil},
		"bad: address":          {[]PortMapping{{HostPort: 1, ContainerPort: 2, HostIP: "localhost"}}, nil},
		"bad: protocol":         {[]PortMapping{{Protocol: "dccp", HostPort: 1, ContainerPort: 2}}, nil},
		"bad: no container end": {[]PortMapping{{HostPort: 1}}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := leasePorts(test.in)
			if bad := len(name) > 4 && name[:4] == "bad:"; bad != errdefs.IsInvalidArgument(err) {
				t.Fatalf("error %v", err)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// elements are the host ports in the kernel, with their comments.
func (w *world) elements(o Options) map[string]string {
	w.Helper()
	out := map[string]string{}
	conn, err := nftables.New()
	must(w, err)
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		for _, name := range []string{"ports", "anyports"} {
			set, err := conn.GetSetByName(&nftables.Table{Family: family, Name: firewall.TableName(o.Embedded.Bridge)}, name)
			must(w, err)
			elements, err := conn.GetSetElements(set)
			must(w, err)
			for _, e := range elements {
				out[fmt.Sprintf("%d %s % x", family, name, e.Key)] = e.Comment
			}
		}
	}
	return out
}

// dropForward makes a chain as iptables-nft makes it, with the policy that Docker gives it.
func (w *world) dropForward() {
	w.Helper()
	conn, err := nftables.New()
	must(w, err)
	drop := nftables.ChainPolicyDrop
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "filter"})
	conn.AddChain(&nftables.Chain{Table: table, Name: "FORWARD", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter, Policy: &drop})
	must(w, conn.Flush())
	w.Cleanup(func() {
		conn.DelTable(table)
		must(w, conn.Flush())
	})
}

func (w *world) forwardRules() int {
	w.Helper()
	conn, err := nftables.New()
	must(w, err)
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "filter"}
	rules, err := conn.GetRules(table, &nftables.Chain{Table: table, Name: "FORWARD"})
	must(w, err)
	return len(rules)
}

// flushRuleset is `nft flush ruleset`.
func (w *world) flushRuleset() {
	w.Helper()
	conn, err := nftables.New()
	must(w, err)
	conn.FlushRuleset()
	must(w, conn.Flush())
}

// ownTables makes the tables that o's network would make, owned by another program
// (NFT_TABLE_F_OWNER: nobody else may change them, and they go with their owner's socket), until
// release is called.
func (w *world) ownTables(o Options) (release func()) {
	w.Helper()
	attrs, err := nl.MarshalAttributes([]nl.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: []byte(firewall.TableName(o.Embedded.Bridge) + "\x00")},
		{Type: unix.NFTA_TABLE_FLAGS, Data: []byte{0, 0, 0, 2}},
	})
	must(w, err)
	message := func(kind int, family byte, attrs []byte) nl.Message {
		return nl.Message{Header: nl.Header{Type: nl.HeaderType(kind), Flags: nl.Request | nl.Create},
			Data: append([]byte{family, 0, 0, unix.NFNL_SUBSYS_NFTABLES}, attrs...)}
	}
	conn, err := nl.Dial(unix.NETLINK_NETFILTER, nil)
	must(w, err)
	_, err = conn.SendMessages([]nl.Message{
		message(unix.NFNL_MSG_BATCH_BEGIN, 0, nil),
		message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, unix.NFPROTO_IPV4, attrs),
		message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, unix.NFPROTO_IPV6, attrs),
		message(unix.NFNL_MSG_BATCH_END, 0, nil),
	})
	must(w, err)
	return func() { must(w, conn.Close()) }
}
