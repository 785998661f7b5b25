package layout

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// dockerImage is an entry of manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// readDocker reads the roots of a Docker archive, which has no manifests: they are made.
func (l *Layout) readDocker(ctx context.Context) error {
	data, err := l.document("manifest.json")
	if err != nil {
		return err
	}
	var list []dockerImage
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("manifest.json: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	for _, img := range list {
		desc, err := l.makeManifest(ctx, img)
		if err != nil {
			return err
		}
		if len(img.RepoTags) == 0 {
			l.roots = append(l.roots, Root{Desc: desc})
		}
		for _, tag := range img.RepoTags {
			l.roots = append(l.roots, Root{Name: tag, Desc: desc})
		}
	}
	return nil
}

func (l *Layout) makeManifest(ctx context.Context, img dockerImage) (ocispec.Descriptor, error) {
	config, err := l.document(img.Config)
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	var c ocispec.Image
	if err := json.Unmarshal(config, &c); err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("%s: %w: %w", img.Config, err, errdefs.ErrInvalidArgument)
	}
	if len(c.RootFS.DiffIDs) != len(img.Layers) {
		return ocispec.Descriptor{}, fmt.Errorf("%s has %d layers and manifest.json %d: %w", img.Config, len(c.RootFS.DiffIDs), len(img.Layers), errdefs.ErrInvalidArgument)
	}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: images.MediaTypeDockerSchema2Manifest, Layers: []ocispec.Descriptor{}}
	m.Config = ocispec.Descriptor{MediaType: images.MediaTypeDockerSchema2Config, Digest: digest.FromBytes(config), Size: int64(len(config))}
	l.names[m.Config.Digest] = img.Config
	for i, name := range img.Layers {
		layer, err := l.describeLayer(ctx, name, c.RootFS.DiffIDs[i])
		if err != nil {
			return ocispec.Descriptor{}, fmt.Errorf("layer %s: %w", name, err)
		}
		l.names[layer.Digest] = name
		m.Layers = append(m.Layers, layer)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("make manifest: %w", err)
	}
	desc := ocispec.Descriptor{MediaType: images.MediaTypeDockerSchema2Manifest, Digest: digest.FromBytes(data), Size: int64(len(data))}
	l.made[desc.Digest] = data
	return desc, nil
}

// describeLayer finds out what a layer is. The digest of one that is not
// compressed is said by the configuration.
func (l *Layout) describeLayer(ctx context.Context, name string, diff digest.Digest) (ocispec.Descriptor, error) {
	f, size, err := l.files.open(name)
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	defer f.Close()
	magic := make([]byte, 4)
	if n, err := io.ReadFull(f, magic); err != nil {
		magic = magic[:n] // too short to be compressed; whatever it is, it is verified later
	}
	d := ocispec.Descriptor{MediaType: images.MediaTypeDockerSchema2Layer, Digest: diff, Size: size}
	switch {
	case len(magic) > 1 && magic[0] == 0x1f && magic[1] == 0x8b:
		d.MediaType = images.MediaTypeDockerSchema2LayerGzip
	case string(magic) == "\x28\xb5\x2f\xfd":
		d.MediaType = images.MediaTypeDockerSchema2LayerZstd
	default:
		return d, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return d, err
	}
	d.Digest, err = digest.FromReader(&Cancelled{ctx, f})
	return d, err
}
