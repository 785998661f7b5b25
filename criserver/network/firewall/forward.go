package firewall

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// A packet must be accepted by every table's forward chain: no chain of ours can overrule another
// one that drops. Where iptables (its nftables kind, as Docker and most distributions use it) has a
// FORWARD chain that drops by default, the bridge therefore gets accept rules in that chain, as
// `iptables -I FORWARD -i BRIDGE -j ACCEPT` would make. Other programs' own tables are left alone
// and only named.

// iptablesTable and iptablesChain are fixed names of iptables-nft.
const (
	iptablesTable = "filter"
	iptablesChain = "FORWARD"
)

// OpenForward lets the bridge's traffic pass an iptables FORWARD chain that drops by default. It
// returns the names of chains of others that drop by default and may stop the pods' traffic.
func (t *Table) OpenForward() (closed []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	conn, done, err := t.open()
	if err != nil {
		return nil, err
	}
	defer done(&err)
	chains, err := conn.ListChains()
	if err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	for _, c := range chains {
		if c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookForward || c.Policy == nil || *c.Policy != nftables.ChainPolicyDrop {
			continue
		}
		switch {
		case isIPTables(c):
			err = errors.Join(err, t.accept(conn, c))
		case c.Table.Family == nftables.TableFamilyINet || slices.Contains(bothFamilies, c.Table.Family):
			closed = append(closed, c.Table.Name+" "+c.Name)
		}
	}
	return closed, err
}

func isIPTables(c *nftables.Chain) bool {
	return slices.Contains(bothFamilies, c.Table.Family) && c.Table.Name == iptablesTable && c.Name == iptablesChain
}

func (t *Table) accept(conn *nftables.Conn, c *nftables.Chain) error {
	ours, err := oursIn(conn, c, t.bridge)
	if err != nil || len(ours) > 0 {
		return err
	}
	for _, key := range []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME} {
		conn.InsertRule(&nftables.Rule{Table: c.Table, Chain: c,
			Exprs:    append(ifname(key, expr.CmpOpEq, t.bridge), &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept}),
			UserData: userdata.AppendString(nil, userdata.Type(userdata.TypeComment), TableName(t.bridge))})
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("accept traffic of bridge %q in chain %q: %w", t.bridge, c.Name, err)
	}
	return nil
}

// oursIn finds the rules that accept made, by their comment.
func oursIn(conn *nftables.Conn, c *nftables.Chain, bridge string) ([]*nftables.Rule, error) {
	rules, err := conn.GetRules(c.Table, c)
	if err != nil {
		return nil, fmt.Errorf("list rules of chain %q: %w", c.Name, err)
	}
	return slices.DeleteFunc(rules, func(r *nftables.Rule) bool {
		comment, _ := userdata.GetString(r.UserData, userdata.Type(userdata.TypeComment))
		return comment != TableName(bridge)
	}), nil
}

// closeForward removes what accept made.
func (t *Table) closeForward() (err error) {
	conn, done, err := t.open()
	if err != nil {
		return err
	}
	defer done(&err)
	chains, err := conn.ListChains()
	if err != nil {
		return fmt.Errorf("list nftables chains: %w", err)
	}
	for _, c := range chains {
		if !isIPTables(c) {
			continue
		}
		ours, err := oursIn(conn, c, t.bridge)
		if err != nil {
			return err
		}
		for _, r := range ours {
			if err := conn.DelRule(r); err != nil {
				return fmt.Errorf("remove rule of chain %q: %w", c.Name, err)
			}
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("remove rules of bridge %q: %w", t.bridge, err)
	}
	return nil
}
