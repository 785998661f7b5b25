package wasmedge

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// Addresses of the extension's records in the caller's memory.
const (
	atAddress = 0x100 // {pointer, size}
	atBytes   = 0x200 // what it points to
	atPort    = 0x300
	atFamily  = 0x310
)

// address puts an address into memory in one of its forms and returns its parameter.
func (c *caller) address(ip netip.Addr, size uint32) uint64 {
	c.Mem.WriteUint32Le(atAddress, atBytes)
	c.Mem.WriteUint32Le(atAddress+4, size)
	b := c.Bytes(atBytes, sizeStorage)
	clear(b)
	if ip.IsValid() {
		if size == sizeStorage {
			put16(b, uint16(map[bool]uint8{true: familyInet4, false: familyInet6}[ip.Is4()]))
			b = b[2:]
		}
		copy(b, ip.AsSlice())
	}
	return atAddress
}

func (c *caller) socket(family, kind uint8) uint64 {
	c.Helper()
	c.must("sock_open", uint64(family), uint64(kind), atResult)
	return uint64(c.U32(atResult))
}

// addresses are the loopback addresses in all their forms.
var addresses = []struct {
	ip     string
	family uint8
	size   uint32
}{
	{"127.0.0.1", familyInet4, 4}, {"127.0.0.1", familyInet4, sizeStorage},
	{"::1", familyInet6, 16}, {"::1", familyInet6, sizeStorage}, {"127.0.0.1", familyInet6, 4},
}

func TestExtensionClient(t *testing.T) {
	for _, a := range addresses {
		l, err := net.Listen("tcp", net.JoinHostPort(a.ip, "0"))
		if err != nil {
			t.Fatal(err)
		}
		port := uint64(l.Addr().(*net.TCPAddr).Port)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				io.Copy(conn, conn)
				conn.Close()
			}
			l.Close()
		}()
		c := newCaller(t, wasip1.Config{})
		fd := c.socket(a.family, socketStream)
		c.must("sock_connect", fd, c.address(netip.MustParseAddr(a.ip), a.size), port)
		c.write(fd, "echo")
		if got, e := c.read(fd, 10); got != "echo" || e != success {
			t.Errorf("%+v: read %q, %d", a, got, e)
		}
		if a.family == familyInet4 || a.size != 4 {
			c.must("sock_getpeeraddr", fd, c.address(netip.Addr{}, 16), atFamily, atPort)
			want := map[uint8]uint32{familyInet4: 4, familyInet6: 6}[a.family]
			if c.U32(atFamily) != want || uint64(c.U32(atPort)) != port {
				t.Errorf("peer %d %d", c.U32(atFamily), c.U32(atPort))
			}
		}
		c.want(eisconn, "sock_connect", fd, c.address(netip.MustParseAddr(a.ip), a.size), port)
		c.must("fd_close", fd)
		l.Close()
		fd = c.socket(a.family, socketStream)
		c.want(econnrefused, "sock_connect", fd, c.address(netip.MustParseAddr(a.ip), a.size), port)
	}
}

func TestExtensionServer(t *testing.T) {
	c := newCaller(t, wasip1.Config{})
	if c.host.Hears() {
		t.Error("nothing is heard")
	}
	for _, a := range addresses[:4] {
		ip := netip.MustParseAddr(a.ip)
		fd := c.socket(a.family, socketStream)
		c.must("sock_bind", fd, c.address(ip, a.size), 0)
		c.must("sock_listen", fd, 10)
		c.must("sock_getlocaladdr", fd, c.address(netip.Addr{}, 16), atFamily, atPort)
		if got, _ := netip.AddrFromSlice(c.Bytes(atBytes, uint32(len(ip.AsSlice())))); got != ip {
			t.Errorf("local address %v", got)
		}
		port := c.U32(atPort)
		answered := make(chan string)
		go func() {
			conn, err := net.Dial("tcp", netip.AddrPortFrom(ip, uint16(port)).String())
			if err != nil {
				answered <- err.Error()
				return
			}
			defer conn.Close()
			b := make([]byte, 10)
			n, _ := conn.Read(b)
			answered <- string(b[:n])
		}()
		c.must("sock_accept", fd, 0, atResult)
		conn := uint64(c.U32(atResult))
		c.write(conn, "hello")
		if got := <-answered; got != "hello" {
			t.Errorf("the client got %q", got)
		}
		c.must("fd_close", conn)
	}
	if !c.host.Hears() {
		t.Error("the guest's own listeners do not hear")
	}
	wasitest.Interrupted(t, c.host.Interrupt, func() { c.want(einval, "sock_accept", 4, 0, atResult) })
	fd := c.socket(familyInet4, socketStream)
	c.must("sock_listen", fd, 1)
	c.want(einval, "sock_accept", fd, 0, atResult)
}

