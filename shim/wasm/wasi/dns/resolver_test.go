package dns

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

func TestParseResolvConf(t *testing.T) {
	port := func(s string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(s), 53) }
	for content, want := range map[string]resolvConf{
		"": {[]netip.AddrPort{port("127.0.0.1")}, nil, 1, 5 * time.Second, 2},
		"search ns.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n": {
			[]netip.AddrPort{port("10.96.0.10")}, []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local"},
			5, 5 * time.Second, 2},
		"# c\nnameserver fd00::1%eth0 ; x\nnameserver 1.1.1.1\nnameserver bad\nnameserver 2.2.2.2\nnameserver 3.3.3.3\noptions timeout:0 attempts:99 ndots:x rotate": {
			[]netip.AddrPort{port("fd00::1"), port("1.1.1.1"), port("2.2.2.2")}, nil, 1, time.Second, 5},
	} {
		if got := parseResolvConf(content); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v", content, got)
		}
	}
}

func TestSearchNames(t *testing.T) {
	c := resolvConf{search: []string{"a.b", "c."}, ndots: 2}
	for node, want := range map[string][]string{
		"x": {"x.a.b.", "x.c.", "x."}, "x.y": {"x.y.a.b.", "x.y.c.", "x.y."}, "x.y.z": {"x.y.z.", "x.y.z.a.b.", "x.y.z.c."},
		"x.": {"x."},
	} {
		if got := c.names(node); !slices.Equal(got, want) {
			t.Errorf("%q: %q", node, got)
		}
	}
}

func TestHosts(t *testing.T) {
	content := "# x\n127.0.0.1 localhost\n::1 localhost ip6-localhost\n10.0.0.5\tWeb web.local # web2\nbad web3\n"
	for name, want := range map[string]string{
		"localhost": "[127.0.0.1 ::1]", "web": "[10.0.0.5]", "WEB.LOCAL.": "[10.0.0.5]", "web2": "[]", "web3": "[]",
	} {
		if got := fmt.Sprint(hostsAddresses(content, name)); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// nameServer is a DNS server. It knows test. (both families), four. (IPv4), many. (truncated in
// datagrams); empty. has no addresses, broken. fails and silent. is not answered.
func nameServer(t *testing.T) (netip.AddrPort, *atomic.Int32) {
	t.Helper()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", udp.LocalAddr().String())
	if err != nil {
		t.Skip("the port is not free for TCP too:", err)
	}
	t.Cleanup(func() { udp.Close(); tcp.Close() })
	var asked atomic.Int32
	go func() {
		b := make([]byte, 4096)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			asked.Add(1)
			if answer := reply(b[:n], true); answer != nil {
				forged := slices.Clone(answer)
				forged[0]++ // another id: to be ignored
				udp.WriteTo(forged, from)
				udp.WriteTo([]byte("rubbish"), from)
				udp.WriteTo(answer, from)
			}
		}
	}()
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			var size [2]byte
			io.ReadFull(conn, size[:])
			b := make([]byte, binary.BigEndian.Uint16(size[:]))
			io.ReadFull(conn, b)
			answer := reply(b, false)
			conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
			conn.Close()
		}
	}()
	return netip.MustParseAddrPort(udp.LocalAddr().String()), &asked
}

func reply(query []byte, datagram bool) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil {
		return nil
	}
	m.Response, m.Additionals = true, nil
	q := m.Questions[0]
	header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
	a := func(n byte) {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: [4]byte{10, 0, 0, n}}})
	}
	switch name := q.Name.String(); {
	case name == "silent.":
		return nil
	case name == "broken.":
		m.RCode = dnsmessage.RCodeServerFailure
	case name == "many." && datagram:
		m.Truncated = true
	case name == "many." && q.Type == dnsmessage.TypeA:
		for i := range byte(100) {
			a(i)
		}
	case name == "test." || name == "four.":
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: header, Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("alias.")}})
		if q.Type == dnsmessage.TypeA {
			a(1)
		} else if name == "test." {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: header, Body: &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("fd00::1").As16()}})
		}
	case name == "empty." || name == "many.":
	default:
		m.RCode = dnsmessage.RCodeNameError
	}
	answer, _ := m.Pack()
	return answer
}

func TestAsk(t *testing.T) {
	server, asked := nameServer(t)
	dead := netip.MustParseAddrPort("127.0.0.1:1")
	system := wasi.New()
	defer system.Close()
	ask := func(config resolvConf, name string, want Hints) ([]netip.Addr, error) {
		return query{sys: system, config: config, want: want}.ask(name)
	}
	for _, test := range []struct {
		name   string
		family Family
		mapped bool
		want   string
		err    error
	}{
		{"test.", AnyFamily, false, "[10.0.0.1 fd00::1]", nil},
		{"test.", IPv4, false, "[10.0.0.1]", nil},
		{"test.", IPv6, false, "[fd00::1]", nil},
		{"four.", IPv6, false, "[]", nil},
		{"four.", IPv6, true, "[10.0.0.1]", nil},
		{"empty.", AnyFamily, false, "[]", nil},
		{"none.", AnyFamily, false, "[]", ErrNoName},
		{"broken.", AnyFamily, false, "[]", ErrFail},
	} {
		for _, servers := range [][]netip.AddrPort{{server}, {dead, server}} {
			config := resolvConf{servers: servers, timeout: wasitest.Patience, attempts: 1}
			got, err := ask(config, test.name, Hints{Family: test.family, Mapped: test.mapped})
			if fmt.Sprint(got) != test.want || err != test.err {
				t.Errorf("%+v: %v, %v", test, got, err)
			}
		}
	}
	config := resolvConf{servers: []netip.AddrPort{server}, timeout: wasitest.Patience, attempts: 2}
	if got, err := ask(config, "many.", Hints{}); len(got) != 100 || err != nil {
		t.Errorf("by TCP: %d addresses, %v", len(got), err)
	}
	config.timeout = 50 * time.Millisecond
	before := asked.Load()
	wasitest.Took(t, 90*time.Millisecond, func() {
		if _, err := ask(config, "silent.", Hints{}); err != ErrAgain {
			t.Error("no answer:", err)
		}
	})
	for deadline := time.Now().Add(wasitest.Patience); asked.Load()-before < 4 && time.Now().Before(deadline); { // the server may come to it late
		time.Sleep(time.Millisecond)
	}
	if n := asked.Load() - before; n != 4 {
		t.Errorf("asked %d times", n)
	}
	config.timeout = wasitest.Patience
	wasitest.Interrupted(t, system.Interrupt, func() {
		if _, err := ask(config, "silent.", Hints{}); err != unix.ECANCELED {
			t.Error("interrupted:", err)
		}
	})
}
