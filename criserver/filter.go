package criserver

import "strings"

func hasPrefix(id, prefix string) bool { return strings.HasPrefix(id, prefix) }

// hasLabels says whether every wanted label is there with the wanted value.
func hasLabels(labels, want map[string]string) bool {
	for k, v := range want {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// batch is how many items one message of a stream carries.
const batch = 500

// inBatches sends items in messages of at least one.
func inBatches[T any](items []T, send func([]T) error) error {
	for len(items) > 0 {
		n := min(batch, len(items))
		if err := send(items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}
