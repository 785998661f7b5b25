package images

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/space"
	"github.com/sunaba-project/sunaba/images/store"
)

// Pull brings an image in and answers the variant for the handler; without one,
// the best match of every configured handler is fetched, and the default
// handler's is answered, else the first handler's that has one. What is present
// is not fetched again: then a pull is one request, for the manifest. Equal
// pulls at the same time are one.
//
// A tag that has moved points to the new image for the handlers that have a
// variant of it now; the old image stays, without the tag.
//
// A pull for every handler passes over a variant that cannot run, such as a
// WebAssembly component, if another handler has one that can.
//
// # Errors
//
// ErrInvalidArgument for a reference that is none (without touching the
// network), an unknown handler, and content that cannot run here; a
// *NoMatchError (ErrFailedPrecondition) when no handler asked for takes the
// image; ErrNotFound, ErrUnauthenticated, ErrPermissionDenied from the registry;
// ErrDataLoss for content that is not what it should be; the context's error.
// The text of an unreachable registry begins with registry.UnavailablePrefix.
func (s *Service) Pull(ctx context.Context, req PullRequest) (Image, error) {
	n, err := parseName(req.Ref)
	if err != nil {
		return Image{}, err
	}
	handlers, err := s.wanted(req.Handler)
	if err != nil {
		return Image{}, err
	}
	remote, err := s.registry.Repository(ctx, n.full, req.Auth)
	if err != nil {
		return Image{}, fmt.Errorf("pull %q: %w", req.Ref, err)
	}
	key := n.full + " " + req.Handler + " " + fingerprint(req.Auth)
	m, leave := s.meters.join(key, req.Progress)
	defer leave()
	got, err := s.pulls.Do(ctx, key, func(ctx context.Context) (pulled, error) {
		return s.pull(ctx, n, handlers, remote, m)
	})
	if err == nil {
		err = s.grant(got, req.Namespace)
	}
	if err != nil {
		return Image{}, registry.Describe(fmt.Sprintf("pull %q", req.Ref), space.Explain(s.root, err))
	}
	return got.image, nil
}

// pulled is what a pull brought.
type pulled struct {
	image Image
	// ids are all images that it brought or found present and that the
	// repository has shown, hidden those that are new and that it has not; access
	// and credentials are what opened the repository.
	ids, hidden []string
	access      registry.Access
	credentials string
}

// shownImages returns the images of a target that its repository has shown in full.
func shownImages(t store.Target) []string {
	var ids []string
	for m, id := range t.Images {
		if t.Manifests[m].Shown {
			ids = append(ids, id)
		}
	}
	return ids
}

