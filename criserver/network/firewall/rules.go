package firewall

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	// reg0 is NFT_REG32_00, the first of the sixteen 4-byte registers: parts of a concatenation lie
	// in consecutive ones.
	reg0 = 8
	// elementsPerMessage keeps a list of elements below the 64 KiB of a netlink attribute.
	elementsPerMessage = 100
	// ipsDstNAT is IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h: the destination was
	// rewritten.
	ipsDstNAT = 1 << 5
	// ctReply is IP_CT_DIR_REPLY of linux/netfilter/nf_conntrack_tuple_common.h.
	ctReply = 1
)

var loopbackV4 = netip.MustParsePrefix("127.0.0.0/8")

// family is the table of one address family.
type family struct {
	fam     nftables.TableFamily
	table   *nftables.Table
	bridge  string
	subnets []netip.Prefix
	blocked []netip.Prefix
	ports   *nftables.Set // host address . protocol . port → pod address . port
	any     *nftables.Set // protocol . port → pod address . port, for every address of the node
	addrLen uint32        // bytes of an address
	saddr   uint32        // offset of the source address in the network header
}

func newFamily(fam nftables.TableFamily, bridge string) *family {
	f := &family{fam: fam, bridge: bridge, addrLen: 4, saddr: 12, table: &nftables.Table{Family: fam, Name: TableName(bridge)}}
	addr := nftables.TypeIPAddr
	if fam == nftables.TableFamilyIPv6 {
		f.addrLen, f.saddr, addr = 16, 8, nftables.TypeIP6Addr
	}
	target := concat(addr, nftables.TypeInetService)
	f.ports = &nftables.Set{Table: f.table, Name: "ports", IsMap: true, DataType: target,
		KeyType: concat(addr, nftables.TypeInetProto, nftables.TypeInetService)}
	f.any = &nftables.Set{Table: f.table, Name: "anyports", IsMap: true, DataType: target,
		KeyType: concat(nftables.TypeInetProto, nftables.TypeInetService)}
	return f
}

// concat cannot fail: two or three types fit.
func concat(types ...nftables.SetDatatype) nftables.SetDatatype {
	return nftables.MustConcatSetType(types...)
}

// install replaces the family's table in one transaction.
func (t *Table) install(f *family, mappings []Mapping) (err error) {
	conn, done, err := t.open()
	if err != nil {
		return err
	}
	defer done(&err)
	conn.AddTable(f.table)
	conn.DelTable(f.table)
	conn.AddTable(f.table)
	for _, set := range []*nftables.Set{f.ports, f.any} {
		if err := conn.AddSet(set, nil); err != nil {
			return err
		}
	}
	if err := f.addElements(conn, mappings); err != nil {
		return err
	}
	f.addHostPorts(conn)
	f.addMasquerade(conn)
	f.addGuard(conn)
	f.addBlocks(conn)
	return conn.Flush()
}

