package server

import (
	"strings"

	"google.golang.org/protobuf/proto"
)

// filter is what all of the CRI's filters have in common; nil ones take everything.
type filter interface {
	GetId() string
	GetLabelSelector() map[string]string
}

// matches says whether a filter takes what has this id and these labels. An id may be a prefix.
func matches(f filter, id string, labels map[string]string) bool {
	for k, v := range f.GetLabelSelector() {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return strings.HasPrefix(id, f.GetId())
}

// items answers a list request: those of the records that are wanted, in the CRI's words. It is
// never nil.
func items[R, I any](records []R, wanted func(R) bool, item func(R) I) []I {
	out := []I{}
	for _, rec := range records {
		if wanted(rec) {
			out = append(out, item(rec))
		}
	}
	return out
}

// batch is how many items one message of a stream carries at most, and batchBytes how large they
// are together, unless a single one is larger: annotations and metrics can be long, and clients
// take no message of 16 MiB.
const (
	batch      = 500
	batchBytes = 4 << 20
)

// inBatches sends items in messages of at least one.
func inBatches[T proto.Message](items []T, send func([]T) error) error {
	for len(items) > 0 {
		n, size := 0, 0
		for n < min(batch, len(items)) {
			size += proto.Size(items[n])
			if n > 0 && size > batchBytes {
				break
			}
			n++
		}
		if err := send(items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}
