package unpack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/images/boltfile"
)

// records are what metadata.db and the folders of layers say about snapshots.
type records struct {
	boots
	meta      *storage.MetaStore
	snapshots snapshots.Snapshotter
	log       *log.Entry

	restored bool       // when they were opened
	folders  sync.Mutex // held while record files of layers are written or removed
}

// recordsFile says which folder is which layer.
func (s *records) recordsFile() string { return filepath.Join(s.root, "metadata.db") }

func (s *records) layersDir() string { return filepath.Join(s.root, "snapshots") }

// openRecords opens the records of the layers. If they are damaged, they are put aside. Those, and
// lost ones, are restored from the folders of the layers. What cannot be restored is put aside, and
// containers continue with what they have mounted.
func (s *records) openRecords(ctx context.Context) error {
	if err := boltfile.Ensure(s.recordsFile(), nil, s.logger); err != nil {
		return err
	}
	if _, err := os.Stat(s.recordsFile()); errors.Is(err, os.ErrNotExist) {
		if err := s.restore(ctx); err != nil {
			return err
		}
	}
	err := s.openSnapshots(ctx)
	if !errdefs.IsDataLoss(err) {
		return err
	}
	if err := boltfile.PutAside(s.recordsFile(), err, s.logger); err != nil {
		return err
	}
	if err := s.restore(ctx); err != nil {
		return err
	}
	return s.openSnapshots(ctx)
}

// openSnapshots opens the snapshotter and reads all its records once.
//
// # Errors
//
// ErrDataLoss for records that cannot be read.
func (s *records) openSnapshots(ctx context.Context) (err error) {
	if s.meta, err = storage.NewMetaStore(s.recordsFile()); err != nil {
		return err
	}
	s.snapshots, err = overlay.NewSnapshotter(s.root,
		overlay.WithMetaStore(s.meta), overlay.WithUpperdirLabel, overlay.AsynchronousRemove, overlay.WithRemapIDs)
	if err != nil {
		return errors.Join(err, s.meta.Close())
	}
	if err := s.readRecords(ctx); err != nil {
		return errors.Join(err, s.snapshots.Close())
	}
	return nil
}

func (s *records) readRecords(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("read records of layers: %v: %w", r, errdefs.ErrDataLoss)
		}
	}()
	some := false
	err = s.snapshots.Walk(s.quiet(ctx), func(ctx context.Context, info snapshots.Info) error {
		some = true
		if _, err := s.snapshots.Stat(ctx, info.Name); err != nil {
			return err
		}
		if info.Parent == "" {
			return nil
		}
		_, err := s.snapshots.Stat(ctx, info.Parent)
		return err
	})
	if entries, derr := os.ReadDir(s.layersDir()); errdefs.IsNotFound(err) && !some && derr == nil && len(entries) == 0 {
		return nil // the store is new
	}
	if err != nil {
		return fmt.Errorf("read records of layers: %w: %w", err, errdefs.ErrDataLoss)
	}
	return nil
}

func (s *records) walk(ctx context.Context, fn func(snapshots.Info)) error {
	err := s.snapshots.Walk(s.quiet(ctx), func(_ context.Context, info snapshots.Info) error {
		fn(info)
		return nil
	})
	if errdefs.IsNotFound(err) {
		return nil // a store that has never held anything
	}
	if err != nil {
		return fmt.Errorf("list layers: %w", err)
	}
	return nil
}

// workKey returns a key for a snapshot that lives only during one call.
func workKey() string { return workPrefix + rand.Text() }

// quiet leads containerd's log lines of this context to the store's logger.
func (s *records) quiet(ctx context.Context) context.Context { return log.WithLogger(ctx, s.log) }

// newBridge returns a logger for containerd's packages that hands warnings on.
func newBridge(to *slog.Logger) *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetLevel(logrus.WarnLevel)
	l.AddHook(bridge{to})
	return logrus.NewEntry(l)
}

type bridge struct{ to *slog.Logger }

func (bridge) Levels() []logrus.Level { return []logrus.Level{logrus.WarnLevel, logrus.ErrorLevel} }

func (b bridge) Fire(e *logrus.Entry) error {
	args := make([]any, 0, 2*len(e.Data))
	for k, v := range e.Data {
		args = append(args, k, v)
	}
	b.to.Warn("layer store: "+e.Message, args...)
	return nil
}

// Sync brings everything that has been unpacked to disk.
func (s *records) Sync() error {
	f, err := os.Open(s.root)
	if err != nil {
		return fmt.Errorf("sync layers: %w", err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync layers of %q: %w", s.root, err)
	}
	return nil
}
