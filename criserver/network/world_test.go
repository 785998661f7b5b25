package network

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
)

// Addresses of the node in the tests' namespace, and of the world beyond its uplink.
var (
	nodeV4  = netip.MustParsePrefix("198.18.0.2/24")
	nodeV6  = netip.MustParsePrefix("fd98:18::2/64")
	worldV4 = netip.MustParsePrefix("198.18.0.1/24")
	worldV6 = netip.MustParsePrefix("fd98:18::1/64")
)

// A world is a fresh set of directories, an uplink with default routes, and another network
// namespace at its other end. When the test ends nothing but that may be left.
type world struct {
	testing.TB
	dir   string
	ns    string // the world beyond
	count int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, dir: t.TempDir()}
	before := takeSnapshot(t, w.dir)
	w.ns = filepath.Join(w.dir, "world", netns.NetFile)
	must(t, netns.PinNamespaces(filepath.Dir(w.ns), netns.PinOptions{Net: true}))
	h := handle(t)
	lo, err := h.LinkByName("lo")
	must(t, err)
	must(t, h.LinkSetUp(lo))
	ns, err := netns.Open(w.ns)
	must(t, err)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags, attrs.MTU = "up0", net.FlagUp, 1400
	must(t, h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "wan0", PeerNamespace: netlink.NsFd(int(ns.Fd())), PeerTxQLen: -1}))
	must(t, ns.Close())
	setUp(t, h, "up0", nodeV4, nodeV6)
	must(t, netns.Do(w.ns, func() error { setUp(t, handle(t), "wan0", worldV4, worldV6); return nil }))
	up, err := h.LinkByName("up0")
	must(t, err)
	for _, gw := range []netip.Prefix{worldV4, worldV6} {
		must(t, h.RouteAdd(&netlink.Route{LinkIndex: up.Attrs().Index, Gw: gw.Addr().AsSlice()}))
	}
	t.Cleanup(func() {
		must(t, h.LinkDel(up))
		must(t, netns.UnpinNamespaces(filepath.Dir(w.ns)))
		eventually(t, func() error { return before.compare(takeSnapshot(t, w.dir)) })
	})
	return w
}

// start opens a network as a server does.
func start(o Options) (Network, error) {
	n, err := New(o)
	if err == nil {
		n.(Starter).Start()
	}
	return n, err
}

func handle(t testing.TB) *netlink.Handle {
	t.Helper()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	must(t, err)
	t.Cleanup(h.Close)
	return h
}

func setUp(t testing.TB, h *netlink.Handle, name string, addrs ...netip.Prefix) {
	t.Helper()
	l, err := h.LinkByName(name)
	must(t, err)
	must(t, h.LinkSetUp(l))
	must(t, addAddresses(h, l, addrs))
}

// options are for one server: its own directories, bridge and subnets chosen by itself.
func (w *world) options(name string) Options {
	root := filepath.Join(w.dir, name)
	return Options{
		StateDir:     filepath.Join(root, "network"),
		SandboxesDir: filepath.Join(root, "sandboxes"),
		CacheDir:     filepath.Join(root, "cni-cache"),
		Embedded:     EmbeddedOptions{Bridge: DefaultBridgeName(root)},
		Logger:       slog.New(slog.NewTextHandler(testLog{w}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("log: %s", strings.TrimSpace(string(p)))
	return len(p), nil
}

// start opens a network; it is closed and destroyed at the end of the test.
func (w *world) start(o Options) Network {
	w.Helper()
	n, err := start(o)
	must(w, err)
	w.Cleanup(func() {
		n.Close()
		must(w, Destroy(o))
	})
	return n
}

// pod pins the namespaces of a new pod.
func (w *world) pod(o Options, sysctls map[string]string) Pod {
	w.Helper()
	id := make([]byte, 32)
	_, _ = rand.Read(id)
	w.count++
	p := Pod{ID: hex.EncodeToString(id), Name: fmt.Sprintf("pod-%d", w.count), Namespace: "test", UID: "uid-1"}
	dir := filepath.Join(o.SandboxesDir, p.ID, "ns")
	must(w, netns.PinNamespaces(dir, netns.PinOptions{Net: true, Sysctls: sysctls}))
	w.Cleanup(func() {
		must(w, netns.UnpinNamespaces(dir))
		must(w, os.RemoveAll(filepath.Dir(dir)))
	})
	p.NetNS = filepath.Join(dir, netns.NetFile)
	return p
}

// setup connects a pod, and disconnects it at the end of the test.
func (w *world) setup(n Network, p Pod) Result {
	w.Helper()
	r, err := n.Setup(context.Background(), p)
	must(w, err)
	w.Cleanup(func() { _ = n.Teardown(context.Background(), p, r) })
	return r
}

// serve answers every TCP connection, and every UDP packet, to this port in the namespace with what
// and the peer's address.
func serve(t testing.TB, nsPath string, port int, what string) {
	t.Helper()
	must(t, netns.Do(nsPath, func() error {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprintf(c, "%s %s\n", what, c.RemoteAddr())
				c.Close()
			}
		}()
		u, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { u.Close() })
		go func() {
			for b := make([]byte, 512); ; {
				_, from, err := u.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = u.WriteTo(fmt.Appendf(nil, "%s %s\n", what, from), from)
			}
		}()
		return nil
	}))
}

