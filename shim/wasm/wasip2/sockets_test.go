package wasip2

import (
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/address"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

const (
	tcpMethod = "sockets/tcp#[method]tcp-socket."
	udpMethod = "sockets/udp#[method]udp-socket."
)

// ask calls a function of a socket and returns the number of its error-code, -1 for ok.
func (g *guest) ask(payload uint32, name string, params ...uint64) int {
	g.Helper()
	g.do(name, append(params, out)...)
	if g.u8(out) == 0 {
		return -1
	}
	return int(g.u8(out + payload))
}

// must calls a function of a socket that succeeds.
func (g *guest) must(payload uint32, name string, params ...uint64) {
	g.Helper()
	if code := g.ask(payload, name, params...); code >= 0 {
		g.Fatalf("%s: error-code %d", name, code)
	}
}

// flatten are the parameters of an address.
func flatten(a netip.AddrPort) []uint64 {
	p := make([]uint64, 12)
	p[1] = uint64(a.Port())
	ip := a.Addr()
	if ip.Is4() {
		for i, b := range ip.As4() {
			p[2+i] = uint64(b)
		}
		return p
	}
	p[0] = 1
	b := ip.As16()
	for i := range 8 {
		p[3+i] = uint64(b[2*i])<<8 | uint64(b[2*i+1])
	}
	return p
}

// bound is a socket that has a port of the loopback.
func (g *guest) bound(create, method string, network uint64) (uint64, netip.AddrPort) {
	g.Helper()
	g.must(4, create, 0)
	s := uint64(g.u32(out + 4))
	g.must(1, method+"start-bind", append([]uint64{s, network}, flatten(netip.MustParseAddrPort("127.0.0.1:0"))...)...)
	g.must(1, method+"finish-bind", s)
	g.must(4, method+"local-address", s)
	return s, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(g.u32(out+8)))
}

// block waits for what a handle of a type is ready for.
func (g *guest) block(subscribe string, handle uint64) {
	g.Helper()
	p := g.do(subscribe, handle)
	g.do("io/poll#[method]pollable.block", p)
	g.do("io/poll#[resource-drop]pollable", p)
}

