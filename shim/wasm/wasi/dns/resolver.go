// Package dns resolves names as a guest would by itself: /etc/hosts and /etc/services, then the
// servers of /etc/resolv.conf, all as the guest sees them. It waits as everything of the guest
// does, so that Interrupt ends it.
package dns

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// Errors of Lookup.
var (
	ErrNoName  = errors.New("no such name")
	ErrAgain   = errors.New("no server answers")
	ErrFail    = errors.New("a server fails")
	ErrService = errors.New("no such service")
)

// Family is an IP version.
type Family uint8

const (
	AnyFamily Family = iota
	IPv4
	IPv6
)

// Hints narrow down what Lookup answers.
type Hints struct {
	Family      Family
	Mapped      bool // with IPv6: IPv4 addresses in IPv6 form, where there are no others
	Passive     bool // without a node: addresses to listen on, not to connect to
	NumericNode bool // the node is an address, or it is ErrNoName
	NumericPort bool // the service is a port, or it is ErrNoName
	Datagram    bool // the service is UDP's, not TCP's
}

// Answer is what a node and a service are.
type Answer struct {
	Name      string // the full name that has the addresses
	Port      uint16
	Addresses []netip.Addr
}

// Resolver resolves names for one guest.
type Resolver struct {
	System *wasi.System
	Root   *wasi.Dir // the guest's "/", nil for none
}

// IsName says whether a node may be looked up: it is an address, or a name that DNS can have.
func IsName(node string) bool {
	_, err := netip.ParseAddr(node)
	return err == nil || validName(node)
}

// Lookup resolves a node and a service; either may be empty.
//
// # Errors
//
// Those above; unix.Errno values of the network where no server can be reached are ErrAgain.
func (r Resolver) Lookup(node, service string, want Hints) (Answer, error) {
	if node == "" && service == "" {
		return Answer{}, ErrNoName
	}
	port, err := r.port(service, want)
	if err != nil {
		return Answer{}, err
	}
	if node == "" {
		return Answer{Port: port, Addresses: want.choose(ownAddresses(want.Passive))}, nil
	}
	if ip, err := netip.ParseAddr(node); err == nil {
		chosen := want.choose([]netip.Addr{ip.WithZone("")})
		if len(chosen) == 0 {
			return Answer{}, ErrNoName
		}
		return Answer{node, port, chosen}, nil
	}
	if want.NumericNode || !validName(node) {
		return Answer{}, ErrNoName
	}
	name, addresses, err := r.resolve(node, want)
	return Answer{name, port, addresses}, err
}

// resolve looks a name up: the hosts file first, then each full name at the servers.
func (r Resolver) resolve(node string, want Hints) (string, []netip.Addr, error) {
	if chosen := want.choose(hostsAddresses(r.readFile("etc/hosts"), node)); len(chosen) > 0 {
		return strings.TrimSuffix(node, "."), chosen, nil
	}
	if strings.EqualFold(strings.TrimSuffix(node, "."), "localhost") {
		if chosen := want.choose(ownAddresses(false)); len(chosen) > 0 {
			return node, chosen, nil
		}
	}
	q := query{sys: r.System, config: parseResolvConf(r.readFile("etc/resolv.conf")), want: want}
	result := ErrNoName
	for _, name := range q.config.names(node) {
		addresses, err := q.ask(name)
		if chosen := want.choose(addresses); err == nil && len(chosen) > 0 {
			return strings.TrimSuffix(name, "."), chosen, nil
		}
		switch err {
		case nil, ErrNoName:
		case unix.ECANCELED:
			return "", nil, ErrAgain
		default:
			result = err
		}
	}
	return "", nil, result
}

// ownAddresses are the answers without a host: every address to listen on, loopback to connect to.
func ownAddresses(passive bool) []netip.Addr {
	if passive {
		return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// choose keeps the addresses of the family that is wanted, IPv4 first: without a look at the routes
// it is the one that is more likely to work.
func (w Hints) choose(addresses []netip.Addr) []netip.Addr {
	var four, six []netip.Addr
	for _, ip := range addresses {
		if ip.Is4() {
			four = append(four, ip)
		} else {
			six = append(six, ip)
		}
	}
	switch w.Family {
	case IPv4:
		return four
	case IPv6:
		if len(six) == 0 && w.Mapped {
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

// port is the port of a service.
func (r Resolver) port(service string, want Hints) (uint16, error) {
	if service == "" {
		return 0, nil
	}
	if port, err := strconv.ParseUint(service, 10, 16); err == nil {
		return uint16(port), nil
	}
	if want.NumericPort {
		return 0, ErrNoName
	}
	protocol := "tcp"
	if want.Datagram {
		protocol = "udp"
	}
	for line := range strings.Lines(r.readFile("etc/services")) {
		fields := strings.Fields(uncommented(line))
		if len(fields) < 2 {
			continue
		}
		number, proto, _ := strings.Cut(fields[1], "/")
		for i, name := range fields {
			if i != 1 && name == service && proto == protocol {
				if port, err := strconv.ParseUint(number, 10, 16); err == nil {
					return uint16(port), nil
				}
			}
		}
	}
	if port, ok := wellKnown[service]; ok {
		return port, nil
	}
	return 0, ErrService
}

// maxConfigFile is how much of a configuration file is read, in bytes.
const maxConfigFile = 1 << 20

// readFile reads a file below the guest's "/" as a path of the guest would, "" if it cannot.
func (r Resolver) readFile(path string) string {
	if r.Root == nil {
		return ""
	}
	return string(r.Root.ReadFile(path, maxConfigFile))
}
