package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
)

// Read returns the leases of a book, in the order of the pods' ids, without opening it: it takes no
// lock and changes nothing, so another process may have the book open. A book that is not there has
// no leases. boot is as in Options.
func Read(path, boot string) ([]Lease, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	entries, _, err := decode(data)
	b := &Book{o: Options{Boot: boot}, leases: map[string]Lease{}, holder: map[netip.Addr]string{}, freed: map[netip.Addr]time.Time{}}
	b.replay(entries)
	if err := judge(entries, boot, err); err != nil {
		return nil, fmt.Errorf("read leases %q: %w", path, err)
	}
	return b.all(), nil
}
