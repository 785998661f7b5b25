package wasm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/criserver/check"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// Kept returns what the node's cache has of each module. Of some it is only what a compilation
// left.
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

// Faults returns the entries for this engine that are not whole, and the folders of compilations
// that were killed: every folder, if no compilation runs. Nothing is locked.
func (n Node) Faults() ([]check.Fault, error) {
	orphans, err := compile.Orphans(n.Cache)
	if err != nil {
		return nil, err
	}
	var faults []check.Fault
	for _, dir := range orphans {
		faults = append(faults, check.Fault{
			Subject: "folder " + dir, What: "it is the remains of a compilation or a removal that was cut short", Remove: func() error { return os.RemoveAll(dir) },
		})
	}
	digests, err := compile.Digests(n.Cache)
	if err != nil {
		return nil, err
	}
	for _, d := range digests {
		if why := n.damage(d); why != "" {
			faults = append(faults, check.Fault{
				Subject: "compiled module " + d, What: "it is damaged, and made anew when it is needed: " + why, Remove: func() error { return n.Drop(d) },
			})
		}
	}
	return faults, nil
}

// damage says why an entry of a module is not whole, "" if all are that there are for this engine.
func (n Node) damage(digest string) string {
	for _, optimizeGo := range []bool{false, true} {
		if why := n.damaged(digest, compile.Without(optimizeGo)); why != "" {
			return why
		}
	}
	return ""
}

// damaged is damage for the entry that is made without the skipped steps.
func (n Node) damaged(digest string, skip compile.Steps) string {
	_, err := compile.Open(n.Cache, digest, skip)
	if err == nil {
		return ""
	}
	if missing, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(missing, fs.ErrNotExist) {
		if _, err := os.Lstat(filepath.Dir(missing.Path)); errors.Is(err, fs.ErrNotExist) {
			return ""
		}
	}
	return strings.TrimSuffix(err.Error(), ": "+errdefs.ErrNotFound.Error())
}
