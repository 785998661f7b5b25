package wasmedge

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
)

// getaddrinfo calls the function with room for n answers and gives them as text.
func (c *caller) getaddrinfo(node, service string, want hints, n uint32) (string, wasip1.Errno) {
	const atHints, atInfos, atAddrs, atDatas, atNames = 0x400, 0x7000, 0x7400, 0x7800, 0x7c00
	b := c.Bytes(atHints, sizeAddrinfo)
	clear(b)
	put16(b, want.flags)
	b[2], b[3], b[4] = want.family, want.kind, want.protocol
	for i := range n {
		info := c.Bytes(atInfos+sizeAddrinfo*i, sizeAddrinfo)
		clear(info)
		put32(info[12:], atAddrs+sizeSockaddr*i)
		put32(info[16:], atNames+32*i)
		put32(info[24:], atInfos+sizeAddrinfo*(i+1))
		put32(c.Bytes(atAddrs+sizeSockaddr*i, sizeSockaddr)[8:], atDatas+32*i)
	}
	c.Mem.WriteUint32Le(atResult, atInfos)
	p, m := c.Str(atText, node+"\x00")
	q, k := c.Str(atText2, service+"\x00")
	if e := c.do("sock_getaddrinfo", p, m, q, k, atHints, atResult, uint64(n), atResult+4); e != success {
		return "", e
	}
	text := ""
	for i := range c.U32(atResult + 4) {
		info, data := c.Bytes(atInfos+sizeAddrinfo*i, sizeAddrinfo), c.Bytes(atDatas+32*i, 32)
		ip := netip.AddrFrom4([4]byte(data[2:]))
		if info[2] == familyInet6 {
			ip = netip.AddrFrom16([16]byte(data[6:]))
		}
		text += fmt.Sprint(netip.AddrPortFrom(ip, binary.BigEndian.Uint16(data)), " ", info[3], info[4], ";")
		if size := binary.LittleEndian.Uint32(info[20:]); size > 0 {
			text += string(c.Bytes(atNames+32*i, size)) + ";"
		}
	}
	return text, success
}

func TestGetaddrinfo(t *testing.T) {
	c := newCaller(t, wasip1.Config{})
	os.Mkdir(c.root+"/etc", 0o755)
	c.put("etc/hosts", "10.1.2.3 web\nfd00::2 web\n")
	c.put("etc/services", "custom 777/tcp alias # x\ncustom 778/udp\n")
	for _, test := range []struct {
		node, service string
		want          hints
		n             uint32
		text          string
		err           wasip1.Errno
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
