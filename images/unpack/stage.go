package unpack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/images/unpack/fingerprint"
)

// staged is a layer that has been unpacked and is not committed yet.
type staged struct {
	dir     string   // holds "fs", the layer's files
	implied []string // directories whose owner and mode the layers below say
	print   fingerprint.Fingerprint
}

func (g staged) fs() string { return filepath.Join(g.dir, "fs") }

func (g staged) labels() map[string]string { return map[string]string{printLabel: g.print.String()} }

// staging holds layers that are not committed yet, and the pins of layers.
type staging struct {
	dir string
	log *log.Entry

	mu     sync.Mutex // held while Sweep decides about and removes a layer, too
	pins   map[digest.Digest]int
	staged map[digest.Digest]staged // by chain
}

// Pin keeps chains from Sweep, and what was staged of them, whether they are
// there yet or not, until unpin is called.
func (s *staging) Pin(chains ...digest.Digest) (unpin func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chains {
		s.pins[c]++
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range chains {
			if s.pins[c]--; s.pins[c] == 0 {
				delete(s.pins, c)
				s.dropStaged(c)
			}
		}
	})
}

func (s *staging) stagedLayer(chain digest.Digest) (staged, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.staged[chain]
	return g, ok
}

// forgetStaged deletes what is left of what has been staged for layers.
func (s *staging) forgetStaged(layers []Layer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range layers {
		s.dropStaged(l.Chain)
	}
}

// dropStaged deletes a staged layer; s.mu is held.
func (s *staging) dropStaged(chain digest.Digest) {
	g, ok := s.staged[chain]
	if !ok {
		return
	}
	delete(s.staged, chain)
	if err := os.RemoveAll(g.dir); err != nil {
		s.log.WithError(err).Warn("failed to remove unused unpacked layer, it stays until the next start")
	}
}

// Stage unpacks a layer by itself, whether those below it are there or not, unless that has been
// done. Concurrent calls for one chain share the work. The caller has pinned the chain: what was
// staged stays until Commit, or until its last pin is released.
//
// # Errors
//
// ErrDataLoss if the stream is not what Diff says; ErrInvalidArgument for a layer beyond the
// limits; ErrResourceExhausted if the disk is full. On any error nothing is left.
func (s *Store) Stage(ctx context.Context, l Layer) error {
	if s.Has(ctx, l.Chain) {
		return nil
	}
	_, err := s.stages.Do(ctx, l.Chain.String(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.stage(s.quiet(ctx), l)
	})
	return err
}

func (s *Store) stage(ctx context.Context, l Layer) (err error) {
	if _, done := s.stagedLayer(l.Chain); done || s.Has(ctx, l.Chain) {
		return nil
	}
	ctx, span := trace.Start(ctx, "unpack layer")
	span.Text(trace.Digest, l.Diff.String())
	defer func() { span.End(err) }()
	g := staged{}
	if g.dir, err = os.MkdirTemp(s.staging.dir, ""); err != nil {
		return fmt.Errorf("unpack layer %s: %w", l.Diff, space.Explain(s.staging.dir, err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("unpack layer %s: %w", l.Diff, err), os.RemoveAll(g.dir))
		}
	}()
	if err := os.Mkdir(g.fs(), 0o755); err != nil {
		return space.Explain(s.staging.dir, err)
	}
	if err := os.Chmod(g.fs(), 0o755); err != nil { // whatever the umask is
		return err
	}
	var sums fingerprint.Sums
	if g.implied, sums, err = s.Extract(ctx, l, g.fs()); err != nil {
		return err
	}
	if g.print, err = fingerprint.Of(ctx, g.fs(), sums); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pins[l.Chain] == 0 {
		return fmt.Errorf("no request waits for it any more: %w", errdefs.ErrAborted)
	}
	s.staged[l.Chain] = g
	return nil
}

