package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
)

// Image is the record of one image of one platform. It names only content and
// layers that are on disk.
type Image struct {
	// ID is the image's id, a digest.
	ID       string              `json:"id"`
	Manifest ocispec.Descriptor  `json:"manifest"`
	Config   ocispec.Descriptor  `json:"config"`
	Platform ocispec.Platform    `json:"platform"`
	Runtime  ocispec.ImageConfig `json:"runtime"`
	// Chain identifies the unpacked layers; "" for a module or an image without layers.
	Chain digest.Digest `json:"chain,omitempty"`
	// Layers are the layers as transferred, the lowest first. They need not be
	// in the store: what counts is unpacked.
	Layers []ocispec.Descriptor `json:"layers,omitempty"`
	// Kept says that Layers, and those of its manifests in targets, stay in the store for as long as
	// the image does: no registry is known to have them.
	Kept bool `json:"kept,omitempty"`
	// Module is the WebAssembly module of an artifact, as it runs, else nil.
	Module *ocispec.Descriptor `json:"module,omitempty"`
	// Component is what an artifact's configuration says of its component, nil if it says nothing.
	Component *manifest.Component `json:"component,omitempty"`
	// Program is the digest of the WebAssembly module that the command of a filesystem image names,
	// "" if it names none.
	Program digest.Digest `json:"program,omitempty"`
	// Checkpoint names the container that the image is the checkpoint of, "" if it is not one.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Size is the size of configuration and layers as transferred, in bytes.
	Size    int64     `json:"size"`
	Created time.Time `json:"created,omitzero"`
	// Served names what each server gave, by host; what had been present is in none.
	Served map[string][]digest.Digest `json:"served,omitempty"`
}

// Target is what a digest of a repository stands for: an index or a manifest.
type Target struct {
	Repo   string             `json:"repo"`
	Digest digest.Digest      `json:"digest"`
	Root   ocispec.Descriptor `json:"root"`
	// Entries are the manifests that can run, with their platforms.
	Entries []ocispec.Descriptor `json:"entries"`
	// Images maps those that are in the store to their image ids.
	Images map[digest.Digest]string `json:"images"`
	// Answer is the id that the target goes by for a client that keeps books by reference, as the
	// kubelet does: the same for all handlers, and for as long as that image stays.
	Answer string `json:"answer,omitempty"`
	// Manifests are facts of those: an image may have several manifests, of several authors.
	Manifests map[digest.Digest]Manifest `json:"manifests,omitempty"`
}

// Manifest is what is known of a manifest in a repository and is not known by the image's
// configuration.
type Manifest struct {
	// Shown is set once the repository has given all that the image consists of, or has been asked
	// by somebody who may have it anyway.
	Shown bool `json:"shown,omitempty"`
	// Title names the file of a module.
	Title string `json:"title,omitempty"`
	// Layers are those of the manifest as Image.Layers are: other manifests of the image may have
	// them packed otherwise.
	Layers []ocispec.Descriptor `json:"layers,omitempty"`
}

// Name returns "repo@digest".
func (t Target) Name() string { return t.Repo + "@" + t.Digest.String() }

// Has reports whether the image is one of the target's.
func (t Target) Has(id string) bool {
	for _, i := range t.Images {
		if i == id {
			return true
		}
	}
	return false
}

// LayersOf returns the layers, as transferred, that one of the target's manifests has of an image;
// none if they are not known.
func (t Target) LayersOf(m digest.Digest, img Image) []ocispec.Descriptor {
	if img.Manifest.Digest == m {
		return img.Layers
	}
	return t.Manifests[m].Layers
}

// Tag is a name that moves.
type Tag struct {
	Name string `json:"name"`
	Repo string `json:"repo"`
	// Points is where the tag points, newest first. All but the first are left
	// from before the tag moved, for images that were not pulled again since.
	Points []Point `json:"points"`
}

// Point is a target of a tag and the images that bear the tag through it.
type Point struct {
	Digest digest.Digest `json:"digest"`
	Images []string      `json:"images"`
}

// Grant says who has shown that a registry gives them an image.
type Grant struct {
	// Open is set once it came without credentials, or with the node's own.
	Open bool `json:"open,omitempty"`
	// Credentials are salted hashes of those that it came with.
	Credentials []string `json:"credentials,omitempty"`
	// Namespaces are those of the pods that it was pulled for.
	Namespaces []string `json:"namespaces,omitempty"`
}

// State is everything the store knows. It is shared and must not be changed; a Tx changes records.
//
// Invariants: every image id in a target, tag or grant is in Images; every image is in
// a target; no target and no tag is without images.
type State struct {
	Images  map[string]Image
	Targets map[string]Target
	Tags    map[string]Tag
	// Grants are by image id; an image that was not pulled has none.
	Grants map[string]Grant
	// Holders are the namespaces whose pods have shown credentials, by the
	// hash that Grants name them by.
	Holders map[string][]string
	// Prepared has the digests of the modules that more than the store may keep something for: what
	// has been compiled of them.
	Prepared map[string]bool
}

