package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// DropDamaged deletes, at server start, the records of images whose damage is cheap to see: a part
// is missing, or a document does not match its digest. Of an image that is whole it deletes the
// names whose index is not.
func (k *Checker) DropDamaged(ctx context.Context) error {
	st := k.disk.DB.State()
	c := newChecking(k.disk)
	var dropped []Damage
	var damaged, lost []string
	for id, img := range st.Images {
		why := cmp.Or(c.blob(ctx, img.Manifest), c.blob(ctx, img.Config))
		if why == nil && !k.disk.Intact(ctx, img) {
			why = errors.New("a layer or the module is missing")
		}
		if why == nil {
			continue
		}
		names := k.names(id)
		k.logger.Warn("image failed its check and its record is dropped: pull it again", "image", id, "names", names, "error", why)
		dropped = append(dropped, Damage{Image: id, Names: names, What: []string{why.Error()}, Why: whyDropped})
		damaged = append(damaged, id)
	}
	for name, t := range st.Targets {
		why := c.blob(ctx, t.Root)
		if why == nil {
			continue
		}
		lost = append(lost, name)
		for _, id := range t.Images {
			if slices.Contains(damaged, id) {
				continue
			}
			k.logger.Warn("index failed its check and its name is dropped: pull it again", "image", id, "name", name, "error", why)
			if !slices.ContainsFunc(dropped, func(d Damage) bool { return d.Image == id }) { // two names may lead to it
				dropped = append(dropped, Damage{Image: id, Names: k.names(id), What: []string{why.Error()}, Why: whyDropped})
			}
		}
	}
	if err := c.condemn(ctx); err != nil {
		return err
	}
	if len(damaged) > 0 {
		if err := k.collector.Forget(damaged...); err != nil {
			return fmt.Errorf("drop damaged images: %w", err)
		}
	}
	if len(lost) > 0 {
		if err := k.collector.ForgetTargets(ctx, lost...); err != nil {
			return fmt.Errorf("drop names of damaged images: %w", err)
		}
	}
	for i := range dropped {
		d := &dropped[i]
		left := k.names(d.Image)
		d.Dropped, d.Lost = len(left) == 0, lostOf(d.Names, left)
	}
	slices.SortFunc(dropped, func(a, b Damage) int { return strings.Compare(a.Image, b.Image) })
	k.keep(dropped)
	return nil
}

const whyDropped = "it was found when the store was opened, where nothing is fetched"

// keep keeps what was dropped for the next report.
func (k *Checker) keep(dropped []Damage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropped = append(k.dropped, dropped...)
}

// taken is what was dropped, unless it was told before.
func (k *Checker) taken() []Damage {
	k.mu.Lock()
	defer k.mu.Unlock()
	dropped := k.dropped
	k.dropped = nil
	return append([]Damage{}, dropped...) // none is not null in JSON
}
