package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

var subnets = Subnets{V4: netip.MustParsePrefix("10.9.0.0/29"), V6: netip.MustParsePrefix("fd00:9::/64")}

type clock struct{ now time.Time }

func open(t *testing.T, path string, c *clock, boot string) *Book {
	t.Helper()
	b, err := Open(path, Options{Boot: boot, Quarantine: 10 * time.Second, Now: func() time.Time { return c.now }})
	if err != nil {
		t.Fatal(err)
	}
	b.Use(subnets)
	t.Cleanup(func() { b.Close() })
	return b
}

func take(t *testing.T, b *Book, pod string) Lease {
	t.Helper()
	l, err := b.Take(pod, "ns/"+pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func last(l Lease) string { return fmt.Sprint(l.Addrs[0].As4()[3]) }

func TestAddresses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	c := &clock{time.Unix(1000, 0)}
	b := open(t, path, c, "boot")
	a := take(t, b, "a")
	if want := []netip.Addr{netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("fd00:9::2")}; !slices.Equal(a.Addrs, want) {
		t.Errorf("addresses %v, want %v", a.Addrs, want)
	}
	if again := take(t, b, "a"); !slices.Equal(again.Addrs, a.Addrs) {
		t.Errorf("the same pod again: %v", again.Addrs)
	}
	if err := b.Free("a"); err != nil {
		t.Fatal(err)
	}
	if err := b.Free("a"); err != nil {
		t.Errorf("free twice: %v", err)
	}
	c.now = c.now.Add(time.Hour)
	got := ""
	for _, pod := range []string{"b", "c", "d", "e", "f"} { // the freed one comes last
		got += last(take(t, b, pod))
	}
	if got != "34562" {
		t.Errorf("order %s, want 34562", got)
	}
	_, err := b.Take("g", "ns/g", nil)
	if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "all 5") || !strings.Contains(err.Error(), "10.9.0.0/29") {
		t.Errorf("full: %v", err)
	}
	if err := b.Free("d"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Take("g", "ns/g", nil); !errdefs.IsResourceExhausted(err) {
		t.Errorf("freed just now: %v", err)
	}
	// The quarantine holds after a restart of the daemon, and a clock that was set back does not
	// make it longer.
	b.Close()
	b = open(t, path, c, "boot")
	if _, err := b.Take("g", "ns/g", nil); !errdefs.IsResourceExhausted(err) {
		t.Errorf("freed just now, after a restart: %v", err)
	}
	c.now = c.now.Add(-time.Hour)
	if l := take(t, b, "g"); last(l) != "5" {
		t.Errorf("address %v, want the freed 5", l.Addrs)
	}
}

func TestOpenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	c := &clock{time.Unix(1000, 0)}
	b := open(t, path, c, "boot")
	a, _ := take(t, b, "a"), take(t, b, "b")
	if err := b.Free("b"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{Boot: "boot"}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("open twice: %v, want FailedPrecondition", err)
	}
	b.Close()
	if _, err := b.Take("z", "", nil); err == nil {
		t.Error("a closed book took a lease")
	}

	// Every torn end of the last line: the lease before it stays.
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < 20; cut++ {
		for _, tail := range []string{"", "\x00\x00\x00"} {
			write(t, path, append(slices.Clone(whole[:len(whole)-cut]), tail...))
			b := open(t, path, c, "boot")
			if l, ok := b.Get("a"); !ok || !slices.Equal(l.Addrs, a.Addrs) || l.Label != "ns/a" {
				t.Fatalf("cut by %d: lease %v, %v", cut, l, ok)
			}
			if l := take(t, b, "new"); last(l) != "4" {
				t.Fatalf("cut by %d: address %v, want the next one", cut, l.Addrs)
			}
			b.Close()
		}
	}

	// A damaged line among good ones is not a torn one.
	damaged := []byte(strings.Replace(string(whole), `"label":"ns/a"`, `"label":"ns/x"`, 1))
	write(t, path, damaged)
	if _, err := Open(path, Options{Boot: "boot"}); !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("damaged: %v, want DataLoss with the line", err)
	}
	// After a reboot it does not matter: the pods are gone. Addresses go on from where they were.
	write(t, path, whole)
	b = open(t, path, c, "another boot")
	if all := b.All(); len(all) != 0 {
		t.Errorf("after a reboot: %v", all)
	}
	if l := take(t, b, "a"); last(l) != "4" {
		t.Errorf("address %v after a reboot, want the next one", l.Addrs)
	}
	b.Close()
	write(t, path, damaged)
	open(t, path, c, "another boot")
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPorts(t *testing.T) {
	port := func(proto, ip string, host uint16) Port {
		return Port{Protocol: proto, HostIP: ip, HostPort: host, ContainerPort: 80}
	}
	tests := []struct {
		held, wanted Port
		conflict     bool
	}{
		{port("tcp", "", 80), port("tcp", "", 80), true},
		{port("tcp", "", 80), port("udp", "", 80), false},
		{port("tcp", "", 80), port("tcp", "", 81), false},
		{port("tcp", "", 80), port("tcp", "127.0.0.1", 80), true},
		{port("tcp", "127.0.0.1", 80), port("tcp", "", 80), true},
		{port("tcp", "127.0.0.1", 80), port("tcp", "127.0.0.2", 80), false},
		{port("tcp", "127.0.0.1", 80), port("tcp", "0.0.0.0", 80), true},
		{port("tcp", "0.0.0.0", 80), port("tcp", "127.0.0.1", 80), true},
		{port("tcp", "0.0.0.0", 80), port("tcp", "::", 80), false},
		{port("tcp", "0.0.0.0", 80), port("tcp", "fd00::1", 80), false},
		{port("tcp", "::", 80), port("tcp", "fd00::1", 80), true},
		{port("tcp", "::", 80), port("tcp", "", 80), true},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.held, " and ", test.wanted), func(t *testing.T) {
			b := open(t, filepath.Join(t.TempDir(), "leases"), &clock{}, "boot")
			if _, err := b.Take("held", "ns/held", []Port{test.held}); err != nil {
				t.Fatal(err)
			}
			_, err := b.Take("wanted", "ns/wanted", []Port{port("tcp", "", 9999), test.wanted})
			if errdefs.IsAlreadyExists(err) != test.conflict {
				t.Fatalf("error %v, want a conflict: %v", err, test.conflict)
			}
			if err != nil && (!strings.Contains(err.Error(), "ns/held") || !strings.Contains(err.Error(), "ns/wanted")) {
				t.Errorf("the error does not name both pods: %v", err)
			}
			if err := b.Free("held"); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Take("later", "", []Port{test.held}); err != nil {
				t.Errorf("a freed port: %v", err)
			}
		})
	}
	b := open(t, filepath.Join(t.TempDir(), "leases"), &clock{}, "boot")
	take(t, b, "a")
	if _, err := b.Take("a", "", []Port{port("tcp", "", 80)}); !errdefs.IsAlreadyExists(err) {
		t.Errorf("the same pod with other ports: %v", err)
	}
	for p, want := range map[Port]string{port("tcp", "", 80): "tcp *:80", port("udp", "::1", 80): "udp [::1]:80", port("sctp", "10.0.0.1", 80): "sctp 10.0.0.1:80"} {
		if p.String() != want {
			t.Errorf("%q, want %q", p, want)
		}
	}
}

