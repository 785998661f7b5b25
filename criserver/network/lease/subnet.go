package lease

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// firstIndex is the first one for pods: 0 is the network, 1 the gateway.
const firstIndex = 2

// Gateways returns the address of the bridge in each subnet, with the subnet's length.
func (s Subnets) Gateways() []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s.Prefixes() {
		out = append(out, netip.PrefixFrom(at(p, 1), p.Bits()))
	}
	return out
}

// Prefixes returns the subnets that are there, IPv4 first.
func (s Subnets) Prefixes() []netip.Prefix {
	return slices.DeleteFunc([]netip.Prefix{s.V4, s.V6}, func(p netip.Prefix) bool { return !p.IsValid() })
}

// String is "10.0.0.0/20 and fd00::/64".
func (s Subnets) String() string {
	var names []string
	for _, p := range s.Prefixes() {
		names = append(names, p.String())
	}
	return strings.Join(names, " and ")
}

// last is the highest index for a pod that exists in every subnet, 0 without one.
func (s Subnets) last() uint64 {
	last := uint64(0)
	for _, p := range s.Prefixes() {
		n := uint64(math.MaxUint64)
		if bits := p.Addr().BitLen() - p.Bits(); bits < 64 {
			n = uint64(1)<<bits - 1
		}
		if p.Addr().Is4() && n > 0 {
			n-- // the broadcast address
		}
		if last == 0 || n < last {
			last = n
		}
	}
	return last
}

func (s Subnets) addrs(i uint64) []netip.Addr {
	var out []netip.Addr
	for _, p := range s.Prefixes() {
		out = append(out, at(p, i))
	}
	return out
}

// at is the i-th address of a subnet.
func at(p netip.Prefix, i uint64) netip.Addr {
	a := p.Masked().Addr()
	if a.Is4() {
		b := a.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(i))
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	low := b[8:]
	binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)+i)
	return netip.AddrFrom16(b)
}