func TestExtensionDatagrams(t *testing.T) {
	for _, a := range addresses[:4] {
		ip := netip.MustParseAddr(a.ip)
		conn, err := net.ListenPacket("udp", net.JoinHostPort(a.ip, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		port := conn.LocalAddr().(*net.UDPAddr).Port
		c := newCaller(t, wasip1.Config{})
		fd := c.socket(a.family, socketDatagram)
		c.Mem.Write(atData, []byte("question"))
		p, n := c.Iovec(8)
		c.must("sock_send_to", fd, p, n, c.address(ip, a.size), uint64(port), 0, atResult)
		b := make([]byte, 20)
		m, from, err := conn.ReadFrom(b)
		if err != nil || string(b[:m]) != "question" {
			t.Fatal(string(b[:m]), err)
		}
		conn.WriteTo([]byte("a long answer"), from)
		c.Mem.WriteUint32Le(atPort, 0)
		p, n = c.Iovec(6)
		c.must("sock_recv_from", fd, p, n, c.address(netip.Addr{}, sizeStorage), 0, atPort, atResult, atResult+4)
		if got := string(c.Bytes(atData, c.U32(atResult))); got != "a long" || c.U32(atPort) != uint32(port) || c.Bytes(atResult+4, 1)[0] != 1 {
			t.Errorf("received %q from port %d", got, c.U32(atPort))
		}
		storage := c.Bytes(atBytes, 20)
		got, _ := netip.AddrFromSlice(storage[2:][:len(ip.AsSlice())])
		if got != ip || storage[0] != a.family {
			t.Errorf("from %v, family %d", got, storage[0])
		}
	}
}

func TestExtensionTimeouts(t *testing.T) {
	c := newCaller(t, wasip1.Config{})
	fd := c.socket(familyInet4, socketDatagram)
	c.must("sock_bind", fd, c.address(netip.MustParseAddr("127.0.0.1"), 4), 0)
	b := c.Bytes(atData, sizeTimeval)
	put64(b, 0)
	put64(b[8:], 30000)
	c.must("sock_setsockopt", fd, 0, 11, atData, sizeTimeval)
	wasitest.Took(t, 29*time.Millisecond, func() {
		if _, e := c.read(fd, 10); e != eagain {
			t.Error("read:", e)
		}
	})
	c.Mem.WriteUint32Le(atResult, 16)
	c.must("sock_getsockopt", fd, 0, 11, atText, atResult)
	if c.U64(atText+8) != 30000 || c.U32(atResult) != 16 {
		t.Errorf("timeout %d", c.U64(atText+8))
	}
	c.want(einval, "sock_setsockopt", fd, 0, 11, atData, 8)
}

func TestExtensionOptions(t *testing.T) {
	c := newCaller(t, wasip1.Config{})
	fd := c.socket(familyInet4, socketStream)
	get := func(name uint64) uint32 {
		c.Mem.WriteUint32Le(atResult, 4)
		c.must("sock_getsockopt", fd, 0, name, atData, atResult)
		return c.U32(atData)
	}
	c.Mem.WriteUint32Le(atData, 1)
	c.must("sock_setsockopt", fd, 0, 0, atData, 4)
	if get(0) == 0 || get(1) != uint32(socketStream) || get(2) != 0 || get(13) != 0 {
		t.Error("options differ")
	}
	c.Mem.WriteUint32Le(atData, 50000)
	c.must("sock_setsockopt", fd, 0, 6, atData, 4)
	if got := get(6); got < 50000 {
		t.Errorf("receive buffer %d", got)
	}
	c.want(enoprotoopt, "sock_getsockopt", fd, 0, 15, atData, atResult)
	c.want(enoprotoopt, "sock_getsockopt", fd, 6, 1, atData, atResult)
	c.want(enotsock, "sock_getsockopt", 3, 0, 1, atData, atResult)
	c.want(eafnosupport, "sock_open", 3, 1, atResult)
	c.want(einval, "sock_open", 1, 0, atResult)
	c.want(enotconn, "sock_getpeeraddr", fd, c.address(netip.Addr{}, 16), atFamily, atPort)
	c.want(einval, "sock_bind", fd, c.address(netip.Addr{}, 5), 0)
	c.want(enotsock, "sock_connect", 3, c.address(netip.MustParseAddr("127.0.0.1"), 4), 1)
}

func TestExtensionNonblockingConnect(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	c := newCaller(t, wasip1.Config{Listeners: []wasip1.Listener{l}})
	to := netip.MustParseAddrPort(l.Name)
	fd := c.socket(familyInet4, socketStream)
	c.must("fd_fdstat_set_flags", fd, uint64(fdflagNonblock))
	c.want(einprogress, "sock_connect", fd, c.address(to.Addr(), 4), uint64(to.Port()))
	subscription := c.Bytes(atSubs, 48)
	clear(subscription)
	subscription[8] = 2 // room to write
	put32(subscription[16:], uint32(fd))
	c.must("poll_oneoff", atSubs, atEvents, 1, atResult)
	if event := c.Bytes(atEvents, 32); c.U32(atResult) != 1 || event[8] != 0 || event[10] != 2 || c.U64(atEvents+16) != 4096 || event[24] != 0 {
		t.Errorf("event % x", event)
	}
	c.write(fd, "x")
}

// A guest of the first generation gets the functions with its parameters.
func TestExtensionGenerations(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := listen(t, "127.0.0.1:0")
	c := newCaller(t, wasip1.Config{Listeners: []wasip1.Listener{l}})
	c.instantiate([]wasip1.Function{
		{Name: "sock_open", Params: "iii"}, {Name: "sock_bind", Params: "iii"}, {Name: "sock_accept", Params: "ii"},
		{Name: "sock_recv_from", Params: "iiiiiii"}, {Name: "sock_getlocaladdr", Params: "iii"},
		{Name: "sock_getpeeraddr", Params: "iiii"}, {Name: "fd_close", Params: "i"},
	})
	client, err := net.Dial("tcp", l.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c.must("sock_accept", 3, atResult)
	c.must("sock_getpeeraddr", uint64(c.U32(atResult)), c.address(netip.Addr{}, 4), atFamily, atPort)
	fd := c.socket(familyInet4, socketDatagram)
	c.must("sock_bind", fd, c.address(netip.MustParseAddr("127.0.0.1"), sizeStorage), 0)
	c.must("sock_getlocaladdr", fd, c.address(netip.Addr{}, sizeStorage), atPort)
	if got := binary.LittleEndian.Uint16(c.Bytes(atBytes, 2)); got != uint16(familyInet4) {
		t.Errorf("family %d", got)
	}
	conn.WriteTo([]byte("datagram"), &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(c.U32(atPort))})
	p, n := c.Iovec(20)
	c.must("sock_recv_from", fd, p, n, c.address(netip.Addr{}, 4), 0, atResult, atResult+4)
	if got := string(c.Bytes(atData, c.U32(atResult))); got != "datagram" || c.Bytes(atBytes, 1)[0] != 127 {
		t.Errorf("received %q", got)
	}
}
