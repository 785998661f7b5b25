package volumes

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// TearDown removes the volumes of a pod, its hosts file, its termination messages and the places of
// its subPath mounts. Its containers must be gone. What is mounted in the folders is detached
// first, and nothing is deleted through a mount. Claims and hostPaths keep their content. It may be
// called again, and for a pod that never had anything.
//
// # Errors
//
// ErrInvalidArgument for an invalid UID, ErrFailedPrecondition if somebody mounts there all the
// time; else those of the file system. Then the rest is removed by the next call.
func (m *Manager) TearDown(uid string) error {
	p, err := m.placesFor(uid)
	if err != nil {
		return err
	}
	defer m.locks.lock(uid)()
	m.usage.forget(uid)
	var errs []error
	for _, dir := range []string{p.subPaths(), p.memory, p.volumes(), p.messages()} {
		errs = append(errs, releaseAll(dir))
	}
	if err := unix.Unlink(p.hosts()); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
		errs = append(errs, &os.PathError{Op: "remove", Path: p.hosts(), Err: err})
	}
	errs = append(errs, removeIfEmpty(p.dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove volumes of pod %q: %w", uid, err)
	}
	return nil
}

// Sweep tears down the volumes of all pods that are not known once their folder is found. Folders
// whose name is not that of a pod are not touched, nor a pod's that still has a record: whether that
// is right is for the agent to find out.
//
// # Errors
//
// Those of TearDown, joined; the other pods are swept.
func (m *Manager) Sweep(known func(types.UID) bool) error {
	uids := map[string]bool{}
	for _, dir := range []string{m.o.Dir, m.o.Memory} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("look for volumes of deleted pods: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && isUID(e.Name()) && !known(types.UID(e.Name())) {
				uids[e.Name()] = true
			}
		}
	}
	var errs []error
	for uid := range uids {
		p, err := m.placesFor(uid)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(p.record()); err == nil {
			m.o.Logger.Warn("failed to remove volumes of an unknown pod: it has a record", "pod", uid)
			continue
		} else if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		if err := m.TearDown(uid); err != nil {
			errs = append(errs, err)
			continue
		}
		m.o.Logger.Info("volumes of deleted pod removed", "pod", uid)
	}
	return errors.Join(errs...)
}
