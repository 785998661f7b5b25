package check

import (
	"path/filepath"

	"github.com/sunaba-project/sunaba/criserver/state"
)

// records are what the server has on record.
type records struct {
	sandboxes  state.Listing[state.Sandbox]
	containers state.Listing[state.Container]
}

func (o Options) sandboxRecords() string   { return filepath.Join(o.Root, "state", "sandboxes") }
func (o Options) containerRecords() string { return filepath.Join(o.Root, "state", "containers") }

func readRecords(o Options) (records, error) {
	var r records
	var err error
	if r.sandboxes, err = state.Read(o.sandboxRecords(), state.CheckSandbox); err != nil {
		return r, err
	}
	r.containers, err = state.Read(o.containerRecords(), state.CheckContainer)
	return r, err
}

// ids are those of all sandboxes and containers on record.
func (r records) ids() map[string]bool {
	ids := map[string]bool{}
	for id := range r.sandboxes.Records {
		ids[id] = true
	}
	for id := range r.containers.Records {
		ids[id] = true
	}
	return ids
}
