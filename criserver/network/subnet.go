package network

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/network/lease"
	"github.com/sunaba-project/sunaba/host/durable"
)

// noSubnet turns a family off.
const noSubnet = "none"

const (
	chosenBitsV4 = 20 // 4093 pods
	chosenBitsV6 = 64
)

// candidatesV4 are searched in this order, /20 by /20, for a subnet that nothing on the node uses.
// They keep away from what others take by default: 10.42, 10.43 (k3s), 10.85 (CRI-O), 10.88
// (podman), 10.96 (kubeadm's services), 10.244 (flannel), 172.17 and up (Docker), 192.168 (homes
// and offices).
var candidatesV4 = []netip.Prefix{
	netip.MustParsePrefix("10.118.0.0/16"),
	netip.MustParsePrefix("10.203.0.0/16"),
	netip.MustParsePrefix("172.29.0.0/16"),
	netip.MustParsePrefix("192.168.224.0/19"),
}

// chooseV4 returns the first candidate that overlaps nothing in taken.
func chooseV4(taken []netip.Prefix) (netip.Prefix, error) {
	for _, c := range candidatesV4 {
		for p := netip.PrefixFrom(c.Addr(), chosenBitsV4); c.Overlaps(p); p = following(p) {
			if !overlapsAny(p, taken) {
				return p, nil
			}
		}
	}
	return netip.Prefix{}, fmt.Errorf("choose an IPv4 subnet for pods: every /%d of %v overlaps a route of this node: set one in the configuration: %w",
		chosenBitsV4, candidatesV4, errdefs.ErrFailedPrecondition)
}

// chooseV6 returns a random unique local /64 (RFC 4193).
func chooseV6(taken []netip.Prefix) netip.Prefix {
	for {
		var a [16]byte
		_, _ = rand.Read(a[:8]) // never fails
		a[0] = 0xfd
		if p := netip.PrefixFrom(netip.AddrFrom16(a), chosenBitsV6); !overlapsAny(p, taken) {
			return p
		}
	}
}

func overlapsAny(p netip.Prefix, taken []netip.Prefix) bool {
	return slices.ContainsFunc(taken, p.Overlaps)
}

// following is the IPv4 subnet of the same size after p.
func following(p netip.Prefix) netip.Prefix {
	b := p.Addr().As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n += 1 << (32 - p.Bits())
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), p.Bits())
}

// parseSubnet reads a subnet of the configuration; "" and "none" give a zero prefix.
func parseSubnet(s string, v6 bool) (netip.Prefix, error) {
	if s == "" || s == noSubnet && v6 {
		return netip.Prefix{}, nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("subnet %q: %w: %w", s, err, errdefs.ErrInvalidArgument)
	}
	longest := 30
	if v6 {
		longest = 126
	}
	switch {
	case p.Addr().Is4() == v6:
		return p, fmt.Errorf("subnet %q: of the other address family: %w", s, errdefs.ErrInvalidArgument)
	case p != p.Masked():
		return p, fmt.Errorf("subnet %q: has host bits, the subnet is %v: %w", s, p.Masked(), errdefs.ErrInvalidArgument)
	case p.Bits() < 8 || p.Bits() > longest:
		return p, fmt.Errorf("subnet %q: longer than /%d or shorter than /8: %w", s, longest, errdefs.ErrInvalidArgument)
	}
	return p, nil
}

// choice is what StateDir remembers of the subnets.
type choice struct {
	V4 netip.Prefix `json:"v4"`
	V6 netip.Prefix `json:"v6"`
	// Former subnets still have pods.
	Former []netip.Prefix `json:"former,omitempty"`
	// Told is the node's range, as the client said last; see Ranged.
	Told lease.Subnets `json:"told,omitzero"`
}

// subnets is what new pods use.
func (c choice) subnets() lease.Subnets { return lease.Subnets{V4: c.V4, V6: c.V6} }

// all is every subnet the bridge serves.
func (c choice) all() []netip.Prefix { return append(c.subnets().Prefixes(), c.Former...) }

const choiceFile = "subnets.json"

func readChoice(stateDir string) (choice, error) {
	var c choice
	file := filepath.Join(stateDir, choiceFile)
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return c, fmt.Errorf("read chosen subnets %q: %w", file, err)
	}
	return c, nil
}

// write remembers the choice durably.
func (c choice) write(stateDir string) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write chosen subnets: %w", err)
	}
	return durable.Write(filepath.Join(stateDir, choiceFile), data, 0o600)
}

// settle returns the choice to use: what is given, else what is remembered, else a new one that
// avoids taken. A subnet that was remembered and is taken by somebody else meanwhile is chosen anew
// if no pod has an address in it.
func settle(remembered choice, v4, v6 netip.Prefix, useV6 bool, taken []netip.Prefix, leases []lease.Lease) (choice, error) {
	inUse := func(p netip.Prefix) bool {
		return p.IsValid() && slices.ContainsFunc(leases, func(l lease.Lease) bool { return slices.ContainsFunc(l.Addrs, p.Contains) })
	}
	keep := func(p netip.Prefix) bool { return p.IsValid() && (inUse(p) || !overlapsAny(p, taken)) }
	c := choice{V4: v4, V6: v6}
	if !v4.IsValid() && keep(remembered.V4) {
		c.V4 = remembered.V4
	} else if !v4.IsValid() {
		chosen, err := chooseV4(taken)
		if err != nil {
			return c, err
		}
		c.V4 = chosen
	}
	switch {
	case !useV6:
		c.V6 = netip.Prefix{}
	case !v6.IsValid() && keep(remembered.V6):
		c.V6 = remembered.V6
	case !v6.IsValid():
		c.V6 = chooseV6(taken)
	}
	for _, p := range remembered.all() {
		if inUse(p) && p != c.V4 && p != c.V6 && !slices.Contains(c.Former, p) {
			c.Former = append(c.Former, p)
		}
	}
	return c, nil
}
