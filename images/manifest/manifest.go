// Package manifest reads the documents that images are described by: indexes, manifests and
// configurations.
package manifest

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Media types of WebAssembly artifacts.
const (
	MediaTypeWasmConfig    = "application/vnd.wasm.config.v0+json"
	MediaTypeWasm          = "application/wasm"
	MediaTypeWasmContent   = "application/vnd.wasm.content.layer.v1+wasm"
	MediaTypeWasmComponent = "application/vnd.bytecodealliance.wasm.component.layer.v0+wasm"
	MediaTypeWasmModule    = "application/vnd.bytecodealliance.wasm.module.layer.v0+wasm"
	mediaTypeSpinConfig    = "application/vnd.fermyon.spin.application.v1+config"
)

// Platforms of WebAssembly files.
var (
	WasmPlatform      = ocispec.Platform{OS: "wasip1", Architecture: "wasm"} // of modules for WASI preview 1
	ComponentPlatform = ocispec.Platform{OS: "wasip2", Architecture: "wasm"} // of components for WASI 0.2
)

// IsComponent says of a platform that its images are components.
func IsComponent(p ocispec.Platform) bool {
	return p.OS == ComponentPlatform.OS && p.Architecture == ComponentPlatform.Architecture
}

// Document is an index or a manifest, whichever it turns out to be.
type Document struct {
	MediaType   string               `json:"mediaType"`
	Config      *ocispec.Descriptor  `json:"config"`
	Layers      []ocispec.Descriptor `json:"layers"`
	Manifests   []ocispec.Descriptor `json:"manifests"`
	Annotations map[string]string    `json:"annotations"`
}

// checkpointAnnotations are those of a manifest whose image is the checkpoint of a container, with
// the container's name: CRI-O's, CRIU's (which containerd knows) and Podman's.
func checkpointAnnotations() []string {
	return []string{
		"io.kubernetes.cri-o.annotations.checkpoint.name", "org.criu.checkpoint.container.name", "io.podman.annotations.checkpoint.name",
	}
}

// CheckpointOf names the container that an image is the checkpoint of, "" if it is not one.
func (d Document) CheckpointOf() string {
	for _, key := range checkpointAnnotations() {
		if name := d.Annotations[key]; name != "" {
			return name
		}
	}
	return ""
}

// IsIndex tells an index from a manifest.
func (d Document) IsIndex() bool { return d.Config == nil }

// Parse reads an index or a manifest. What the registry says it is, what it says itself and what it
// holds must agree, so that no two programs can see different images in the same bytes.
func Parse(desc ocispec.Descriptor, data []byte) (Document, error) {
	var d Document
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("parse manifest %s: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	refuse := func(why string) (Document, error) {
		return d, fmt.Errorf("manifest %s %s: %w", desc.Digest, why, errdefs.ErrInvalidArgument)
	}
	for _, t := range []string{desc.MediaType, d.MediaType} {
		switch {
		case t == images.MediaTypeDockerSchema1Manifest, t == "application/vnd.docker.distribution.manifest.v1+json":
			return refuse("is of Docker's schema 1, which nothing writes any more; push the image again with a current tool")
		case images.IsIndexType(t) && d.Config != nil:
			return refuse("is said to be an index and holds a configuration")
		case images.IsManifestType(t) && d.Config == nil:
			return refuse("is said to be an image manifest and holds no configuration")
		}
	}
	if d.Config != nil && d.Manifests != nil || d.Config == nil && (d.Layers != nil || d.Manifests == nil) {
		return refuse("is neither an index nor an image manifest")
	}
	for _, e := range slices.Concat(d.Layers, d.Manifests) {
		if err := CheckDescriptor(e); err != nil {
			return d, err
		}
	}
	if d.Config != nil {
		return d, CheckDescriptor(*d.Config)
	}
	return d, nil
}

// maxSize is more than any content has, and little enough for the sizes of all that one document
// names to be added up.
const maxSize = 1 << 44

func CheckDescriptor(d ocispec.Descriptor) error {
	if err := d.Digest.Validate(); err != nil {
		return fmt.Errorf("digest %q: %w: %w", d.Digest, err, errdefs.ErrInvalidArgument)
	}
	if d.Size < 0 || d.Size > maxSize {
		return fmt.Errorf("size %d of %s: %w", d.Size, d.Digest, errdefs.ErrInvalidArgument)
	}
	return nil
}

// isWasmLayer reports whether a layer is a WebAssembly binary, perhaps compressed.
func isWasmLayer(mediaType string) bool {
	mediaType = strings.TrimSuffix(strings.TrimSuffix(mediaType, "+gzip"), "+zstd")
	switch mediaType {
	case MediaTypeWasm, MediaTypeWasmContent, MediaTypeWasmComponent, MediaTypeWasmModule:
		return true
	}
	return false
}

