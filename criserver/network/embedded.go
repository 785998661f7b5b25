package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/network/firewall"
	"github.com/sunaba-project/sunaba/criserver/network/lease"
	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/host/boot"
	"github.com/sunaba-project/sunaba/host/durable"
)

const (
	leasesFile        = "leases"
	defaultQuarantine = 10 * time.Second
)

// embedded is the network of our own: every pod has a link in one bridge, addresses of the bridge's
// subnets, and its host ports in the bridge's nftables table. The book of leases is the truth;
// bridge, addresses and tables are made from it and made again whenever they are found missing.
type embedded struct {
	bridge   string
	given    lease.Subnets // by the configuration; zero = to be chosen
	v6       bool
	stateDir string
	log      *slog.Logger

	book *lease.Book
	host *netlink.Handle
	wall *firewall.Table

	// mu keeps the rules and the book in step: whoever changes one and then the other, or makes the
	// rules from the book, holds it.
	mu    sync.Mutex
	base  *ground // nil until made
	noNAT error   // why the rules are not what they should be
	// ranging is held, for writing, while the subnets of new pods change.
	ranging sync.RWMutex
	named   string // closed forward chains that were logged

	claim *net.UnixListener // of the bridge; nil without one
}

// newEmbedded opens the durable state. It changes nothing in the kernel.
func newEmbedded(o Options) (*embedded, error) {
	e, err := given(o)
	if err != nil {
		return nil, err
	}
	e.v6 = o.Embedded.SubnetV6 != noSubnet && hasIPv6()
	quarantine := cmp.Or(o.Embedded.Quarantine, defaultQuarantine)
	id, err := boot.ID()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	if e.host, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	e.book, err = lease.Open(filepath.Join(o.StateDir, leasesFile), lease.Options{Boot: id, Quarantine: quarantine})
	if err != nil {
		e.host.Close()
		return nil, err
	}
	for _, dir := range []string{o.StateDir, cniRecords(o)} { // the locked book keeps other writers out
		if err := durable.Sweep(dir); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	e.wall = firewall.New(e.bridge)
	if !o.Embedded.LinkLocal {
		e.wall.Block([]netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")})
	}
	return e, nil
}

// given is what the options say, checked.
func given(o Options) (*embedded, error) {
	e := &embedded{bridge: o.Embedded.Bridge, stateDir: o.StateDir, log: o.Logger}
	e.bridge = cmp.Or(e.bridge, defaultBridge)
	if err := errors.Join(checkUse(o.Use), checkBridgeName(e.bridge)); err != nil {
		return nil, err
	}
	var err error
	if e.given.V4, err = parseSubnet(o.Embedded.SubnetV4, false); err != nil {
		return nil, err
	}
	e.given.V6, err = parseSubnet(o.Embedded.SubnetV6, true)
	return e, err
}

// Setup connects a pod: lease, link, host ports; each step is undone when a later one fails.
func (e *embedded) Setup(_ context.Context, p Pod) (r Result, err error) {
	ports, err := leasePorts(p.Ports)
	if err != nil {
		return r, err
	}
	for _, port := range ports {
		if ip, err := netip.ParseAddr(port.HostIP); err == nil && ip == netip.IPv6Loopback() {
			return r, fmt.Errorf("host port %v: the kernel lets nothing through from ::1 to a pod (127.0.0.1 works): %w", port, errdefs.ErrInvalidArgument)
		}
	}
	ns, err := netns.Open(p.NetNS)
	if err != nil {
		return r, err
	}
	defer ns.Close()
	e.ranging.RLock()
	defer e.ranging.RUnlock()
	g, err := e.ensure(false)
	if err != nil {
		return r, err
	}
	l, err := e.book.Take(p.ID, label(p), ports)
	if err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.remove(l, p.NetNS), deleteLink(e.host, hostEnd(p.ID)))
		}
	}()
	if err = e.openPorts(l); err != nil {
		return r, err
	}
	ips, err := e.connect(g, l, ns)
	if err != nil {
		return r, err
	}
	return Result{IPs: ips, Interface: podInterface, Raw: rawEmbedded()}, nil
}

