// Package check reads what images consist of, and repairs or drops what is damaged.
package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/boot"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/images/catalog"
	"github.com/sunaba-project/sunaba/images/disk"
	"github.com/sunaba-project/sunaba/images/retain"
	"github.com/sunaba-project/sunaba/images/store"
)

// Damage is something that an image consists of and that is not as it came.
type Damage struct {
	// Image is the id, Names what leads to it.
	Image string   `json:"image"`
	Names []string `json:"names"`
	// What is wrong, in words.
	What []string `json:"what"`
	// Repaired is set once the image was fetched again and is whole.
	Repaired bool `json:"repaired,omitempty"`
	// Dropped is set once the image was forgotten, because it could not be
	// fetched; Why says why. A pull brings it anew.
	Dropped bool   `json:"dropped,omitempty"`
	Why     string `json:"why,omitempty"`
}

// Report is what a check has found.
type Report struct {
	Images  int      `json:"images"`
	Damaged []Damage `json:"damaged"`
	// Records are breaches of the records' own rules: a defect of this program.
	Records []string `json:"records,omitempty"`
}

// Fetcher fetches a variant again. A pull.Puller is one.
type Fetcher interface {
	FetchVariant(ctx context.Context, t store.Target, entry ocispec.Descriptor) (catalog.Image, error)
}

// Checker checks the images of a store.
type Checker struct {
	disk      *disk.Disk
	collector *retain.Collector
	fetcher   Fetcher
	logger    *slog.Logger
	recorded  bool // this process is on record as the one that has the store open
}

// New returns a Checker.
func New(d *disk.Disk, collector *retain.Collector, fetcher Fetcher, logger *slog.Logger) *Checker {
	return &Checker{disk: d, collector: collector, fetcher: fetcher, logger: logger}
}

// Check reads everything that images consist of, and compares it with what came
// and was unpacked. With repair, what is damaged is fetched again, once, by the
// names that the images have, without credentials but the node's own; what
// cannot be fetched is dropped, so that the next pull brings it.
//
// Containers that run keep what they have, damaged as it is.
func (k *Checker) Check(ctx context.Context, repair bool) (Report, error) {
	st := k.disk.DB.State()
	r := Report{Images: len(st.Images), Damaged: []Damage{}, Records: st.Check()}
	c := newChecking(k.disk)
	for _, img := range st.List() {
		what, err := c.image(ctx, st, img)
		if err != nil {
			return r, err
		}
		if len(what) == 0 {
			continue
		}
		d := Damage{Image: img.ID, What: what, Names: st.TagsOf(img.ID)}
		for _, t := range st.Holding(img.ID) {
			d.Names = append(d.Names, t.Name())
		}
		r.Damaged = append(r.Damaged, d)
	}
	if !repair || len(r.Damaged) == 0 {
		return r, nil
	}
	if err := c.condemn(ctx); err != nil {
		return r, err
	}
	for i := range r.Damaged {
		if err := k.repair(ctx, &r.Damaged[i]); err != nil {
			return r, err
		}
	}
	return r, k.collector.Sweep(ctx, 0)
}

// checking remembers what has been read, for images that share it.
type checking struct {
	disk   *disk.Disk
	blobs  map[digest.Digest]error
	chains map[digest.Digest]error
}

func newChecking(d *disk.Disk) *checking {
	return &checking{disk: d, blobs: map[digest.Digest]error{}, chains: map[digest.Digest]error{}}
}

// once calls verify once per digest.
func once(said map[digest.Digest]error, d digest.Digest, verify func() error) error {
	err, ok := said[d]
	if !ok {
		err = verify()
		said[d] = err
	}
	return err
}

func (c *checking) blob(ctx context.Context, d ocispec.Descriptor) error {
	return once(c.blobs, d.Digest, func() error { return c.disk.Content.Verify(ctx, d) })
}

// documents are the documents of an image, and those that lead to it.
func documents(st *store.State, img store.Image) []ocispec.Descriptor {
	docs := []ocispec.Descriptor{img.Manifest, img.Config}
	for _, t := range st.Holding(img.ID) {
		docs = append(docs, t.Root)
	}
	return docs
}

// image returns what is wrong with an image. The error is one of the check.
func (c *checking) image(ctx context.Context, st *store.State, img store.Image) (what []string, err error) {
	blobs := documents(st, img)
	if img.Module != nil {
		blobs = slices.Insert(blobs, 2, *img.Module)
	}
	for _, d := range blobs {
		if what, err = add(ctx, what, c.blob(ctx, d)); err != nil {
			return nil, err
		}
	}
	if img.Chain == "" {
		return what, nil
	}
	chains, err := c.disk.Layers.Chain(ctx, img.Chain)
	if err != nil {
		return add(ctx, what, err)
	}
	for _, chain := range chains {
		err := once(c.chains, chain, func() error { return c.disk.Layers.Check(ctx, chain) })
		if what, err = add(ctx, what, err); err != nil {
			return nil, err
		}
	}
	return what, nil
}

