package wasip1

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	"github.com/tetratelabs/wazero/api"
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

// sockGetaddrinfo resolves a name by /etc/hosts and the servers of /etc/resolv.conf, both as the guest
// sees them. The guest gives a list of records with room for the answers.
func sockGetaddrinfo(h *Host, mem api.Memory, p []uint64) errno {
	node, e := text(mem, p[0], p[1])
	if e != success {
		return e
	}
	service, e := text(mem, p[2], p[3])
	if e != success {
		return e
	}
	raw, e := record(mem, p[4], sizeAddrinfo)
	if e != success {
		return e
	}
	first, e := record(mem, p[5], 4)
	if e != success {
		return e
	}
	count, e := record(mem, p[7], 4)
	if e != success {
		return e
	}
	want := hints{flags: binary.LittleEndian.Uint16(raw), family: raw[2], kind: raw[3], protocol: raw[4]}
	name, port, addresses, e := h.lookup(strings.TrimRight(node, "\x00"), strings.TrimRight(service, "\x00"), want)
	if e != success {
		return e
	}
	if uint32(p[6]) == 0 {
		return eaiMemory
	}
	answers := want.answers(addresses)
	at := binary.LittleEndian.Uint32(first)
	n := uint32(0)
	for ; n < uint32(p[6]) && n < uint32(len(answers)); n++ {
		canonical := ""
		if n == 0 && want.flags&infoCanonicalName != 0 {
			canonical = name
		}
		if at, e = putAddrinfo(mem, at, answers[n], port, want.flags, canonical); e != success {
			return e
		}
	}
	put32(count, n)
	return success
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
func putAddrinfo(mem api.Memory, at uint32, a answer, port, flags uint16, canonical string) (uint32, errno) {
	info, e := record(mem, uint64(at), sizeAddrinfo)
	if e != success {
		return 0, e
	}
	address, e := record(mem, uint64(binary.LittleEndian.Uint32(info[12:])), sizeSockaddr)
	if e != success {
		return 0, e
	}
	family, length, size, offset := familyInet4, 16, sizeData4, 2
	if a.ip.Is6() {
		family, length, size, offset = familyInet6, 28, sizeData6, 6
	}
	data, e := record(mem, uint64(binary.LittleEndian.Uint32(address[8:])), size)
	if e != success {
		return 0, e
	}
	clear(data)
	binary.BigEndian.PutUint16(data, port)
	copy(data[offset:], a.ip.AsSlice())
	address[0] = family
	put32(address[4:], uint32(size))
	put16(info, flags)
	info[2], info[3], info[4] = family, a.kind, a.protocol
	put32(info[8:], uint32(length))
	room := binary.LittleEndian.Uint32(info[20:])
	if room == 0 {
		room = canonicalRoom
	}
	put32(info[20:], 0)
	if canonical != "" && uint64(len(canonical)) < uint64(room) {
		name, e := record(mem, uint64(binary.LittleEndian.Uint32(info[16:])), len(canonical)+1)
		if e != success {
			return 0, e
		}
		name[copy(name, canonical)] = 0
		put32(info[20:], uint32(len(canonical)))
	}
	return binary.LittleEndian.Uint32(info[24:]), success
}

// lookup resolves a host and a service.
func (h *Host) lookup(node, service string, want hints) (string, uint16, []netip.Addr, errno) {
	switch {
	case node == "" && service == "":
		return "", 0, nil, eaiNoName
	case want.flags&^infoAll != 0 || want.flags&infoCanonicalName != 0 && node == "":
		return "", 0, nil, eaiBadFlags
	case want.family > familyInet6:
		return "", 0, nil, eaiFamily
	case want.kind > socketStream || want.protocol > protocolUDP:
		return "", 0, nil, eaiSockType
	}
	port, e := h.servicePort(service, want)
	if e != success {
		return "", 0, nil, e
	}
	if node == "" {
		return "", port, want.choose(ownAddresses(want.flags&infoPassive != 0)), success
	}
	if ip, err := netip.ParseAddr(node); err == nil {
		chosen := want.choose([]netip.Addr{ip.WithZone("")})
		if len(chosen) == 0 {
			return "", 0, nil, eaiNoName
		}
		return node, port, chosen, success
	}
	if want.flags&infoNumericHost != 0 || !validName(node) {
		return "", 0, nil, eaiNoName
	}
	name, addresses, e := h.resolveName(node, want)
	return name, port, addresses, e
}

// ownAddresses are the answers without a host: every address to listen on, loopback to connect to.
func ownAddresses(passive bool) []netip.Addr {
	if passive {
		return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// choose keeps the addresses of the family that is wanted, IPv4 first: without a look at the routes it is
// the one that is more likely to work. If only IPv6 is wanted and there is none, IPv4 addresses are
// mapped if the guest allows.
func (w hints) choose(addresses []netip.Addr) []netip.Addr {
	var four, six []netip.Addr
	for _, ip := range addresses {
		if ip.Is4() {
			four = append(four, ip)
		} else {
			six = append(six, ip)
		}
	}
	switch w.family {
	case familyInet4:
		return four
	case familyInet6:
		if len(six) == 0 && w.flags&infoMapped != 0 {
			for _, ip := range four {
				six = append(six, netip.AddrFrom16(ip.As16()))
			}
		}
		return six
	}
	return append(four, six...)
}

// wellKnown are the services that are known without /etc/services, which small images do not have.
var wellKnown = map[string]uint16{
	"domain": 53, "ftp": 21, "http": 80, "https": 443, "imap": 143, "ldap": 389, "ntp": 123, "pop3": 110,
	"smtp": 25, "ssh": 22, "telnet": 23,
}

// servicePort is the port of a service.
func (h *Host) servicePort(service string, want hints) (uint16, errno) {
	if service == "" {
		return 0, success
	}
	if port, err := strconv.ParseUint(service, 10, 16); err == nil {
		return uint16(port), success
	}
	if want.flags&infoNumericPort != 0 {
		return 0, eaiNoName
	}
	protocol := "tcp"
	if want.kind == socketDatagram || want.protocol == protocolUDP {
		protocol = "udp"
	}
	for line := range strings.Lines(h.readFile("etc/services")) {
		fields := strings.Fields(uncommented(line))
		if len(fields) < 2 {
			continue
		}
		number, proto, _ := strings.Cut(fields[1], "/")
		for i, name := range fields {
			if i != 1 && name == service && proto == protocol {
				if port, err := strconv.ParseUint(number, 10, 16); err == nil {
					return uint16(port), success
				}
			}
		}
	}
	if port, ok := wellKnown[service]; ok {
		return port, success
	}
	return 0, eaiService
}
