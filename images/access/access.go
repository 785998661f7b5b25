// Package access says who may use an image that is present on the node.
package access

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/images/disk"
	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/store"
)

// Verification says who may use an image that is present on the node. A pull
// always asks the registry, with the credentials that came with it; this is
// about a pod that has not pulled, because it found the image present.
type Verification string

const (
	// Never lets every pod use every image, and leaves it to the kubelet
	// to make pods pull first (its imagePullCredentialsVerificationPolicy).
	Never Verification = "never"
	// Private keeps an image that came with a pod's credentials for the pods of those namespaces
	// that have shown the same credentials, or have pulled it with others.
	Private Verification = "when-private"
	// Always keeps every image for the pods of namespaces that have
	// pulled it, also where that takes no credentials.
	Always Verification = "always"
)

// Verifications are all of them.
func Verifications() []string {
	return []string{string(Never), string(Private), string(Always)}
}

// Check refuses a policy that there is not.
func (v Verification) Check() error {
	if v == "" || slices.Contains(Verifications(), string(v)) {
		return nil
	}
	return fmt.Errorf("verification of pulls %q is not one of %q: %w", v, Verifications(), errdefs.ErrInvalidArgument)
}

// Guard keeps images for those who may have them.
type Guard struct {
	disk      *disk.Disk
	recording sync.Locker
	policy    Verification
}

// New returns the guard of an image store; recording is locked while it records.
func New(d *disk.Disk, recording sync.Locker, policy Verification) *Guard {
	return &Guard{disk: d, recording: recording, policy: policy}
}

// Permit says whether pods of a namespace may use an image that is present, which people know by
// name. Pulls are what permits are made of: see pull.Request.Namespace. An image that
// was not pulled but brought otherwise is anybody's, unless all are verified.
//
// # Errors
//
// ErrPermissionDenied, with what can be done about it.
func (g *Guard) Permit(id, name, namespace string) error {
	if !g.Verifies() {
		return nil
	}
	st := g.disk.DB.State()
	grant, ok := st.Grants[id]
	if g.policy == Private && (!ok || grant.Open) {
		return nil
	}
	if slices.Contains(grant.Namespaces, namespace) {
		return nil
	}
	for _, c := range grant.Credentials {
		if slices.Contains(st.Holders[c], namespace) {
			return nil
		}
	}
	what := "needs registry credentials"
	if grant.Open || !ok {
		what = "is to be pulled before it is used"
	}
	return fmt.Errorf("image %q %s, and no pod of namespace %q has pulled it: let the pod pull it (imagePullPolicy: Always, with its imagePullSecrets), "+
		"or set images.pull_verification: %w", name, what, namespace, errdefs.ErrPermissionDenied)
}

// Verifies reports whether images are kept for those who may have them.
func (g *Guard) Verifies() bool { return g.policy != "" && g.policy != Never }

// Pulled is what a pull has shown.
type Pulled struct {
	// IDs are all images that it brought or found present and that the repository has shown, Hidden
	// those that are new and that it has not.
	IDs, Hidden []string
	// Access and Credentials are what opened the repository.
	Access      registry.Access
	Credentials string
}

// Grant writes down what a pull has shown: that the registry gives the images to
// those credentials, or to anybody, and that pods of the namespace have pulled
// them. What the repository has not shown that it holds is not granted.
func (g *Guard) Grant(p Pulled, namespace string) error {
	g.recording.Lock()
	defer g.recording.Unlock()
	err := g.disk.DB.Update(func(st *store.Tx) error {
		for _, id := range p.IDs {
			if _, ok := st.Images[id]; !ok {
				continue // removed meanwhile
			}
			grant := st.Grants[id]
			if p.Access == registry.ByPull {
				grant.Credentials = with(grant.Credentials, p.Credentials)
			} else {
				grant.Open = true
			}
			grant.Namespaces = with(grant.Namespaces, namespace)
			st.SetGrant(id, grant)
		}
		for _, id := range p.Hidden {
			_, there := st.Images[id]
			if _, granted := st.Grants[id]; there && !granted {
				st.SetGrant(id, store.Grant{}) // until somebody is shown it
			}
		}
		if p.Access == registry.ByPull && namespace != "" {
			st.SetHolders(p.Credentials, with(st.Holders[p.Credentials], namespace))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record who may use the image: %w", err)
	}
	return nil
}

func with(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	list = append(slices.Clone(list), s)
	slices.Sort(list)
	return list
}

// FreeFor returns the content that whoever shows the credentials, "" for none, has a right to
// anyway: blobs and diff ids of the images that are anybody's, and of those that came with the same
// credentials.
func (g *Guard) FreeFor(ctx context.Context, credentials string) map[digest.Digest]bool {
	free := make(map[digest.Digest]bool)
	st := g.disk.DB.State()
	for id, img := range st.Images {
		if !g.mayHave(st, id, credentials) {
			continue
		}
		free[img.Config.Digest], free[img.Manifest.Digest] = true, true
		for _, l := range img.Layers {
			free[l.Digest] = true
		}
		if img.Chain == "" {
			continue
		}
		data, err := g.disk.Content.Document(ctx, img.Config)
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

func (g *Guard) mayHave(st *store.State, id, credentials string) bool {
	grant, granted := st.Grants[id]
	if !granted {
		return g.policy != Always // it was not pulled but brought
	}
	return grant.Open || credentials != "" && slices.Contains(grant.Credentials, credentials)
}
