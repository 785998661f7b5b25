package firewall

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Comments returns the comments of all mappings that the kernel has in the tables of a bridge, each
// once, and whether there is any such table. It changes nothing.
func Comments(bridge string) (comments []string, tables bool, err error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, false, fmt.Errorf("open netfilter socket: %w", err)
	}
	seen := map[string]bool{}
	for _, fam := range bothFamilies {
		f := newFamily(fam, bridge)
		list, err := conn.ListTablesOfFamily(fam)
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
			continue // a kernel without this family
		}
		if err != nil {
			return nil, false, fmt.Errorf("list nftables tables: %w", err)
		}
		found := false
		for _, t := range list {
			found = found || t.Name == f.table.Name
		}
		if !found {
			continue
		}
		tables = true
		for _, set := range []*nftables.Set{f.ports, f.any} {
			elements, err := conn.GetSetElements(set)
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			if err != nil {
				return nil, false, fmt.Errorf("list nftables set %q: %w", set.Name, err)
			}
			for _, e := range elements {
				if !seen[e.Comment] {
					seen[e.Comment] = true
					comments = append(comments, e.Comment)
				}
			}
		}
	}
	return comments, tables, nil
}