func (f *family) addElements(conn *nftables.Conn, mappings []Mapping) error {
	elements := map[*nftables.Set][]nftables.SetElement{}
	for _, m := range mappings {
		if familyOf(m.Target.Addr()) != f.fam {
			continue
		}
		set, e, err := f.element(m)
		if err != nil {
			return err
		}
		elements[set] = append(elements[set], e)
	}
	for set, all := range elements {
		for part := range slices.Chunk(all, elementsPerMessage) {
			if err := conn.SetAddElements(set, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// element is a mapping as an element of one of the two maps.
func (f *family) element(m Mapping) (*nftables.Set, nftables.SetElement, error) {
	proto, ok := map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}[m.Protocol]
	if !ok {
		return nil, nftables.SetElement{}, fmt.Errorf("protocol %q: %w", m.Protocol, errdefs.ErrInvalidArgument)
	}
	key := append([]byte{proto, 0, 0, 0}, port(m.HostPort)...)
	set := f.any
	if m.HostIP.IsValid() {
		if familyOf(m.HostIP) != f.fam {
			return nil, nftables.SetElement{}, fmt.Errorf("host address %v for %v: %w", m.HostIP, m.Target, errdefs.ErrInvalidArgument)
		}
		key, set = append(m.HostIP.AsSlice(), key...), f.ports
	}
	value := append(m.Target.Addr().AsSlice(), port(m.Target.Port())...)
	return set, nftables.SetElement{Key: key, Val: value, Comment: m.Comment}, nil
}

// port is a port in its register: big-endian, padded to 4 bytes.
func port(p uint16) []byte { return append(binary.BigEndian.AppendUint16(nil, p), 0, 0) }

// addHostPorts rewrites destinations of what comes from outside and from the pods (prerouting) and
// of what the node itself sends (output).
func (f *family) addHostPorts(conn *nftables.Conn) {
	dnat := conn.AddChain(&nftables.Chain{Table: f.table, Name: "hostports"})
	f.rule(conn, dnat, f.loadAddr(f.saddr+f.addrLen, reg0), f.rewrite(f.ports, reg0+f.addrLen/4))
	f.rule(conn, dnat, f.destinationIsLocal(), f.rewrite(f.any, reg0))
	for name, hook := range map[string]*nftables.ChainHook{
		"prerouting": nftables.ChainHookPrerouting, "output": nftables.ChainHookOutput,
	} {
		c := conn.AddChain(&nftables.Chain{Table: f.table, Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook,
			Priority: nftables.ChainPriorityNATDest})
		f.rule(conn, c, []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: dnat.Name}})
	}
}

// addMasquerade rewrites sources.
func (f *family) addMasquerade(conn *nftables.Conn) {
	c := conn.AddChain(&nftables.Chain{Table: f.table, Name: "postrouting", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	masquerade := []expr.Any{&expr.Masq{}}
	for _, s := range f.subnets {
		// What leaves the bridge for the world.
		f.rule(conn, c, f.ifname(expr.MetaKeyOIFNAME, expr.CmpOpNeq), f.addrIn(f.saddr, s), masquerade)
		// A pod that reaches a pod (perhaps itself) through a host port: the answer must come back
		// through the node.
		f.rule(conn, c, f.ifname(expr.MetaKeyOIFNAME, expr.CmpOpEq), f.addrIn(f.saddr, s), rewritten(), masquerade)
	}
	if f.fam == nftables.TableFamilyIPv4 {
		// The node that reaches a pod through a host port of its loopback address.
		f.rule(conn, c, f.ifname(expr.MetaKeyOIFNAME, expr.CmpOpEq), f.addrIn(f.saddr, loopbackV4), masquerade)
	}
}

// addGuard drops what pods send to or from loopback addresses: the bridge lets the node's own
// packets from 127.0.0.1 through to pods (route_localnet), and must not give pods the node's local
// services (CVE-2020-8558).
func (f *family) addGuard(conn *nftables.Conn) {
	if f.fam != nftables.TableFamilyIPv4 {
		return
	}
	c := conn.AddChain(&nftables.Chain{Table: f.table, Name: "guard", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
	for _, offset := range []uint32{f.saddr, f.saddr + f.addrLen} {
		f.rule(conn, c, f.ifname(expr.MetaKeyIIFNAME, expr.CmpOpEq), f.addrIn(offset, loopbackV4),
			[]expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}})
	}
}

// addBlocks drops what pods send to blocked destinations beyond the node. What the node itself has
// there is not forwarded: a name server of the node's may have such an address. Answers of pods to
// whoever is there pass.
func (f *family) addBlocks(conn *nftables.Conn) {
	if len(f.blocked) == 0 {
		return
	}
	c := conn.AddChain(&nftables.Chain{Table: f.table, Name: "blocked", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
	f.rule(conn, c, isAnswer(), []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}) // by this table
	for _, b := range f.blocked {
		f.rule(conn, c, f.ifname(expr.MetaKeyIIFNAME, expr.CmpOpEq), f.addrIn(f.saddr+f.addrLen, b),
			[]expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}})
	}
}

func (f *family) rule(conn *nftables.Conn, c *nftables.Chain, parts ...[]expr.Any) {
	conn.AddRule(&nftables.Rule{Table: f.table, Chain: c, Exprs: slices.Concat(parts...)})
}

// rewrite looks (what is loaded already . protocol . destination port) up and sends the packet to
// what it finds.
func (f *family) rewrite(set *nftables.Set, reg uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg},
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: reg + 1},
		&expr.Lookup{SourceRegister: reg0, DestRegister: reg0, IsDestRegSet: true, SetID: set.ID, SetName: set.Name},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.fam), RegAddrMin: reg0, RegProtoMin: reg0 + f.addrLen/4},
	}
}

func (f *family) loadAddr(offset, reg uint32) []expr.Any {
	return []expr.Any{&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.addrLen, DestRegister: reg}}
}

func (f *family) addrIn(offset uint32, p netip.Prefix) []expr.Any {
	mask := make([]byte, f.addrLen)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return append(f.loadAddr(offset, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.addrLen, Mask: mask, Xor: make([]byte, f.addrLen)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()})
}

func (f *family) ifname(key expr.MetaKey, op expr.CmpOp) []expr.Any { return ifname(key, op, f.bridge) }

// ifname compares with the terminating zero, so that no longer name matches.
func ifname(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: append([]byte(name), 0)}}
}

// destinationIsLocal matches every address of the node but ::1: the kernel drops the answers to
// that one, and a client that is refused there tries 127.0.0.1 next.
func (f *family) destinationIsLocal() []expr.Any {
	out := []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
	if f.fam == nftables.TableFamilyIPv6 {
		out = append(append(out, f.loadAddr(f.saddr+f.addrLen, 1)...),
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: netip.IPv6Loopback().AsSlice()})
	}
	return out
}

// isAnswer matches packets to the side that opened a connection. A packet of no connection does not
// match.
func isAnswer() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{ctReply}},
	}
}

// rewritten matches connections whose destination was a host port.
func rewritten() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(ipsDstNAT), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}
