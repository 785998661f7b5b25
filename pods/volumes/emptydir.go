package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/translate"
	"github.com/sunaba-project/sunaba/pods/volumes/tree"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Modes of volumes' folders: a kubelet's. Those on a tmpfs have the mode of a tmpfs' root.
const (
	onDisk   = 0o777
	onMemory = 0o1777
)

// groupOf is the fsGroup of a pod.
func groupOf(pod *corev1.Pod) (tree.Group, error) {
	s := pod.Spec.SecurityContext
	if s == nil || s.FSGroup == nil {
		return tree.Group{}, nil
	}
	if *s.FSGroup < 0 || *s.FSGroup > math.MaxInt32 {
		return tree.Group{}, fmt.Errorf("spec.securityContext.fsGroup: %d: must be between 0 and 2147483647, inclusive: %w", *s.FSGroup, errdefs.ErrInvalidArgument)
	}
	return tree.Group{Set: true, ID: int(*s.FSGroup)}, nil
}

// setUpEmptyDir makes the folder of an emptyDir once. On disk it outlives restarts and reboots. It
// gets its name when it is complete, so that one which has a name needs no look.
func (m *Manager) setUpEmptyDir(p places, v *corev1.Volume) error {
	e := v.EmptyDir
	if e == nil {
		e = &corev1.EmptyDirVolumeSource{}
	}
	group, err := groupOf(p.pod)
	if err != nil {
		return err
	}
	path := m.source(p, v)
	switch e.Medium {
	case corev1.StorageMediumDefault:
		mode, err := emptyDirMode(e, onDisk)
		if err != nil {
			return err
		}
		return makeFolder(path, group.Folder(mode), group, m.counted(p.pod))
	case corev1.StorageMediumMemory:
		mode, err := emptyDirMode(e, onMemory)
		if err != nil {
			return err
		}
		return mountTmpfs(path, m.memorySize(p.pod, e), group.Folder(mode), group)
	}
	return fmt.Errorf("emptyDir.medium: %q is not supported, use \"\" or Memory: %w", e.Medium, errdefs.ErrInvalidArgument)
}

func emptyDirMode(e *corev1.EmptyDirVolumeSource, otherwise uint32) (uint32, error) {
	if e.Mode == nil {
		return otherwise, nil
	}
	if *e.Mode < 0 || *e.Mode > 0o1777 {
		return 0, fmt.Errorf("emptyDir.mode: %d: must be between 0 and 01777 (octal): %w", *e.Mode, errdefs.ErrInvalidArgument)
	}
	return uint32(*e.Mode), nil
}

// counted makes the folder of an emptyDir a project of its own, where the file system has project
// quotas, so that its use is not measured by a walk. As with a kubelet that is for pods with users
// of their own alone: the owner of a file in the machine's user namespace can take it out of a
// project.
func (m *Manager) counted(pod *corev1.Pod) func(dir string) error {
	return func(dir string) error {
		if !translate.OwnUsers(pod) {
			return nil
		}
		_, err := m.projects.Assign(dir)
		return err
	}
}

// makeFolder makes a folder with exactly this mode and group, unless it is there. What is done
// before sees it first.
func makeFolder(path string, mode uint32, group tree.Group, before ...func(dir string) error) error {
	info, err := os.Lstat(path)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("make folder %q: something else has its name: %w", path, errdefs.ErrFailedPrecondition)
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above, name := filepath.Split(path)
	if err := os.MkdirAll(above, 0o700); err != nil {
		return err
	}
	unfinished, err := os.MkdirTemp(above, "."+name+".tmp-*")
	if err != nil {
		return err
	}
	for _, do := range before {
		err = errors.Join(err, do(unfinished))
	}
	if err == nil {
		err = group.Own(unfinished)
	}
	if err == nil {
		err = unix.Chmod(unfinished, mode) // after chown, which clears bits
	}
	if err == nil {
		err = os.Rename(unfinished, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make folder %q: %w", path, err), os.Remove(unfinished))
	}
	return nil
}

// memorySize is the greatest size in bytes of an emptyDir in memory, 0 = no limit: the least of its
// own limit, the pod's and what the node has.
func (m *Manager) memorySize(pod *corev1.Pod, e *corev1.EmptyDirVolumeSource) int64 {
	size := m.o.Allocatable
	least := func(limit int64) {
		if limit > 0 && (size == 0 || limit < size) {
			size = limit
		}
	}
	if memoryIsLimited(pod) {
		limits := runtimeclass.EffectiveLimits(pod, pod.Spec.Overhead)
		least(limits.Memory().Value())
	}
	if e.SizeLimit != nil {
		least(e.SizeLimit.Value())
	}
	return size
}

// memoryIsLimited says whether the pod has a limit of memory, or each of its containers.
func memoryIsLimited(pod *corev1.Pod) bool {
	if r := pod.Spec.Resources; r != nil && !r.Limits.Memory().IsZero() {
		return true
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Resources.Limits.Memory().IsZero() {
				return false
			}
		}
	}
	return true
}

// mountTmpfs mounts a tmpfs at path, unless that is done, in one step with its mode and group.
func mountTmpfs(path string, size int64, mode uint32, group tree.Group) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	mounted, err := mountinfo.Mounted(path)
	if err != nil || mounted {
		return err
	}
	data := fmt.Sprintf("mode=%o", mode)
	if size > 0 {
		data += fmt.Sprintf(",size=%d", size)
	}
	if group.Set {
		data += fmt.Sprintf(",gid=%d", group.ID)
	}
	return mountNoSwap(path, 0, data)
}

// mountNoSwap mounts a tmpfs whose pages are not swapped out, where the kernel can do that (6.4).
func mountNoSwap(path string, flags uintptr, data string) error {
	err := unix.Mount("tmpfs", path, "tmpfs", flags, data+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", path, "tmpfs", flags, data)
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs at %q: %w", path, err)
	}
	return nil
}

// mountShared mounts the tmpfs for the secrets and the like of all pods, unless one is mounted.
func mountShared(path string) error {
	mounted, err := mountinfo.Mounted(path)
	if err != nil {
		return fmt.Errorf("look for tmpfs at %q: %w", path, err)
	}
	if !mounted {
		return mountNoSwap(path, unix.MS_NODEV|unix.MS_NOSUID, "mode=700")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fmt.Errorf("look for tmpfs at %q: %w", path, err)
	}
	if int64(st.Type) != unix.TMPFS_MAGIC {
		return fmt.Errorf("mount tmpfs at %q: another file system is mounted there: %w", path, errdefs.ErrFailedPrecondition)
	}
	return nil
}
