package shims

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Survey is what a look at the machine has found of shims, without a connection to any.
type Survey struct {
	layout Layout
	// Working are the processes that work below Layout.Pods: the pod of each.
	Working map[int]string
	shared  map[int]string // processes that work below Layout.Shared: the handler of each
	folders []string       // below Layout.Shared
}

// Look surveys the machine.
func (l Layout) Look() (Survey, error) {
	v := Survey{layout: l, Working: map[int]string{}, shared: map[int]string{}}
	entries, err := os.ReadDir(l.Shared)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return v, fmt.Errorf("list folder: %w", err)
	}
	for _, e := range entries {
		v.folders = append(v.folders, e.Name())
	}
	return v, v.lookForProcesses()
}

// lookForProcesses finds processes by their working directories.
func (v *Survey) lookForProcesses() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	places := map[string]map[int]string{v.layout.Pods: v.Working, v.layout.Shared: v.shared}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cwd, err := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if err != nil {
			continue // it has ended
		}
		for dir, found := range places {
			if rest, ok := strings.CutPrefix(strings.TrimSuffix(cwd, " (deleted)"), dir+"/"); ok {
				found[pid], _, _ = strings.Cut(rest, "/")
			}
		}
	}
	return nil
}

// Works reports whether there is a process for a pod: its own shim, or the shared shim or the
// supervisor of that.
func (v Survey) Works(pod state.Sandbox) bool {
	if shares(pod) {
		return len(v.processesOf(pod.HandlerName)) > 0
	}
	return works(v.layout.Dir(pod.ID))
}

// works reports whether the process that a folder's pid file names works in that folder.
func works(dir string) bool {
	here, err := os.Stat(dir)
	if err != nil {
		return false
	}
	cwd, err := os.Stat(filepath.Join("/proc", recorded(dir), "cwd"))
	return err == nil && os.SameFile(here, cwd)
}

// recorded is what a folder's pid file says.
func recorded(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, client.PidName))
	if err != nil {
		return "-"
	}
	return strings.TrimSpace(string(data))
}

// processesOf are the processes that work for the shared shim of a handler: the shim, its
// supervisor, and what they have just started.
func (v Survey) processesOf(handler string) []int {
	var pids []int
	for pid, of := range v.shared {
		if of == handler {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// Fault is something that is wrong with a shim that pods share.
type Fault struct {
	Subject string
	What    string
	// Do is what to do about it. "" says that a start of the server removes it.
	Do string
}

// Faults returns what is wrong with the shared shims, given all pods on record.
func (v Survey) Faults(records map[string]state.Sandbox) []Fault {
	pods := map[string]int{} // by handler
	for _, pod := range records {
		if shares(pod) && pod.Phase != state.Stopped {
			pods[pod.HandlerName]++
		}
	}
	handlers := slices.Clone(v.folders)
	for _, handler := range v.shared { // of a folder that was removed
		if !slices.Contains(handlers, handler) {
			handlers = append(handlers, handler)
		}
	}
	var faults []Fault
	for _, handler := range handlers {
		if f, found := v.fault(handler, pods[handler]); found {
			faults = append(faults, f)
		}
	}
	return faults
}

// fault returns what is wrong with the shared shim of a handler that has so many pods.
func (v Survey) fault(handler string, pods int) (Fault, bool) {
	dir := v.layout.sharedDir(handler)
	pids := v.processesOf(handler)
	subject := fmt.Sprintf("shim of handler %q", handler)
	switch supervisor, _ := strconv.Atoi(recorded(dir)); {
	case pods == 0 && len(pids) > 0:
		return Fault{Subject: subject, What: fmt.Sprintf("no pod has it, but processes %v work for it", pids)}, true
	case pods == 0:
		return Fault{Subject: "folder " + dir, What: "it is that of a shim that no pod has"}, true
	case len(pids) > 0 && !slices.Contains(pids, supervisor):
		return Fault{
			Subject: subject,
			What: fmt.Sprintf("its supervisor %d does not run: if the shim (among processes %v) dies now, its %d pods end",
				supervisor, pids, pods),
			Do: "remove the handler's pods when it suits (the last one ends the shim; the next one starts both)",
		}, true
	}
	return Fault{}, false
}
