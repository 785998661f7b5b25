package check

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sunaba-project/sunaba/criserver/sandbox/shims"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// shimWorks says whether there is a process for a pod on record: its own shim, or of the one that it shares the shim or its keeper.
func (j *judge) shimWorks(id string) bool {
	rec := j.records.sandboxes.Records[id]
	if !rec.SharesShim() {
		return works(filepath.Join(j.o.shims(), id))
	}
	return len(j.sharing(rec.HandlerName)) > 0
}

// works says whether the process that a folder's pid file names works in that folder.
func works(dir string) bool {
	here, err := os.Stat(dir)
	if err != nil {
		return false
	}
	cwd, err := os.Stat(filepath.Join("/proc", named(dir), "cwd"))
	return err == nil && os.SameFile(here, cwd)
}

// named is what a folder's pid file says.
func named(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, client.PidName))
	if err != nil {
		return "-"
	}
	return strings.TrimSpace(string(data))
}

// sharing are the processes that work for the shared shim of a handler: it, its keeper, and what they have just started.
func (j *judge) sharing(handler string) []int {
	var pids []int
	for pid, of := range j.seen.shared {
		if of == handler {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// shimLeaf is the cgroup of a pod's shim.
func (j *judge) shimLeaf(rec state.Sandbox) string {
	if rec.SharesShim() {
		return j.o.Cgroups.ShimLeaf(shims.Name(j.o.shared(), rec.HandlerName))
	}
	return j.o.Cgroups.Leaf(rec.CgroupParent, rec.ID)
}

// shared looks at the shims that pods share.
func (j *judge) shared() {
	pods := map[string]int{} // by handler
	for _, rec := range j.records.sandboxes.Records {
		if rec.SharesShim() && rec.Phase != state.Stopped {
			pods[rec.HandlerName]++
		}
	}
	handlers := slices.Clone(j.seen.folders[j.o.shared()])
	for _, handler := range j.seen.shared { // of a folder that was removed
		if !slices.Contains(handlers, handler) {
			handlers = append(handlers, handler)
		}
	}
	for _, handler := range handlers {
		dir := filepath.Join(j.o.shared(), handler)
		pids := j.sharing(handler)
		subject := fmt.Sprintf("shim of handler %q", handler)
		switch keeper, _ := strconv.Atoi(named(dir)); {
		case pods[handler] == 0 && len(pids) > 0:
			j.add(subject, j.tidy(), nil, "no pod has it, but processes %v work for it", pids)
		case pods[handler] == 0:
			j.add("folder "+dir, j.tidy(), nil, "it is that of a shim that no pod has")
		case len(pids) > 0 && !slices.Contains(pids, keeper):
			j.add(subject, "remove the handler's pods when it suits (the last one ends the shim; the next one starts both)", nil,
				"its keeper %d does not run: if the shim (among processes %v) dies now, its %d pods end", keeper, pids, pods[handler])
		}
	}
}
