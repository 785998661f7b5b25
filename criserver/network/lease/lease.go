// Package lease is the durable book of the embedded network: which pod holds which addresses and
// which host ports.
//
// The book is one journal, to which each change appends a line. They outlive the process and are
// not synced: a book of an earlier boot of the machine is empty, because no pod survives a reboot.
// A torn last line is dropped.
package lease

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/durable"
)

// Port is a host port that a pod holds.
type Port struct {
	Protocol      string `json:"protocol"` // tcp, udp or sctp
	HostIP        string `json:"hostIP,omitempty"`
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
}

// Lease is what one pod holds.
type Lease struct {
	Pod   string       `json:"pod"`             // id of the sandbox
	Label string       `json:"label,omitempty"` // namespace/name, for messages
	Addrs []netip.Addr `json:"addrs"`           // IPv4 first
	Ports []Port       `json:"ports,omitempty"`
}

// Subnets is where new leases get their addresses from: one index gives a pod an address in each of
// them. A zero prefix is an absent family. Index 0 is the network, index 1 the gateway.
type Subnets struct {
	V4 netip.Prefix `json:"v4"`
	V6 netip.Prefix `json:"v6"`
}

// Options configure Open.
type Options struct {
	// Boot identifies the machine's current boot; leases of another one are dropped.
	Boot string
	// Quarantine is how long a freed address is not handed out again.
	Quarantine time.Duration
	// Now is the clock; nil = time.Now.
	Now func() time.Time
}

// Book is the open book. It is safe for concurrent use.
type Book struct {
	mu      sync.Mutex
	o       Options
	journal *journal
	subnets Subnets
	next    uint64 // index at which the search for a free one starts
	leases  map[string]Lease
	holder  map[netip.Addr]string
	freed   map[netip.Addr]time.Time
	// behind says that the journal lacks ends of leases, or is of another boot, because the disk
	// was full or read-only.
	behind bool
}

// Open opens or makes the book in the file at path and locks it.
//
// # Errors
//
// ErrFailedPrecondition when another process has the book open; ErrDataLoss when a line of this
// boot is damaged.
func Open(path string, o Options) (*Book, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	b := &Book{o: o, leases: map[string]Lease{}, holder: map[netip.Addr]string{}, freed: map[netip.Addr]time.Time{}}
	j, entries, err := openJournal(path, o.Boot)
	if err != nil {
		return nil, err
	}
	b.journal = j
	b.replay(entries)
	size, lines := j.size, j.lines
	err = j.rewrite(b.entries())
	if durable.Full(err) {
		// One of this boot can be continued. One of another says nothing, and is rewritten
		// before a lease is given.
		j.size, j.lines = size, lines
		if b.behind = !b.continues(entries); b.behind {
			err = nil
		} else {
			err = j.reuse()
		}
	}
	if err != nil {
		j.close()
		return nil, err
	}
	return b, nil
}

// continues says whether the lines of a journal are of this boot.
func (b *Book) continues(entries []entry) bool {
	return len(entries) > 0 && entries[0].Open != nil && entries[0].Open.Boot == b.o.Boot
}

// catchUp rewrites a journal that lacks something.
func (b *Book) catchUp() error {
	if !b.behind {
		return nil
	}
	err := b.journal.rewrite(b.entries())
	b.behind = err != nil
	return err
}

// replay applies the lines of a journal; of another boot's journal only the position of the
// address search.
func (b *Book) replay(entries []entry) {
	same := b.continues(entries)
	for _, e := range entries {
		switch {
		case e.Open != nil:
			b.next = e.Open.Next
		case e.Take != nil:
			b.next = e.Next
			if same {
				b.add(*e.Take)
			}
		case e.Free != nil && same:
			if l, ok := b.leases[e.Free.Pod]; ok {
				b.drop(l, e.Free.At)
			}
			for _, a := range e.Free.Addrs {
				b.freed[a] = e.Free.At
			}
		}
	}
}

// entries is the shortest journal that says what the book says.
func (b *Book) entries() []entry {
	out := []entry{{Open: &opened{Version: journalVersion, Boot: b.o.Boot, Next: b.next}}}
	for _, l := range b.all() {
		out = append(out, entry{Take: &l, Next: b.next})
	}
	for a, at := range b.freed {
		if b.quarantined(a) {
			out = append(out, entry{Free: &freed{Addrs: []netip.Addr{a}, At: at}})
		}
	}
	return out
}

// Use says where new leases come from. Leases that are held stay as they are.
func (b *Book) Use(s Subnets) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subnets = s
}

