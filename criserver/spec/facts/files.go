package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/spec"
)

// Paths looks up paths of the host. A file system whose server is gone can hold
// a question for ever, and nothing can end that; so nobody waits longer than
// Patience, and each path is asked for once at a time. The zero value is ready.
type Paths struct {
	Patience time.Duration // 0 is 10 s

	mu    sync.Mutex
	asked map[string]*question
}

// question is about one path; its answer stands when done is closed.
type question struct {
	done chan struct{}
	real string
	err  error
}

const patience = 10 * time.Second

// resolve follows the links of a path, which is made if it is missing.
func (p *Paths) resolve(ctx context.Context, path string) (string, error) {
	q := p.ask(path)
	timer := time.NewTimer(cmp.Or(p.Patience, patience))
	defer timer.Stop()
	var err error = errdefs.ErrFailedPrecondition
	select {
	case <-q.done:
		if q.err != nil {
			return "", fmt.Errorf("%w: %w", q.err, errdefs.ErrInvalidArgument)
		}
		return q.real, nil
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return "", fmt.Errorf("nothing answers at %q (is the server of its file system gone?): %w", path, err)
}

func (p *Paths) ask(path string) *question {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q, ok := p.asked[path]; ok {
		return q
	}
	q := &question{done: make(chan struct{})}
	if p.asked == nil {
		p.asked = map[string]*question{}
	}
	p.asked[path] = q
	go func() {
		q.real, q.err = resolve(path)
		p.mu.Lock()
		delete(p.asked, path)
		p.mu.Unlock()
		close(q.done)
	}()
	return q
}

// Sources looks up the host paths of a container's mounts. A path that is
// missing is made as a directory, as kubelets expect.
//
// # Errors
//
// Naming the mount: ErrInvalidArgument for a path that cannot be resolved,
// ErrFailedPrecondition or the context's error for one that does not answer.
func (p *Paths) Sources(ctx context.Context, container *runtime.ContainerConfig) (map[string]spec.Source, error) {
	out := map[string]spec.Source{}
	var table []*mountinfo.Info
	for i, m := range container.GetMounts() {
		host := m.GetHostPath()
		if host == "" || !filepath.IsAbs(host) {
			continue // spec refuses it with its reason
		}
		real, err := p.resolve(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("container %q: mounts[%d].host_path: %w", container.GetMetadata().GetName(), i, err)
		}
		src := spec.Source{Path: real}
		if m.GetPropagation() != runtime.MountPropagation_PROPAGATION_PRIVATE {
			if table == nil {
				if table, err = mountinfo.GetMounts(nil); err != nil {
					return nil, fmt.Errorf("read mounts: %w", err)
				}
			}
			src.Shared, src.Slave = propagation(table, real)
		} else if have, ok := out[host]; ok {
			src = have
		}
		out[host] = src
	}
	return out, nil
}

func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// propagation of the mount that path lies on: the innermost, and of several
// at one place the last.
func propagation(table []*mountinfo.Info, path string) (shared, slave bool) {
	var on *mountinfo.Info
	for _, m := range table {
		inside := m.Mountpoint == "/" || path == m.Mountpoint || strings.HasPrefix(path, m.Mountpoint+"/")
		if inside && (on == nil || len(m.Mountpoint) >= len(on.Mountpoint)) {
			on = m
		}
	}
	if on == nil {
		return false, false
	}
	for _, word := range strings.Fields(on.Optional) {
		shared = shared || strings.HasPrefix(word, "shared:")
		slave = slave || strings.HasPrefix(word, "master:")
	}
	return shared, slave
}

// Devices looks up the devices at the host paths of a container's devices; a
// directory stands for all devices below it. Paths where there is none are
// left out, and spec refuses them.
func Devices(container *runtime.ContainerConfig) (map[string][]spec.Device, error) {
	out := map[string][]spec.Device{}
	for i, want := range container.GetDevices() {
		host := want.GetHostPath()
		found, err := devicesAt(host)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("container %q: devices[%d].host_path: %w: %w",
				container.GetMetadata().GetName(), i, err, errdefs.ErrInvalidArgument)
		}
		out[host] = found
	}
	return out, nil
}

// HostDevices returns all devices of the machine, for privileged containers.
// Terminals and what a container has for itself are left out.
func HostDevices() ([]spec.Device, error) {
	found, err := devicesAt("/dev")
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	for i := range found {
		found[i].Path = filepath.Join("/dev", found[i].Path)
	}
	return found, nil
}

// devicesAt walks what is at root; paths in the answer are below root.
func devicesAt(root string) ([]spec.Device, error) {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	var out []spec.Device
	err = filepath.WalkDir(real, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != real {
			return nil // gone meanwhile
		}
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch entry.Name() {
			case "pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev":
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(real, path)
		if err != nil || rel == "console" {
			return err
		}
		if d, ok := device(path); ok {
			if rel != "." {
				d.Path = rel
			}
			out = append(out, d)
		}
		return nil
	})
	return out, err
}

// device reads one file; false if it is no device or has gone.
func device(path string) (spec.Device, bool) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return spec.Device{}, false
	}
	d := spec.Device{
		Major: int64(unix.Major(uint64(st.Rdev))), Minor: int64(unix.Minor(uint64(st.Rdev))),
		Mode: uint32(st.Mode) & 0o7777, UID: st.Uid, GID: st.Gid,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		d.Type = "b"
	case unix.S_IFCHR:
		d.Type = "c"
	default:
		return spec.Device{}, false
	}
	return d, true
}
