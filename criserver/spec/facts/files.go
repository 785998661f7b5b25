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
	"github.com/sunaba-project/sunaba/host/regular"
)

// Paths looks up paths of the host. A file system whose server is unreachable can
// block a call forever, and nothing can interrupt it; so no request waits longer than
// Patience, and each question is asked once at a time. The zero value is ready.
type Paths struct {
	Patience time.Duration // 0 is 10 s

	mu    sync.Mutex
	asked map[string]*question
}

// question is about one path; its answer stands when done is closed.
type question struct {
	done   chan struct{}
	answer any
	err    error
}

const patience = 10 * time.Second

// ask waits for the answer of call, which asks path something; verb says what, in the error too.
//
// # Errors
//
// Those of call; ErrFailedPrecondition or the context's error if there is no answer in time.
func ask[T any](ctx context.Context, p *Paths, verb, path string, call func() (T, error)) (T, error) {
	q := p.question(verb+" "+path, func() (any, error) { return call() })
	var zero T
	var err error = errdefs.ErrFailedPrecondition
	select {
	case <-q.done:
		if q.err != nil {
			return zero, q.err
		}
		return q.answer.(T), nil // T is the verb's
	case <-time.After(cmp.Or(p.Patience, patience)):
	case <-ctx.Done():
		err = ctx.Err()
	}
	return zero, fmt.Errorf("%s %q: no answer (is the server of its file system gone?): %w", verb, path, err)
}

// question is the one that is open under a key, or a new one.
func (p *Paths) question(key string, call func() (any, error)) *question {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q, ok := p.asked[key]; ok {
		return q
	}
	q := &question{done: make(chan struct{})}
	if p.asked == nil {
		p.asked = map[string]*question{}
	}
	p.asked[key] = q
	go func() {
		q.answer, q.err = call()
		p.mu.Lock()
		delete(p.asked, key)
		p.mu.Unlock()
		close(q.done)
	}()
	return q
}

// Read reads a regular file that a request names and that is no longer than limit.
//
// # Errors
//
// ErrInvalidArgument for a file that cannot be read, ErrFailedPrecondition or the context's error
// for one that does not answer.
func (p *Paths) Read(ctx context.Context, path string, limit int64) ([]byte, error) {
	return ask(ctx, p, "read", path, func() ([]byte, error) { return invalid(regular.Read(path, limit)) })
}

// Regular says whether a path that a request names is a regular file that can be read, as nil.
//
// # Errors
//
// Those of Read.
func (p *Paths) Regular(ctx context.Context, path string) error {
	_, err := ask(ctx, p, "open", path, func() (struct{}, error) {
		f, err := regular.Open(path)
		if err == nil {
			err = f.Close()
		}
		return invalid(struct{}{}, err)
	})
	return err
}

// invalid gives an error of the file system the class of a request that names the wrong file.
func invalid[T any](value T, err error) (T, error) {
	if err != nil && !errdefs.IsInvalidArgument(err) {
		err = fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	return value, err
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
		real, err := ask(ctx, p, "resolve", host, func() (string, error) { return invalid(resolve(host)) })
		if err != nil {
			return nil, fmt.Errorf("mounts[%d].host_path: %w", i, err)
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
	if err := spec.CheckPath(path); err != nil {
		return "", err // before a part of it is made
	}
	real, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// propagation of the mount that path lies on: the innermost, and of several at one place the last.
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

// Devices looks up the devices at the host paths of a container's devices; a directory stands for
// all devices below it. Paths without a device are left out, and spec refuses them.
//
// # Errors
//
// Those of Sources; ErrInvalidArgument also for a directory of more than maxDeviceFiles files.
func (p *Paths) Devices(ctx context.Context, container *runtime.ContainerConfig) (map[string][]spec.Device, error) {
	out := map[string][]spec.Device{}
	for i, want := range container.GetDevices() {
		host := want.GetHostPath()
		found, err := ask(ctx, p, "list devices at", host, func() ([]spec.Device, error) { return invalid(devicesAt(host, maxDeviceFiles)) })
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("devices[%d].host_path: %w", i, err)
		}
		out[host] = found
	}
	return out, nil
}

// maxDeviceFiles bounds the files of a tree that is searched for devices.
const maxDeviceFiles = 1 << 16

// HostDevices returns all devices of the machine, for privileged containers.
// Terminals and what a container has for itself are left out.
func HostDevices() ([]spec.Device, error) {
	found, err := devicesAt("/dev", maxDeviceFiles)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	for i := range found {
		found[i].Path = filepath.Join("/dev", found[i].Path)
	}
	return found, nil
}

// devicesAt walks what is at root, at most limit files; paths in the answer are below root.
func devicesAt(root string, limit int) ([]spec.Device, error) {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	var out []spec.Device
	files := 0
	err = filepath.WalkDir(real, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != real {
			return nil // gone meanwhile
		}
		if err != nil {
			return err
		}
		if files++; files > limit {
			return fmt.Errorf("%q has more than %d files: %w", root, limit, errdefs.ErrInvalidArgument)
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

// device reads one file; false if it is no device or does not exist.
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
