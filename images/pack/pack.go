// Package pack makes images of WebAssembly modules: an image whose file system has the module and
// further files, or an artifact that is the module alone; with a Linux variant beside it, an index.
// The same input gives the same digests.
package pack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/images/layout"
	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/program"
	"github.com/sunaba-project/sunaba/images/pull"
	"github.com/sunaba-project/sunaba/images/reference"
)

// epoch is the time of everything in an image.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

// Options say what an image is made of.
type Options struct {
	// Name is what the image is called: a reference.
	Name string
	// Module is the path of the module or component.
	Module string
	// Component is what an artifact says of a component; nil = nothing.
	Component *manifest.Component
	// Artifact makes an artifact instead of an image with a file system.
	Artifact bool
	// Files are further files of the image.
	Files []File
	// Config has variables, entrypoint, arguments and working directory. Without an entrypoint it is
	// the module.
	Config ocispec.ImageConfig
	// Linux is the Linux variant; nil without one.
	Linux *Linux
	// Spool is a folder for the layers until Close; "" is the one for temporary files.
	Spool string
}

// Image is an image that is ready to be written.
type Image struct {
	name  string
	root  ocispec.Descriptor
	blobs []ocispec.Descriptor
	open  map[digest.Digest]func() (io.ReadCloser, error)
	dir   string // of its layers
}