// TestListener accepts a client of the kernel's, and hears that the guest is to end: a connection
// that had arrived is still handed out.
func TestListener(t *testing.T) {
	g := newGuest(t, Config{Stdin: -1, Stdout: -1, Stderr: -1})
	network := g.do("sockets/instance-network#instance-network")
	s, address := g.bound("sockets/tcp-create-socket#create-tcp-socket", tcpMethod, network)
	g.must(1, tcpMethod+"start-listen", s)
	g.must(1, tcpMethod+"finish-listen", s)
	if g.host.Hears() != true {
		t.Error("a guest with a listener hears no Interrupt")
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	conn := dial()
	g.block(tcpMethod+"subscribe", s)
	g.must(4, tcpMethod+"accept", s)
	peer, in, answer := uint64(g.u32(out+4)), uint64(g.u32(out+8)), uint64(g.u32(out+12))
	if _, err := conn.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if text, result := g.read("blocking-read", in, 100); text != "question" || result != "ok" {
		t.Errorf("read %q, %s", text, result)
	}
	if result := g.write("blocking-write-and-flush", answer, "answer"); result != "ok" {
		t.Error(result)
	}
	if got, err := io.ReadAll(io.LimitReader(conn, 6)); err != nil || string(got) != "answer" {
		t.Errorf("the client reads %q, %v", got, err)
	}
	g.trap("has children", "sockets/tcp#[resource-drop]tcp-socket", peer)

	// A connection that is reset is an error of the stream, with a code of the network's.
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	g.do("io/streams#[method]input-stream.blocking-read", in, 100, out)
	if g.u8(out) != 1 || g.u8(out+4) != 0 {
		t.Fatalf("reading from a connection that was reset: %d, %d", g.u8(out), g.u8(out+4))
	}
	failure := uint64(g.u32(out + 8))
	g.do("sockets/network#network-error-code", failure, out)
	g.do("filesystem/types#filesystem-error-code", failure, out+2)
	if g.u8(out) != 1 || codes.Socket(g.u8(out+1)) != codes.ConnectionReset || g.u8(out+2) != 0 {
		t.Errorf("codes %d, %d, %d", g.u8(out), g.u8(out+1), g.u8(out+2))
	}

	dial()
	g.host.Interrupt()
	if _, err := net.DialTimeout("tcp", address.String(), time.Second); err == nil {
		t.Error("it listens on")
	}
	g.block(tcpMethod+"subscribe", s)
	g.must(4, tcpMethod+"accept", s)
	if code := g.ask(4, tcpMethod+"accept", s); codes.Socket(code) != codes.InvalidState {
		t.Errorf("accept after the end: %d", code)
	}
}

// TestConnectingWaits: a connection that is not there yet would block, and is waited for.
func TestConnectingWaits(t *testing.T) {
	g := newGuest(t, Config{Stdin: -1, Stdout: -1, Stderr: -1})
	network := g.do("sockets/instance-network#instance-network")
	s, _ := g.bound("sockets/tcp-create-socket#create-tcp-socket", tcpMethod, network)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	to := netip.MustParseAddrPort(listener.Addr().String())
	g.must(1, tcpMethod+"start-connect", append([]uint64{s, network}, flatten(to)...)...)
	if code := g.ask(1, tcpMethod+"start-listen", s); codes.Socket(code) != codes.ConcurrencyConflict {
		t.Errorf("listen while connecting: %d", code)
	}
	g.block(tcpMethod+"subscribe", s)
	g.must(4, tcpMethod+"finish-connect", s)
	in, output := uint64(g.u32(out+4)), uint64(g.u32(out+8))
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	// More than the kernel's buffers hold: writing waits for the reader.
	got := make(chan int)
	go func() { b, _ := io.ReadAll(conn); got <- len(b) }()
	const parts = 4096
	text := string(make([]byte, 4096))
	for range parts {
		if result := g.write("blocking-write-and-flush", output, text); result != "ok" {
			t.Fatal(result)
		}
	}
	g.must(1, tcpMethod+"shutdown", s, shutdownSend)
	if n := <-got; n != parts*len(text) {
		t.Errorf("%d bytes arrived", n)
	}
	conn.Close()
	if _, result := g.read("blocking-read", in, 1); result != "closed" {
		t.Error(result)
	}
}

// TestDatagramsAreBounded: one call moves so many, and the rest comes with the next.
func TestDatagramsAreBounded(t *testing.T) {
	g := newGuest(t, Config{Stdin: -1, Stdout: -1, Stderr: -1})
	network := g.do("sockets/instance-network#instance-network")
	s, address := g.bound("sockets/udp-create-socket#create-udp-socket", udpMethod, network)
	g.must(4, udpMethod+"stream", append([]uint64{s, 0}, make([]uint64, 12)...)...)
	in := uint64(g.u32(out + 4))
	g.trap("streams that were not dropped", udpMethod+"stream", append(append([]uint64{s, 0}, make([]uint64, 12)...), out)...)
	conn, err := net.Dial("udp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range maxDatagrams + 3 {
		if _, err := conn.Write([]byte("d")); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint32{maxDatagrams, 3, 0} {
		if want > 0 {
			g.block("sockets/udp#[method]incoming-datagram-stream.subscribe", in)
		}
		g.must(4, "sockets/udp#[method]incoming-datagram-stream.receive", in, 1<<63)
		if n := g.u32(out + 8); n != want {
			t.Errorf("%d datagrams, want %d", n, want)
		}
	}
	outgoing := in + 1
	g.trap("2 datagrams sent where check-send permits 0", "sockets/udp#[method]outgoing-datagram-stream.send", outgoing, 0x800, 2, out)
}

// TestLookup resolves names by the files that the guest sees.
func TestLookup(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "etc", "hosts"), []byte("192.0.2.7 web\n2001:db8::7 web\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, Config{Stdin: -1, Stdout: -1, Stderr: -1, Preopens: []Preopen{{FD: wasitest.OpenDir(t, dir), Name: "/"}}})
	network := g.do("sockets/instance-network#instance-network")
	at, n := g.put("web")
	g.must(4, "sockets/ip-name-lookup#resolve-addresses", network, at, n)
	s := uint64(g.u32(out + 4))
	const next = "sockets/ip-name-lookup#[method]resolve-address-stream.resolve-next-address"
	g.block("sockets/ip-name-lookup#[method]resolve-address-stream.subscribe", s)
	g.must(2, next, s)
	if g.u8(out+2) != 1 || g.u8(out+4) != address.V4 || [4]byte{g.u8(out + 6), g.u8(out + 7), g.u8(out + 8), g.u8(out + 9)} != [4]byte{192, 0, 2, 7} {
		t.Error("the first address is another")
	}
	g.must(2, next, s)
	if g.u8(out+2) != 1 || g.u8(out+4) != address.V6 || g.u32(out+6) != 0x0db82001 || g.u32(out+18) != 0x00070000 {
		t.Errorf("the second address is another: %#x %#x", g.u32(out+6), g.u32(out+18))
	}
	g.must(2, next, s)
	if g.u8(out+2) != 0 {
		t.Error("there are more")
	}
	for name, want := range map[string]codes.Socket{"": codes.InvalidArgument, string(make([]byte, 300)): codes.InvalidArgument, "a..b": codes.InvalidArgument} {
		at, n := g.put(name)
		if code := g.ask(4, "sockets/ip-name-lookup#resolve-addresses", network, at, n); codes.Socket(code) != want {
			t.Errorf("%q: %d", name, code)
		}
	}
	at, n = g.put("\xff")
	g.trap("not UTF-8", "sockets/ip-name-lookup#resolve-addresses", network, at, n, out)
	g.trap("wrong type", "sockets/ip-name-lookup#resolve-addresses", s, at, n, out)
}

// TestSocketsOfTheWrongKind are traps, as all handles of a wrong type.
func TestSocketsOfTheWrongKind(t *testing.T) {
	g := newGuest(t, Config{Stdin: -1, Stdout: -1, Stderr: -1})
	network := g.do("sockets/instance-network#instance-network")
	g.trap("unexpected discriminant 2", "sockets/tcp-create-socket#create-tcp-socket", 2, out)
	g.trap("unknown handle index 7", tcpMethod+"finish-bind", 7, out)
	g.trap("wrong type", udpMethod+"subscribe", network)
	g.must(4, "sockets/tcp-create-socket#create-tcp-socket", 1)
	s := uint64(g.u32(out + 4))
	p := append([]uint64{s, s}, flatten(netip.MustParseAddrPort("[::1]:0"))...)
	g.trap("wrong type", tcpMethod+"start-bind", append(p, out)...)
	p[1], p[2] = network, 2
	g.trap("unexpected discriminant 2", tcpMethod+"start-bind", append(p, out)...)
	g.trap("unexpected discriminant 3", tcpMethod+"shutdown", s, 3, out)
	g.do("sockets/tcp#[resource-drop]tcp-socket", s)
	g.do("sockets/network#[resource-drop]network", network)
}
