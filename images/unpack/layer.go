package unpack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

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
	info, err := s.snapshots.Stat(s.quiet(ctx), chain.String())
	if err != nil {
		return fmt.Errorf("check layer %s: %w", chain, err)
	}
	if info.Labels[damagedLabel] != "" {
		return fmt.Errorf("layer %s was found damaged: %w", chain, errdefs.ErrDataLoss)
	}
	got, err := fingerprint.Of(ctx, info.Labels[upperLabel], nil)
	var errno syscall.Errno
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrNotExist), errors.As(err, &errno) && (errno == unix.EIO || errno == unix.EUCLEAN || errno == unix.ENODATA):
		return fmt.Errorf("layer %s is damaged: %w: %w", chain, err, errdefs.ErrDataLoss)
	case err != nil:
		return fmt.Errorf("check layer %s: %w", chain, err)
	}
	if want := info.Labels[printLabel]; want != "" && want != got.String() {
		return fmt.Errorf("layer %s is damaged: its files are not those that were unpacked: %w", chain, errdefs.ErrDataLoss)
	}
	return nil
}

// MarkDamaged makes a layer count as not there, so that the next Stage and Commit of its chain put
// another in its place. It stays for the containers that have it.
func (s *Store) MarkDamaged(ctx context.Context, chain digest.Digest) error {
	return s.setLabels(s.quiet(ctx), chain, map[string]string{damagedLabel: strconv.FormatBool(true)})
}

// setLabels changes a layer's labels and takes some away.
func (s *Store) setLabels(ctx context.Context, chain digest.Digest, labels map[string]string, without ...string) error {
	info := snapshots.Info{Name: chain.String(), Labels: labels}
	var fields []string
	for name := range labels {
		fields = append(fields, "labels."+name)
	}
	for _, name := range without {
		fields = append(fields, "labels."+name) // absent: removed
	}
	if _, err := s.snapshots.Update(ctx, info, fields...); err != nil {
		return fmt.Errorf("mark layer %s: %w", chain, err)
	}
	s.keepRecords(ctx)
	return nil
}

// Chain returns the chain ids of which a chain consists, the topmost first.
//
// # Errors
//
// ErrNotFound if the chain is not unpacked.
func (s *Store) Chain(ctx context.Context, top digest.Digest) ([]digest.Digest, error) {
	var out []digest.Digest
	for c := top; c != ""; {
		info, err := s.snapshots.Stat(s.quiet(ctx), c.String())
		if err != nil {
			return nil, fmt.Errorf("find layer %s: %w", c, err)
		}
		out = append(out, c)
		c = digest.Digest(info.Parent)
	}
	return out, nil
}

// Whole reports whether a chain and all of which it consists are unpacked and
// not known to be damaged.
func (s *Store) Whole(ctx context.Context, top digest.Digest) bool {
	chains, err := s.Chain(ctx, top)
	return err == nil && !slices.ContainsFunc(chains, func(c digest.Digest) bool { return !s.Has(ctx, c) })
}

// WithChain calls fn with a directory that shows a chain, read-only, during the
// call. The caller has pinned the chain.
func (s *Store) WithChain(ctx context.Context, chain digest.Digest, fn func(dir string) error) (err error) {
	ctx = s.quiet(ctx)
	key := workKey()
	mounts, err := s.snapshots.View(ctx, key, chain.String())
	if err != nil {
		return fmt.Errorf("view layers %s: %w", chain, err)
	}
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx), key)) }()
	return s.withMounts(mounts, fn)
}