// isWorkloadType reports whether an artifact type, which is the type of the
// configuration for want of a better one, may be that of something that runs.
func isWorkloadType(t string) bool {
	switch t {
	case "", ocispec.MediaTypeImageConfig, images.MediaTypeDockerSchema2Config, MediaTypeWasmConfig:
		return true
	}
	return isWasmLayer(t)
}

// IsModule reports whether a manifest is a WebAssembly artifact and refuses one
// that is put together wrongly.
//
// # Errors
//
// ErrInvalidArgument for an artifact that does not have exactly one layer, and
// for a filesystem image with layers that are none.
func IsModule(m Document) (bool, error) {
	if m.Config.MediaType == mediaTypeSpinConfig {
		return false, fmt.Errorf("this is a Spin application, which needs Spin's own runtime; "+
			"core modules for WASI preview 1 (wasip1) are accepted: %w", errdefs.ErrInvalidArgument)
	}
	wasm := m.Config.MediaType == MediaTypeWasmConfig ||
		slices.ContainsFunc(m.Layers, func(l ocispec.Descriptor) bool { return isWasmLayer(l.MediaType) })
	if wasm {
		if len(m.Layers) != 1 {
			return false, fmt.Errorf("a WebAssembly artifact has exactly one layer, this one has %d: %w", len(m.Layers), errdefs.ErrInvalidArgument)
		}
		return true, nil
	}
	for _, l := range m.Layers {
		if !isTarLayer(l.MediaType) {
			return false, fmt.Errorf("layer %s is of type %q, which is not a filesystem: %w", l.Digest, l.MediaType, errdefs.ErrInvalidArgument)
		}
	}
	return false, nil
}

func isTarLayer(mediaType string) bool {
	base, _, _ := strings.Cut(mediaType, "+")
	switch base {
	case "application/vnd.oci.image.layer.v1.tar",
		"application/vnd.oci.image.layer.nondistributable.v1.tar",
		"application/vnd.docker.image.rootfs.diff.tar",
		"application/vnd.docker.image.rootfs.diff.tar.gzip",
		"application/vnd.docker.image.rootfs.diff.tar.zstd",
		"application/vnd.docker.image.rootfs.foreign.diff.tar",
		"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip":
		return true
	}
	return false
}

// Config is what matters of an image's configuration.
type Config struct {
	Created  *time.Time          `json:"created"`
	OS       string              `json:"os"`
	Arch     string              `json:"architecture"`
	Variant  string              `json:"variant"`
	Version  string              `json:"os.version"`
	Features []string            `json:"os.features"`
	Config   ocispec.ImageConfig `json:"config"`
	RootFS   struct {
		DiffIDs []digest.Digest `json:"diff_ids"`
	} `json:"rootfs"`
	LayerDigests []digest.Digest `json:"layerDigests"` // of a wasm configuration
	Component    *Component      `json:"-"`            // of a wasm configuration
}

// Component is what a wasm configuration says of its component (CNCF's "Wasm OCI Artifact layout").
// It is for people: what the component's own bytes say counts.
type Component struct {
	Imports []string `json:"imports"`
	Exports []string `json:"exports"`
	Target  string   `json:"target,omitempty"` // the world that it is made for, "" = not told
}

// Bounds of what a configuration says of a component.
const (
	maxInterfaces = 1000 // imports and exports, each
	maxInterface  = 1000 // bytes of a name
)

// check bounds what is said of a component: it is kept with the image's record.
func (c *Component) check() error {
	if c == nil {
		return nil
	}
	for what, names := range map[string][]string{"imports": c.Imports, "exports": c.Exports, "targets": {c.Target}} {
		if len(names) > maxInterfaces {
			return fmt.Errorf("the component has %d %s, more than %d: %w", len(names), what, maxInterfaces, errdefs.ErrInvalidArgument)
		}
		for _, name := range names {
			if len(name) > maxInterface {
				return fmt.Errorf("among the component's %s is a name of %d bytes, more than %d: %w", what, len(name), maxInterface, errdefs.ErrInvalidArgument)
			}
		}
	}
	return nil
}

