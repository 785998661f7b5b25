package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/images/access"
	"github.com/sunaba-project/sunaba/images/archive"
	"github.com/sunaba-project/sunaba/images/catalog"
	"github.com/sunaba-project/sunaba/images/check"
	"github.com/sunaba-project/sunaba/images/disk"
	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/pull"
	"github.com/sunaba-project/sunaba/images/push"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/retain"
	"github.com/sunaba-project/sunaba/images/rootfs"
	"github.com/sunaba-project/sunaba/images/transfer"
	"github.com/sunaba-project/sunaba/images/unpack"
	"github.com/sunaba-project/sunaba/images/variant"
)

// Service is the image store of a node. Its methods are safe for concurrent use.
type Service struct {
	*rootfs.Roots // the roots of containers

	disk      *disk.Disk
	handlers  variant.Handlers
	catalog   *catalog.Catalog
	guard     *access.Guard
	collector *retain.Collector
	puller    *pull.Puller
	pusher    *push.Pusher
	archiver  *archive.Archiver
	checker   *check.Checker

	life       context.Context // of work in the background, until stop is called
	stop       context.CancelFunc
	background sync.WaitGroup
}

// Open opens the store, removes what a killed process left half done, and drops the records of
// images whose content is damaged, so that a pull brings them anew.
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
	if err := o.Verification.Check(); err != nil {
		return nil, err
	}
	pins, err := catalog.NewPins(o.Pinned)
	if err != nil {
		return nil, err
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Registry.Logger = cmp.Or(o.Registry.Logger, o.Logger)
	ctx := context.Background()
	d, err := disk.Open(unpack.Options{Root: o.Root, MaxLayerSize: o.MaxLayerSize, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	s := assemble(o, d, handlers, pins)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.checker.DropDamaged(ctx); err != nil {
		return nil, err
	}
	if !d.Layers.Lost() { // else what an incomplete image has is kept for its next pull
		if err := s.collector.Sweep(ctx, retain.ResumeGrace); err != nil {
			return nil, err
		}
	}
	why, err := s.checker.Start()
	if err == nil && why != "" {
		s.background.Go(func() { s.checker.InBackground(s.life, why) })
	}
	return s, err
}

// assemble puts a service together over a store that is open.
func assemble(o Options, d *disk.Disk, handlers variant.Handlers, pins *catalog.Pins) *Service {
	modules := retain.NewModules(d.DB, retain.ModuleOptions{
		Arrived: o.Arrived, Departed: o.Departed, Prepared: o.Prepared, Logger: o.Logger,
	})
	s := &Service{disk: d, handlers: handlers, catalog: catalog.New(d.DB, handlers, pins)}
	s.life, s.stop = context.WithCancel(context.Background())
	s.collector = retain.NewCollector(d, modules, o.KeepLayers, o.Logger)
	s.guard = access.New(d, s.collector.Recording(), o.Verification)
	s.Roots = rootfs.New(d, s.collector)
	s.puller = pull.New(pull.Options{
		Disk: d, Handlers: handlers, Catalog: s.catalog, Guard: s.guard, Collector: s.collector, Modules: modules,
		Registry: registry.New(o.Registry), Meters: &progress.Meters{}, Room: transfer.NewRoom(d, o.Budget),
		KeepLayers: o.KeepLayers, Pulled: o.Pulled, Logger: o.Logger,
	})
	s.pusher = push.New(push.Options{
		Disk: d, Collector: s.collector, Registry: s.puller.Registry, Room: s.puller.Room, Logger: o.Logger,
	})
	s.archiver = archive.New(archive.Options{
		Disk: d, Handlers: handlers, Catalog: s.catalog, Collector: s.collector, Registry: s.puller.Registry, Meters: s.puller.Meters,
		Room: s.puller.Room, Importer: s.puller, Pins: pins, Logger: o.Logger,
	})
	s.checker = check.New(d, s.collector, s.puller, o.Logger)
	return s
}

// Close waits for pulls that are winding down and closes the store. Callers end
// their calls, by their contexts, beforehand.
func (s *Service) Close() error {
	s.stop()
	s.background.Wait()
	s.puller.Wait()
	s.puller.Modules.Wait()
	s.puller.Registry.Close()
	return errors.Join(s.disk.Close(), s.checker.End())
}

// Find returns a present image by id, by the prefix of an id, by tag or by digest. See
// catalog.Catalog.Find.
func (s *Service) Find(ctx context.Context, nameOrID, handler string) (Image, error) {
	return s.catalog.Find(ctx, nameOrID, handler)
}

// Answer returns the id that a name goes by, whatever the handler. See catalog.Catalog.Answer.
func (s *Service) Answer(nameOrID string) (id string, ok bool) { return s.catalog.Answer(nameOrID) }

// Configuration returns an image's configuration as it is stored: JSON, unless it was damaged.
func (s *Service) Configuration(ctx context.Context, img Image) ([]byte, error) {
	return s.disk.Content.Document(ctx, img.Document)
}

// List returns all images, one entry per id, sorted by id.
func (s *Service) List(ctx context.Context) ([]Image, error) { return s.catalog.List(ctx) }

// Permit says whether pods of a namespace may use an image that is present. See
// access.Guard.Permit.
func (s *Service) Permit(img Image, namespace string) error {
	name := img.ID // for people
	if len(img.RepoTags) > 0 {
		name = img.RepoTags[0]
	}
	return s.guard.Permit(img.ID, name, namespace)
}

// Pull brings an image in. See pull.Puller.Pull.
func (s *Service) Pull(ctx context.Context, req PullRequest) (Image, error) {
	return s.puller.Pull(ctx, req)
}

// Remove removes an image with all its names. See retain.Collector.Remove.
func (s *Service) Remove(ctx context.Context, nameOrID string) error {
	return s.collector.Remove(ctx, nameOrID)
}

// Untag takes a name from an image, and removes one that has no other; a pinned one only with
// force, else it is ErrFailedPrecondition. See retain.Collector.Untag.
func (s *Service) Untag(ctx context.Context, nameOrID string, force bool) (removed bool, err error) {
	if img, err := s.Find(ctx, nameOrID, ""); err == nil && img.Pinned && len(img.RepoTags) < 2 && !force {
		return false, fmt.Errorf("remove image %q: it is pinned, by ROOT/preload or [images] pinned; --force removes it: %w", nameOrID, errdefs.ErrFailedPrecondition)
	}
	return s.collector.Untag(ctx, nameOrID, force)
}

// Push sends an image to a registry. See push.Pusher.Push.
func (s *Service) Push(ctx context.Context, req PushRequest) (Pushed, error) {
	return s.pusher.Push(ctx, req)
}

// Tag gives an image that is present more names. See catalog.Catalog.Tag.
func (s *Service) Tag(_ context.Context, source string, names []string) error {
	recording := s.collector.Recording()
	recording.Lock()
	defer recording.Unlock()
	return s.catalog.Tag(source, names)
}

// GC removes what no image, no container and no running pull needs. See retain.Collector.GC.
func (s *Service) GC(ctx context.Context, dryRun bool) (Garbage, error) {
	return s.collector.GC(ctx, dryRun)
}

// Glance looks at the image store below root, which another process may have open. See
// retain.Glance.
func Glance(root string) (Sight, error) { return retain.Glance(root) }

// Check reads everything that images consist of. See check.Checker.Check.
func (s *Service) Check(ctx context.Context, repair bool) (CheckReport, error) {
	return s.checker.Check(ctx, repair)
}

// Import brings in the images of an OCI layout or a Docker archive. See archive.Archiver.Import.
func (s *Service) Import(ctx context.Context, req ImportRequest) ([]Image, error) {
	return s.archiver.Import(ctx, req)
}

// Preload imports every archive and every layout of a directory, and pins their images. See
// archive.Archiver.Preload.
func (s *Service) Preload(ctx context.Context, dir string) error { return s.archiver.Preload(ctx, dir) }

// Export prepares images for writing. See archive.Archiver.Export.
func (s *Service) Export(ctx context.Context, names []string) (*Export, error) {
	return s.archiver.Export(ctx, names)
}

// ExportTo is Export and Write in one.
func (s *Service) ExportTo(ctx context.Context, names []string, w io.Writer) error {
	return s.archiver.ExportTo(ctx, names, w)
}

// FsUsage returns the room that images take, and that the containers' own writes take.
func (s *Service) FsUsage(ctx context.Context) (images, containers Usage, err error) {
	return s.disk.Usage(ctx)
}