// ask connects from a namespace ("" = the node) and returns the answer: what, and the address the
// server saw.
func ask(nsPath, network, addr string, timeout time.Duration) (what string, peer netip.Addr, err error) {
	what, peer, _, err = askOnce(nsPath, network, addr, timeout)
	return what, peer, err
}

// askOnce is ask, and says how often something of a TCP connection was sent again because it was
// lost.
func askOnce(nsPath, network, addr string, timeout time.Duration) (what string, peer netip.Addr, again int, err error) {
	try := func() error {
		d := net.Dialer{Timeout: timeout}
		c, err := d.Dial(network, addr)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(timeout))
		if _, err := io.WriteString(c, "hello\n"); err != nil {
			return err
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			return err
		}
		name, from, _ := strings.Cut(strings.TrimSpace(line), " ")
		ap, err := netip.ParseAddrPort(from)
		what, peer = name, ap.Addr().Unmap()
		if tcp, ok := c.(*net.TCPConn); ok && err == nil {
			again, err = resent(tcp)
		}
		return err
	}
	if nsPath == "" {
		err = try()
	} else {
		err = netns.Do(nsPath, try)
	}
	return what, peer, again, err
}

// resent is how many segments of a connection the kernel sent once more, with those that asked for
// it.
func resent(c *net.TCPConn) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	if cerr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); cerr != nil || err != nil {
		return 0, errors.Join(cerr, err)
	}
	return int(info.Total_retrans), nil
}

func (w *world) wantAnswer(nsPath, network, addr, want string) netip.Addr {
	w.Helper()
	got, peer, err := ask(nsPath, network, addr, 20*time.Second)
	if err != nil || got != want {
		w.Errorf("%s %s from %q: answer %q, error %v; want %q", network, addr, filepath.Base(filepath.Dir(filepath.Dir(nsPath))), got, err, want)
	}
	return peer
}

func (w *world) wantSilence(nsPath, network, addr string) {
	w.Helper()
	if got, _, err := ask(nsPath, network, addr, 200*time.Millisecond); err == nil {
		w.Errorf("%s %s: answer %q, want none", network, addr, got)
	}
}

func join(a netip.Addr, port int) string { return netip.AddrPortFrom(a, uint16(port)).String() }

// ping sends an echo request by an unprivileged ICMP socket, as ping does.
func ping(nsPath string, to netip.Addr) error {
	return netns.Do(nsPath, func() error {
		if to.Is4() {
			return pingSocket(unix.AF_INET, unix.IPPROTO_ICMP, &unix.SockaddrInet4{Addr: to.As4()}, 8)
		}
		return pingSocket(unix.AF_INET6, unix.IPPROTO_ICMPV6, &unix.SockaddrInet6{Addr: to.As16()}, 128)
	})
}

func pingSocket(family, proto int, to unix.Sockaddr, echo byte) error {
	s, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}); err != nil {
		return err
	}
	if err := unix.Sendto(s, []byte{echo, 0, 0, 0, 0, 0, 0, 1, 'p', 'i', 'n', 'g'}, 0, to); err != nil {
		return err
	}
	b := make([]byte, 64)
	n, _, err := unix.Recvfrom(s, b, 0)
	if err == nil && (n < 1 || b[0] == echo) {
		err = fmt.Errorf("answer % x", b[:n])
	}
	return err
}

// snapshot is everything a test could leave behind.
type snapshot map[string][]string

func takeSnapshot(t testing.TB, dir string) snapshot {
	t.Helper()
	s := snapshot{}
	h := handle(t)
	links, err := dump(h.LinkList)
	must(t, err)
	for _, l := range links {
		s["link"] = append(s["link"], l.Attrs().Name)
	}
	routes, err := dump(func() ([]netlink.Route, error) { return h.RouteList(nil, netlink.FAMILY_ALL) })
	must(t, err)
	for _, r := range routes {
		if r.Dst != nil && r.Dst.IP.IsLinkLocalUnicast() {
			continue // the kernel adds it some time after a link comes up
		}
		s["route"] = append(s["route"], r.String())
	}
	conn, err := nftables.New()
	must(t, err)
	tables, err := conn.ListTables()
	must(t, err)
	for _, tb := range tables {
		s["table"] = append(s["table"], fmt.Sprint(tb.Family, tb.Name))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], filepath.Dir(dir)) {
			s["mount"] = append(s["mount"], f[4])
		}
	}
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			s["file"] = append(s["file"], path)
		}
		return nil
	}))
	return s
}

func (s snapshot) compare(now snapshot) error {
	var errs []error
	for _, kind := range []string{"link", "route", "table", "mount", "file"} {
		for _, x := range now[kind] {
			if !slices.Contains(s[kind], x) {
				errs = append(errs, fmt.Errorf("left behind: %s %s", kind, x))
			}
		}
	}
	return errors.Join(errs...)
}

// eventually waits for what the kernel does in the background: the end of network namespaces.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Error(err)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