// The journal of a node on which pods come and go does not grow without end.
func TestCompaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	c := &clock{time.Unix(1000, 0)}
	b := open(t, path, c, "boot")
	stays := take(t, b, "stays")
	largest := int64(0)
	for i := range 6000 {
		c.now = c.now.Add(time.Minute)
		pod := fmt.Sprint("pod-", i)
		b.add(Lease{Pod: pod, Addrs: []netip.Addr{at(subnets.V4, 3)}}) // unsynced: thousands of syncs would take long
		if err := b.Free(pod); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err == nil {
			largest = max(largest, st.Size())
		}
	}
	if largest > 1<<20 || b.journal.lines > 5000 {
		t.Errorf("the journal grew to %d bytes and has %d lines", largest, b.journal.lines)
	}
	b.Close()
	b = open(t, path, c, "boot")
	if l, ok := b.Get("stays"); !ok || !slices.Equal(l.Addrs, stays.Addrs) || len(b.All()) != 1 {
		t.Errorf("leases %v", b.All())
	}
}

func TestSubnets(t *testing.T) {
	prefix := netip.MustParsePrefix
	for _, test := range []struct {
		s    Subnets
		last uint64
	}{
		{Subnets{V4: prefix("10.0.0.0/30")}, 2},
		{Subnets{V4: prefix("10.0.0.0/20")}, 4094},
		{Subnets{V4: prefix("10.0.0.0/20"), V6: prefix("fd00::/64")}, 4094},
		{Subnets{V4: prefix("10.0.0.0/8"), V6: prefix("fd00::/120")}, 255},
		{Subnets{}, 0},
	} {
		if got := test.s.last(); got != test.last {
			t.Errorf("%v: last index %d, want %d", test.s, got, test.last)
		}
	}
	if got := fmt.Sprint(subnets.Gateways()); got != "[10.9.0.1/29 fd00:9::1/64]" {
		t.Errorf("gateways %s", got)
	}
	if got := at(prefix("10.0.255.0/16"), 300).String(); got != "10.0.1.44" {
		t.Errorf("address 300: %s", got)
	}
	b := open(t, filepath.Join(t.TempDir(), "leases"), &clock{}, "boot")
	b.Use(Subnets{})
	if _, err := b.Take("a", "", nil); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("without a subnet: %v", err)
	}
}

