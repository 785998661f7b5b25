package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// judge compares sight and records.
type judge struct {
	o        Options
	seen     *sight
	records  records
	known    map[string]bool // ids that were on record at any time of the look
	findings []Finding
}

// What to do about findings.
const (
	doRestart = "restart the server: it cleans up when it starts (or stop it and run check --repair)"
	doRepair  = "run check --repair with the server stopped, or start the server"
	doAgain   = "check again: its end may not be written yet, which takes longer on a full or read-only disk; if this stays, restart the server"
	doRemove  = "remove the pod (crictl rmp -f); the kubelet makes a new one"
)

// tidy is what helps against what a start of the server takes away.
func (j *judge) tidy() string {
	if j.o.Served {
		return doRestart
	}
	return doRepair
}

func (j *judge) add(subject, do string, remove func(context.Context) error, format string, args ...any) {
	j.findings = append(j.findings, Finding{Subject: subject, What: fmt.Sprintf(format, args...), Do: do, remove: remove})
}

func podName(rec state.Sandbox) string {
	md := rec.Config.Value.GetMetadata()
	return fmt.Sprintf("pod %s (%s/%s)", rec.ID, md.GetNamespace(), md.GetName())
}

func containerName(rec state.Container) string {
	return fmt.Sprintf("container %s (%s)", rec.ID, rec.Config.Value.GetMetadata().GetName())
}

// files looks at the records themselves.
func (j *judge) files() {
	lookAt(j, j.o.sandboxRecords(), j.records.sandboxes, "crictl rmp -f")
	lookAt(j, j.o.containerRecords(), j.records.containers, "crictl rm -f")
}

// lookAt looks at the records in a folder. remove is the command that removes what one is about.
func lookAt[R any](j *judge, dir string, l state.Listing[R], remove string) {
	for name, why := range l.Damaged {
		j.add("file "+filepath.Join(dir, name), "look at it, then delete it: what it was about is not known any more", nil, "a damaged record: %s", why)
	}
	for name, format := range l.Newer {
		j.add("file "+filepath.Join(dir, name), state.GoBack, nil,
			"a record of format %d, which a newer release wrote: no server of this release starts, which reads formats up to %d, and nothing else was checked", format, state.Version)
	}
	for id, why := range l.Older {
		j.add("file "+filepath.Join(dir, l.Files[id]), "compare what crictl shows of it with what runs, and remove it where that differs ("+remove+" "+id+"); its next change replaces the file", nil,
			"the newest version of a record is damaged: %s", why)
	}
	if j.o.Served {
		return // a write may be in progress
	}
	for _, name := range l.Unfinished {
		j.add("file "+filepath.Join(dir, name), j.tidy(), nil, "the remains of a write that was cut short")
	}
}

// sandboxes looks for the parts of every pod on record.
func (j *judge) sandboxes() {
	for _, rec := range j.records.sandboxes.Records {
		j.owner(rec)
		switch rec.Phase {
		case state.Creating:
			if !j.o.Served {
				j.add(podName(rec), j.tidy(), nil, "the server ended while it was being made")
			}
		case state.Ready:
			j.ready(rec)
		}
	}
}

// owner looks whether the command lives that is to remove a pod.
func (j *judge) owner(rec state.Sandbox) {
	config := rec.Config.Value
	orphan, err := j.o.Orphan(config.GetMetadata().GetUid(), config.GetAnnotations())
	switch {
	case err != nil:
		j.add(podName(rec), "look at the file that the error names", nil, "it is not known whether its sunaba run lives: %v", err)
	case orphan:
		j.add(podName(rec), "remove the pod (crictl rmp -f); the next sunaba run on this server does it too", nil, "its sunaba run was killed")
	}
}

func (j *judge) ready(rec state.Sandbox) {
	subject := podName(rec)
	if rec.BootID != j.o.BootID {
		j.add(subject, j.tidy(), nil, "it is on record as ready, but the machine was restarted")
		return
	}
	dir := j.o.layout().Dir(rec.ID)
	if !j.seen.shims.Works(rec) {
		j.add(subject, j.tidy(), nil, "it is on record as ready, but its shim does not run")
		return
	}
	config := rec.Config.Value
	own := sandbox.Pins(config)
	for file, wanted := range map[string]bool{netns.NetFile: own.Net, netns.IPCFile: own.IPC, netns.UTSFile: own.UTS, netns.UserFile: own.User != nil} {
		if wanted && !netns.Pinned(filepath.Join(dir, "ns", file)) {
			j.add(subject, doRemove, nil, "its %s namespace is not pinned at %s", file, filepath.Join(dir, "ns", file))
		}
	}
	if own.IPC && !slices.Contains(j.seen.mounts, filepath.Join(dir, "shm")) {
		j.add(subject, doRemove, nil, "its shared memory is not mounted at %s", filepath.Join(dir, "shm"))
	}
	for _, name := range []string{"hosts", "hostname", "resolv.conf"} {
		file := filepath.Join(j.o.files(), rec.ID, name)
		if _, err := os.Stat(file); err != nil {
			j.add(subject, doRemove, nil, "its file %s is not there", file)
		}
	}
	if leaf := j.o.layout().Leaf(rec); !j.hasCgroup(j.o.Cgroups.Path(leaf)) {
		j.add(subject, doRemove, nil, "its shim is in no cgroup of its own (%s)", leaf)
	}
	j.connected(rec)
}

