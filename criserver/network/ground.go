package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/network/firewall"
	"github.com/sunaba-project/sunaba/criserver/network/lease"
)

// ground is what all pods of the embedded network share.
type ground struct {
	bridge   int // index of its link
	subnets  choice
	gateways []netip.Prefix // the bridge's addresses
}

// ensure returns the ground, made if it was not yet. With look it also looks whether it is still
// all there, and mends it: somebody may have deleted the bridge or flushed the rules.
func (e *embedded) ensure(look bool) (ground, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ensureLocked(look)
}

func (e *embedded) ensureLocked(look bool) (ground, error) {
	if e.base != nil && !look {
		return *e.base, nil
	}
	g, made, err := e.lay()
	if err != nil {
		e.base = nil
		return g, fmt.Errorf("make pod network: %w: %w", err, errdefs.ErrUnavailable)
	}
	if made {
		e.adopt(g.bridge)
	}
	if err := forwardPackets(g.subnets.V6.IsValid()); err != nil {
		return g, fmt.Errorf("make pod network: %w: %w", err, errdefs.ErrUnavailable)
	}
	e.ensureRules(g, e.base == nil)
	e.base = &g
	return g, nil
}

// lay settles the subnets and makes the bridge with its addresses.
func (e *embedded) lay() (g ground, made bool, err error) {
	if e.base != nil {
		g = *e.base
	} else {
		// Servers that start at the same time must not choose the same subnet.
		unlock := e.lockChoice()
		defer unlock()
		if g.subnets, err = e.settle(); err != nil {
			return g, false, err
		}
		g.gateways = gatewaysOf(g.subnets)
	}
	link, made, err := ensureBridge(e.host, e.bridge, g.gateways)
	if err != nil {
		return g, made, err
	}
	g.bridge = link.Attrs().Index
	return g, made, nil
}

func (e *embedded) settle() (choice, error) {
	remembered, err := readChoice(e.stateDir)
	if err != nil {
		return choice{}, err
	}
	taken, err := takenPrefixes(e.host, e.bridge)
	if err != nil {
		return choice{}, err
	}
	v4, v6 := e.given.V4, e.given.V6
	if !v4.IsValid() {
		v4 = remembered.Told.V4
	}
	if !v6.IsValid() {
		v6 = remembered.Told.V6
	}
	c, err := settle(remembered, v4, v6, e.v6, taken, e.book.All())
	if err != nil {
		return choice{}, err
	}
	c.Told = remembered.Told
	for _, p := range c.all() {
		if overlapsAny(p, taken) {
			e.log.Warn("subnet of pods overlaps a route or an address of this node", "subnet", p)
		}
	}
	if !slices.Equal(c.all(), remembered.all()) {
		if err := c.write(e.stateDir); err != nil {
			return choice{}, err
		}
	}
	e.book.Use(c.subnets())
	e.log.Info("pod network", "bridge", e.bridge, "subnets", c.subnets().String())
	return c, nil
}

func gatewaysOf(c choice) []netip.Prefix {
	out := c.subnets().Gateways()
	for _, p := range c.Former {
		s := lease.Subnets{V4: p}
		if p.Addr().Is6() {
			s = lease.Subnets{V6: p}
		}
		out = append(out, s.Gateways()...)
	}
	return out
}

// adopt puts the links of living pods into a bridge that had to be made again.
func (e *embedded) adopt(bridge int) {
	for _, l := range e.book.All() {
		link, err := e.host.LinkByName(hostEnd(l.Pod))
		if err == nil {
			err = errors.Join(e.host.LinkSetMasterByIndex(link, bridge), e.host.LinkSetHairpin(link, true))
		}
		if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) {
			e.log.Warn("failed to attach link of pod to bridge", "pod", l.Pod, "error", err)
		}
	}
}

// ensureRules makes the firewall's rules from the book, at the first time and whenever they are not
// there. The network works without them, less well: noNAT says why.
func (e *embedded) ensureRules(g ground, first bool) {
	present := false
	if !first && e.wall.Has(g.subnets.V4.Addr()) {
		var err error
		if present, err = e.wall.Present(); err != nil {
			e.log.Warn("failed to look for nftables rules", "error", err)
		}
	}
	if !present {
		var mappings []firewall.Mapping
		for _, l := range e.book.All() {
			mappings = append(mappings, hostMappings(l)...)
		}
		before := e.noNAT
		if e.noNAT = e.wall.Replace(g.subnets.all(), mappings); e.noNAT != nil && before == nil {
			e.log.Warn("failed to write nftables rules: pods have no masquerading and no host ports", "error", e.noNAT)
		}
	}
	closed, err := e.wall.OpenForward()
	if err != nil && e.noNAT == nil {
		e.log.Warn("failed to open forward chains", "error", err)
	}
	slices.Sort(closed)
	if names := strings.Join(closed, ", "); names != e.named {
		e.named = names
		if names != "" {
			e.log.Warn("firewall of this node drops forwarded packets by default; pods reach the world only if it accepts the bridge",
				"chains", names, "bridge", e.bridge)
		}
	}
}

// forgetFlows makes the kernel forget UDP flows through the lease's host ports: they would continue
// to where they went before, because no packet of theirs is a first one. A kernel that cannot is
// left alone.
func (e *embedded) forgetFlows(l lease.Lease) {
	for _, p := range l.Ports {
		if p.Protocol != "udp" {
			continue
		}
		for _, a := range l.Addrs {
			family := netlink.InetFamily(unix.AF_INET)
			if a.Is6() {
				family = unix.AF_INET6
			}
			f := &netlink.ConntrackFilter{}
			err := errors.Join(f.AddProtocol(unix.IPPROTO_UDP), f.AddPort(netlink.ConntrackOrigDstPort, p.HostPort))
			if err == nil {
				_, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, f)
			}
			if err != nil {
				e.log.Debug("failed to delete UDP flows of host port", "port", p.String(), "error", err)
			}
		}
	}
}

// lockChoice keeps other servers in this network namespace from choosing a subnet at the same time:
// the lock is the name of an abstract socket, which exists once per network namespace and dies with
// its process. Any program can hold it, so that it is not waited for forever; without it two
// servers that start in the same moment might choose alike.
func (e *embedded) lockChoice() (unlock func()) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return func() {}
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@sunaba/network/subnets"})
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		e.log.Warn("failed to lock the choice of a subnet", "error", err)
	}
	return func() { unix.Close(fd) }
}
