package pull

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/program"
	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/unpack/extract"
)

// MaxModule bounds a WebAssembly module, also one that came compressed, in bytes.
const MaxModule = 1 << 30

// module brings the module of an artifact in and has it prepared. One that is
// compressed is kept as it runs.
func (x *session) module(ctx context.Context, img *store.Image) error {
	layer := *img.Module
	if layer.Size > MaxModule {
		return fmt.Errorf("module %s has %d bytes, more than %d: %w", layer.Digest, layer.Size, MaxModule, errdefs.ErrInvalidArgument)
	}
	if err := x.Take(ctx, layer); err != nil {
		return err
	}
	x.Meter.Update(func(p *progress.Progress) {
		p.Phase = "fetch"
		p.Layers++
		p.BytesTotal += layer.Size
		p.Parts = append(p.Parts, progress.Part{Digest: layer.Digest, Total: layer.Size})
	})
	if err := x.Ingest(ctx, layer, x.Count(layer.Digest)); err != nil {
		return err
	}
	header, err := program.ReadHeader(x.p.Disk.Content.Path(layer.Digest))
	if err != nil {
		return err
	}
	if program.IsCompressed(header) {
		if *img.Module, err = x.decompress(ctx, layer); err != nil {
			return err
		}
		x.layers = append(x.layers, layer.Digest)
		if header, err = program.ReadHeader(x.p.Disk.Content.Path(img.Module.Digest)); err != nil {
			return err
		}
	}
	if err := binfmt.CheckWasm(header); err != nil {
		return fmt.Errorf("layer %s: %w", layer.Digest, err)
	}
	x.done(layer)
	return x.arrive(ctx, img.Module.Digest, x.p.Disk.Content.Path(img.Module.Digest))
}

// decompress makes a blob of what a compressed blob holds, and pins it. It reads
// twice: a blob's digest is known before it comes in.
func (x *session) decompress(ctx context.Context, from ocispec.Descriptor) (ocispec.Descriptor, error) {
	open := func() (io.ReadCloser, error) {
		blob, err := x.p.Disk.Content.Open(ctx, from)
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
	n, err := io.Copy(digester.Hash(), io.LimitReader(r, MaxModule+1))
	r.Close()
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("decompress module %s: %w: %w", from.Digest, err, errdefs.ErrInvalidArgument)
	}
	if n > MaxModule {
		return ocispec.Descriptor{}, fmt.Errorf("module %s unpacks to more than %d bytes: %w", from.Digest, MaxModule, errdefs.ErrInvalidArgument)
	}
	to := ocispec.Descriptor{MediaType: manifest.MediaTypeWasm, Digest: digester.Digest(), Size: n}
	x.Pin(to.Digest)
	return to, x.p.Disk.Content.Ingest(ctx, to, func(_ context.Context, offset int64) (io.ReadCloser, error) {
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

// hold keeps modules from departing until the session is closed.
func (x *session) hold(ctx context.Context, modules ...digest.Digest) error {
	for _, d := range modules {
		release, err := x.p.Modules.Hold(ctx, d)
		if err != nil {
			return err
		}
		x.OnClose(release)
	}
	return nil
}

// arrive has a module prepared, and says that it takes its time.
func (x *session) arrive(ctx context.Context, d digest.Digest, path string) error {
	if err := x.hold(ctx, d); err != nil {
		return err
	}
	return x.p.Modules.Arrive(ctx, d, path, func() {
		var size int64
		if info, err := os.Stat(path); err == nil { // it only tells how long this will take
			size = info.Size()
		}
		x.Meter.Update(func(p *progress.Progress) { p.Phase, p.Compiling = "compile", size })
	})
}

// arriveRootFS does what arrive does for a filesystem image for WebAssembly: the
// module is the file that the entrypoint names. An entrypoint that is not such a
// file is left to the one who creates the container.
func (x *session) arriveRootFS(ctx context.Context, img *store.Image) error {
	if img.Platform.Architecture != "wasm" || img.Chain == "" {
		return nil
	}
	return x.p.Disk.Layers.WithChain(img.Chain, func(dir string) error {
		f, err := program.OpenEntrypoint(dir, img.Runtime)
		if err != nil {
			x.p.Logger.Debug("image has no module at its entrypoint", "image", img.ID, "error", err)
			return nil
		}
		defer f.Close()
		header := make([]byte, binfmt.WasmHeader)
		n, err := io.ReadFull(f, header)
		if err != nil || !binfmt.IsWasm(header) {
			return nil
		}
		if err := binfmt.CheckWasm(header[:n]); err != nil {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read module: %w", err)
		}
		d, err := digest.FromReader(f)
		if err != nil {
			return fmt.Errorf("read module: %w", err)
		}
		// The name without any symlinks, which could lead out of dir.
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err != nil {
			return fmt.Errorf("find module: %w", err)
		}
		img.Program = d
		return x.arrive(ctx, d, name)
	})
}