// connected looks for what the embedded network gave to a pod.
func (j *judge) connected(rec state.Sandbox) {
	if !rec.Network.Up || !(network.Result{Raw: rec.Network.Raw}).IsEmbedded() {
		return
	}
	subject := podName(rec)
	found := false
	for _, l := range j.seen.held.Leases {
		if l.Pod != rec.ID {
			continue
		}
		found = true
		if !slices.Equal(l.Addrs, rec.Network.IPs) {
			j.add(subject, doRemove, nil, "its addresses are %v on record and %v in the book of leases", rec.Network.IPs, l.Addrs)
		}
		if len(l.Ports) > 0 && !slices.Contains(j.seen.held.Rules, rec.ID) {
			j.add(subject, "restart the server: it makes its rules anew", nil, "no nftables rule leads its host ports to it")
		}
	}
	if !found {
		j.add(subject, doRemove, nil, "nothing is leased to it, but its addresses are %v", rec.Network.IPs)
	}
	if !slices.Contains(j.seen.held.Links, network.HostEnd(rec.ID)) {
		j.add(subject, doRemove, nil, "its link %s is not in the bridge", network.HostEnd(rec.ID))
	}
	if !j.seen.held.Tables {
		j.add("network", "restart the server: it makes its rules anew", nil, "the nftables tables of the bridge are not there")
	}
}

// containers looks for the parts of every container on record.
func (j *judge) containers() {
	for _, rec := range j.records.containers.Records {
		pod, ok := j.records.sandboxes.Records[rec.SandboxID]
		subject := containerName(rec)
		switch {
		case !ok:
			if !j.known[rec.SandboxID] {
				j.add(subject, j.tidy(), nil, "its pod %s is not on record", rec.SandboxID)
			}
			continue
		case rec.Phase == state.Creating:
			if !j.o.Served {
				j.add(subject, j.tidy(), nil, "the server ended while it was being made")
			}
			continue
		case pod.BootID != j.o.BootID:
			continue // it is over, and a power cut may have taken what is not synced
		case !j.seen.roots[rec.SnapshotKey]:
			j.add(subject, "remove the container (crictl rm -f)", nil, "its root filesystem %q is not in the image store", rec.SnapshotKey)
		}
		for _, v := range rec.ImageVolumes {
			if !j.seen.roots[v.SnapshotKey] {
				j.add(subject, "remove the container (crictl rm -f)", nil, "its image volume %q is not in the image store", v.SnapshotKey)
			}
		}
		if rec.Phase == state.Running && pod.Phase == state.Ready {
			j.running(pod, rec)
		}
	}
}

func (j *judge) running(pod state.Sandbox, rec state.Container) {
	bundle := filepath.Join(j.o.layout().Dir(pod.ID), rec.ID)
	if !j.seen.shims.Works(pod) {
		return // said of the pod
	}
	subject := containerName(rec)
	if _, ended := client.ReadExit(bundle); ended {
		if j.o.Served {
			j.add(subject, doRestart, nil, "it has ended, but is on record as running")
		}
		return // the next start of the server takes note of it
	}
	if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(rec.PID))); err != nil {
		j.add(subject, doAgain, nil, "it is on record as running, but its process %d is not there", rec.PID)
		return
	}
	if _, err := os.Stat(filepath.Join(bundle, "config.json")); err != nil {
		j.add(subject, doRemove, nil, "its bundle %s is not there", bundle)
	}
	if len(rec.RootFS) > 0 && !slices.Contains(j.seen.mounts, filepath.Join(bundle, "rootfs")) {
		j.add(subject, doRemove, nil, "its root filesystem is not mounted at %s", filepath.Join(bundle, "rootfs"))
	}
	if !j.hasCgroup(j.o.Cgroups.Path(rec.CgroupsPath)) {
		j.add(subject, doRemove, nil, "its cgroup %s is not there", rec.CgroupsPath)
	}
}

// hasCgroup says whether a cgroup is there in any hierarchy.
func (j *judge) hasCgroup(path string) bool {
	return slices.ContainsFunc(j.o.Cgroups.Roots(), func(root string) bool {
		_, err := os.Stat(filepath.Join(root, path))
		return err == nil
	})
}
