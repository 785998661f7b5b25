// Package firewall keeps the nftables rules of one bridge: masquerading for what leaves its
// subnets, host ports, a guard for the node's loopback addresses, and destinations that pods do not
// reach. It speaks netlink itself; no nft or iptables program is needed.
//
// All rules stand in one table per address family, named after the bridge. The chains are fixed;
// host ports are elements of two maps, so that one pod's ports come and go in one small transaction
// and are removed exactly. Every element carries its pod as comment (nft list table ip
// sunaba-sunaba0 shows them). The table holds nothing that its owner could not write again: Replace
// makes it anew from the owner's durable book, atomically.
package firewall

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Mapping leads a host port to a pod.
type Mapping struct {
	Protocol string     // tcp, udp or sctp
	HostIP   netip.Addr // zero = every address of the node, of Target's family
	HostPort uint16
	Target   netip.AddrPort
	Comment  string // whose it is, at most 200 bytes
}

// Table is the rules of one bridge. It is safe for concurrent use.
type Table struct {
	mu       sync.Mutex
	bridge   string
	blocked  []netip.Prefix
	families map[nftables.TableFamily]*family // those installed by Replace
	conn     *nftables.Conn                   // see open
}

// New returns the rules of a bridge; nothing is installed before Replace.
func New(bridge string) *Table {
	return &Table{bridge: bridge, families: map[nftables.TableFamily]*family{}}
}

// Block keeps pods from what is beyond the node at these addresses, from the next Replace on.
func (t *Table) Block(destinations []netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.blocked = destinations
}

// open returns the connection for one transaction or listing, and done, which takes its error. The
// connection is kept: closing one after a deletion waits until the kernel has destroyed what was
// deleted, about 10 ms. After an error it may hold unread answers, and is not used again.
func (t *Table) open() (conn *nftables.Conn, done func(*error), err error) {
	if t.conn == nil {
		if t.conn, err = nftables.New(nftables.AsLasting()); err != nil {
			t.conn = nil
			return nil, nil, fmt.Errorf("open netfilter socket: %w", err)
		}
	}
	return t.conn, func(err *error) {
		if *err != nil {
			t.closeConn()
		}
	}, nil
}

func (t *Table) closeConn() {
	if t.conn != nil {
		_ = t.conn.CloseLasting()
		t.conn = nil
	}
}

// Close ends the use of the table and leaves the rules as they are.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeConn()
}

// TableName is how the bridge's tables are called in both families.
func TableName(bridge string) string { return "sunaba-" + bridge }

var bothFamilies = []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6}

func familyOf(a netip.Addr) nftables.TableFamily {
	if a.Is4() {
		return nftables.TableFamilyIPv4
	}
	return nftables.TableFamilyIPv6
}

// Replace installs the tables with these subnets and host ports, whatever was there before, in one
// transaction per family; a family without a subnet loses its table. Families are independent: the
// error may be about one of them only ([Table.Has]).
func (t *Table) Replace(subnets []netip.Prefix, mappings []Mapping) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, fam := range bothFamilies {
		delete(t.families, fam)
		f := newFamily(fam, t.bridge)
		for _, s := range subnets {
			if familyOf(s.Addr()) == fam {
				f.subnets = append(f.subnets, s)
			}
		}
		for _, b := range t.blocked {
			if familyOf(b.Addr()) == fam {
				f.blocked = append(f.blocked, b)
			}
		}
		if len(f.subnets) == 0 {
			errs = append(errs, t.deleteTable(f.table))
			continue
		}
		if err := t.install(f, mappings); err != nil {
			errs = append(errs, fmt.Errorf("install nftables table %q of family %s (the kernel needs CONFIG_NF_TABLES, "+
				"CONFIG_NFT_NAT, CONFIG_NFT_MASQ and CONFIG_NFT_FIB for it): %w", f.table.Name, familyName(fam), err))
			continue
		}
		t.families[fam] = f
	}
	return errors.Join(errs...)
}

// Has reports whether the rules of a's family are installed.
func (t *Table) Has(a netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.families[familyOf(a)] != nil
}

// Add installs host ports, all or none.
//
// # Errors
//
// ErrFailedPrecondition when the rules of a mapping's family are not installed; ErrNotFound when
// somebody has removed the table meanwhile, and only Replace helps.
func (t *Table) Add(mappings []Mapping) error {
	return t.change("add host ports", mappings, (*nftables.Conn).SetAddElements)
}

// Remove removes host ports. Those that are not there are fine, and so are families without rules.
func (t *Table) Remove(mappings []Mapping) error {
	mappings = slices.DeleteFunc(slices.Clone(mappings), func(m Mapping) bool { return !t.Has(m.Target.Addr()) })
	if err := t.change("remove host ports", mappings, (*nftables.Conn).SetDeleteElements); !errors.Is(err, errdefs.ErrNotFound) {
		return err
	}
	// One that is not there fails its whole transaction: once more one by one.
	var errs []error
	for _, m := range mappings {
		if err := t.change("remove host port", []Mapping{m}, (*nftables.Conn).SetDeleteElements); !errors.Is(err, errdefs.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (t *Table) change(verb string, mappings []Mapping, op func(*nftables.Conn, *nftables.Set, []nftables.SetElement) error) (err error) {
	if len(mappings) == 0 {
		return nil
	}
	defer func() {
		if errors.Is(err, unix.ENOENT) {
			err = fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", verb, err)
		}
	}()
	t.mu.Lock()
	defer t.mu.Unlock()
	conn, done, err := t.open()
	if err != nil {
		return err
	}
	defer done(&err)
	for _, m := range mappings {
		f := t.families[familyOf(m.Target.Addr())]
		if f == nil {
			return fmt.Errorf("no nftables rules for %v: %w", m.Target.Addr(), errdefs.ErrFailedPrecondition)
		}
		set, element, err := f.element(m)
		if err != nil {
			return err
		}
		if err := op(conn, set, []nftables.SetElement{element}); err != nil {
			return err
		}
	}
	return conn.Flush()
}

// Present reports whether the tables that Replace installed are still there.
func (t *Table) Present() (present bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	conn, done, err := t.open()
	if err != nil {
		return false, err
	}
	defer done(&err)
	for fam, f := range t.families {
		tables, err := conn.ListTablesOfFamily(fam)
		if err != nil {
			return false, fmt.Errorf("list nftables tables: %w", err)
		}
		if !slices.ContainsFunc(tables, func(have *nftables.Table) bool { return have.Name == f.table.Name }) {
			return false, nil
		}
	}
	return true, nil
}

// Delete removes the tables and what [Table.OpenForward] added to others. It is idempotent.
func (t *Table) Delete() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	errs := []error{t.closeForward()}
	for _, fam := range bothFamilies {
		delete(t.families, fam)
		errs = append(errs, t.deleteTable(newFamily(fam, t.bridge).table))
	}
	return errors.Join(errs...)
}

// deleteTable removes a table, which need not exist.
func (t *Table) deleteTable(table *nftables.Table) (err error) {
	conn, done, err := t.open()
	if err != nil {
		return err
	}
	defer done(&err)
	conn.AddTable(table) // makes it exist
	conn.DelTable(table)
	err = conn.Flush()
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		t.closeConn()
		return nil // a kernel without this family has no such table
	}
	if err != nil {
		return fmt.Errorf("delete nftables table %q: %w", table.Name, err)
	}
	return nil
}

func familyName(f nftables.TableFamily) string {
	if f == nftables.TableFamilyIPv4 {
		return "ip"
	}
	return "ip6"
}
