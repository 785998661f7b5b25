package check

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/host/process"
)

// holds says whether a pod may have something on the machine: it is on record and was not stopped.
func (j *judge) holds(id string) bool {
	if rec, ok := j.records.sandboxes.Records[id]; ok {
		return rec.Phase != state.Stopped
	}
	return j.known[id] // it was removed during the look
}

// folders looks for unowned folders.
func (j *judge) folders() {
	for dir, names := range j.seen.folders {
		for _, name := range names {
			if j.known[name] {
				continue
			}
			path := filepath.Join(dir, name)
			j.add("folder "+path, j.tidy(), nil, "it belongs to no pod or container on record")
		}
	}
	for id := range j.records.sandboxes.Records {
		entries, err := os.ReadDir(j.o.layout().Dir(id))
		if err != nil {
			continue // gone after a reboot
		}
		for _, e := range entries {
			if isID(e.Name()) && e.IsDir() && !j.known[e.Name()] {
				j.add("folder "+filepath.Join(j.o.layout().Dir(id), e.Name()), doRemove, nil, "a bundle of a container that is not on record")
			}
		}
	}
}

func isID(name string) bool { return len(name) == 64 && strings.Trim(name, "0123456789abcdef") == "" }

// processes looks for shims of pods that are not there or were stopped.
func (j *judge) processes() {
	for pid, id := range j.seen.shims.Working {
		if !isID(id) || j.holds(id) {
			continue
		}
		dir := j.o.layout().Dir(id)
		j.add(fmt.Sprintf("process %d (%s)", pid, command(pid)), j.tidy(),
			func(ctx context.Context) error { return kill(ctx, pid, dir) }, "it works for pod %s, which is not on record or was stopped", id)
	}
}

// shimWorks reports whether there is a process of the shim of a pod, which may be on no record.
func (j *judge) shimWorks(id string) bool {
	pod := j.records.sandboxes.Records[id]
	pod.ID = id
	return j.seen.shims.Works(pod)
}

// shims looks at the shims that pods share.
func (j *judge) shims() {
	for _, f := range j.seen.shims.Faults(j.records.sandboxes.Records) {
		j.add(f.Subject, cmp.Or(f.Do, j.tidy()), nil, "%s", f.What)
	}
}

func command(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "gone"
	}
	return strings.TrimSpace(string(data))
}

// kill ends a process if it still works in dir, and waits for its end.
func kill(ctx context.Context, pid int, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	return process.Kill(ctx, pid, func() bool {
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		return err == nil && strings.HasPrefix(strings.TrimSuffix(cwd, " (deleted)")+"/", dir+"/")
	})
}

// killTime is how long a process may take to end.
const killTime = 5 * time.Second

// mounts looks for unowned mounts below the server's folders.
func (j *judge) mounts() {
	for _, point := range j.seen.mounts {
		rel, ok := strings.CutPrefix(point, j.o.layout().Pods+"/")
		if !ok {
			if strings.HasPrefix(point, filepath.Join(j.o.images(), "mounts")+"/") && !j.o.Served {
				j.add("mount "+point, j.tidy(), nil, "a look into an image was cut short")
			}
			continue
		}
		id, rest, _ := strings.Cut(rel, "/")
		unmount := func(context.Context) error { return mount.Detach(point) }
		if !j.holds(id) {
			j.add("mount "+point, j.tidy(), unmount, "its pod is not on record or was stopped")
			continue
		}
		container, _, _ := strings.Cut(rest, "/")
		if rec, ok := j.records.containers.Records[container]; ok && rec.Phase == state.Exited && j.shimWorks(id) {
			j.add("mount "+point, doRemove, nil, "its container has ended")
		}
	}
}

// cgroups looks for unowned cgroups.
func (j *judge) cgroups() {
	for _, rec := range j.records.sandboxes.Records {
		j.cgroupsOf(rec)
	}
	ours := j.evidence()
	for path := range j.seen.cgroups {
		id, ok := j.podOfCgroup(path)
		if !ok || j.holds(id) || !ours[id] {
			continue
		}
		parent, _, err := j.o.Cgroups.Pod(id, "")
		if err != nil {
			continue
		}
		what := "its pod is not on record or was stopped"
		// On an error the finding does not name them.
		if pids, _ := j.o.Cgroups.Mounts.Group(path).PidsInAny(); len(pids) > 0 {
			what += fmt.Sprintf(", and processes %v are in it", pids)
		}
		j.add("cgroup "+path, j.tidy(), func(context.Context) error { return j.o.Cgroups.RemovePod(parent) }, "%s", what)
	}
}