func ParseConfig(desc ocispec.Descriptor, data []byte) (Config, error) {
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("parse configuration %s: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	if desc.MediaType == MediaTypeWasmConfig {
		var own struct {
			Component *Component `json:"component"`
		}
		if err := json.Unmarshal(data, &own); err != nil {
			return c, fmt.Errorf("parse configuration %s: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
		}
		if err := own.Component.check(); err != nil {
			return c, fmt.Errorf("parse configuration %s: %w", desc.Digest, err)
		}
		c.Component = own.Component
	}
	if slices.Equal(c.Config.Entrypoint, []string{""}) {
		c.Config.Entrypoint = nil // so builders take away that of the image below
	}
	for _, d := range c.RootFS.DiffIDs {
		if err := d.Validate(); err != nil {
			return c, fmt.Errorf("parse configuration %s: diff id %q: %w: %w", desc.Digest, d, err, errdefs.ErrInvalidArgument)
		}
	}
	return c, nil
}

// Platform returns the platform an image says it is for. One that says nothing
// is taken to be for this machine, as old tools meant it.
func (c Config) Platform() ocispec.Platform {
	p := ocispec.Platform{OS: c.OS, Architecture: c.Arch, Variant: c.Variant, OSVersion: c.Version, OSFeatures: c.Features}
	if p.OS == "" && p.Architecture == "" {
		p.OS, p.Architecture = runtime.GOOS, runtime.GOARCH
	}
	return platforms.Normalize(p)
}

// ModulePlatform returns the platform of an artifact with this configuration: that of components if
// the configuration says so, else that of modules. Many tools leave the configuration empty.
func (c Config) ModulePlatform() ocispec.Platform {
	if IsComponent(ocispec.Platform{OS: c.OS, Architecture: c.Arch}) {
		return ComponentPlatform
	}
	return WasmPlatform
}

// Names reports whether the configuration names a blob as its content, and
// nothing else, so that its digest identifies the image.
func (c Config) Names(blob digest.Digest) bool {
	all := slices.Concat(c.LayerDigests, c.RootFS.DiffIDs)
	return len(all) > 0 && !slices.ContainsFunc(all, func(d digest.Digest) bool { return d != blob })
}

// ReferenceTypeAnnotation marks an index entry that describes another entry:
// BuildKit's provenance and SBOM attestations.
const ReferenceTypeAnnotation = "vnd.docker.reference.type"

// DescribesOther reports whether an index entry is about another entry, or an
// artifact of a type that is no workload: a signature, a list of materials.
func DescribesOther(d ocispec.Descriptor) bool {
	_, ok := d.Annotations[ReferenceTypeAnnotation]
	return ok || !isWorkloadType(d.ArtifactType)
}

// Bare is what of a descriptor says which content it is.
func Bare(d ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
}

// Bounds of an index and those within it.
const (
	// IndexDepth is how deep indexes may be nested.
	IndexDepth = 4
	// MaxPlatform is how large the description of a platform is, in bytes.
	MaxPlatform = 1 << 10
	// MaxEntries is how many entries the index and those within it have in all.
	MaxEntries = 1000
	// MaxDocument is how large one of them may be in bytes: it is read into memory.
	MaxDocument = 8 << 20
	// MaxDocuments is how large the documents that must be read for them are in all, in bytes.
	MaxDocuments = 64 << 20
)

// Walk is one visit of an index and of what is nested in it: no document twice, and not too many
// entries in all.
type Walk struct {
	visited map[digest.Digest]bool
	entries int
	bytes   int64
}

// CheckDocument refuses the descriptor of a manifest, an index or a configuration that is too
// large.
//
// # Errors
//
// ErrInvalidArgument.
func CheckDocument(desc ocispec.Descriptor) error {
	if desc.Size > MaxDocument {
		return fmt.Errorf("document %s of %d bytes is larger than %d: %w", desc.Digest, desc.Size, MaxDocument, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Visit reports whether a document is new.
//
// # Errors
//
// ErrInvalidArgument if those that were visited are too large now.
func (w *Walk) Visit(d ocispec.Descriptor) (bool, error) {
	if w.visited[d.Digest] {
		return false, nil
	}
	if CheckDocument(d) == nil { // else it is not read
		w.bytes += d.Size
	}
	if w.bytes > MaxDocuments {
		return false, fmt.Errorf("index entry %s: the documents of the image have more than %d bytes: %w", d.Digest, MaxDocuments, errdefs.ErrInvalidArgument)
	}
	if w.visited == nil {
		w.visited = make(map[digest.Digest]bool)
	}
	w.visited[d.Digest] = true
	return true, nil
}

// Count adds entries of an index.
//
// # Errors
//
// ErrInvalidArgument if there are too many now; the context's error.
func (w *Walk) Count(ctx context.Context, index digest.Digest, n int) error {
	if w.entries += n; w.entries > MaxEntries {
		return fmt.Errorf("index %s: it and those within it have more than %d entries: %w", index, MaxEntries, errdefs.ErrInvalidArgument)
	}
	return context.Cause(ctx)
}
