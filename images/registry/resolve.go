package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/trace"
)

// maxManifest bounds manifests and indexes, in bytes.
const maxManifest = 8 << 20

// acceptManifests is what may stand behind a reference.
var acceptManifests = strings.Join([]string{
	ocispec.MediaTypeImageIndex, images.MediaTypeDockerSchema2ManifestList,
	ocispec.MediaTypeImageManifest, images.MediaTypeDockerSchema2Manifest, "*/*",
}, ", ")

// Resolve asks what the reference stands for now: one HEAD request where the registry answers it
// fully. Where the node has several credentials for the registry, they are tried in their order.
//
// # Errors
//
// See Error. An image that is not there is ErrNotFound.
func (r *Repository) Resolve(ctx context.Context) (desc ocispec.Descriptor, err error) {
	ctx, span := trace.Start(ctx, "resolve reference")
	span.Text("server.address", r.domain)
	defer func() { span.End(err) }()
	for {
		desc, err := r.resolve(ctx)
		if err == nil {
			return desc, nil
		}
		err = r.wrap(ctx, "resolve", err)
		if !errdefs.IsUnauthorized(err) && !errdefs.IsPermissionDenied(err) || !r.nextLogin() {
			return ocispec.Descriptor{}, err
		}
	}
}

func (r *Repository) resolve(ctx context.Context) (ocispec.Descriptor, error) {
	c := call{method: http.MethodHead, path: "manifests/" + r.tag, accept: acceptManifests, digest: r.digest}
	if r.digest != "" {
		c.path = "manifests/" + r.digest.String()
	}
	resp, e, err := r.do(ctx, c)
	var refused *statusError // by a registry, not by its token server
	switch {
	case err == nil:
		resp.Body.Close()
		desc := ocispec.Descriptor{
			MediaType: mediaType(resp.Header),
			Digest:    cmp.Or(r.digest, digest.Digest(resp.Header.Get("Docker-Content-Digest"))),
			Size:      resp.ContentLength,
		}
		if desc.MediaType != "" && desc.Digest.Validate() == nil && desc.Size > 0 {
			r.noteServed(desc.Digest, e)
			return desc, nil
		}
	case !errors.As(err, &refused), refused.code >= 500 && refused.code != http.StatusNotImplemented,
		slices.Contains([]int{http.StatusUnauthorized, http.StatusNotFound, http.StatusTooManyRequests}, refused.code):
		return ocispec.Descriptor{}, err // else there may be a body, with the manifest or the reason
	}
	c.method = http.MethodGet
	return r.read(ctx, c)
}

// read reads a manifest and makes the descriptor that a HEAD request did not.
func (r *Repository) read(ctx context.Context, c call) (ocispec.Descriptor, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	resp, e, err := r.do(ctx, c)
	if err != nil {
		cancel(nil)
		return ocispec.Descriptor{}, err
	}
	b := watch(ctx, resp.Body, cancel, r.client.options.StallTimeout)
	defer b.Close()
	data, err := io.ReadAll(io.LimitReader(b, maxManifest+1))
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("read manifest: %w", err)
	}
	if len(data) > maxManifest {
		return ocispec.Descriptor{}, fmt.Errorf("the manifest is larger than %d bytes: %w", maxManifest, errdefs.ErrInvalidArgument)
	}
	desc := ocispec.Descriptor{MediaType: mediaType(resp.Header), Digest: digest.FromBytes(data), Size: int64(len(data))}
	if r.digest != "" {
		desc.Digest = r.digest // who stores it finds out whether it is
	}
	r.noteServed(desc.Digest, e)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.manifests[desc.Digest] = data
	return desc, nil
}

func mediaType(h http.Header) string {
	t, _, _ := mime.ParseMediaType(h.Get("Content-Type")) // "" for what is none
	return t
}

// remembered returns a manifest that resolving has read, once.
func (r *Repository) remembered(d digest.Digest) ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	data, ok := r.manifests[d]
	delete(r.manifests, d)
	return data, ok
}