// evidence are the ids of pods that are, or have been, this server's. Cgroups say nothing of whose
// they are, and another server of the machine has its own beside ours. A pod's folders go after its
// cgroup, so what a crash leaves is known.
func (j *judge) evidence() map[string]bool {
	ours := map[string]bool{}
	for id := range j.records.sandboxes.Records {
		ours[id] = true
	}
	for _, names := range j.seen.folders {
		for _, name := range names {
			ours[name] = true
		}
	}
	for name := range j.records.sandboxes.Damaged {
		id, _, _ := strings.Cut(name, ".")
		ours[id] = true
	}
	for _, id := range j.seen.shims.Working {
		ours[id] = true
	}
	for _, l := range j.seen.held.Leases {
		ours[l.Pod] = true
	}
	return ours
}

// podOfCgroup is the pod whose own cgroup a path is.
func (j *judge) podOfCgroup(path string) (string, bool) {
	name := strings.TrimSuffix(filepath.Base(path), ".slice")
	i := strings.LastIndex(name, "pod")
	if i < 0 {
		return "", false
	}
	id := strings.TrimPrefix(name[i+len("pod"):], "-")
	if !isID(id) {
		return "", false
	}
	parent, _, err := j.o.Cgroups.Pod(id, "")
	return id, err == nil && j.o.Cgroups.Path(parent) == path
}

// cgroupsOf looks for leaves of ended containers, and of stopped pods whose parent is the client's.
func (j *judge) cgroupsOf(rec state.Sandbox) {
	leaves := map[string]bool{} // those that may not be there
	for id, c := range j.records.containers.Records {
		if c.SandboxID == rec.ID && (c.Phase == state.Exited || rec.Phase == state.Stopped) {
			leaves[j.o.Cgroups.Leaf(rec.CgroupParent, id)] = true
		}
	}
	if rec.Phase == state.Stopped {
		leaves[j.o.Cgroups.Leaf(rec.CgroupParent, rec.ID)] = true
		ids, err := j.o.Cgroups.Leaves(rec.CgroupParent)
		if err != nil {
			j.add("cgroups of pod "+rec.ID, doRemove, nil, "what is left of them is not known: %v", err)
		}
		for _, id := range ids {
			if state.IsDrawn(id, rec.ID) { // a shim that was killed has left it
				leaves[j.o.Cgroups.Leaf(rec.CgroupParent, id)] = true
			}
		}
	}
	if rec.Phase == state.Stopped && rec.CgroupOwned {
		return // its parent is looked at
	}
	for leaf := range leaves {
		if path := j.o.Cgroups.Path(leaf); j.hasCgroup(path) {
			j.add("cgroup "+path, j.tidy(), func(context.Context) error { return j.o.Cgroups.RemoveLeaf(leaf) },
				"it is that of a container or pod that has ended")
		}
	}
}

// network looks for what the network holds for pods that are not there.
func (j *judge) network() {
	links := map[string]bool{}
	for id := range j.known {
		if j.holds(id) {
			links[network.HostEnd(id)] = true
		}
	}
	for _, l := range j.seen.held.Leases {
		if !j.holds(l.Pod) {
			j.add(fmt.Sprintf("addresses %v", l.Addrs), j.tidy(), nil, "they are leased to pod %s (%s), which is not on record or was stopped", l.Pod, l.Label)
		}
	}
	for _, link := range j.seen.held.Links {
		if !links[link] {
			j.add("link "+link, j.tidy(), nil, "it is that of a pod that is not on record or was stopped")
		}
	}
	for _, id := range j.seen.held.Rules {
		if !j.holds(id) {
			j.add("nftables rules of pod "+id, j.tidy(), nil, "the pod is not on record or was stopped")
		}
	}
	for _, id := range j.seen.held.Attachments {
		if !j.holds(id) {
			j.add("CNI attachment of pod "+id, j.tidy(), nil, "the pod is not on record or was stopped, and the plugins were not told")
		}
	}
}

// roots looks for unowned root filesystems.
func (j *judge) roots() {
	used := map[string]bool{}
	for _, rec := range j.records.containers.Records {
		for _, key := range rec.Keys() {
			used[key] = true
		}
	}
	for key := range j.seen.roots {
		if !used[key] && !j.known[key] {
			j.add(fmt.Sprintf("root filesystem %q", key), j.tidy(), nil, "no container on record has it")
		}
	}
}
