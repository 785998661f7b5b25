// Package retain says what of an image store stays: it collects what nothing needs, removes images,
// prepares WebAssembly modules when they come and drops what was prepared when they go, and knows
// which images are pinned.
package retain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/disk"
	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/unpack"
)

// ResumeGrace is how long the blobs of a pull that did not end well survive a restart, and parts of
// blobs anything, so that the next try need not fetch them again.
const ResumeGrace = 24 * time.Hour

// Labels on the roots of containers: what they consist of.
const (
	LabelImage   = "sunaba/image"
	LabelModule  = "sunaba/module"
	LabelProgram = "sunaba/program"
)

// Garbage is what no image, no container and no pull needs.
type Garbage struct {
	Blobs  int `json:"blobs"`
	Layers int `json:"layers"`
	// Modules counts those whose compiled code is kept, except code that was used in the last day or
	// that a guest runs.
	Modules int `json:"modules"`
	// Bytes are what they take on disk.
	Bytes int64 `json:"bytes"`
}

// Collector removes images, and what no image, no container and no pull needs.
type Collector struct {
	disk       *disk.Disk
	modules    *Modules
	keepLayers bool
	logger     *slog.Logger

	// mu is held for writing while it is decided what nothing needs, and for reading from before
	// something is recorded until its pins are released.
	mu sync.RWMutex
}

// NewCollector returns the collector of an image store. With keepLayers the blobs of layers are
// needed for as long as their images are, else those of images that say so.
func NewCollector(d *disk.Disk, modules *Modules, keepLayers bool, logger *slog.Logger) *Collector {
	return &Collector{disk: d, modules: modules, keepLayers: keepLayers, logger: logger}
}

// Recording returns the read side of the collector's lock. Hold it from before a record is written
// until the pins of its content are released. Collection waits for all holders.
func (c *Collector) Recording() sync.Locker { return c.mu.RLocker() }

// GC removes what no image, no container and no running pull needs, and returns what that was.
// Images stay, also unused ones. With dryRun nothing is removed.
func (c *Collector) GC(ctx context.Context, dryRun bool) (Garbage, error) {
	g, err := c.garbage(ctx)
	if err != nil || dryRun {
		return g, err
	}
	return g, errors.Join(c.Sweep(ctx, 0), c.disk.Content.SweepIngests(0), c.dropStray(ctx))
}

func (c *Collector) garbage(ctx context.Context) (Garbage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	roots := c.disk.Layers.Roots()
	blobs, chains := c.needed(roots)
	var g Garbage
	g.Layers, g.Bytes = c.disk.Layers.Unneeded(chains)
	n, bytes, err := c.disk.Content.Unneeded(ctx, blobs)
	if err != nil {
		return g, err
	}
	g.Blobs += n
	g.Bytes += bytes
	stray, err := c.modules.stray(ctx, programs(c.disk.DB.State(), roots))
	for _, p := range stray {
		g.Modules++
		g.Bytes += p.Bytes
	}
	return g, err
}

// Sweep removes the content and layers that no image, no container and no pull needs. Blobs younger
// than grace stay.
func (c *Collector) Sweep(ctx context.Context, grace time.Duration) error {
	err := c.forgetUnneeded(ctx, grace)
	return errors.Join(err, c.disk.Layers.Cleanup(), c.departUnneeded(ctx))
}

func (c *Collector) forgetUnneeded(ctx context.Context, grace time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	blobs, chains := c.needed(c.disk.Layers.Roots())
	c.disk.Layers.Sweep(chains)
	return errors.Join(c.disk.Content.Sweep(ctx, blobs, grace), c.disk.Content.SweepIngests(ResumeGrace))
}

// DropUnneeded drops unreferenced blobs, and what was unpacked from them: no image, container or
// pull needs them.
func (c *Collector) DropUnneeded(ctx context.Context, blobs []digest.Digest) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	needed, _ := c.needed(c.disk.Layers.Roots())
	for _, d := range blobs {
		if !needed[d] {
			err = errors.Join(err, c.disk.Content.Drop(ctx, d))
		}
	}
	return err
}

// DropLayers drops what layers came in as that are unpacked, except what images keep.
func (c *Collector) DropLayers(ctx context.Context, blobs []digest.Digest) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.keptLayers(c.disk.DB.State())
	for _, d := range blobs {
		if !kept[d] {
			err = errors.Join(err, c.disk.Content.Drop(ctx, d))
		}
	}
	return err
}

// keptLayers returns the blobs of layers that stay for as long as their images do.
func (c *Collector) keptLayers(st *store.State) map[digest.Digest]bool {
	kept := make(map[digest.Digest]bool)
	keep := func(img store.Image, layers []ocispec.Descriptor) {
		if !c.keepLayers && !img.Kept {
			return
		}
		for _, l := range layers {
			kept[l.Digest] = true
		}
	}
	for _, t := range st.Targets {
		for m, id := range t.Images {
			keep(st.Images[id], t.Manifests[m].Layers)
		}
	}
	for _, img := range st.Images {
		keep(img, img.Layers)
	}
	return kept
}

