package catalog

import (
	"fmt"
	"maps"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/store"
)

// Lookup returns what a name or an id leads to, and its name for people: of a name the newest
// target, with the images that bear the name; of an id a target that holds it, with that image
// alone.
//
// # Errors
//
// ErrNotFound; ErrInvalidArgument for the prefix of an id that fits several.
func Lookup(st *store.State, nameOrID string) (t store.Target, name string, err error) {
	if n, err := reference.Parse(nameOrID); err == nil {
		if named := st.Named(n.Full); len(named) > 0 {
			return named[0], n.Full, nil
		}
	}
	if !reference.IsIDPrefix(nameOrID) {
		return t, "", errdefs.ErrNotFound
	}
	img, err := st.ByID(nameOrID)
	if err != nil {
		return t, "", err
	}
	t = st.Holding(img.ID)[0]
	t.Images = maps.Clone(t.Images) // those of the state are not to be changed
	maps.DeleteFunc(t.Images, func(_ digest.Digest, id string) bool { return id != img.ID })
	if tags := st.TagsOf(img.ID); len(tags) > 0 {
		return t, tags[0], nil
	}
	return t, t.Name(), nil
}

// Tag gives an image more names, all of them or none. A name gives its own to all its variants, an
// id to that one alone. A name that another image has moves.
//
// # Errors
//
// ErrNotFound without such an image; ErrInvalidArgument for what cannot be a name with a tag.
func (c *Catalog) Tag(source string, names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("tag image %q: no new name is given: %w", source, errdefs.ErrInvalidArgument)
	}
	var wanted []reference.Name
	for _, name := range names {
		n, err := reference.ParseTag(name)
		if err != nil {
			return fmt.Errorf("tag image %q: %w", source, err)
		}
		wanted = append(wanted, n)
	}
	err := c.db.Update(func(tx *store.Tx) error {
		from, _, err := Subject(tx.State, source)
		if err != nil {
			return err
		}
		for _, n := range wanted {
			c.point(tx, n, from)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("tag image %q: %w", source, err)
	}
	return nil
}

// Subject returns what a name or an id stands for where it is given to others: of an id that one
// image's manifest, without the index that names it. full is the full name, "" for an id.
//
// # Errors
//
// Those of Lookup.
func Subject(st *store.State, nameOrID string) (t store.Target, full string, err error) {
	t, name, err := Lookup(st, nameOrID)
	if err != nil {
		return t, "", err
	}
	if n, err := reference.Parse(nameOrID); err == nil && n.Full == name {
		return t, name, nil
	}
	return alone(t), "", nil
}

// alone is what the manifest of an image stands for, without the index that names it.
func alone(t store.Target) store.Target {
	for _, e := range t.Entries {
		if _, ok := t.Images[e.Digest]; ok {
			t.Digest, t.Entries = e.Digest, []ocispec.Descriptor{e}
			t.Root = ocispec.Descriptor{MediaType: e.MediaType, Digest: e.Digest, Size: e.Size}
			t.Images = map[digest.Digest]string{e.Digest: t.Images[e.Digest]}
			break
		}
	}
	return t
}

// point makes a name lead to what a target of another repository has. What that one has shown, the
// name's own repository has not.
func (c *Catalog) point(tx *store.Tx, n reference.Name, from store.Target) {
	to := store.Target{
		Repo: n.Repo, Digest: from.Digest, Root: from.Root, Entries: from.Entries, Images: from.Images,
		Manifests: make(map[digest.Digest]store.Manifest),
	}
	for m := range to.Images {
		to.Manifests[m] = store.Manifest{Title: from.Manifests[m].Title, Layers: from.Manifests[m].Layers}
	}
	to.Answer = c.AnswerOf(to)
	if old, ok := tx.Targets[to.Name()]; ok {
		maps.Copy(to.Manifests, old.Manifests)
		to.Answer = c.AnswerOf(old)
	}
	tx.AddTarget(to, c.KeepsTag)
	tx.PointTag(n.Full, to.Name(), func(store.Target, store.Target, string) bool { return false })
}