func newState() *State {
	return &State{
		Images: map[string]Image{}, Targets: map[string]Target{}, Tags: map[string]Tag{},
		Grants: map[string]Grant{}, Holders: map[string][]string{}, Prepared: map[string]bool{},
	}
}

// Modules are the digests of the WebAssembly modules that an image runs, none or one.
func (i Image) Modules() []digest.Digest {
	switch {
	case i.Module != nil:
		return []digest.Digest{i.Module.Digest}
	case i.Program != "":
		return []digest.Digest{i.Program}
	}
	return nil
}

// List returns all images, sorted by id.
func (s *State) List() []Image {
	return slices.SortedFunc(maps.Values(s.Images), func(a, b Image) int { return strings.Compare(a.ID, b.ID) })
}

// Named returns the targets that a full name (a tag or "repo@digest") stands
// for, newest first, each with only the images that bear the name.
func (s *State) Named(full string) []Target {
	if t, ok := s.Targets[full]; ok {
		return []Target{t}
	}
	tag, ok := s.Tags[full]
	if !ok {
		return nil
	}
	var out []Target
	for _, p := range tag.Points {
		t, ok := s.Targets[tag.Repo+"@"+p.Digest.String()]
		if !ok {
			continue
		}
		images := make(map[digest.Digest]string)
		for m, id := range t.Images {
			if slices.Contains(p.Images, id) {
				images[m] = id
			}
		}
		t.Images = images
		out = append(out, t)
	}
	return out
}

// Holding returns the targets that have the image, sorted by name.
func (s *State) Holding(id string) []Target {
	var out []Target
	for _, t := range s.Targets {
		if t.Has(id) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Target) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

// TagsOf returns the tags that an image bears, sorted.
func (s *State) TagsOf(id string) []string {
	var out []string
	for name, tag := range s.Tags {
		if slices.ContainsFunc(tag.Points, func(p Point) bool { return slices.Contains(p.Images, id) }) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// ByID finds an image by its id, with or without the algorithm, or by a prefix of it.
//
// # Errors
//
// ErrNotFound; ErrInvalidArgument if the prefix fits more than one.
func (s *State) ByID(prefix string) (Image, error) {
	if img, ok := s.Images[prefix]; ok {
		return img, nil
	}
	var found []Image
	for id, img := range s.Images {
		if strings.HasPrefix(id, prefix) || strings.HasPrefix(digest.Digest(id).Encoded(), prefix) {
			found = append(found, img)
		}
	}
	switch len(found) {
	case 0:
		return Image{}, fmt.Errorf("image %q: %w", prefix, errdefs.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return Image{}, fmt.Errorf("image id %q fits %d images: %w", prefix, len(found), errdefs.ErrInvalidArgument)
}

// Check returns what is wrong with the state: breaches of its invariants.
func (s *State) Check() []string {
	var wrong []string
	held := make(map[string]bool)
	for name, t := range s.Targets {
		if len(t.Images) == 0 {
			wrong = append(wrong, fmt.Sprintf("target %s has no images", name))
		}
		for m, id := range t.Images {
			held[id] = true
			if _, ok := s.Images[id]; !ok {
				wrong = append(wrong, fmt.Sprintf("target %s names image %s, which is not there", name, id))
			}
			if !slices.ContainsFunc(t.Entries, func(d ocispec.Descriptor) bool { return d.Digest == m }) {
				wrong = append(wrong, fmt.Sprintf("target %s has image %s for no entry", name, id))
			}
		}
	}
	for name, tag := range s.Tags {
		if len(tag.Points) == 0 {
			wrong = append(wrong, fmt.Sprintf("tag %s points nowhere", name))
		}
		for _, p := range tag.Points {
			t, ok := s.Targets[tag.Repo+"@"+p.Digest.String()]
			for _, id := range p.Images {
				if !ok || !t.Has(id) {
					wrong = append(wrong, fmt.Sprintf("tag %s names image %s, which %s does not have", name, id, p.Digest))
				}
			}
		}
	}
	for id := range s.Grants {
		if _, ok := s.Images[id]; !ok {
			wrong = append(wrong, fmt.Sprintf("image %s is granted and not there", id))
		}
	}
	for id := range s.Images {
		if !held[id] {
			wrong = append(wrong, fmt.Sprintf("image %s has no target", id))
		}
	}
	slices.Sort(wrong)
	return wrong
}

func (t Target) imageIDs() []string {
	return slices.Compact(slices.Sorted(maps.Values(t.Images)))
}
