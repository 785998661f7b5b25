package images

import (
	"fmt"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/store"
)

// Verification says who may use an image that is present on the node. A pull
// always asks the registry, with the credentials that came with it; this is
// about a pod that has not pulled, because it found the image present.
type Verification string

const (
	// VerifyNever lets every pod use every image, and leaves it to the kubelet
	// to make pods pull first (its imagePullCredentialsVerificationPolicy).
	VerifyNever Verification = "never"
	// VerifyPrivate keeps an image that came with a pod's credentials for the
	// pods of those namespaces that have shown the same credentials, or have
	// pulled it with others.
	VerifyPrivate Verification = "when-private"
	// VerifyAlways keeps every image for the pods of namespaces that have
	// pulled it, also where that takes no credentials.
	VerifyAlways Verification = "always"
)

// Verifications are all of them.
func Verifications() []string {
	return []string{string(VerifyNever), string(VerifyPrivate), string(VerifyAlways)}
}

func (v Verification) check() error {
	if v == "" || slices.Contains(Verifications(), string(v)) {
		return nil
	}
	return fmt.Errorf("verification of pulls %q is not one of %q: %w", v, Verifications(), errdefs.ErrInvalidArgument)
}

// Permit says whether pods of a namespace may use an image that is present.
// Pulls are what permits are made of: see PullRequest.Namespace. An image that
// was not pulled but brought otherwise is anybody's, unless all are verified.
//
// # Errors
//
// ErrPermissionDenied, with what can be done about it.
func (s *Service) Permit(img Image, namespace string) error {
	if s.verify == "" || s.verify == VerifyNever {
		return nil
	}
	st := s.db.State()
	g, ok := st.Grants[img.ID]
	if s.verify == VerifyPrivate && (!ok || g.Open) {
		return nil
	}
	if slices.Contains(g.Namespaces, namespace) {
		return nil
	}
	for _, c := range g.Credentials {
		if slices.Contains(st.Holders[c], namespace) {
			return nil
		}
	}
	what := "needs registry credentials"
	if g.Open || !ok {
		what = "is to be pulled before it is used"
	}
	return fmt.Errorf("image %q %s, and no pod of namespace %q has pulled it: let the pod pull it (imagePullPolicy: Always, with its imagePullSecrets), "+
		"or set images.pull_verification: %w", shortest(img), what, namespace, errdefs.ErrPermissionDenied)
}

// shortest names an image for people.
func shortest(img Image) string {
	if len(img.RepoTags) > 0 {
		return img.RepoTags[0]
	}
	return img.ID
}

// grant writes down what a pull has shown: that the registry gives the images to
// those credentials, or to anybody, and that pods of the namespace have pulled
// them. What the repository has not shown that it holds is granted to nobody.
func (s *Service) grant(p pulled, namespace string) error {
	if granted(s.db.State(), p, namespace) {
		return nil
	}
	s.gc.RLock()
	defer s.gc.RUnlock()
	err := s.db.Update(func(st *store.Tx) error {
		for _, id := range p.ids {
			if _, ok := st.Images[id]; !ok {
				continue // removed meanwhile
			}
			g := st.Grants[id]
			if p.access == registry.ByPull {
				g.Credentials = with(g.Credentials, p.credentials)
			} else {
				g.Open = true
			}
			g.Namespaces = with(g.Namespaces, namespace)
			st.SetGrant(id, g)
		}
		for _, id := range p.hidden {
			_, there := st.Images[id]
			if _, granted := st.Grants[id]; there && !granted {
				st.SetGrant(id, store.Grant{}) // until somebody is shown it
			}
		}
		if p.access == registry.ByPull && namespace != "" {
			st.SetHolders(p.credentials, with(st.Holders[p.credentials], namespace))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record who may use the image: %w", err)
	}
	return nil
}

// granted reports whether grant would change nothing.
func granted(st *store.State, p pulled, namespace string) bool {
	has := func(list []string, s string) bool { return s == "" || slices.Contains(list, s) }
	byPull := p.access == registry.ByPull
	for _, id := range p.hidden {
		if _, ok := st.Grants[id]; !ok {
			return false
		}
	}
	for _, id := range p.ids {
		g, ok := st.Grants[id]
		if !ok || !has(g.Namespaces, namespace) || byPull && !has(g.Credentials, p.credentials) || !byPull && !g.Open {
			return false
		}
	}
	return !byPull || has(st.Holders[p.credentials], namespace)
}

func with(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	list = append(slices.Clone(list), s)
	slices.Sort(list)
	return list
}
