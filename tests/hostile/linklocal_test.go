package hostile

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/tests/node"
)

// metadata is where clouds have their metadata service.
const metadata = "169.254.169.254"

// A pod does not get the node's credentials from the metadata service of a cloud, which is beyond
// the node, unless that is configured; the node itself does.
func TestMetadataService(t *testing.T) {
	serveMetadata(t)
	for config, want := range map[string]string{"": "unreachable\n", "block_link_local = false": "reached\n"} {
		t.Run(config, func(t *testing.T) {
			n := start(t, config)
			n.pull(world.busybox)
			p := n.run("runc")
			c := p.start(sh("echo GET / | nc -w 3 " + metadata + " 80 2>/dev/null | grep -q secret && echo reached || echo unreachable"))
			if c.wait(); c.text() != want {
				t.Errorf("the pod says %q, want %q", c.text(), want)
			}
		})
	}
}

// serveMetadata makes the metadata service, in a namespace of its own at the other end of an
// uplink.
func serveMetadata(t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	must(netns.PinNamespaces(dir, netns.PinOptions{Net: true}))
	t.Cleanup(func() { must(netns.UnpinNamespaces(dir)) })
	beyond := dir + "/" + netns.NetFile
	ns, err := netns.Open(beyond)
	must(err)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags = "cloud0", net.FlagUp
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "cloud1", PeerNamespace: netlink.NsFd(int(ns.Fd()))}))
	must(ns.Close())
	up := func(h *netlink.Handle, name string, addrs ...string) netlink.Link {
		link, err := h.LinkByName(name)
		must(err)
		must(h.LinkSetUp(link))
		for _, a := range addrs {
			addr, err := netlink.ParseAddr(a)
			must(err)
			must(h.AddrAdd(link, addr))
		}
		return link
	}
	here, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	must(err)
	defer here.Close()
	uplink := up(here, "cloud0", "198.18.7.2/24")
	t.Cleanup(func() { must(netlink.LinkDel(uplink)) })
	must(here.RouteAdd(&netlink.Route{LinkIndex: uplink.Attrs().Index, Gw: net.ParseIP("198.18.7.1"),
		Dst: &net.IPNet{IP: net.ParseIP(metadata).To4(), Mask: net.CIDRMask(32, 32)}}))
	must(netns.Do(beyond, func() error {
		there, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		must(err)
		defer there.Close()
		up(there, "cloud1", "198.18.7.1/24", metadata+"/32")
		l, err := net.Listen("tcp", metadata+":80")
		must(err)
		t.Cleanup(func() { l.Close() })
		go answer(l)
		return nil
	}))
	if !node.Within(node.Patience, func() bool {
		c, err := net.Dial("tcp", metadata+":80")
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		t.Fatal("the node does not reach the metadata service")
	}
}

// answer answers HTTP requests until the listener is closed.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Read(make([]byte, 4096))
		_, _ = c.Write([]byte("HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\nsecret"))
		c.Close()
	}
}
