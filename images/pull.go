package images

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/variant"
)

// Pull brings an image in and answers the variant for the handler; without one,
// the best match of every configured handler is fetched, and the default
// handler's is answered, else the first handler's that has one. What is present
// is not fetched again: then a pull is one request, for the manifest. Equal
// pulls at the same time are one.
//
// An image that the registry gives to the request's credentials alone is fetched
// for every handler, whichever asks: a pod of another comes without a pull, and
// the credentials are not kept.
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
	n, err := reference.Parse(req.Ref)
	if err != nil {
		return Image{}, err
	}
	handlers, err := s.handlers.Wanted(req.Handler)
	if err != nil {
		return Image{}, err
	}
	remote, err := s.registry.Repository(ctx, n.Full, req.Auth)
	if err != nil {
		return Image{}, fmt.Errorf("pull %q: %w", req.Ref, err)
	}
	key := n.Full + " " + req.Handler + " " + fingerprint(req.Auth)
	m, leave := s.meters.Join(key, req.Progress)
	defer leave()
	got, err := s.pulls.Do(ctx, key, func(ctx context.Context) (pulled, error) {
		return s.pull(ctx, n, handlers, remote, m)
	})
	if err == nil {
		err = s.grant(got, req.Namespace)
	}
	if err != nil {
		what := fmt.Sprintf("pull %q", req.Ref)
		if strings.Contains(err.Error(), fmt.Sprintf("%q", n.Full)) { // it is said already
			what = "pull image"
		}
		return Image{}, registry.Describe(what, space.Explain(s.root, err))
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

func (s *Service) pull(ctx context.Context, n reference.Name, handlers variant.Handlers, remote *registry.Repository, m *progress.Meter) (pulled, error) {
	began := time.Now()
	m.Update(func(p *Progress) { *p = Progress{Phase: "resolve"} })
	desc, err := remote.Resolve(ctx)
	if err != nil {
		return pulled{}, err
	}
	if err := manifest.CheckDescriptor(desc); err != nil {
		return pulled{}, err
	}
	if n.Digest != "" && n.Digest != desc.Digest {
		return pulled{}, fmt.Errorf("the registry answered %s: %w", desc.Digest, errdefs.ErrDataLoss)
	}
	x := s.session(remote, n.Repo, desc.Digest, m)
	x.credentials = remote.Fingerprint(s.db.Salt())
	defer x.close()
	x.pin(desc.Digest)
	var others variant.Handlers
	if remote.Access() == registry.ByPull {
		others = s.handlers
	}
	target, err := x.bringIn(ctx, n, desc, handlers, others)
	if err != nil {
		x.giveUp(ctx, err)
		return pulled{}, err
	}
	m.Update(func(p *Progress) { p.Phase = "done" })
	img, err := s.variant([]store.Target{target}, handlers)
	if err != nil {
		return pulled{}, err
	}
	hosts := slices.Sorted(maps.Keys(byHost(remote.Served())))
	s.logger.Info("image pulled", "image", n.Full, "id", img.ID, "servers", hosts, "took", time.Since(began).Round(time.Millisecond))
	return pulled{
		image: img, ids: shownImages(target), hidden: x.hidden,
		access: remote.Access(), credentials: x.credentials,
	}, nil
}

// bringIn makes a target present and recorded for the handlers, and for others
// as far as it has something for them. A target that was complete may be removed
// before it is recorded anew; then it is fetched.
func (x *session) bringIn(ctx context.Context, n reference.Name, desc ocispec.Descriptor, handlers, others variant.Handlers) (store.Target, error) {
	full := n.WithDigest(desc.Digest)
	t, ok := x.s.complete(ctx, full, handlers)
	if ok && len(others) > 0 {
		_, ok = x.s.complete(ctx, full, others)
	}
	if ok {
		if err := x.record(ctx, n, t, nil); !errdefs.IsUnavailable(err) {
			return t, err
		}
	}
	t, images, err := x.target(ctx, n, desc, handlers, others)
	if err != nil {
		return t, err
	}
	if err := x.record(ctx, n, t, images); err != nil || !x.leftOut {
		return t, err
	}
	return t, x.s.dropUnneeded(context.WithoutCancel(ctx), slices.Concat(x.pinned, x.layers))
}

// complete returns a target that is known and whose variants for the handlers
// are all here.
func (s *Service) complete(ctx context.Context, name string, handlers variant.Handlers) (store.Target, bool) {
	st := s.db.State()
	t, ok := st.Targets[name]
	if !ok {
		return t, false
	}
	present := 0
	for _, c := range variant.Choices(t.Entries, handlers) {
		id, ok := t.Images[c.Manifest.Digest]
		switch {
		case ok && s.intact(ctx, st.Images[id]) && (t.Manifests[c.Manifest.Digest].Shown || !s.verifies()):
			present++
		case s.refusal(c.Manifest.Digest) == nil:
			return t, false
		}
	}
	return t, present > 0
}

// target fetches what the handlers choose of a descriptor.
func (x *session) target(ctx context.Context, n reference.Name, desc ocispec.Descriptor, handlers, others variant.Handlers) (store.Target, []store.Image, error) {
	entries, err := x.entries(ctx, desc)
	if err != nil {
		return store.Target{}, nil, err
	}
	t := store.Target{Repo: n.Repo, Digest: desc.Digest, Root: desc, Entries: entries, Images: map[digest.Digest]string{}}
	chosen := variant.Choices(entries, handlers)
	if len(chosen) == 0 {
		return t, nil, x.s.noMatch(entries, handlers)
	}
	images, refusals, err := x.variants(ctx, t, chosen, func(err error) bool { return errdefs.IsInvalidArgument(err) || isAbsent(err) })
	if err != nil {
		return t, nil, err
	}
	if len(images) == 0 {
		return t, nil, refusals[0]
	}
	// What nobody has asked for fails a pull only if the next try may bring it.
	also, left, err := x.variants(ctx, t, variant.Choices(entries, others), func(err error) bool { return !mayPass(err) })
	if err != nil {
		return t, nil, err
	}
	for _, err := range slices.Concat(refusals, left) {
		x.leftOut = true
		x.s.logger.Warn("failed to pull a variant of an image, it is left out", "image", n.Full, "error", err)
	}
	t.Manifests = x.manifests
	return t, slices.Concat(images, also), nil
}

// errAbsent is of a variant that an archive has not.
var errAbsent = fmt.Errorf("it is not in the archive: %w", errdefs.ErrNotFound)

func isAbsent(err error) bool { return errors.Is(err, errAbsent) }

// mayPass reports whether the same pull may fare better a little later.
func mayPass(err error) bool {
	var asked *registry.Error
	return errors.As(err, &asked) && (asked.Unavailable() || errdefs.IsResourceExhausted(err))
}

// variants brings in what was chosen and is not yet among the target's images.
// Errors that skip takes are refusals of one variant.
func (x *session) variants(ctx context.Context, t store.Target, chosen []variant.Choice, skip func(error) bool) (images []store.Image, refusals []error, err error) {
	for _, c := range chosen {
		if _, ok := t.Images[c.Manifest.Digest]; ok {
			continue
		}
		img, err := x.variant(ctx, c)
		if errdefs.IsInvalidArgument(err) && ctx.Err() == nil {
			x.s.setRefusal(c.Manifest.Digest, err)
		}
		if err != nil && ctx.Err() == nil && skip(err) {
			refusals = append(refusals, err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		images = append(images, img)
		t.Images[c.Manifest.Digest] = img.ID
	}
	return images, refusals, nil
}

func (x *session) variant(ctx context.Context, c variant.Choice) (store.Image, error) {
	if p, ok := x.remote.(partial); ok && !p.Has(c.Manifest.Digest) && !x.s.content.Has(ctx, c.Manifest) {
		return store.Image{}, fmt.Errorf("manifest %s for handler %q: %w", c.Manifest.Digest, c.Handler.Name, errAbsent)
	}
	return x.image(ctx, c.Manifest)
}

// record makes a pull known, all of which is on disk: the records are written,
// then the pins and what is of no use any more are given up.
func (x *session) record(ctx context.Context, n reference.Name, t store.Target, images []store.Image) error {
	s := x.s
	s.gc.RLock()
	defer s.gc.RUnlock()
	err := s.db.Update(func(st *store.Tx) error {
		for _, id := range t.Images {
			_, there := st.Images[id]
			if !there && !slices.ContainsFunc(images, func(i store.Image) bool { return i.ID == id }) {
				return fmt.Errorf("image %s has been removed meanwhile: %w", id, errdefs.ErrUnavailable)
			}
		}
		t.Answer = s.answerOf(t)
		if old, ok := st.Targets[t.Name()]; ok {
			t.Answer = s.answerOf(old)
		}
		st.AddTarget(t, s.keepsTag, images...)
		if n.Digest == "" {
			st.PointTag(n.Full, t.Name(), s.keepsTag)
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
		s.logger.Warn("failed to remove compressed layers, they stay until the next garbage collection", "error", err)
	}
	return nil
}

// keepsTag reports whether an image of an older target keeps a tag that points
// to a newer one: while no handler that chose it has a variant of the newer.
func (s *Service) keepsTag(newer, older store.Target, id string) bool {
	keeps := false
	for _, c := range variant.Choices(older.Entries, s.handlers) {
		if older.Images[c.Manifest.Digest] != id {
			continue
		}
		if d, err := variant.Select(newer.Entries, c.Handler.Platforms); err == nil && newer.Images[d.Digest] != "" {
			return false
		}
		keeps = true
	}
	return keeps
}

// noMatch is the error for handlers that find nothing among the entries.
func (s *Service) noMatch(entries []ocispec.Descriptor, handlers variant.Handlers) error {
	var want []ocispec.Platform
	for _, h := range handlers {
		want = append(want, h.Platforms...)
	}
	_, err := variant.Select(entries, want)
	var none *NoMatchError
	if errors.As(err, &none) {
		for _, c := range variant.Choices(entries, s.handlers) {
			none.Takers = append(none.Takers, c.Handler.Name)
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
	n, err := reference.Parse(t.Name())
	if err != nil {
		return Image{}, err
	}
	got, err := s.pulls.Do(ctx, t.Name()+" "+manifest.Digest.String(), func(ctx context.Context) (pulled, error) {
		remote, err := s.registry.Repository(ctx, n.Full, registry.Credentials{})
		if err != nil {
			return pulled{}, err
		}
		x := s.session(remote, n.Repo, t.Digest, nil)
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