// connect makes the pod's link and returns the addresses it got. A bridge that somebody has deleted
// meanwhile is made again.
func (e *embedded) connect(g ground, l lease.Lease, ns *os.File) ([]netip.Addr, error) {
	mtu, err := uplinkMTU(e.host)
	if err != nil {
		return nil, err
	}
	v := veth{pod: l.Pod, bridge: g.bridge, mtu: mtu}
	for _, a := range l.Addrs {
		for _, gw := range g.gateways {
			if gw.Masked().Contains(a) {
				v.addrs = append(v.addrs, netip.PrefixFrom(a, gw.Bits()))
				v.gateways = append(v.gateways, gw.Addr())
			}
		}
	}
	if len(v.addrs) == 0 {
		return nil, fmt.Errorf("connect pod: its addresses %v belong to no subnet of bridge %q: %w", l.Addrs, e.bridge, errdefs.ErrFailedPrecondition)
	}
	ips, err := v.connect(e.host, ns)
	if err == nil {
		return ips, nil
	}
	g, mendErr := e.ensure(true)
	if mendErr != nil || g.bridge == v.bridge {
		return nil, errors.Join(err, mendErr)
	}
	v.bridge = g.bridge
	return v.connect(e.host, ns)
}

// openPorts installs the lease's host ports.
func (e *embedded) openPorts(l lease.Lease) error {
	if len(l.Ports) == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var mappings []firewall.Mapping
	for _, p := range l.Ports {
		usable := slices.DeleteFunc(portMappings(l, p), func(m firewall.Mapping) bool { return !e.wall.Has(m.Target.Addr()) })
		if len(usable) == 0 {
			return errors.Join(fmt.Errorf("host port %v: the pod has no address of this family, or no nftables rules are installed for it: %w",
				p, errdefs.ErrFailedPrecondition), e.noNAT)
		}
		mappings = append(mappings, usable...)
	}
	err := e.wall.Add(mappings)
	if errdefs.IsNotFound(err) { // somebody flushed the rules; making them again includes this lease
		_, err = e.ensureLocked(true)
		err = errors.Join(err, e.noNAT)
	}
	if err == nil {
		e.forgetFlows(l)
	}
	return err
}

// Teardown disconnects a pod.
func (e *embedded) Teardown(_ context.Context, p Pod) error {
	l, ok := e.book.Get(p.ID)
	if !ok {
		return nil
	}
	return e.remove(l, p.NetNS)
}

// remove takes everything back that a lease stands for, the lease last. The kernel deletes the link
// with the pod's namespace. nsPath may be gone or empty.
func (e *embedded) remove(l lease.Lease, nsPath string) error {
	if nsPath != "" {
		if err := disarm(nsPath, l.Addrs); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.wall.Remove(hostMappings(l)); err != nil {
		return err
	}
	e.forgetFlows(l)
	return e.book.Free(l.Pod)
}

// Status makes the ground, or looks whether it is still there.
func (e *embedded) Status(context.Context) error {
	g, err := e.ensure(true)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.wall.Has(g.subnets.V4.Addr()) {
		return fmt.Errorf("pods reach each other and this node, but nothing beyond it, and have no host ports: %w", e.noNAT)
	}
	return nil
}

// useRange remembers the node's range, and applies it if there is a ground. Families that it lacks
// stay as they are.
func (e *embedded) useRange(told lease.Subnets) error {
	e.ranging.Lock()
	defer e.ranging.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := readChoice(e.stateDir)
	if err != nil {
		return err
	}
	before := c.Told
	if told.V4.IsValid() {
		c.Told.V4 = told.V4
	}
	if told.V6.IsValid() {
		c.Told.V6 = told.V6
	}
	if c.Told == before {
		return nil
	}
	if err := c.write(e.stateDir); err != nil {
		return err
	}
	if e.base == nil {
		return nil
	}
	e.base = nil
	_, err = e.ensureLocked(true)
	return err
}

// Close leaves bridge, links and rules as they are.
func (e *embedded) Close() error {
	e.host.Close()
	e.wall.Close()
	err := e.book.Close()
	if e.claim != nil {
		if cerr := e.claim.Close(); !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}
	return err
}

func label(p Pod) string {
	if p.Namespace == "" {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}