// Commit makes layers known that have been staged, lowest first, with one record for all of them:
// after they have been brought to disk. Those that are known stay as they are.
//
// # Errors
//
// ErrFailedPrecondition for a layer that is neither known nor staged;
// ErrResourceExhausted if the disk is full.
func (s *Store) Commit(ctx context.Context, layers []Layer) (err error) {
	ctx = s.quiet(ctx)
	s.committing.Lock()
	defer s.committing.Unlock()
	var todo []Layer
	for _, l := range layers {
		if !s.Has(ctx, l.Chain) {
			todo = append(todo, l)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	ctx, span := trace.Start(ctx, "commit layers")
	span.Number("sunaba.layers", int64(len(todo)))
	defer func() { span.End(err) }()
	if err := s.settle(ctx, todo); err != nil {
		return fmt.Errorf("commit layers: %w", space.Explain(s.root, err))
	}
	for _, l := range todo {
		g, _ := s.stagedLayer(l.Chain) // settle has seen it
		if err := writeRecord(g.dir, g.record(l)); err != nil {
			return fmt.Errorf("commit layer %s: %w", l.Diff, space.Explain(s.root, err))
		}
	}
	if err := s.Sync(); err != nil {
		return space.Explain(s.root, err)
	}
	if err := s.commit(ctx, todo); err != nil {
		return fmt.Errorf("commit layers: %w", space.Explain(s.root, err))
	}
	return nil
}

// settle copies owner, mode, times and attributes of directories that a layer only implies from the
// layers below.
func (s *Store) settle(ctx context.Context, layers []Layer) error {
	for _, l := range layers {
		g, ok := s.stagedLayer(l.Chain)
		if !ok {
			return fmt.Errorf("layer %s is not unpacked: %w", l.Diff, errdefs.ErrFailedPrecondition)
		}
		if len(g.implied) == 0 {
			continue
		}
		below, err := s.below(ctx, l.Parent, layers)
		if err != nil {
			return err
		}
		slices.Sort(g.implied)
		for _, dir := range slices.Backward(g.implied) { // inner ones first, for the times
			if err := g.imitate(dir, below); err != nil {
				return fmt.Errorf("layer %s: directory %q: %w", l.Diff, dir, err)
			}
		}
		g.implied = nil
		s.mu.Lock()
		s.staged[l.Chain] = g
		s.mu.Unlock()
	}
	return nil
}

// below returns the directories of a chain, the topmost first. layers are those
// that may be staged only.
func (s *Store) below(ctx context.Context, chain digest.Digest, layers []Layer) ([]string, error) {
	var dirs []string
	for chain != "" {
		i := slices.IndexFunc(layers, func(l Layer) bool { return l.Chain == chain })
		if i >= 0 {
			g, _ := s.stagedLayer(chain)
			dirs = append(dirs, g.fs())
			chain = layers[i].Parent
			continue
		}
		info, err := s.snapshots.Stat(ctx, chain.String())
		if err != nil {
			return nil, fmt.Errorf("find layer %s: %w", chain, err)
		}
		dirs = append(dirs, info.Labels[upperLabel])
		chain = digest.Digest(info.Parent)
	}
	return dirs, nil
}

// commit records layers in one transaction, whose directories move to their
// places before it ends. Damaged ones are replaced.
func (s *Store) commit(ctx context.Context, layers []Layer) (err error) {
	var moved []string
	defer func() {
		if err == nil {
			return
		}
		err = errors.Join(err, s.removeFolders(moved)) // no record names them
	}()
	var fresh, damaged []Layer
	for _, l := range layers {
		_, err := s.snapshots.Stat(ctx, l.Chain.String())
		switch {
		case err == nil:
			damaged = append(damaged, l)
		case errdefs.IsNotFound(err):
			fresh = append(fresh, l)
		default:
			return fmt.Errorf("find layer %s: %w", l.Chain, err)
		}
	}
	// Not in the transaction: Sweep asks for one with s.mu held.
	unpacked := make(map[digest.Digest]staged)
	for _, l := range layers {
		g, ok := s.stagedLayer(l.Chain)
		if !ok {
			return fmt.Errorf("layer %s is not unpacked: %w", l.Diff, errdefs.ErrFailedPrecondition)
		}
		unpacked[l.Chain] = g
	}
	if len(fresh) > 0 {
		err = s.meta.WithTransaction(ctx, true, func(ctx context.Context) error {
			for _, l := range fresh {
				dir, err := s.enter(ctx, l, unpacked[l.Chain])
				if dir != "" {
					moved = append(moved, dir)
				}
				if err != nil {
					return fmt.Errorf("layer %s: %w", l.Diff, err)
				}
			}
			return durable.Sync(s.layersDir())
		})
		s.forgetStaged(fresh)
		if err != nil {
			return err
		}
		moved = nil
	}
	for _, l := range damaged {
		if err := s.replace(ctx, l, unpacked[l.Chain]); err != nil {
			return fmt.Errorf("replace damaged layer %s: %w", l.Diff, err)
		}
	}
	return nil
}

// enter records one layer and moves its directory, to the place it returns.
func (s *Store) enter(ctx context.Context, l Layer, g staged) (string, error) {
	id, err := recordLayer(ctx, g.record(l))
	if err != nil {
		return "", err
	}
	dir := filepath.Join(s.layersDir(), id)
	if err := os.Rename(g.dir, dir); err != nil {
		return "", err
	}
	return dir, nil
}

// replace puts a staged layer in the place of a damaged one. The damaged files
// stay until the next boot where containers may have them mounted.
func (s *Store) replace(ctx context.Context, l Layer, g staged) error {
	info, err := s.snapshots.Stat(ctx, l.Chain.String())
	if err != nil {
		return err
	}
	place := filepath.Dir(info.Labels[upperLabel])
	if err := os.MkdirAll(place, 0o700); err != nil {
		return err
	}
	if err := unix.Renameat2(unix.AT_FDCWD, g.dir, unix.AT_FDCWD, place, unix.RENAME_EXCHANGE); err != nil {
		return &os.LinkError{Op: "exchange", Old: g.dir, New: place, Err: err}
	}
	if err := durable.Sync(filepath.Dir(place)); err != nil {
		return err
	}
	if err := s.setLabels(ctx, l.Chain, g.labels(), damagedLabel); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.staged, l.Chain)
	s.mu.Unlock()
	return s.setAside(g.dir, filepath.Base(g.dir))
}