// fingerprint tells pulls with different credentials apart.
func fingerprint(c registry.Credentials) string {
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // six strings
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

func (s *Service) pull(ctx context.Context, n name, handlers []HandlerPlatforms, remote *registry.Repository, m *meter) (pulled, error) {
	began := time.Now()
	m.update(func(p *Progress) { *p = Progress{Phase: "resolve"} })
	desc, err := remote.Resolve(ctx)
	if err != nil {
		return pulled{}, err
	}
	if err := checkDescriptor(desc); err != nil {
		return pulled{}, err
	}
	if n.digest != "" && n.digest != desc.Digest {
		return pulled{}, fmt.Errorf("the registry answered %s: %w", desc.Digest, errdefs.ErrDataLoss)
	}
	x := s.session(remote, n.repo, desc.Digest, m)
	x.credentials = remote.Fingerprint(s.db.Salt())
	defer x.close()
	x.pin(desc.Digest)
	target, err := x.bringIn(ctx, n, desc, handlers)
	if err != nil {
		x.giveUp(ctx, err)
		return pulled{}, err
	}
	m.update(func(p *Progress) { p.Phase = "done" })
	img, err := s.variant([]store.Target{target}, handlers)
	if err != nil {
		return pulled{}, err
	}
	hosts := slices.Sorted(maps.Keys(byHost(remote.Served())))
	s.logger.Info("image pulled", "image", n.full, "id", img.ID, "servers", hosts, "took", time.Since(began).Round(time.Millisecond))
	return pulled{
		image: img, ids: shownImages(target), hidden: x.hidden,
		access: remote.Access(), credentials: x.credentials,
	}, nil
}

// bringIn makes a target present and recorded for the handlers. A target that
// was complete may be removed before it is recorded anew; then it is fetched.
func (x *session) bringIn(ctx context.Context, n name, desc ocispec.Descriptor, handlers []HandlerPlatforms) (store.Target, error) {
	if t, ok := x.s.complete(ctx, n.withDigest(desc.Digest), handlers); ok {
		if err := x.record(ctx, n, t, nil); !errdefs.IsUnavailable(err) {
			return t, err
		}
	}
	t, images, err := x.target(ctx, n, desc, handlers)
	if err != nil {
		return t, err
	}
	return t, x.record(ctx, n, t, images)
}

// complete returns a target that is known and whose variants for the handlers
// are all here.
func (s *Service) complete(ctx context.Context, name string, handlers []HandlerPlatforms) (store.Target, bool) {
	st := s.db.State()
	t, ok := st.Targets[name]
	if !ok {
		return t, false
	}
	present := 0
	for _, c := range choices(t.Entries, handlers) {
		id, ok := t.Images[c.manifest.Digest]
		switch {
		case ok && s.intact(ctx, st.Images[id]) && (t.Manifests[c.manifest.Digest].Shown || !s.verifies()):
			present++
		case s.refusal(c.manifest.Digest) == nil:
			return t, false
		}
	}
	return t, present > 0
}

// target fetches what the handlers choose of a descriptor.
func (x *session) target(ctx context.Context, n name, desc ocispec.Descriptor, handlers []HandlerPlatforms) (store.Target, []store.Image, error) {
	entries, err := x.entries(ctx, desc)
	if err != nil {
		return store.Target{}, nil, err
	}
	t := store.Target{Repo: n.repo, Digest: desc.Digest, Root: desc, Entries: entries, Images: map[digest.Digest]string{}}
	chosen := choices(entries, handlers)
	if len(chosen) == 0 {
		return t, nil, x.s.noMatch(entries, handlers)
	}
	var images []store.Image
	var refusals []error
	for _, c := range chosen {
		if _, ok := t.Images[c.manifest.Digest]; ok {
			continue
		}
		if p, ok := x.remote.(partial); ok && !p.Has(c.manifest.Digest) && !x.s.content.Has(ctx, c.manifest) {
			refusals = append(refusals, fmt.Errorf("manifest %s for handler %q is not in the archive: %w", c.manifest.Digest, c.handler.Name, errdefs.ErrNotFound))
			continue
		}
		img, err := x.image(ctx, c.manifest)
		if errdefs.IsInvalidArgument(err) && ctx.Err() == nil {
			x.s.setRefusal(c.manifest.Digest, err)
			refusals = append(refusals, err)
			continue
		}
		if err != nil {
			return t, nil, err
		}
		images = append(images, img)
		t.Images[c.manifest.Digest] = img.ID
	}
	if len(images) == 0 {
		return t, nil, refusals[0]
	}
	t.Manifests = x.manifests
	for _, err := range refusals {
		x.s.logger.Warn("a variant of an image is left out", "image", n.full, "error", err)
	}
	return t, images, nil
}

// record makes a pull known, all of which is on disk: the records are written,
// then the pins and what is of no use any more are given up.
func (x *session) record(ctx context.Context, n name, t store.Target, images []store.Image) error {
	s := x.s
	s.gc.RLock()
	defer s.gc.RUnlock()
	err := s.db.Update(func(st *store.State) error {
		for _, id := range t.Images {
			_, there := st.Images[id]
			if !there && !slices.ContainsFunc(images, func(i store.Image) bool { return i.ID == id }) {
				return fmt.Errorf("image %s has been removed meanwhile: %w", id, errdefs.ErrUnavailable)
			}
		}
		st.AddTarget(t, s.keepsTag, images...)
		if n.digest == "" {
			st.PointTag(n.full, t.Name(), s.keepsTag)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record image: %w", err)
	}
	x.recorded = true
	x.close()
	if s.keepLayers {
		return nil
	}
	var errs []error
	for _, d := range x.layers {
		errs = append(errs, s.content.Drop(ctx, d))
	}
	if err := errors.Join(errs...); err != nil {
		s.logger.Warn("compressed layers stay until the next sweep", "error", err)
	}
	return nil
}

// keepsTag reports whether an image of an older target keeps a tag that points
// to a newer one: while no handler that chose it has a variant of the newer.
func (s *Service) keepsTag(newer, older store.Target, id string) bool {
	keeps := false
	for _, c := range choices(older.Entries, s.handlers) {
		if older.Images[c.manifest.Digest] != id {
			continue
		}
		if d, err := Select(newer.Entries, c.handler.Platforms); err == nil && newer.Images[d.Digest] != "" {
			return false
		}
		keeps = true
	}
	return keeps
}

// noMatch is the error for handlers that find nothing among the entries.
func (s *Service) noMatch(entries []ocispec.Descriptor, handlers []HandlerPlatforms) error {
	var want []ocispec.Platform
	for _, h := range handlers {
		want = append(want, h.Platforms...)
	}
	_, err := Select(entries, want)
	var none *NoMatchError
	if errors.As(err, &none) {
		for _, c := range choices(entries, s.handlers) {
			none.Takers = append(none.Takers, c.handler.Name)
		}
		slices.Sort(none.Takers)
	}
	return err
}

// refusal returns why a manifest cannot run, if this process has found that out.
func (s *Service) refusal(manifest digest.Digest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused[manifest]
}

func (s *Service) setRefusal(manifest digest.Digest, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refused) >= maxRefusals {
		clear(s.refused)
	}
	s.refused[manifest] = err
}

// maxRefusals bounds what is remembered of images that cannot run.
const maxRefusals = 256

// fetchVariant fetches a manifest that a known target has an entry for, without
// credentials: those came with the pull and are not kept.
func (s *Service) fetchVariant(ctx context.Context, t store.Target, manifest ocispec.Descriptor) (Image, error) {
	if err := s.refusal(manifest.Digest); err != nil {
		return Image{}, err
	}
	n, err := parseName(t.Name())
	if err != nil {
		return Image{}, err
	}
	got, err := s.pulls.Do(ctx, t.Name()+" "+manifest.Digest.String(), func(ctx context.Context) (pulled, error) {
		remote, err := s.registry.Repository(ctx, n.full, registry.Credentials{})
		if err != nil {
			return pulled{}, err
		}
		x := s.session(remote, n.repo, t.Digest, nil)
		defer x.close()
		x.pin(t.Digest)
		img, err := x.image(ctx, manifest)
		if errdefs.IsInvalidArgument(err) && ctx.Err() == nil {
			s.setRefusal(manifest.Digest, err)
		}
		if err != nil {
			x.giveUp(ctx, err)
			return pulled{}, err
		}
		t.Images, t.Manifests = map[digest.Digest]string{manifest.Digest: img.ID}, x.manifests
		if err := x.record(ctx, n, t, []store.Image{img}); err != nil {
			return pulled{}, err
		}
		return pulled{image: s.viewAs(s.db.State(), t, manifest.Digest), ids: shownImages(t), hidden: x.hidden, access: remote.Access()}, nil
	})
	if err != nil {
		return Image{}, space.Explain(s.root, err)
	}
	return got.image, s.grant(got, "")
}