// needed returns the blobs and chains that images and containers consist of. The chains of
// containers need no mention: Sweep knows its roots.
func (c *Collector) needed(roots []unpack.Root) (blobs, chains map[digest.Digest]bool) {
	st := c.disk.DB.State()
	blobs, chains = c.keptLayers(st), make(map[digest.Digest]bool)
	for _, t := range st.Targets {
		blobs[t.Digest] = true
		for m := range t.Images {
			blobs[m] = true
		}
	}
	for _, img := range st.Images {
		blobs[img.Manifest.Digest], blobs[img.Config.Digest] = true, true
		if img.Module != nil {
			blobs[img.Module.Digest] = true
		}
		if img.Chain != "" {
			chains[img.Chain] = true
		}
	}
	for _, r := range roots {
		blobs[digest.Digest(r.Labels[LabelModule])] = true
	}
	return blobs, chains
}

// Remove removes an image with all its names. A name removes every variant that has it, an id only
// that one. The bytes are removed, except what another image or a container needs. What is not
// there is no error.
//
// # Errors
//
// ErrInvalidArgument for the prefix of an id that fits several.
func (c *Collector) Remove(ctx context.Context, nameOrID string) error {
	var removed []store.Image
	err := c.disk.DB.Update(func(tx *store.Tx) error {
		ids, err := idsOf(tx.State, nameOrID)
		if err != nil {
			return err
		}
		for _, id := range ids {
			removed = append(removed, tx.Images[id])
		}
		tx.Forget(ids...)
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove image %q: %w", nameOrID, err)
	}
	if len(removed) == 0 {
		return nil
	}
	return c.free(ctx, nameOrID, removed)
}

// Untag takes a tag from the images that it leads to, and removes those that have no other name. A
// digest or an id removes the image with all its names: one that has several only with force.
// removed says that an image was removed.
//
// # Errors
//
// ErrNotFound; ErrInvalidArgument for the prefix of an id that fits several; ErrFailedPrecondition
// for a digest or an id of an image with several names.
func (c *Collector) Untag(ctx context.Context, nameOrID string, force bool) (removed bool, err error) {
	var gone []store.Image
	err = c.disk.DB.Update(func(tx *store.Tx) error {
		ids, err := idsOf(tx.State, nameOrID)
		switch {
		case err != nil:
			return err
		case len(ids) == 0:
			return errdefs.ErrNotFound
		}
		n, err := reference.Parse(nameOrID)
		if _, isTag := tx.Tags[n.Full]; err == nil && isTag {
			ids = tx.Untag(n.Full)
		} else if err := onlyName(tx.State, ids); err != nil && !force {
			return err
		}
		for _, id := range ids {
			gone = append(gone, tx.Images[id])
		}
		tx.Forget(ids...)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("remove image %q: %w", nameOrID, err)
	}
	return len(gone) > 0, c.free(ctx, nameOrID, gone)
}

// onlyName refuses images with several names: tags, and digests in repositories without one.
func onlyName(st *store.State, ids []string) error {
	for _, id := range ids {
		names := slices.Clone(st.TagsOf(id))
		for _, t := range st.Holding(id) {
			if !slices.ContainsFunc(names, func(name string) bool { return st.Tags[name].Repo == t.Repo || name == t.Name() }) {
				names = append(names, t.Name())
			}
		}
		if len(names) > 1 {
			return fmt.Errorf("it has %d names (%s): remove it by name, or with all of them by --force: %w",
				len(names), strings.Join(names[:min(3, len(names))], ", "), errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// free frees what removed images took.
func (c *Collector) free(ctx context.Context, nameOrID string, removed []store.Image) error {
	c.modules.left(removed...)
	if err := c.Sweep(ctx, 0); err != nil {
		return fmt.Errorf("free what image %q took: %w", nameOrID, err)
	}
	return nil
}

// idsOf returns the images that a name or id means.
func idsOf(st *store.State, nameOrID string) ([]string, error) {
	var ids []string
	if n, err := reference.Parse(nameOrID); err == nil {
		for _, t := range st.Named(n.Full) {
			ids = slices.AppendSeq(ids, maps.Values(t.Images))
		}
	}
	if len(ids) > 0 || !reference.IsIDPrefix(nameOrID) {
		return ids, nil
	}
	img, err := st.ByID(nameOrID)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return []string{img.ID}, err
}

// Forget removes the records of images; what they consist of stays until the next sweep.
func (c *Collector) Forget(ids ...string) error {
	for _, id := range ids {
		if img, ok := c.disk.DB.State().Images[id]; ok {
			c.modules.left(img)
		}
	}
	return c.disk.DB.Update(func(tx *store.Tx) error { tx.Forget(ids...); return nil })
}

// ForgetTargets removes targets whose document is missing, with the tags that led to them alone,
// and the images that have no other name; what those consist of stays until the next sweep. A
// target whose document a pull has brought meanwhile stays.
func (c *Collector) ForgetTargets(ctx context.Context, names ...string) error {
	return c.disk.DB.Update(func(tx *store.Tx) error {
		before := maps.Clone(tx.Images)
		for _, name := range names {
			if !c.disk.Content.Has(ctx, tx.Targets[name].Root) {
				tx.ForgetTarget(name)
			}
		}
		for id, img := range before {
			if _, still := tx.Images[id]; !still {
				c.modules.left(img)
			}
		}
		return nil
	})
}