// A full disk: the pod gets no lease, the journal stays whole, and once there is room again all
// goes on.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("needs root, for a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path, filler := filepath.Join(dir, "leases"), filepath.Join(dir, "filler")
	c := &clock{time.Unix(1000, 0)}
	b := open(t, path, c, "boot")
	b.Use(Subnets{V4: netip.MustParsePrefix("10.9.0.0/16")})
	_ = os.WriteFile(filler, make([]byte, 64<<10), 0o600) // as much as there is room for
	held := 0
	for ; held < 200; held++ {
		if _, err := b.Take(fmt.Sprint("pod-", held), "", nil); errors.Is(err, unix.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if held == 200 || len(b.All()) != held {
		t.Fatalf("%d leases, %d in the book: want ENOSPC before", held, len(b.All()))
	}
	// It is opened, and leases end. What could not be written down of that is, once there is room.
	b.Close()
	if b = open(t, path, c, "boot"); len(b.All()) != held {
		t.Fatalf("%d leases after opening it full, want %d", len(b.All()), held)
	}
	b.Use(Subnets{V4: netip.MustParsePrefix("10.9.0.0/16")})
	for n := range held {
		if err := b.Free(fmt.Sprint("pod-", n)); err != nil {
			t.Fatalf("free on a full disk: %v", err)
		}
	}
	if _, err := b.Take("pod", "", nil); !errors.Is(err, unix.ENOSPC) || !b.behind {
		t.Fatalf("take on a full disk: %v; is it behind: %v", err, b.behind)
	}
	b.Close()
	other := open(t, path, c, "another boot")
	other.Use(Subnets{V4: netip.MustParsePrefix("10.9.0.0/16")})
	if _, err := other.Take("pod", "", nil); !errors.Is(err, unix.ENOSPC) || len(other.All()) != 0 {
		t.Fatalf("of another boot, on a full disk: %v, %d leases", err, len(other.All()))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	take(t, other, "first")
	other.Close()
	if other = open(t, path, c, "another boot"); len(other.All()) != 1 {
		t.Errorf("%d leases, want the one of this boot", len(other.All()))
	}
	if err := other.Free("first"); err != nil {
		t.Error(err)
	}
	other.Close()
	b = open(t, path, c, "another boot")
	b.Use(Subnets{V4: netip.MustParsePrefix("10.9.0.0/16")})
	take(t, b, "later")
	b.Close()
	if b = open(t, path, c, "another boot"); len(b.All()) != 1 {
		t.Errorf("%d leases after opening again, want 1", len(b.All()))
	}
	b.Close()
}
