package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/pods/translate"
	"github.com/sunaba-project/sunaba/pods/volumes"
)

// The annotation translate.RunAnnotation marks a pod that is to end with the process that runs it.
// Its value is the path of a file that this process has locked, below "runs" beside the server's
// socket, with the pod's uid as its name. The kernel gives the lock back however the process ends,
// and a reboot takes the file. A pod that is kept has another value, which is no path.

// maxOwner bounds the content of such a file: the folder of the run's logs and volumes.
const maxOwner = 4096

// owner is the lock of a run.
type owner struct {
	file *os.File
	path string
}

// own locks the file of a run whose logs and volumes are in dir.
func own(socket, uid, dir string) (*owner, error) {
	folder, err := locks(socket)
	if err != nil {
		return nil, err
	}
	f, err := lockNew(folder, uid)
	if err != nil {
		return nil, err
	}
	o := &owner{file: f, path: filepath.Join(folder, uid)}
	if _, err := f.WriteString(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("write lock: %w", err), o.release())
	}
	return o, nil
}

// lockNew makes a locked file in a folder, which it makes if it is not there. The last run that
// ends removes the folder: each try after the first is for one that did so meanwhile.
func lockNew(folder, name string) (f *os.File, err error) {
	if err := os.MkdirAll(filepath.Dir(folder), 0o700); err != nil {
		return nil, fmt.Errorf("make lock: %w", err)
	}
	for range 100 {
		if f, err = lockIn(folder, name); err == nil {
			return f, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, fmt.Errorf("make lock: %w", err)
}

// lockIn is one try.
func lockIn(folder, name string) (f *os.File, err error) {
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	err = inFolder(folder, func(in *os.Root) error {
		if f, err = in.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err != nil {
			return err
		}
		if err := durable.Lock(f); err != nil {
			return errors.Join(err, f.Close(), in.Remove(name))
		}
		return nil
	})
	return f, err
}

// inFolder calls f while no other process is in the folder of locks. Between its making and its
// lock, a file would be taken for that of a run that was killed.
func inFolder(folder string, f func(*os.Root) error) error {
	in, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer in.Close()
	self, err := in.Open(".")
	if err != nil {
		return err
	}
	defer self.Close()
	if err := durable.WaitLock(self); err != nil {
		return err
	}
	return f(in)
}

// locks is the folder of the locks of a server's runs.
func locks(socket string) (string, error) {
	path, err := filepath.Abs(socket)
	if err != nil {
		return "", fmt.Errorf("find folder of locks: %w", err)
	}
	return filepath.Join(filepath.Dir(path), "runs"), nil
}

// release gives the lock back, after the pod's end.
func (o *owner) release() error { return durable.RemoveLock(o.file) }

// Orphan reports whether a pod was run by a `sunaba run` that does not live any more.
func Orphan(uid string, annotations map[string]string) (bool, error) {
	path := annotations[translate.RunAnnotation]
	if path == "" {
		return false, nil
	}
	if !filepath.IsAbs(path) || filepath.Base(path) != uid {
		return false, nil // not written by a run
	}
	orphan, err := unlocked(path)
	if err != nil {
		return false, fmt.Errorf("look at the run of pod %q: %w", uid, err)
	}
	return orphan, nil
}

// unlocked reports whether nobody holds a lock; one that is not there is held by nobody.
func unlocked(path string) (bool, error) {
	f, err := regular.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	locked, err := durable.Locked(f)
	return err == nil && !locked, err
}

// Clear removes from a server the pods of runs that were killed, with their logs and volumes; say
// is called for each. Pods that it cannot remove are in the error.
func Clear(ctx context.Context, client *dial.Client, socket string, say func(format string, args ...any)) error {
	list, err := client.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list pods: %w", dial.Native(err))
	}
	folder, err := locks(socket)
	if err != nil {
		return err
	}
	server, swept, err := criOf(ctx, client)
	if err != nil {
		return err
	}
	errs := []error{swept}
	known := map[string]bool{}
	for _, pod := range list.GetItems() {
		uid, name := pod.GetMetadata().GetUid(), pod.GetMetadata().GetNamespace()+"/"+pod.GetMetadata().GetName()
		known[uid] = true
		orphan, err := Orphan(uid, pod.GetAnnotations())
		if err != nil || !orphan {
			errs = append(errs, err)
			continue
		}
		say("removing pod %s (%.13s), whose sunaba run was killed", name, pod.GetId())
		if err := clearPod(ctx, server, pod.GetId(), filepath.Join(folder, uid)); err != nil {
			errs = append(errs, fmt.Errorf("remove pod %q of a sunaba run that was killed: %w", name, err))
		}
	}
	return errors.Join(append(errs, sweep(folder, known))...)
}

// sweep removes the locks of runs that were killed and have no pod, with their folders.
func sweep(folder string, known map[string]bool) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	var errs []error
	for _, e := range entries {
		if !known[e.Name()] {
			errs = append(errs, sweepLock(filepath.Join(folder, e.Name())))
		}
	}
	return errors.Join(append(errs, err)...)
}

// sweepLock removes one that nobody holds. It holds it meanwhile, against other sweeps.
func sweepLock(path string) error {
	var f *os.File
	err := inFolder(filepath.Dir(path), func(*os.Root) (err error) {
		if f, err = regular.Open(path); err != nil {
			return err
		}
		return durable.Lock(f)
	})
	if f != nil {
		defer f.Close()
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, durable.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	return clearFolder(path)
}

func clearPod(ctx context.Context, server cri, id, lock string) error {
	if _, err := server.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: id}); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if _, err := server.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	return clearFolder(lock)
}

// clearFolder removes the logs and volumes of the pod that a lock names, and the lock.
func clearFolder(lock string) error {
	f, err := regular.Open(lock)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := clearNamed(f, lock); err != nil {
		return errors.Join(err, f.Close())
	}
	return durable.RemoveLock(f)
}

// clearNamed removes the logs and volumes of the pod that an open lock names.
func clearNamed(f *os.File, lock string) error {
	data, err := regular.ReadAll(f, lock, maxOwner)
	if err != nil {
		return err
	}
	// Only a folder that a run made is removed, whatever the file says.
	if dir := string(data); strings.HasPrefix(filepath.Base(dir), dirPrefix) && filepath.IsAbs(dir) {
		if err := clearVolumes(dir, filepath.Base(lock)); err != nil {
			return err
		}
		if err := removeDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// clearVolumes removes the volumes of a pod whose containers are removed, and what is mounted for
// them.
func clearVolumes(dir, uid string) error {
	if _, err := os.Lstat(memoryIn(dir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	v, err := volumes.New(volumes.Options{Dir: podsIn(dir), Memory: memoryIn(dir), Claims: claimsIn(dir), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return errors.Join(v.TearDown(uid), v.Close())
}

// The folders of a run: of its pod's record and volumes, of volumes in memory, of claims and of
// logs.
func podsIn(dir string) string   { return filepath.Join(dir, "pods") }
func memoryIn(dir string) string { return filepath.Join(dir, "memory") }
func claimsIn(dir string) string { return filepath.Join(dir, "claims") }
func logsIn(dir string) string   { return filepath.Join(dir, "logs") }

// removeDir removes the logs and volumes, unless a container has left a mount there, through which
// something else would be removed.
func removeDir(dir string) error {
	mounts, err := mount.Below(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("remove %q: there is a mount at %q: %w", dir, mounts[0], errdefs.ErrFailedPrecondition)
	}
	return os.RemoveAll(dir)
}
