package images

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/boot"
	"github.com/sunaba-project/sunaba/host/durable"
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

// CheckReport is what a check has found.
type CheckReport struct {
	Images  int      `json:"images"`
	Damaged []Damage `json:"damaged"`
	// Records are breaches of the records' own rules: a defect of this program.
	Records []string `json:"records,omitempty"`
}

// Check reads everything that images consist of, and compares it with what came
// and was unpacked. With repair, what is damaged is fetched again, once, by the
// names that the images have, without credentials but the node's own; what
// cannot be fetched is dropped, so that the next pull brings it.
//
// Containers that run keep what they have, damaged as it is.
func (s *Service) Check(ctx context.Context, repair bool) (CheckReport, error) {
	st := s.db.State()
	r := CheckReport{Images: len(st.Images), Damaged: []Damage{}, Records: st.Check()}
	c := checking{s: s, blobs: map[digest.Digest]error{}, chains: map[digest.Digest]error{}}
	for _, img := range sortedImages(st) {
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
		if err := s.repair(ctx, &r.Damaged[i]); err != nil {
			return r, err
		}
	}
	return r, s.sweep(ctx, 0)
}

func sortedImages(st *store.State) []store.Image {
	out := make([]store.Image, 0, len(st.Images))
	for _, img := range st.Images {
		out = append(out, img)
	}
	slices.SortFunc(out, func(a, b store.Image) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// checking remembers what has been read, for images that share it.
type checking struct {
	s      *Service
	blobs  map[digest.Digest]error
	chains map[digest.Digest]error
}

// image returns what is wrong with an image. The error is one of the check.
func (c *checking) image(ctx context.Context, st *store.State, img store.Image) (what []string, err error) {
	blobs := []ocispec.Descriptor{img.Manifest, img.Config}
	if img.Module != nil {
		blobs = append(blobs, *img.Module)
	}
	for _, t := range st.Holding(img.ID) {
		blobs = append(blobs, t.Root)
	}
	for _, d := range blobs {
		werr, ok := c.blobs[d.Digest]
		if !ok {
			werr = c.s.content.Verify(ctx, d)
			c.blobs[d.Digest] = werr
		}
		if what, err = add(ctx, what, werr); err != nil {
			return nil, err
		}
	}
	if img.Chain == "" {
		return what, nil
	}
	chains, err := c.s.layers.Chain(ctx, img.Chain)
	if err != nil {
		return add(ctx, what, err)
	}
	for _, chain := range chains {
		werr, ok := c.chains[chain]
		if !ok {
			werr = c.s.layers.Check(ctx, chain)
			c.chains[chain] = werr
		}
		if what, err = add(ctx, what, werr); err != nil {
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

// condemn makes what is damaged count as not there.
func (c *checking) condemn(ctx context.Context) error {
	for d, err := range c.blobs {
		if err == nil {
			continue
		}
		if err := c.s.content.Delete(ctx, d); err != nil {
			return err
		}
	}
	for chain, err := range c.chains {
		if err == nil {
			continue
		}
		if err := c.s.layers.MarkDamaged(ctx, chain); err != nil {
			return err
		}
	}
	return nil
}

// repair fetches a damaged image again, or drops it.
func (s *Service) repair(ctx context.Context, d *Damage) error {
	err := s.refetch(ctx, d.Image)
	if err == nil {
		d.Repaired = true
		s.logger.Info("damaged image fetched again", "image", d.Image, "names", d.Names)
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.Dropped, d.Why = true, err.Error()
	s.logger.Warn("image failed its check and its record is dropped: pull it again", "image", d.Image, "names", d.Names, "error", err)
	if err := s.forget(d.Image); err != nil {
		return fmt.Errorf("drop damaged image %q: %w", d.Image, err)
	}
	return nil
}

// refetch brings what an image lacks from where one of its names leads to.
func (s *Service) refetch(ctx context.Context, id string) error {
	st := s.db.State()
	last := error(errdefs.ErrNotFound) // an image without a name: there is none
	for _, t := range st.Holding(id) {
		for _, e := range t.Entries {
			if t.Images[e.Digest] != id {
				continue
			}
			if _, last = s.fetchVariant(ctx, t, e); last == nil {
				return nil
			}
		}
	}
	return last
}

func (s *Service) forget(ids ...string) error {
	for _, id := range ids {
		if img, ok := s.db.State().Images[id]; ok {
			for _, d := range img.Modules() {
				s.setModuleKnown(d, false)
			}
		}
	}
	return s.db.Update(func(st *store.Tx) error { st.Forget(ids...); return nil })
}

// intact reports whether everything that an image's record names is there.
func (s *Service) intact(ctx context.Context, img store.Image) bool {
	return s.content.Has(ctx, img.Manifest) && s.content.Has(ctx, img.Config) &&
		(img.Module == nil || s.content.Has(ctx, *img.Module)) &&
		(img.Chain == "" || s.layers.Whole(ctx, img.Chain))
}

// dropDamaged drops the records of images that a glance finds damaged, at the
// start: of which something is missing, or a document is not what it was.
func (s *Service) dropDamaged(ctx context.Context) error {
	st := s.db.State()
	bad := make(map[digest.Digest]bool)
	document := func(d ocispec.Descriptor) bool {
		was, known := bad[d.Digest]
		if !known {
			was = s.content.Verify(ctx, d) != nil
			bad[d.Digest] = was
		}
		return was
	}
	var damaged []string
	for id, img := range st.Images {
		broken := document(img.Manifest)
		broken = document(img.Config) || broken
		for _, t := range st.Holding(id) {
			broken = document(t.Root) || broken
		}
		if broken || !s.intact(ctx, img) {
			s.logger.Warn("image is damaged and its record is dropped: pull it again", "image", id, "names", st.TagsOf(id))
			damaged = append(damaged, id)
		}
	}
	for d, broken := range bad {
		if !broken {
			continue
		}
		if err := s.content.Delete(ctx, d); err != nil {
			return err
		}
	}
	if len(damaged) == 0 {
		return nil
	}
	if err := s.forget(damaged...); err != nil {
		return fmt.Errorf("drop damaged images: %w", err)
	}
	return nil
}

// openFile holds the boot during which a process opened the store, until it
// closes it.
const openFile = "open"

// begin writes down that this process has the store open. If the machine went
// down while another had, or layers were restored without their records, everything
// is read in the background.
func (s *Service) begin() error {
	file := filepath.Join(s.root, openFile)
	id, err := boot.ID()
	if err != nil {
		return err
	}
	before, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("read who had the image store open: %w", err)
	}
	if strings.TrimSpace(string(before)) != id {
		err := durable.Write(file, []byte(id+"\n"), 0o600)
		if durable.Full(err) {
			s.logger.Warn("failed to prepare the check of images after a power loss: free disk space and restart the server", "error", err)
		} else if err != nil {
			return fmt.Errorf("write who has the image store open: %w", err)
		}
	}
	s.begun = true
	why := ""
	switch {
	case len(s.db.State().Images) == 0:
	case len(before) > 0 && strings.TrimSpace(string(before)) != id:
		why = "the machine went down while images were in use: they are checked in the background"
	case s.layers.Restored():
		why = "layers were restored without their records: images are checked in the background"
	}
	if why != "" {
		s.background.Go(func() { s.checkInBackground(why) })
	}
	return nil
}

func (s *Service) end() error {
	if err := os.Remove(filepath.Join(s.root, openFile)); err != nil {
		return fmt.Errorf("write that the image store is closed: %w", err)
	}
	return nil
}

// checkInBackground reads all images after what may have damaged them, which why says.
func (s *Service) checkInBackground(why string) {
	s.logger.Info(why, "images", len(s.db.State().Images))
	r, err := s.Check(s.life, true)
	switch {
	case s.life.Err() != nil:
	case err != nil:
		s.logger.Warn("failed to check images", "error", err)
	default:
		s.logger.Info("images checked", "images", r.Images, "damaged", len(r.Damaged))
	}
}
