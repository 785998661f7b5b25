package unpack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/images/unpack/fingerprint"
)

// Labels on committed layers.
const (
	printLabel   = "sunaba/print" // "sunaba/fingerprint" was another sum
	damagedLabel = "sunaba/damaged"
)

// Check reads an unpacked layer and compares it with what was unpacked.
//
// # Errors
//
// ErrNotFound for a layer that is not known; ErrDataLoss for one that is damaged.
func (s *Store) Check(ctx context.Context, chain digest.Digest) error {
	f, err := s.layer(chain)
	if err != nil {
		return err
	}
	if f.Labels[damagedLabel] != "" {
		return fmt.Errorf("layer %s was found damaged: %w", chain, errdefs.ErrDataLoss)
	}
	got, err := fingerprint.Of(ctx, s.upper(f), nil)
	var errno syscall.Errno
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrNotExist), errors.As(err, &errno) && (errno == unix.EIO || errno == unix.EUCLEAN || errno == unix.ENODATA):
		return fmt.Errorf("layer %s is damaged: %w: %w", chain, err, errdefs.ErrDataLoss)
	case err != nil:
		return fmt.Errorf("check layer %s: %w", chain, err)
	}
	if want := f.Labels[printLabel]; want != "" && want != got.String() {
		return fmt.Errorf("layer %s is damaged: its files are not those that were unpacked: %w", chain, errdefs.ErrDataLoss)
	}
	return nil
}

// MarkDamaged makes a layer count as not there, so that the next Stage and Commit of its chain put
// another in its place. It stays for the containers that have it.
func (s *Store) MarkDamaged(chain digest.Digest) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	f, err := s.layer(chain)
	if err != nil {
		return err
	}
	labels := map[string]string{damagedLabel: strconv.FormatBool(true)}
	maps.Copy(labels, f.Labels)
	f.Labels = labels
	if err := f.write(s.dir(f), durable.Write); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("mark layer %s: %w", chain, err)
	}
	s.set(f)
	return nil
}

// usable reports whether the files of a layer are there, and not known to be damaged.
func (s *records) usable(f folder) bool {
	return f.Labels[damagedLabel] == "" && isDir(s.upper(f))
}

// Chain returns the chain ids of which a chain consists, the topmost first.
//
// # Errors
//
// ErrNotFound if the chain is not unpacked.
func (s *Store) Chain(top digest.Digest) (out []digest.Digest, err error) {
	layers, err := s.chain(top)
	for _, f := range layers {
		out = append(out, f.Chain)
	}
	return out, err
}

// Whole reports whether a chain and all of which it consists are unpacked and
// not known to be damaged.
func (s *Store) Whole(top digest.Digest) bool {
	layers, err := s.chain(top)
	return err == nil && !slices.ContainsFunc(layers, func(f folder) bool { return !s.usable(f) })
}

// WithChain calls fn with a directory that shows a chain, read-only, during the call, and keeps it
// from Sweep meanwhile. The caller has kept it until fn is called.
func (s *Store) WithChain(chain digest.Digest, fn func(dir string) error) error {
	defer s.Pin(chain)()
	mounts, err := s.mountsOf(folder{record: record{Parent: chain, View: true}})
	if err != nil {
		return fmt.Errorf("view layers %s: %w", chain, err)
	}
	return s.withMounts(mounts, fn)
}
