package unpack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/containerd/errdefs"
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

func (g staged) record(l Layer) record {
	return record{
		Version: recordVersion, Chain: l.Chain, Parent: l.Parent,
		Labels: map[string]string{printLabel: g.print.String()}, Bytes: g.print.Room, Inodes: g.print.Inodes,
	}
}

// staging holds layers that are not committed yet, and the pins of layers.
type staging struct {
	log *slog.Logger

	mu     sync.Mutex // held while Sweep decides about and removes layers, too
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
		s.log.Warn("failed to remove unused unpacked layer, it stays until the next start", "error", err)
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
	if s.Has(l.Chain) {
		return nil
	}
	_, err := s.stages.Do(ctx, l.Chain.String(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.stage(ctx, l)
	})
	return err
}

func (s *Store) stage(ctx context.Context, l Layer) (err error) {
	if _, done := s.stagedLayer(l.Chain); done || s.Has(l.Chain) {
		return nil
	}
	ctx, span := trace.Start(ctx, "unpack layer")
	span.Text(trace.Digest, l.Diff.String())
	defer func() { span.End(err) }()
	g := staged{}
	if g.dir, err = s.create(); err != nil {
		return fmt.Errorf("unpack layer %s: %w", l.Diff, space.Explain(s.root, err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("unpack layer %s: %w", l.Diff, err), os.RemoveAll(g.dir))
		}
	}()
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

// Commit makes layers known that have been staged, after all of them have been brought to disk.
// Those that are known stay as they are. It calls drop, which may delete what the layers came in,
// first: from then on Committed waits.
//
// # Errors
//
// ErrFailedPrecondition for a layer that is neither known nor staged;
// ErrResourceExhausted if the disk is full.
func (s *Store) Commit(ctx context.Context, layers []Layer, drop func()) (err error) {
	s.committing.Lock()
	defer s.committing.Unlock()
	drop()
	todo := slices.DeleteFunc(slices.Clone(layers), func(l Layer) bool { return s.Has(l.Chain) })
	if len(todo) == 0 {
		return nil
	}
	_, span := trace.Start(ctx, "commit layers")
	span.Number("sunaba.layers", int64(len(todo)))
	defer func() { span.End(err) }()
	if err := s.settle(todo); err != nil {
		return fmt.Errorf("commit layers: %w", space.Explain(s.root, err))
	}
	for _, l := range todo {
		g, _ := s.stagedLayer(l.Chain) // settle has seen it
		if err := g.record(l).write(g.dir, os.WriteFile); err != nil {
			return fmt.Errorf("commit layer %s: %w", l.Diff, space.Explain(s.root, err))
		}
	}
	if err := s.Sync(); err != nil {
		return space.Explain(s.root, err)
	}
	if err := s.commit(todo); err != nil {
		return fmt.Errorf("commit layers: %w", space.Explain(s.root, err))
	}
	return nil
}

// Committed says whether a layer is unpacked, after the end of the Commit that makes it known if
// there is one.
func (s *Store) Committed(chain digest.Digest) bool {
	if _, staged := s.stagedLayer(chain); staged {
		s.committing.Lock()
		defer s.committing.Unlock()
	}
	return s.Has(chain)
}

// settle copies owner, mode, times and attributes of directories that a layer only implies from the
// layers below.
func (s *Store) settle(layers []Layer) error {
	for _, l := range layers {
		g, ok := s.stagedLayer(l.Chain)
		if !ok {
			return fmt.Errorf("layer %s is not unpacked: %w", l.Diff, errdefs.ErrFailedPrecondition)
		}
		if len(g.implied) == 0 {
			continue
		}
		below, err := s.below(l.Parent, layers)
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
func (s *Store) below(chain digest.Digest, layers []Layer) ([]string, error) {
	var dirs []string
	for chain != "" {
		i := slices.IndexFunc(layers, func(l Layer) bool { return l.Chain == chain })
		if i >= 0 {
			g, _ := s.stagedLayer(chain)
			dirs = append(dirs, g.fs())
			chain = layers[i].Parent
			continue
		}
		f, err := s.layer(chain)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, s.upper(f))
		chain = f.Parent
	}
	return dirs, nil
}

// commit moves the folders of layers to their places, durably, before anyone is told of them. Of a
// layer that is damaged the folders are exchanged: roots name its place.
func (s *Store) commit(layers []Layer) (err error) {
	defer func() {
		s.forgetStaged(layers)
		if err != nil {
			err = errors.Join(err, s.Cleanup()) // no record names what was moved
		}
	}()
	s.changing.Lock()
	defer s.changing.Unlock()
	var entered []folder
	for _, l := range layers {
		g, ok := s.stagedLayer(l.Chain)
		if !ok {
			return fmt.Errorf("layer %s is not unpacked: %w", l.Diff, errdefs.ErrFailedPrecondition)
		}
		f, err := s.layer(l.Chain)
		if f.record = g.record(l); err == nil {
			err = s.exchange(g.dir, f)
		} else {
			s.last++
			f.name = strconv.FormatUint(s.last, 10)
			err = os.Rename(g.dir, s.dir(f))
		}
		if err != nil {
			return fmt.Errorf("move layer %s to %q: %w", l.Diff, s.dir(f), err)
		}
		entered = append(entered, f)
	}
	if err := durable.Sync(s.layersDir()); err != nil {
		return err
	}
	for _, f := range entered {
		s.set(f)
	}
	return nil
}

// exchange puts a directory in the place of a layer that is damaged, and keeps that one until the
// next boot.
func (s *records) exchange(dir string, f folder) error {
	aside, err := s.setAside(dir, f.name+whyDamaged)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir(f), 0o700); err != nil {
		return err
	}
	return unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, s.dir(f), unix.RENAME_EXCHANGE)
}
