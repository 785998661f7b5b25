package firewall

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
)

// inside runs a test in a network namespace of its own.
func inside(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ns")
	if err := netns.PinNamespaces(dir, netns.PinOptions{Net: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.UnpinNamespaces(dir); err != nil {
			t.Error(err)
		}
	})
	if err := netns.Do(filepath.Join(dir, netns.NetFile), func() error { fn(t); return nil }); err != nil {
		t.Fatal(err)
	}
}

var (
	subnetV4 = netip.MustParsePrefix("10.0.0.0/24")
	subnetV6 = netip.MustParsePrefix("fd00::/64")
)

func mapping(host uint16, target string) Mapping {
	return Mapping{Protocol: "tcp", HostPort: host, Target: netip.MustParseAddrPort(target), Comment: fmt.Sprint("pod of ", host)}
}

// count is how many elements a map has, -1 without the map.
func count(t *testing.T, bridge string, fam nftables.TableFamily, name string) int {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	set, err := conn.GetSetByName(&nftables.Table{Family: fam, Name: TableName(bridge)}, name)
	if err != nil {
		return -1
	}
	elements, err := conn.GetSetElements(set)
	if err != nil {
		t.Fatal(err)
	}
	return len(elements)
}

func TestTable(t *testing.T) {
	inside(t, func(t *testing.T) {
		table, other := New("br-a"), New("br-b")
		defer table.Close()
		defer other.Close()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		want := func(v4, v6 int) {
			t.Helper()
			if a, b := count(t, "br-a", nftables.TableFamilyIPv4, "anyports"), count(t, "br-a", nftables.TableFamilyIPv6, "anyports"); a != v4 || b != v6 {
				t.Errorf("host ports %d and %d, want %d and %d", a, b, v4, v6)
			}
		}
		one, two, three := mapping(1, "10.0.0.2:80"), mapping(2, "[fd00::2]:80"), mapping(3, "10.0.0.3:80")
		if err := table.Add([]Mapping{one}); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("add before Replace: %v, want FailedPrecondition", err)
		}
		must(table.Delete()) // nothing there
		must(other.Replace([]netip.Prefix{subnetV4}, nil))
		must(table.Replace([]netip.Prefix{subnetV4, subnetV6}, []Mapping{one, two}))
		want(1, 1)
		must(table.Add([]Mapping{three, one})) // one of them is there already
		want(2, 1)
		must(table.Remove([]Mapping{three}))
		must(table.Remove([]Mapping{three, two})) // one of them is not there
		want(1, 0)
		if err := table.Add([]Mapping{three, {Protocol: "icmp", Target: one.Target}}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("unknown protocol: %v", err)
		}
		if err := table.Add([]Mapping{three, {Protocol: "tcp", HostIP: netip.IPv6Loopback(), Target: one.Target}}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("addresses of two families: %v", err)
		}
		want(1, 0) // all or none, and the next call is not burdened with the refused one
		must(table.Add(nil))

		var many []Mapping
		for port := range uint16(1000) {
			many = append(many, mapping(port+1, "10.0.0.2:80"), mapping(port+1, "[fd00::2]:80"))
		}
		must(table.Replace([]netip.Prefix{subnetV4, subnetV6}, many))
		want(1000, 1000)
		must(table.Replace([]netip.Prefix{subnetV4}, many))
		want(1000, -1)
		must(table.Remove(many[:2])) // one of them of the family that is gone
		want(999, -1)
		if table.Has(subnetV6.Addr()) || !table.Has(subnetV4.Addr()) {
			t.Error("want IPv4 installed, IPv6 not")
		}

		present := func(want bool) {
			t.Helper()
			if got, err := table.Present(); err != nil || got != want {
				t.Errorf("present %v, %v; want %v", got, err, want)
			}
		}
		present(true)
		conn, err := nftables.New()
		must(err)
		conn.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: TableName("br-a")})
		must(conn.Flush())
		present(false)
		if err := table.Add([]Mapping{one}); !errdefs.IsNotFound(err) {
			t.Errorf("add to a table that somebody removed: %v, want NotFound", err)
		}
		must(table.Remove([]Mapping{one}))
		must(table.Replace([]netip.Prefix{subnetV4}, nil))
		present(true)
		for range 2 {
			must(table.Delete())
		}
		want(-1, -1)
		if count(t, "br-b", nftables.TableFamilyIPv4, "ports") != 0 {
			t.Error("another bridge's table is gone")
		}
	})
}

// A chain of another program that drops by default is named, not changed.
func TestForeignChainIsNamed(t *testing.T) {
	inside(t, func(t *testing.T) {
		conn, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		drop := nftables.ChainPolicyDrop
		foreign := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "site"})
		chain := conn.AddChain(&nftables.Chain{Table: foreign, Name: "fwd", Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop})
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
		table := New("br-a")
		defer table.Close()
		closed, err := table.OpenForward()
		if err != nil || len(closed) != 1 || closed[0] != "site fwd" {
			t.Errorf("closed %q, %v; want site fwd", closed, err)
		}
		if rules, err := conn.GetRules(foreign, chain); err != nil || len(rules) != 0 {
			t.Errorf("rules %v, %v: want none", rules, err)
		}
	})
}
