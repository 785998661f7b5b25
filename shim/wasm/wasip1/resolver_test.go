package wasip1

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
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
	c := newCaller(t, Config{})
	for _, test := range []struct {
		name   string
		family uint8
		flags  uint16
		want   string
		err    errno
	}{
		{"test.", familyUnspec, 0, "[10.0.0.1 fd00::1]", success},
		{"test.", familyInet4, 0, "[10.0.0.1]", success},
		{"test.", familyInet6, 0, "[fd00::1]", success},
		{"four.", familyInet6, 0, "[]", success},
		{"four.", familyInet6, infoMapped, "[10.0.0.1]", success},
		{"empty.", familyUnspec, 0, "[]", success},
		{"none.", familyUnspec, 0, "[]", eaiNoName},
		{"broken.", familyUnspec, 0, "[]", eaiFail},
	} {
		for _, servers := range [][]netip.AddrPort{{server}, {dead, server}} {
			config := resolvConf{servers: servers, timeout: patience, attempts: 1}
			got, e := c.host.ask(config, test.name, hints{family: test.family, flags: test.flags})
			if fmt.Sprint(got) != test.want || e != test.err {
				t.Errorf("%+v: %v, %d", test, got, e)
			}
		}
	}
	config := resolvConf{servers: []netip.AddrPort{server}, timeout: patience, attempts: 2}
	if got, e := c.host.ask(config, "many.", hints{}); len(got) != 100 || e != success {
		t.Errorf("by TCP: %d addresses, %d", len(got), e)
	}
	config.timeout = 50 * time.Millisecond
	before := asked.Load()
	took(t, 90*time.Millisecond, func() {
		if _, e := c.host.ask(config, "silent.", hints{}); e != eaiAgain {
			t.Error("no answer:", e)
		}
	})
	for deadline := time.Now().Add(patience); asked.Load()-before < 4 && time.Now().Before(deadline); { // the server may come to it late
		time.Sleep(time.Millisecond)
	}
	if n := asked.Load() - before; n != 4 {
		t.Errorf("asked %d times", n)
	}
	config.timeout = patience
	interrupted(t, c, func() {
		if _, e := c.host.ask(config, "silent.", hints{}); e != ecanceled {
			t.Error("interrupted:", e)
		}
	})
}

// getaddrinfo calls the function with room for n answers and gives them as text.
func (c *caller) getaddrinfo(node, service string, want hints, n uint32) (string, errno) {
	const atHints, atInfos, atAddrs, atDatas, atNames = 0x400, 0x7000, 0x7400, 0x7800, 0x7c00
	b := c.bytes(atHints, sizeAddrinfo)
	clear(b)
	put16(b, want.flags)
	b[2], b[3], b[4] = want.family, want.kind, want.protocol
	for i := range n {
		info := c.bytes(atInfos+sizeAddrinfo*i, sizeAddrinfo)
		clear(info)
		put32(info[12:], atAddrs+sizeSockaddr*i)
		put32(info[16:], atNames+32*i)
		put32(info[24:], atInfos+sizeAddrinfo*(i+1))
		put32(c.bytes(atAddrs+sizeSockaddr*i, sizeSockaddr)[8:], atDatas+32*i)
	}
	c.mem.WriteUint32Le(atResult, atInfos)
	p, m := c.str(atText, node+"\x00")
	q, k := c.str(atText2, service+"\x00")
	if e := c.do("sock_getaddrinfo", p, m, q, k, atHints, atResult, uint64(n), atResult+4); e != success {
		return "", e
	}
	text := ""
	for i := range c.u32(atResult + 4) {
		info, data := c.bytes(atInfos+sizeAddrinfo*i, sizeAddrinfo), c.bytes(atDatas+32*i, 32)
		ip := netip.AddrFrom4([4]byte(data[2:]))
		if info[2] == familyInet6 {
			ip = netip.AddrFrom16([16]byte(data[6:]))
		}
		text += fmt.Sprint(netip.AddrPortFrom(ip, binary.BigEndian.Uint16(data)), " ", info[3], info[4], ";")
		if size := binary.LittleEndian.Uint32(info[20:]); size > 0 {
			text += string(c.bytes(atNames+32*i, size)) + ";"
		}
	}
	return text, success
}

func TestGetaddrinfo(t *testing.T) {
	c := newCaller(t, Config{})
	os.Mkdir(c.root+"/etc", 0o755)
	c.put("etc/hosts", "10.1.2.3 web\nfd00::2 web\n")
	c.put("etc/services", "custom 777/tcp alias # x\ncustom 778/udp\n")
	for _, test := range []struct {
		node, service string
		want          hints
		n             uint32
		text          string
		err           errno
	}{
		{"web", "http", hints{kind: socketStream}, 10, "10.1.2.3:80 2 1;[fd00::2]:80 2 1;", success},
		{"web", "http", hints{kind: socketStream}, 1, "10.1.2.3:80 2 1;", success},
		{"web", "1", hints{family: familyInet4}, 10, "10.1.2.3:1 2 1;10.1.2.3:1 1 2;", success},
		{"web", "1", hints{family: familyInet6, protocol: protocolUDP, flags: infoCanonicalName}, 10, "[fd00::2]:1 1 2;web;", success},
		{"127.0.0.1", "custom", hints{kind: socketStream}, 10, "127.0.0.1:777 2 1;", success},
		{"::1", "alias", hints{kind: socketStream}, 10, "[::1]:777 2 1;", success},
		{"::1", "custom", hints{kind: socketDatagram}, 10, "[::1]:778 1 2;", success},
		{"", "80", hints{flags: infoPassive, kind: socketStream}, 10, "0.0.0.0:80 2 1;[::]:80 2 1;", success},
		{"", "80", hints{kind: socketStream, family: familyInet4}, 10, "127.0.0.1:80 2 1;", success},
		{"localhost", "", hints{kind: socketStream, family: familyInet4}, 10, "127.0.0.1:0 2 1;", success},
		{"", "", hints{}, 10, "", eaiNoName},
		{"web", "nothing", hints{}, 10, "", eaiService},
		{"web", "http", hints{flags: infoNumericPort}, 10, "", eaiNoName},
		{"web", "", hints{flags: infoNumericHost}, 10, "", eaiNoName},
		{"1.2.3.4", "", hints{family: familyInet6}, 10, "", eaiNoName},
		{"a..b", "", hints{}, 10, "", eaiNoName},
		{"web", "", hints{family: 9}, 10, "", eaiFamily},
		{"web", "", hints{flags: 1 << 9}, 10, "", eaiBadFlags},
		{"web", "", hints{}, 0, "", eaiMemory},
	} {
		text, e := c.getaddrinfo(test.node, test.service, test.want, test.n)
		if text != test.text || e != test.err {
			t.Errorf("%+v: %q, %d", test, text, e)
		}
	}
}
