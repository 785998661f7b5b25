package registry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// pushing is the context of a push: tokens are asked for with the right to push.
func (r *Repository) pushing(ctx context.Context) context.Context {
	return docker.WithScope(ctx, "repository:"+r.path+":pull,push")
}

// PreparePush chooses the first of the node's credentials that may push. Call it before anything
// else of a push, which may run side by side.
//
// # Errors
//
// See Error; ErrFailedPrecondition where only mirrors are configured.
func (r *Repository) PreparePush(ctx context.Context) error {
	if !slices.ContainsFunc(r.endpoints, func(e *endpoint) bool { return e.Primary }) {
		return &Error{text: fmt.Sprintf("hosts.toml names a server for all registries, which is a mirror of %q and takes no pushes", r.domain), class: errdefs.ErrFailedPrecondition}
	}
	for len(r.logins) > 1 {
		u := &upload{r: r, ctx: r.pushing(ctx)}
		_, err := u.start("", "")
		if err == nil {
			u.cancel()
			return nil
		}
		if err = r.wrap(ctx, "ask for an upload", err); !errdefs.IsUnauthorized(err) && !errdefs.IsPermissionDenied(err) || !r.nextLogin() {
			return err
		}
	}
	return nil
}

// HasBlob reports whether the repository has a blob.
func (r *Repository) HasBlob(ctx context.Context, desc ocispec.Descriptor) (bool, error) {
	return r.has(r.pushing(ctx), "blobs/", desc)
}

// HasManifest reports whether the repository has a manifest or an index.
func (r *Repository) HasManifest(ctx context.Context, desc ocispec.Descriptor) (bool, error) {
	return r.has(r.pushing(ctx), "manifests/", desc)
}

// TagIs reports whether the repository has a manifest or an index under the reference's tag, by the
// digest that the registry answers with.
func (r *Repository) TagIs(ctx context.Context, desc ocispec.Descriptor) (bool, error) {
	resp, _, err := r.do(r.pushing(ctx), call{method: http.MethodHead, path: "manifests/" + r.tag, accept: acceptManifests, push: true})
	if code, ok := statusOf(err); ok && code == http.StatusNotFound {
		return false, nil
	}
	if err != nil {
		return false, r.wrap(ctx, fmt.Sprintf("ask for %q", r.ref), err)
	}
	resp.Body.Close()
	return resp.Header.Get("Docker-Content-Digest") == desc.Digest.String(), nil
}

func (r *Repository) has(ctx context.Context, kind string, desc ocispec.Descriptor) (bool, error) {
	resp, _, err := r.do(ctx, call{method: http.MethodHead, path: kind + desc.Digest.String(), accept: acceptManifests, digest: desc.Digest, push: true})
	if code, ok := statusOf(err); ok && code == http.StatusNotFound {
		return false, nil
	}
	if err != nil {
		return false, r.wrap(ctx, fmt.Sprintf("ask %q for %s", r.ref, desc.Digest), err)
	}
	resp.Body.Close()
	return resp.ContentLength < 0 || resp.ContentLength == desc.Size, nil
}

// Mount has the registry take a blob over from another of its repositories, and reports whether it
// did. A registry that refuses has not.
func (r *Repository) Mount(ctx context.Context, desc ocispec.Descriptor, from string) (bool, error) {
	u := &upload{r: r, ctx: r.pushing(ctx)}
	done, err := u.start(desc.Digest, from)
	switch {
	case ctx.Err() != nil:
		return false, r.wrap(ctx, "mount "+desc.Digest.String(), err)
	case err == nil && !done:
		u.cancel()
	}
	return err == nil && done, nil
}

// PushManifest stores a manifest or an index by its digest, and under a tag unless that is "". What
// it names must be there.
//
// # Errors
//
// See Error; ErrDataLoss if the registry has stored it under another digest.
func (r *Repository) PushManifest(ctx context.Context, desc ocispec.Descriptor, data []byte, tag string) error {
	name := desc.Digest.String()
	if tag != "" {
		name = tag
	}
	resp, _, err := r.do(r.pushing(ctx), call{method: http.MethodPut, path: "manifests/" + name, push: true, send: &payload{
		mediaType: desc.MediaType, size: int64(len(data)), open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
	}})
	if err == nil {
		err = checkStored(resp, desc.Digest)
	}
	if err != nil {
		return r.wrap(ctx, fmt.Sprintf("push manifest %s to %q", desc.Digest, r.ref), err)
	}
	return nil
}

// Tag is the tag of the reference, "" for one by digest.
func (r *Repository) Tag() string { return r.tag }

// checkStored compares the digest that a registry answers with.
func checkStored(resp *http.Response, want digest.Digest) error {
	got := resp.Header.Get("Docker-Content-Digest")
	if got == "" || got == want.String() {
		return nil
	}
	return fmt.Errorf("the registry answers that it has stored %.100q, not %s: %w", got, want, errdefs.ErrDataLoss)
}
