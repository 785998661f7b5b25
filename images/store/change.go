package store

import (
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Keep says whether an image keeps a tag through an older target once the tag points to a newer
// one.
type Keep func(newer, older Target, id string) bool

// AddTarget records a target and its images; images that it had stay. Tags that point to it lead to
// the new images too.
func (tx *Tx) AddTarget(t Target, keep Keep, images ...Image) {
	for _, img := range images {
		tx.images.put(img.ID, img)
	}
	old := tx.Targets[t.Name()]
	tx.targets.put(t.Name(), merged(old, t))
	tx.forgetUnheld(slices.Collect(maps.Values(old.Images)))
	for name, tag := range tx.Tags {
		if tag.Repo == t.Repo && tag.Points[0].Digest == t.Digest {
			tx.PointTag(name, t.Name(), keep)
		}
	}
}

// merged returns a target with what is known of it from before. It shares no map with either.
func merged(old, t Target) Target {
	t.Images, t.Entries, t.Manifests = maps.Clone(t.Images), slices.Clone(t.Entries), maps.Clone(t.Manifests)
	for _, e := range old.Entries {
		if !slices.ContainsFunc(t.Entries, func(d ocispec.Descriptor) bool { return d.Digest == e.Digest }) {
			t.Entries = append(t.Entries, e)
		}
	}
	for m, id := range old.Images {
		if _, ok := t.Images[m]; !ok {
			t.Images[m] = id
		}
	}
	for m, facts := range old.Manifests {
		if _, ok := t.Manifests[m]; !ok {
			if t.Manifests == nil {
				t.Manifests = map[digest.Digest]Manifest{}
			}
			t.Manifests[m] = facts
		}
	}
	return t
}

// PointTag makes a tag point to a target that is in the state. Images that have the tag through
// older targets lose it unless keep says otherwise.
func (tx *Tx) PointTag(name, target string, keep Keep) {
	t := tx.Targets[target]
	points := []Point{{Digest: t.Digest, Images: t.imageIDs()}}
	for _, p := range tx.Tags[name].Points {
		older := tx.Targets[t.Repo+"@"+p.Digest.String()]
		ids := slices.DeleteFunc(slices.Clone(p.Images), func(id string) bool {
			return t.Has(id) || !keep(t, older, id)
		})
		if p.Digest != t.Digest && len(ids) > 0 {
			points = append(points, Point{Digest: p.Digest, Images: ids})
		}
	}
	tx.tags.put(name, Tag{Name: name, Repo: t.Repo, Points: points})
}

// SetGrant records who may use an image.
func (tx *Tx) SetGrant(id string, g Grant) { tx.grants.put(id, g) }

// SetHolders records the namespaces whose pods have shown credentials.
func (tx *Tx) SetHolders(credentials string, namespaces []string) {
	tx.holders.put(credentials, namespaces)
}

// SetPrepared records whether something may be kept for a module beside the store.
func (tx *Tx) SetPrepared(module digest.Digest, is bool) {
	if is {
		tx.prepared.put(module.String(), true)
	} else {
		tx.prepared.remove(module.String())
	}
}

// Untag removes a tag, with the digests of its repository that no other tag of it leads to, and
// returns the ids of the images that have no other name. They have to be forgotten.
func (tx *Tx) Untag(name string) (nameless []string) {
	tag := tx.Tags[name]
	tx.tags.remove(name)
	named := make(map[string]bool) // those that have another name
	for _, p := range tag.Points {
		for _, id := range p.Images {
			if tx.namedBeside(id, tag.Repo) {
				named[id] = true
			} else if !slices.Contains(nameless, id) {
				nameless = append(nameless, id)
			}
		}
	}
	for full, t := range tx.Targets {
		if t.Repo != tag.Repo {
			continue
		}
		tx.lessen(full, t, func(id string) bool { return named[id] && !tx.tagged(t, id) })
	}
	return nameless
}

// lessen takes images from a target; one without any is removed.
func (tx *Tx) lessen(name string, t Target, gone func(id string) bool) {
	left := t.without(gone)
	switch {
	case len(left.Images) == 0:
		tx.targets.remove(name)
	case len(left.Images) < len(t.Images):
		tx.targets.put(name, left)
	}
}

// tagged reports whether a tag leads to an image through a target.
func (tx *Tx) tagged(t Target, id string) bool {
	for _, tag := range tx.Tags {
		if tag.Repo == t.Repo && slices.ContainsFunc(tag.Points, func(p Point) bool { return p.Digest == t.Digest && slices.Contains(p.Images, id) }) {
			return true
		}
	}
	return false
}

// namedBeside reports whether an image has a tag, or a digest in another repository.
func (tx *Tx) namedBeside(id, repo string) bool {
	return len(tx.TagsOf(id)) > 0 || slices.ContainsFunc(tx.Holding(id), func(t Target) bool { return t.Repo != repo })
}

// Forget removes images and every name that led only to them.
func (tx *Tx) Forget(ids ...string) {
	gone := func(id string) bool { return slices.Contains(ids, id) }
	for _, id := range ids {
		tx.images.remove(id)
		tx.grants.remove(id)
	}
	tx.forgetHolders()
	for name, t := range tx.Targets {
		tx.lessen(name, t, gone)
	}
	for name, tag := range tx.Tags {
		points, fewer := tag.without(gone)
		switch {
		case len(points) == 0:
			tx.tags.remove(name)
		case fewer:
			tag.Points = points
			tx.tags.put(name, tag)
		}
	}
}

// ForgetTarget removes a target and the tags that led to it alone, with the images that have no
// other name.
func (tx *Tx) ForgetTarget(name string) {
	t, ok := tx.Targets[name]
	if !ok {
		return
	}
	tx.targets.remove(name)
	for name, tag := range tx.Tags {
		points := slices.DeleteFunc(slices.Clone(tag.Points), func(p Point) bool { return tag.Repo == t.Repo && p.Digest == t.Digest })
		switch {
		case len(points) == 0:
			tx.tags.remove(name)
		case len(points) < len(tag.Points):
			tag.Points = points
			tx.tags.put(name, tag)
		}
	}
	tx.forgetUnheld(t.imageIDs())
}

// without returns a target that lacks some images. It shares no map with t if there are any.
func (t Target) without(gone func(id string) bool) Target {
	had := t.Images
	for m, id := range had {
		if !gone(id) {
			continue
		}
		if len(t.Images) == len(had) {
			t.Images, t.Manifests = maps.Clone(t.Images), maps.Clone(t.Manifests)
		}
		delete(t.Images, m)
		delete(t.Manifests, m)
	}
	return t
}

// without returns what is left of a tag's points without some images, and whether that is less.
func (t Tag) without(gone func(id string) bool) (points []Point, fewer bool) {
	for _, p := range t.Points {
		had := len(p.Images)
		p.Images = slices.DeleteFunc(slices.Clone(p.Images), gone)
		fewer = fewer || len(p.Images) < had
		if len(p.Images) > 0 {
			points = append(points, p)
		}
	}
	return points, fewer || len(points) < len(t.Points)
}

// forgetUnheld forgets the images that no target has any more: of a manifest that is known by
// another id now.
func (tx *Tx) forgetUnheld(ids []string) {
	for _, id := range ids {
		if len(tx.Holding(id)) == 0 {
			tx.Forget(id)
		}
	}
}

// forgetHolders removes the holders of credentials that no grant names.
func (tx *Tx) forgetHolders() {
	named := make(map[string]bool)
	for _, g := range tx.Grants {
		for _, c := range g.Credentials {
			named[c] = true
		}
	}
	for c := range tx.Holders {
		if !named[c] {
			tx.holders.remove(c)
		}
	}
}