// Take gives the pod addresses and host ports, and records that. A pod that has a lease with the
// same ports gets it again.
//
// # Errors
//
// ErrAlreadyExists, naming both pods, for a host port that another pod holds, or when the pod holds
// a lease with other ports; ErrResourceExhausted when no address is left.
func (b *Book) Take(pod, label string, ports []Port) (Lease, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, ok := b.leases[pod]; ok {
		if !slices.Equal(l.Ports, ports) {
			return Lease{}, fmt.Errorf("lease of pod %s: held with other host ports: %w", name(l), errdefs.ErrAlreadyExists)
		}
		return l, nil
	}
	l := Lease{Pod: pod, Label: label, Ports: ports}
	if err := b.checkPorts(l); err != nil {
		return Lease{}, err
	}
	i, err := b.freeIndex(l)
	if err != nil {
		return Lease{}, err
	}
	l.Addrs = b.subnets.addrs(i)
	if err := b.catchUp(); err != nil {
		return Lease{}, fmt.Errorf("record lease of pod %s: %w", name(l), err)
	}
	if err := b.journal.append(entry{Take: &l, Next: i + 1}); err != nil {
		return Lease{}, fmt.Errorf("record lease of pod %s: %w", name(l), err)
	}
	b.next = i + 1
	b.add(l)
	b.compact()
	return l, nil
}

// Free takes the pod's lease back. A pod without one is fine.
func (b *Book) Free(pod string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.leases[pod]
	if !ok {
		return nil
	}
	at := b.o.Now()
	err := b.catchUp()
	if err == nil {
		err = b.journal.append(entry{Free: &freed{Pod: pod, At: at}})
	}
	if durable.Refused(err) {
		// What is removed may not need room. Should the server end before the disk takes it, the
		// next one frees it again.
		b.behind, err = true, nil
	}
	if err != nil {
		return fmt.Errorf("record end of lease of pod %s: %w", name(l), err)
	}
	b.drop(l, at)
	b.compact()
	return nil
}

// Get returns the pod's lease.
func (b *Book) Get(pod string) (Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.leases[pod]
	return l, ok
}

// All returns every lease, in the order of the pods' ids.
func (b *Book) All() []Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all()
}

func (b *Book) all() []Lease {
	return slices.SortedFunc(maps.Values(b.leases), func(x, y Lease) int { return cmp.Compare(x.Pod, y.Pod) })
}

// Close unlocks the book.
func (b *Book) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.journal.close()
}

func (b *Book) add(l Lease) {
	b.leases[l.Pod] = l
	for _, a := range l.Addrs {
		b.holder[a] = l.Pod
		delete(b.freed, a)
	}
}

func (b *Book) drop(l Lease, at time.Time) {
	delete(b.leases, l.Pod)
	for _, a := range l.Addrs {
		delete(b.holder, a)
		b.freed[a] = at
	}
}

// quarantined reports whether a was freed just now. A clock that was set back must not lock an
// address for longer.
func (b *Book) quarantined(a netip.Addr) bool {
	at, ok := b.freed[a]
	if !ok {
		return false
	}
	if age := b.o.Now().Sub(at); age >= 0 && age < b.o.Quarantine {
		return true
	}
	delete(b.freed, a)
	return false
}

// freeIndex finds the next free index, in a circle, so that addresses come back as late as
// possible.
func (b *Book) freeIndex(l Lease) (uint64, error) {
	last := b.subnets.last()
	if last < firstIndex {
		return 0, fmt.Errorf("take an address for pod %s: no subnet: %w", name(l), errdefs.ErrFailedPrecondition)
	}
	i, resting := max(b.next, firstIndex), 0
	for range last - firstIndex + 1 {
		if i > last {
			i = firstIndex
		}
		held, rests := false, false
		for _, a := range b.subnets.addrs(i) {
			_, h := b.holder[a]
			held, rests = held || h, rests || b.quarantined(a)
		}
		if !held && !rests {
			return i, nil
		}
		if !held {
			resting++
		}
		i++
	}
	return 0, fmt.Errorf("take an address for pod %s: all %d of %v are in use or were freed less than %v ago (%d): %w",
		name(l), last-firstIndex+1, b.subnets, b.o.Quarantine, resting, errdefs.ErrResourceExhausted)
}

// compact rewrites a journal that is mostly history. A failure costs nothing: the longer one stays.
func (b *Book) compact() {
	if b.journal.lines > 2*len(b.leases)+4096 {
		_ = b.journal.rewrite(b.entries())
	}
}

// name is how a message names a pod.
func name(l Lease) string {
	if l.Label == "" {
		return l.Pod
	}
	return fmt.Sprintf("%s (%.12s)", l.Label, l.Pod)
}