// New makes an image. The caller closes it.
//
// # Errors
//
// ErrInvalidArgument for what makes no image: a file that is no module, a path that is not absolute
// and clean, a special file, too much.
func New(ctx context.Context, o Options) (_ *Image, err error) {
	n, err := reference.Parse(o.Name)
	if err == nil && n.Digest != "" {
		err = fmt.Errorf("the name %q has a digest, which the image is to get first: %w", o.Name, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, err
	}
	component, err := checkModule(o.Module)
	if err != nil {
		return nil, err
	}
	img := &Image{name: n.Full, open: map[digest.Digest]func() (io.ReadCloser, error){}}
	if img.dir, err = os.MkdirTemp(o.Spool, "sunaba-pack-"); err != nil {
		return nil, fmt.Errorf("make folder for layers: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, img.Close())
		}
	}()
	platform := manifest.WasmPlatform
	if component {
		platform = manifest.ComponentPlatform
	}
	if o.Artifact {
		img.root, err = img.artifact(ctx, o, platform)
	} else {
		img.root, err = img.guest(ctx, o, platform)
	}
	if err != nil || o.Linux == nil {
		return img, err
	}
	img.root.Platform = &platform
	return img, img.index(ctx, o)
}

// checkModule refuses what is no module, and says whether it is a component.
func checkModule(file string) (component bool, err error) {
	header, err := program.ReadHeader(file)
	if err != nil {
		return false, err
	}
	if err := binfmt.CheckWasm(header); err != nil {
		return false, fmt.Errorf("pack %q: %w", file, err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return false, fmt.Errorf("read module: %w", err)
	}
	if info.Size() > pull.MaxModule {
		return false, fmt.Errorf("pack %q: the module has %d bytes, more than %d: %w", file, info.Size(), pull.MaxModule, errdefs.ErrInvalidArgument)
	}
	return binfmt.IsComponent(header), nil
}

// ModulePath is where the module of an image lies.
func ModulePath(file string) string { return "/" + path.Base(file) }

// guest makes the image with a file system.
func (i *Image) guest(ctx context.Context, o Options, platform ocispec.Platform) (ocispec.Descriptor, error) {
	t := newTree(plainModes)
	if err := t.add(File{Host: o.Module, Guest: ModulePath(o.Module)}); err != nil {
		return ocispec.Descriptor{}, err
	}
	t.executable(ModulePath(o.Module))
	for _, f := range o.Files {
		if err := t.add(f); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	config := o.Config
	if len(config.Entrypoint) == 0 {
		config.Entrypoint = []string{ModulePath(o.Module)}
	}
	return i.image(ctx, t, platform, config)
}

// image makes an image of one layer.
func (i *Image) image(ctx context.Context, t *tree, platform ocispec.Platform, config ocispec.ImageConfig) (ocispec.Descriptor, error) {
	if err := checkConfig(config); err != nil {
		return ocispec.Descriptor{}, err
	}
	layer, diff, err := i.layer(ctx, t)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	created := epoch()
	return i.manifest(ocispec.MediaTypeImageConfig, ocispec.Image{
		Created: &created, Platform: platform, Config: config,
		RootFS:  ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{diff}},
		History: []ocispec.History{{Created: &created, CreatedBy: "sunaba images pack"}},
	}, layer)
}

// checkConfig refuses what no container could have.
func checkConfig(c ocispec.ImageConfig) error {
	if c.WorkingDir != "" && !cleanPath(c.WorkingDir) {
		return fmt.Errorf("working directory %q is not absolute and clean: %w", c.WorkingDir, errdefs.ErrInvalidArgument)
	}
	for _, text := range slices.Concat(c.Env, c.Entrypoint, c.Cmd) {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("%q has a zero byte: %w", text, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// wasmConfig is the configuration of an artifact (CNCF's "Wasm OCI Artifact layout").
type wasmConfig struct {
	Created      time.Time           `json:"created"`
	Architecture string              `json:"architecture"`
	OS           string              `json:"os"`
	LayerDigests []digest.Digest     `json:"layerDigests"`
	Component    *manifest.Component `json:"component,omitempty"`
}

// artifact makes the image that is the module alone.
func (i *Image) artifact(ctx context.Context, o Options, platform ocispec.Platform) (ocispec.Descriptor, error) {
	if c := o.Config; len(o.Files)+len(c.Env)+len(c.Entrypoint)+len(c.Cmd) > 0 || c.WorkingDir != "" {
		return ocispec.Descriptor{}, fmt.Errorf("an artifact has the module and nothing else: files, variables, entrypoint, arguments and working directory need the format image: %w",
			errdefs.ErrInvalidArgument)
	}
	module, err := i.copyModule(ctx, o.Module)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	module.Annotations = map[string]string{ocispec.AnnotationTitle: path.Base(o.Module)}
	return i.manifest(manifest.MediaTypeWasmConfig, wasmConfig{
		Created: epoch(), Architecture: platform.Architecture, OS: platform.OS, LayerDigests: []digest.Digest{module.Digest}, Component: o.Component,
	}, module)
}

// manifest adds a configuration and the manifest of one layer.
func (i *Image) manifest(mediaType string, config any, layer ocispec.Descriptor) (ocispec.Descriptor, error) {
	c, err := i.document(mediaType, config)
	if err != nil {
		return c, err
	}
	return i.document(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: c, Layers: []ocispec.Descriptor{layer},
	})
}

// document adds a small blob.
func (i *Image) document(mediaType string, v any) (ocispec.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("write %s: %w", mediaType, err)
	}
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	i.blob(d, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(data))), nil })
	return d, manifest.CheckDocument(d)
}

// blob adds a blob that open opens.
func (i *Image) blob(d ocispec.Descriptor, open func() (io.ReadCloser, error)) {
	if i.open[d.Digest] == nil {
		i.blobs = append(i.blobs, manifest.Bare(d))
		i.open[d.Digest] = open
	}
}

// Digest is the digest of the image: that of its manifest or index.
func (i *Image) Digest() digest.Digest { return i.root.Digest }

// Name is the whole name of the image.
func (i *Image) Name() string { return i.name }

// Write writes the image as an OCI layout in a tar archive.
func (i *Image) Write(ctx context.Context, w io.Writer) error {
	return layout.Write(w, []layout.Named{{Name: i.name, Root: i.root}}, nil, i.blobs, func(d ocispec.Descriptor) (io.ReadCloser, error) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return i.open[d.Digest]()
	})
}

// Close removes the layers.
func (i *Image) Close() error { return os.RemoveAll(i.dir) }
