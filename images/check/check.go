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
	"sync"

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

// Damage is a damaged part of an image.
type Damage struct {
	// Image is the id, Names are its references.
	Image string   `json:"image"`
	Names []string `json:"names"`
	// What is wrong, in words.
	What []string `json:"what"`
	// Repaired is set once the image was fetched again and is complete.
	Repaired bool `json:"repaired,omitempty"`
	// Dropped is set once the image's record was deleted because fetching it failed. A pull fetches it
	// again.
	Dropped bool `json:"dropped,omitempty"`
	// Lost are the names that were deleted because fetching what they lead to failed: all of an image
	// that was dropped. Why says why.
	Lost []string `json:"lost,omitempty"`
	Why  string   `json:"why,omitempty"`
}

// Report is what a check has found.
type Report struct {
	Images  int      `json:"images"`
	Damaged []Damage `json:"damaged"`
	// Records are violations of the records' own rules: a bug of this program.
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

	mu      sync.Mutex
	dropped []Damage // and not in a report yet
}

// New returns a Checker.
func New(d *disk.Disk, collector *retain.Collector, fetcher Fetcher, logger *slog.Logger) *Checker {
	return &Checker{disk: d, collector: collector, fetcher: fetcher, logger: logger}
}

// Check reads all parts of all images, and compares them with their digests and fingerprints. With
// repair, damaged images are fetched again, once, by their names, with no credentials except the
// node's own. The record of an image that cannot be fetched is deleted, so that the next pull
// fetches it; if only what some of its names lead to cannot, it loses these.
//
// What DropDamaged, or a check that ended with an error, has dropped is in the first report after
// it.
//
// Running containers keep the damaged files.
func (k *Checker) Check(ctx context.Context, repair bool) (Report, error) {
	r, err := k.check(ctx, repair)
	if err != nil {
		k.keep(slices.DeleteFunc(r.Damaged, func(d Damage) bool { return !d.Dropped && len(d.Lost) == 0 }))
		return r, err
	}
	dropped := k.taken()
	r.Damaged = append(dropped, r.Damaged...)
	if repair && len(dropped) > 0 {
		err = k.collector.Sweep(ctx, 0)
	}
	return r, err
}

func (k *Checker) check(ctx context.Context, repair bool) (Report, error) {
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
		r.Damaged = append(r.Damaged, Damage{Image: img.ID, What: what, Names: k.names(img.ID)})
	}
	if !repair || len(r.Damaged) == 0 {
		return r, nil
	}
	if err := c.condemn(ctx); err != nil {
		return r, err
	}
	failures := make([][]string, len(r.Damaged))
	for i := range r.Damaged {
		if failures[i] = k.refetch(ctx, r.Damaged[i].Image); ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
	}
	for i := range r.Damaged { // names go when everything was tried: images share them, and what they lead to
		if err := k.settle(ctx, &r.Damaged[i], failures[i]); err != nil {
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

// documents are the documents of an image, with the indexes that list it.
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
	chains, err := c.disk.Layers.Chain(img.Chain)
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

// add records an error as a damage, or returns it.
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
		if err := c.disk.Layers.MarkDamaged(chain); err != nil {
			return err
		}
	}
	return nil
}

// settle deletes the names of an image whose documents failed to be fetched, and its record if it
// has no other name or lacks a part.
func (k *Checker) settle(ctx context.Context, d *Damage, failures []string) error {
	st := k.disk.DB.State()
	var lost []string
	for _, t := range st.Holding(d.Image) {
		if !k.disk.Content.Has(ctx, t.Root) {
			lost = append(lost, t.Name())
		}
	}
	why := strings.Join(failures, "; ")
	if !k.disk.Intact(ctx, st.Images[d.Image]) || len(lost) == len(st.Holding(d.Image)) {
		k.logger.Warn("image failed its check and its record is dropped: pull it again", "image", d.Image, "names", d.Names, "error", why)
		if err := k.collector.Forget(d.Image); err != nil {
			return fmt.Errorf("drop damaged image %q: %w", d.Image, err)
		}
		d.Dropped, d.Lost, d.Why = true, d.Names, why
		return nil
	}
	d.Repaired = true
	if len(lost) > 0 {
		if err := k.collector.ForgetTargets(ctx, lost...); err != nil {
			return fmt.Errorf("drop names of damaged image %q: %w", d.Image, err)
		}
		d.Lost, d.Why = lostOf(d.Names, k.names(d.Image)), why
		k.logger.Warn("image failed its check and loses names: pull them again", "image", d.Image, "names", d.Lost, "error", d.Why)
	}
	k.logger.Info("damaged image fetched again", "image", d.Image, "names", d.Names)
	return nil
}

// lostOf are the names that are not left.
func lostOf(names, left []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(left, n) })
}

// names are the references of an image.
func (k *Checker) names(id string) []string {
	st := k.disk.DB.State()
	names := st.TagsOf(id)
	for _, t := range st.Holding(id) {
		names = append(names, t.Name())
	}
	return names
}

// refetch fetches the missing parts of an image by its names, and says what failed.
func (k *Checker) refetch(ctx context.Context, id string) (failures []string) {
	st := k.disk.DB.State()
	for _, t := range st.Holding(id) {
		if k.disk.Content.Has(ctx, t.Root) && k.disk.Intact(ctx, st.Images[id]) {
			continue // another name has brought the image
		}
		for _, e := range t.Entries {
			if t.Images[e.Digest] != id {
				continue
			}
			if _, err := k.fetcher.FetchVariant(ctx, t, e); err != nil && len(failures) < maxFailures {
				failures = append(failures, err.Error())
			}
		}
	}
	return failures
}

// maxFailures bounds how many failures one damage tells.
const maxFailures = 3

// openFile holds the boot during which a process opened the store, until it closes it.
const openFile = "open"

// Start records that this process has the store open. If the machine went down while another
// process had, or if a layer was lost, everything has to be read in the
// background: why says so.
func (k *Checker) Start() (why string, err error) {
	file := filepath.Join(k.disk.Root, openFile)
	id, err := boot.ID()
	if err != nil {
		return "", err
	}
	before, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return "", fmt.Errorf("read which boot had the image store open: %w", err)
	}
	if strings.TrimSpace(string(before)) != id {
		err := durable.Write(file, []byte(id+"\n"), 0o600)
		if durable.Full(err) {
			k.logger.Warn("failed to prepare the check of images after a power loss: free disk space and restart the server", "error", err)
		} else if err != nil {
			return "", fmt.Errorf("record that the image store is open: %w", err)
		}
	}
	k.recorded = true
	switch {
	case len(k.disk.DB.State().Images) == 0:
	case len(before) > 0 && strings.TrimSpace(string(before)) != id:
		return "the machine went down while images were in use: they are checked in the background", nil
	case k.disk.Layers.Lost():
		return "records of layers were damaged: images are checked in the background", nil
	}
	return "", nil
}

// End deletes the record that Start wrote.
func (k *Checker) End() error {
	if !k.recorded {
		return nil
	}
	// On a full disk nothing was written.
	if err := os.Remove(filepath.Join(k.disk.Root, openFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record that the image store is closed: %w", err)
	}
	return nil
}

// InBackground checks all images until ctx ends. why says what may have damaged them.
func (k *Checker) InBackground(ctx context.Context, why string) {
	k.logger.Info(why, "images", len(k.disk.DB.State().Images))
	r, err := k.check(ctx, true)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		k.logger.Warn("failed to check images", "error", err)
	default:
		k.logger.Info("images checked", "images", r.Images, "damaged", len(r.Damaged))
	}
}
