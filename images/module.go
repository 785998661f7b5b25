package images

import (
	"context"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/program"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/unpack/extract"
)

// maxModule bounds a WebAssembly module, also one that came compressed, in bytes.
const maxModule = 1 << 30

// module brings the module of an artifact in and has it prepared. One that is
// compressed is kept as it runs.
func (x *session) module(ctx context.Context, img *store.Image) error {
	layer := *img.Module
	if layer.Size > maxModule {
		return fmt.Errorf("module %s has %d bytes, more than %d: %w", layer.Digest, layer.Size, maxModule, errdefs.ErrInvalidArgument)
	}
	if err := x.take(ctx, layer); err != nil {
		return err
	}
	x.meter.Update(func(p *Progress) {
		p.Phase = "fetch"
		p.Layers++
		p.BytesTotal += layer.Size
		p.Parts = append(p.Parts, Part{Digest: layer.Digest, Total: layer.Size})
	})
	if err := x.ingest(ctx, layer, x.count(layer.Digest)); err != nil {
		return err
	}
	header, err := program.ReadHeader(x.s.content.Path(layer.Digest))
	if err != nil {
		return err
	}
	if program.IsCompressed(header) {
		if *img.Module, err = x.decompress(ctx, layer); err != nil {
			return err
		}
		x.layers = append(x.layers, layer.Digest)
		if header, err = program.ReadHeader(x.s.content.Path(img.Module.Digest)); err != nil {
			return err
		}
	}
	if err := program.CheckHeader(header); err != nil {
		return err
	}
	x.meter.Part(layer.Digest, func(p *Progress, part *Part) { p.LayersDone, part.Done = p.LayersDone+1, true })
	return x.arrive(ctx, img.Module.Digest, x.s.content.Path(img.Module.Digest))
}

// decompress makes a blob of what a compressed blob holds, and pins it. It reads
// twice: a blob's digest is known before it comes in.
func (x *session) decompress(ctx context.Context, from ocispec.Descriptor) (ocispec.Descriptor, error) {
	open := func() (io.ReadCloser, error) {
		blob, err := x.s.content.Open(ctx, from)
		if err != nil {
			return nil, err
		}
		stream, err := extract.Decompress(blob)
		if err != nil {
			blob.Close()
			return nil, fmt.Errorf("decompress module %s: %w: %w", from.Digest, err, errdefs.ErrInvalidArgument)
		}
		return &closers{stream, []io.Closer{stream, blob}}, nil
	}
	r, err := open()
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	digester := digest.Canonical.Digester()
	n, err := io.Copy(digester.Hash(), io.LimitReader(r, maxModule+1))
	r.Close()
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("decompress module %s: %w: %w", from.Digest, err, errdefs.ErrInvalidArgument)
	}
	if n > maxModule {
		return ocispec.Descriptor{}, fmt.Errorf("module %s unpacks to more than %d bytes: %w", from.Digest, maxModule, errdefs.ErrInvalidArgument)
	}
	to := ocispec.Descriptor{MediaType: manifest.MediaTypeWasm, Digest: digester.Digest(), Size: n}
	x.pin(to.Digest)
	return to, x.s.content.Ingest(ctx, to, func(_ context.Context, offset int64) (io.ReadCloser, error) {
		r, err := open()
		if err != nil {
			return nil, err
		}
		if _, err := io.CopyN(io.Discard, r, offset); err != nil {
			r.Close()
			return nil, err
		}
		return r, nil
	})
}

// closers is a reader with several things to close.
type closers struct {
	io.Reader
	all []io.Closer
}

func (c *closers) Close() error {
	var first error
	for _, a := range c.all {
		if err := a.Close(); first == nil {
			first = err
		}
	}
	return first
}
