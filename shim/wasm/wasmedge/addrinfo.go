package wasmedge

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi/dns"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
)

// Flags, protocols and record sizes of sock_getaddrinfo.
const (
	infoPassive       uint16 = 1 << 0
	infoCanonicalName uint16 = 1 << 1
	infoNumericHost   uint16 = 1 << 2
	infoNumericPort   uint16 = 1 << 3
	infoMapped        uint16 = 1 << 4
	infoAll           uint16 = 1<<7 - 1

	protocolAny uint8 = 0
	protocolTCP uint8 = 1
	protocolUDP uint8 = 2

	sizeAddrinfo = 28
	sizeSockaddr = 12

	// What a guest's library has room for where its records do not say.
	sizeData4     = 14 // port, IPv4 address, eight zeros
	sizeData6     = 26 // port, flow, IPv6 address, scope
	canonicalRoom = 30
)

// hints are what a guest asks sock_getaddrinfo for.
type hints struct {
	flags                  uint16
	family, kind, protocol uint8
}

// answer is one of its results.
type answer struct {
	ip             netip.Addr
	kind, protocol uint8
}

// sockGetaddrinfo resolves a name by /etc/hosts and the servers of /etc/resolv.conf, both as the
// guest sees them. The guest gives a list of records with room for the answers.
func sockGetaddrinfo(h *wasip1.Host, mem api.Memory, p []uint64) error {
	node, err := wasip1.Text(mem, p[0], p[1])
	if err != nil {
		return err
	}
	service, err := wasip1.Text(mem, p[2], p[3])
	if err != nil {
		return err
	}
	raw, err := wasip1.Record(mem, p[4], sizeAddrinfo)
	if err != nil {
		return err
	}
	first, err := wasip1.Record(mem, p[5], 4)
	if err != nil {
		return err
	}
	count, err := wasip1.Record(mem, p[7], 4)
	if err != nil {
		return err
	}
	want := hints{flags: binary.LittleEndian.Uint16(raw), family: raw[2], kind: raw[3], protocol: raw[4]}
	found, err := lookup(h, strings.TrimRight(node, "\x00"), strings.TrimRight(service, "\x00"), want)
	if err != nil {
		return err
	}
	if uint32(p[6]) == 0 {
		return eaiMemory
	}
	answers := want.answers(found.Addresses)
	at := binary.LittleEndian.Uint32(first)
	n := uint32(0)
	for ; n < uint32(p[6]) && n < uint32(len(answers)); n++ {
		canonical := ""
		if n == 0 && want.flags&infoCanonicalName != 0 {
			canonical = found.Name
		}
		if at, err = putAddrinfo(mem, at, answers[n], found.Port, want.flags, canonical); err != nil {
			return err
		}
	}
	put32(count, n)
	return nil
}

// answers pairs the addresses with the kinds of sockets the guest asks for.
func (w hints) answers(addresses []netip.Addr) []answer {
	var all []answer
	for _, ip := range addresses {
		for _, a := range []answer{{ip, socketStream, protocolTCP}, {ip, socketDatagram, protocolUDP}} {
			if (w.kind == socketAny || w.kind == a.kind) && (w.protocol == protocolAny || w.protocol == a.protocol) {
				all = append(all, a)
			}
		}
	}
	return all
}

// putAddrinfo fills in the record at an address in guest memory and returns that of the next.
func putAddrinfo(mem api.Memory, at uint32, a answer, port, flags uint16, canonical string) (uint32, error) {
	info, err := wasip1.Record(mem, uint64(at), sizeAddrinfo)
	if err != nil {
		return 0, err
	}
	address, err := wasip1.Record(mem, uint64(binary.LittleEndian.Uint32(info[12:])), sizeSockaddr)
	if err != nil {
		return 0, err
	}
	family, length, size, offset := familyInet4, 16, sizeData4, 2
	if a.ip.Is6() {
		family, length, size, offset = familyInet6, 28, sizeData6, 6
	}
	data, err := wasip1.Record(mem, uint64(binary.LittleEndian.Uint32(address[8:])), size)
	if err != nil {
		return 0, err
	}
	clear(data)
	binary.BigEndian.PutUint16(data, port)
	copy(data[offset:], a.ip.AsSlice())
	address[0] = family
	put32(address[4:], uint32(size))
	put16(info, flags)
	info[2], info[3], info[4] = family, a.kind, a.protocol
	put32(info[8:], uint32(length))
	room := cmp.Or(binary.LittleEndian.Uint32(info[20:]), canonicalRoom)
	put32(info[20:], 0)
	if canonical != "" && uint64(len(canonical)) < uint64(room) {
		name, err := wasip1.Record(mem, uint64(binary.LittleEndian.Uint32(info[16:])), len(canonical)+1)
		if err != nil {
			return 0, err
		}
		name[copy(name, canonical)] = 0
		put32(info[20:], uint32(len(canonical)))
	}
	return binary.LittleEndian.Uint32(info[24:]), nil
}

// lookup resolves a host and a service.
func lookup(h *wasip1.Host, node, service string, want hints) (dns.Answer, error) {
	switch {
	case node == "" && service == "":
		return dns.Answer{}, eaiNoName
	case want.flags&^infoAll != 0 || want.flags&infoCanonicalName != 0 && node == "":
		return dns.Answer{}, eaiBadFlags
	case want.family > familyInet6:
		return dns.Answer{}, eaiFamily
	case want.kind > socketStream || want.protocol > protocolUDP:
		return dns.Answer{}, eaiSockType
	}
	answer, err := dns.Resolver{System: h.System(), Root: h.Root()}.Lookup(node, service, dns.Hints{
		Family:      families[want.family],
		Mapped:      want.flags&infoMapped != 0,
		Passive:     want.flags&infoPassive != 0,
		NumericNode: want.flags&infoNumericHost != 0,
		NumericPort: want.flags&infoNumericPort != 0,
		Datagram:    want.kind == socketDatagram || want.protocol == protocolUDP,
	})
	switch err {
	case dns.ErrNoName:
		err = eaiNoName
	case dns.ErrAgain:
		err = eaiAgain
	case dns.ErrFail:
		err = eaiFail
	case dns.ErrService:
		err = eaiService
	}
	return answer, err
}

// families maps the extension's address families.
var families = [...]dns.Family{familyUnspec: dns.AnyFamily, familyInet4: dns.IPv4, familyInet6: dns.IPv6}
