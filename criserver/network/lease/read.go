package lease

import (
	"net/netip"
	"time"
)

// Read returns the leases of a book, in the order of the pods' ids, without opening it: it takes no
// lock and changes nothing, so another process may have the book open. A book that is not there has
// no leases. boot is as in Options.
func Read(path, boot string) ([]Lease, error) {
	entries, _, err := readJournal(path, boot)
	if err != nil || entries == nil {
		return nil, err
	}
	b := &Book{o: Options{Boot: boot}, leases: map[string]Lease{}, holder: map[netip.Addr]string{}, freed: map[netip.Addr]time.Time{}}
	b.replay(entries)
	return b.all(), nil
}