// add takes an error for a damage, or hands it on.
func add(ctx context.Context, what []string, err error) ([]string, error) {
	switch {
	case err == nil:
		return what, nil
	case ctx.Err() == nil && (errdefs.IsNotFound(err) || errdefs.IsDataLoss(err)):
		return append(what, err.Error()), nil
	}
	return nil, err
}

// condemn deletes damaged blobs and marks damaged layers, so that the next pull fetches them.
func (c *checking) condemn(ctx context.Context) error {
	for d, err := range c.blobs {
		if err == nil {
			continue
		}
		if err := c.disk.Content.Delete(ctx, d); err != nil {
			return err
		}
	}
	for chain, err := range c.chains {
		if err == nil {
			continue
		}
		if err := c.disk.Layers.MarkDamaged(ctx, chain); err != nil {
			return err
		}
	}
	return nil
}

// repair fetches a damaged image again, or drops it.
func (k *Checker) repair(ctx context.Context, d *Damage) error {
	err := k.refetch(ctx, d.Image)
	if err == nil {
		d.Repaired = true
		k.logger.Info("damaged image fetched again", "image", d.Image, "names", d.Names)
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.Dropped, d.Why = true, err.Error()
	k.logger.Warn("image failed its check and its record is dropped: pull it again", "image", d.Image, "names", d.Names, "error", err)
	if err := k.collector.Forget(d.Image); err != nil {
		return fmt.Errorf("drop damaged image %q: %w", d.Image, err)
	}
	return nil
}

// refetch brings what an image lacks from where one of its names leads to.
func (k *Checker) refetch(ctx context.Context, id string) error {
	st := k.disk.DB.State()
	last := error(errdefs.ErrNotFound) // an image without a name: there is none
	for _, t := range st.Holding(id) {
		for _, e := range t.Entries {
			if t.Images[e.Digest] != id {
				continue
			}
			if _, last = k.fetcher.FetchVariant(ctx, t, e); last == nil {
				return nil
			}
		}
	}
	return last
}

// DropDamaged drops the records of images that a glance finds damaged, at the
// start: of which something is missing, or a document is not what it was.
func (k *Checker) DropDamaged(ctx context.Context) error {
	st := k.disk.DB.State()
	c := newChecking(k.disk)
	var damaged []string
	for id, img := range st.Images {
		broken := false
		for _, d := range documents(st, img) {
			broken = c.blob(ctx, d) != nil || broken
		}
		if broken || !k.disk.Intact(ctx, img) {
			k.logger.Warn("image is damaged and its record is dropped: pull it again", "image", id, "names", st.TagsOf(id))
			damaged = append(damaged, id)
		}
	}
	if err := c.condemn(ctx); err != nil {
		return err
	}
	if len(damaged) == 0 {
		return nil
	}
	if err := k.collector.Forget(damaged...); err != nil {
		return fmt.Errorf("drop damaged images: %w", err)
	}
	return nil
}

// openFile holds the boot during which a process opened the store, until it closes it.
const openFile = "open"

// Begin writes down that this process has the store open. If the machine went down while another
// had, or layers were restored without their records, everything is to be read in the background:
// why says so.
func (k *Checker) Begin() (why string, err error) {
	file := filepath.Join(k.disk.Root, openFile)
	id, err := boot.ID()
	if err != nil {
		return "", err
	}
	before, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return "", fmt.Errorf("read who had the image store open: %w", err)
	}
	if strings.TrimSpace(string(before)) != id {
		err := durable.Write(file, []byte(id+"\n"), 0o600)
		if durable.Full(err) {
			k.logger.Warn("failed to prepare the check of images after a power loss: free disk space and restart the server", "error", err)
		} else if err != nil {
			return "", fmt.Errorf("write who has the image store open: %w", err)
		}
	}
	k.recorded = true
	switch {
	case len(k.disk.DB.State().Images) == 0:
	case len(before) > 0 && strings.TrimSpace(string(before)) != id:
		return "the machine went down while images were in use: they are checked in the background", nil
	case k.disk.Layers.Restored():
		return "layers were restored without their records: images are checked in the background", nil
	}
	return "", nil
}

// End takes back what Begin has written down.
func (k *Checker) End() error {
	if !k.recorded {
		return nil
	}
	// On a full disk nothing was written.
	if err := os.Remove(filepath.Join(k.disk.Root, openFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write that the image store is closed: %w", err)
	}
	return nil
}

// InBackground reads all images after what may have damaged them, which why says, until ctx ends.
func (k *Checker) InBackground(ctx context.Context, why string) {
	k.logger.Info(why, "images", len(k.disk.DB.State().Images))
	r, err := k.Check(ctx, true)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		k.logger.Warn("failed to check images", "error", err)
	default:
		k.logger.Info("images checked", "images", r.Images, "damaged", len(r.Damaged))
	}
}
