package images

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/store"
)

// enough is how many bytes of a blob a repository has to give to show that it holds the blob, where the others had come
// already: too many to be guessed.
const enough = 4 << 10

// showing is what a session's repository has shown that it holds: what this session fetched from there and found to be what
// it was named. A name alone shows nothing, and neither does an answer without the content: the registry may be of
// anybody's making.
type showing struct {
	mu   sync.Mutex
	came map[digest.Digest]bool // blobs
	made map[digest.Digest]bool // diff ids that a blob unpacked to in this session
}

// note takes note of a blob of which n bytes came in this session.
func (s *showing) note(d ocispec.Descriptor, n int64) {
	if n >= min(d.Size, enough) {
		s.mark(&s.came, d.Digest)
	}
}

func (s *showing) mark(in *map[digest.Digest]bool, d digest.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *in == nil {
		*in = make(map[digest.Digest]bool)
	}
	(*in)[d] = true
}

func (s *showing) has(in *map[digest.Digest]bool, d digest.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (*in)[d]
}

// content is one thing that a repository has to show: a blob, and what it unpacks to if it is a layer.
type content struct {
	blob ocispec.Descriptor
	diff digest.Digest
}

// show takes note of whether the repository has shown that it holds all that an image consists of. Where images are kept
// for those who may have them, it must: what it has not shown, because it was present, is fetched again and compared.
//
// # Errors
//
// Those of fetching; ErrDataLoss for what is not what the manifest says.
func (x *session) show(ctx context.Context, entry ocispec.Descriptor, m manifest.Document, c manifest.Config, module bool) error {
	fact := x.manifests[entry.Digest]
	if _, ok := x.remote.(*registry.Repository); !ok || fact.Shown {
		return nil
	}
	all := []content{{blob: entry}, {blob: *m.Config}}
	for i, l := range m.Layers {
		one := content{blob: l}
		if !module {
			one.diff = c.RootFS.DiffIDs[i]
		}
		all = append(all, one)
	}
	var free map[digest.Digest]bool
	for _, one := range all {
		if x.shown.has(&x.shown.came, one.blob.Digest) && (one.diff == "" || x.shown.has(&x.shown.made, one.diff)) {
			continue
		}
		if free == nil {
			free = x.s.freeFor(ctx, x.credentials)
		}
		switch {
		case one.diff == "" && free[one.blob.Digest], one.diff != "" && free[one.diff]:
			continue
		case !x.s.verifies():
			return nil
		}
		if err := x.prove(ctx, one); err != nil {
			return registry.Describe(fmt.Sprintf("see whether %q holds %s, which is present", x.repo, one.blob.Digest), err)
		}
	}
	fact.Shown = true
	x.manifests[entry.Digest] = fact
	return nil
}

// prove fetches content, compares it and keeps nothing.
func (x *session) prove(ctx context.Context, one content) error {
	x.s.logger.Info("content that is present is fetched to see whether this repository holds it", "repository", x.repo, "digest", one.blob.Digest)
	r, err := x.remote.Fetch(ctx, one.blob, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	sum := one.blob.Digest.Verifier()
	tee := io.TeeReader(io.LimitReader(r, one.blob.Size), sum)
	if one.diff != "" {
		err := x.s.layers.Verify(ctx, tee, one.diff)
		if errdefs.IsInvalidArgument(err) { // of this repository's making: the image is none the worse for it
			return fmt.Errorf("blob %s is corrupt: %s: %w", one.blob.Digest, err.Error(), errdefs.ErrDataLoss)
		}
		if err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, tee); err != nil {
		return err
	}
	if !sum.Verified() {
		return fmt.Errorf("blob %s is corrupt: %w", one.blob.Digest, errdefs.ErrDataLoss)
	}
	x.shown.note(one.blob, one.blob.Size)
	return nil
}

// verifies reports whether images are kept for those who may have them.
func (s *Service) verifies() bool { return s.verify != "" && s.verify != VerifyNever }

// freeFor returns the content that whoever shows the credentials, "" for none, has a right to anyway: blobs and diff ids
// of the images that are anybody's, and of those that came with the same credentials.
func (s *Service) freeFor(ctx context.Context, credentials string) map[digest.Digest]bool {
	free := make(map[digest.Digest]bool)
	st := s.db.State()
	for id, img := range st.Images {
		if !s.mayHave(st, id, credentials) {
			continue
		}
		free[img.Config.Digest], free[img.Manifest.Digest] = true, true
		for _, l := range img.Layers {
			free[l.Digest] = true
		}
		if img.Chain == "" {
			continue
		}
		data, err := s.content.Document(ctx, img.Config)
		if err != nil {
			continue // damaged: it says nothing
		}
		if c, err := manifest.ParseConfig(img.Config, data); err == nil {
			for _, d := range c.RootFS.DiffIDs {
				free[d] = true
			}
		}
	}
	return free
}

func (s *Service) mayHave(st *store.State, id, credentials string) bool {
	g, granted := st.Grants[id]
	if !granted {
		return s.verify != VerifyAlways // it was not pulled but brought
	}
	return g.Open || credentials != "" && slices.Contains(g.Credentials, credentials)
}
