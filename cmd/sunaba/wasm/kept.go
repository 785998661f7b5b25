package wasm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/check"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// Names in the cache that tell what is no entry: folders in which compilations work, and the file with a lock for each of them.
const (
	stagePrefix = "tmp-"
	lockName    = "lock"
)

// Kept returns what the node's cache has of each module. Of some it is only what a compilation left.
func (n Node) Kept() ([]images.Prepared, error) {
	modules, err := compile.List(n.Cache)
	var all []images.Prepared
	for _, m := range modules {
		all = append(all, images.Prepared{Digest: digest.Digest(m.Digest), Bytes: m.Bytes, Used: m.Used, Running: m.Running})
	}
	return all, err
}

// Drop removes what the node's cache has of a module.
func (n Node) Drop(digest string) error { return compile.Drop(n.Cache, digest) }

// Faults returns the entries for this engine that are not whole, and the folders of compilations that were killed: all that are
// there while none is under way. Nothing is locked.
func (n Node) Faults() ([]check.Fault, error) {
	faults, err := n.leftovers()
	if err != nil {
		return nil, err
	}
	modules, err := compile.List(n.Cache)
	if err != nil {
		return nil, err
	}
	for _, m := range modules {
		if why := n.damage(m.Digest); why != "" {
			faults = append(faults, check.Fault{
				Subject: "compiled module " + m.Digest, What: "it is damaged, and made anew when it is needed: " + why, Remove: func() error { return n.Drop(m.Digest) },
			})
		}
	}
	return faults, nil
}

// damage says why the entry of a module is not whole, "" if it is, or if there is none for this engine.
func (n Node) damage(digest string) string {
	_, err := compile.Open(n.Cache, digest)
	if err == nil {
		return ""
	}
	var missing *fs.PathError
	if errors.As(err, &missing) && errors.Is(missing, fs.ErrNotExist) {
		if _, err := os.Lstat(filepath.Dir(missing.Path)); errors.Is(err, fs.ErrNotExist) {
			return ""
		}
	}
	return strings.TrimSuffix(err.Error(), ": "+errdefs.ErrNotFound.Error())
}

// leftovers returns folders in which nobody compiles.
func (n Node) leftovers() ([]check.Fault, error) {
	found, err := filepath.Glob(filepath.Join(n.Cache, stagePrefix+"*"))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	// Who compiles has its lock for as long as its folder is there. So a folder that is older than a moment at which
	// there is no lock is nobody's.
	if busy, err := n.compiling(); err != nil || busy {
		return nil, err
	}
	var faults []check.Fault
	for _, dir := range found {
		if _, err := os.Lstat(dir); err != nil {
			continue // it went meanwhile, with its compilation
		}
		faults = append(faults, check.Fault{
			Subject: "folder " + dir, What: "it is the remains of a compilation or a removal that was cut short", Remove: func() error { return os.RemoveAll(dir) },
		})
	}
	return faults, nil
}

// compiling says whether anybody has a lock of the cache.
func (n Node) compiling() (bool, error) {
	f, err := os.Open(filepath.Join(n.Cache, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open lock of module cache: %w", err)
	}
	defer f.Close()
	all := unix.Flock_t{Type: unix.F_WRLCK} // from the beginning to the end
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &all); err != nil {
		return false, fmt.Errorf("read lock of module cache: %w", err)
	}
	return all.Type != unix.F_UNLCK, nil
}
