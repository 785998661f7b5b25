package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/images/flight"
	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/unpack"
	"github.com/sunaba-project/sunaba/images/variant"
)

// resumeGrace is how long the blobs of a pull that did not end well survive a
// restart, and parts of blobs anything, so that the next try need not fetch them
// again.
const resumeGrace = 24 * time.Hour

// recordsFile is what the records are in, below a store's root.
const recordsFile = "records.db"

// Labels on the roots of containers.
const (
	labelImage   = "sunaba/image"
	labelModule  = "sunaba/module"
	labelProgram = "sunaba/program"
)

// Service is the image store of a node. Its methods are safe for concurrent use.
type Service struct {
	root     string
	handlers variant.Handlers // the default first, then by name
	arrived  func(ctx context.Context, path, digest string) error
	departed func(ctx context.Context, digest string) error
	prepared func(ctx context.Context) ([]Prepared, error)
	logger   *slog.Logger
	parallel int // layers fetched at a time by one pull
	verify   Verification

	registry *registry.Client
	content  *store.Content
	db       *store.DB
	layers   *unpack.Store

	pulls    flight.Group[pulled]
	arrivals flight.Group[struct{}]
	meters   progress.Meters

	life       context.Context // of work in the background, until stop is called
	stop       context.CancelFunc
	background sync.WaitGroup
	begun      bool // this process is on record as the one that has the store open

	keepLayers bool
	budget     int64
	pinned     []string        // patterns
	preloaded  map[string]bool // targets, by name; guarded by mu
	growth     growth

	// gc is held for writing while it is decided what nothing needs, and for
	// reading from before something is recorded until its pins are gone.
	gc sync.RWMutex

	modules moduleUse

	mu      sync.Mutex
	known   map[digest.Digest]bool  // modules that Arrived has accepted
	refused map[digest.Digest]error // manifests that cannot run, by this process
}

// Open opens the store, removes what a killed process left half done, and drops
// the records of images whose content is damaged, so that a pull brings them
// anew.
//
// # Errors
//
// ErrInvalidArgument for handlers that make no sense. A root where overlayfs
// cannot be used, or that another process has open, is an error that says so.
func Open(o Options) (_ *Service, err error) {
	handlers, err := variant.Order(o.Handlers)
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Root, 0o711); err != nil {
		return nil, fmt.Errorf("create image store: %w", err)
	}
	if o.ParallelLayers <= 0 {
		o.ParallelLayers = DefaultParallelLayers
	}
	if err := errors.Join(o.Verification.check(), checkPatterns(o.Pinned)); err != nil {
		return nil, err
	}
	if o.Registry.Logger == nil {
		o.Registry.Logger = o.Logger
	}
	s := &Service{
		root:       o.Root,
		parallel:   o.ParallelLayers,
		verify:     o.Verification,
		handlers:   handlers,
		keepLayers: o.KeepLayers, budget: o.Budget, pinned: o.Pinned, preloaded: make(map[string]bool),
		arrived:  o.Arrived,
		departed: o.Departed,
		prepared: o.Prepared,
		logger:   o.Logger,
		registry: registry.New(o.Registry),
		known:    make(map[digest.Digest]bool),
		refused:  make(map[digest.Digest]error),
	}
	s.life, s.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	ctx := context.Background()
	if err := os.RemoveAll(s.spool()); err != nil {
		return nil, fmt.Errorf("remove an archive that was being imported: %w", err)
	}
	if s.db, err = store.OpenDB(filepath.Join(o.Root, recordsFile), o.Logger); err != nil {
		return nil, err
	}
	if s.content, err = store.OpenContent(filepath.Join(o.Root, "content")); err != nil {
		return nil, err
	}
	if s.layers, err = unpack.Open(ctx, unpack.Options{Root: o.Root, MaxLayerSize: o.MaxLayerSize, Logger: o.Logger}); err != nil {
		return nil, err
	}
	if err := s.dropDamaged(ctx); err != nil {
		return nil, err
	}
	if s.layers.Restored() {
		return s, s.begin() // what an incomplete image has is kept for its next pull, until the next sweep
	}
	if err := s.sweep(ctx, resumeGrace); err != nil {
		return nil, err
	}
	return s, s.begin()
}

// Close waits for pulls that are winding down and closes the store. Callers end
// their calls, by their contexts, beforehand.
func (s *Service) Close() error {
	s.stop()
	s.background.Wait()
	s.pulls.Wait()
	s.arrivals.Wait()
	s.registry.Close()
	var errs []error
	if s.layers != nil {
		errs = append(errs, s.layers.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.begun {
		errs = append(errs, s.end())
	}
	return errors.Join(errs...)
}
