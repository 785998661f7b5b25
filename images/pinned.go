package images

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// checkPatterns refuses patterns of names that can match nothing.
func checkPatterns(patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("pattern of pinned images %q: it is malformed: %w", p, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// matchName reports whether a full name fits a pattern. Slashes are like any
// other character.
func matchName(pattern, name string) bool {
	flat := strings.NewReplacer("/", "\x00")
	ok, err := path.Match(flat.Replace(pattern), flat.Replace(name))
	return err == nil && ok
}

// isPinned reports whether an image is to stay: it bears a name that is pinned,
// or it was preloaded.
func (s *Service) isPinned(img Image) bool {
	s.mu.Lock()
	preloaded := slices.ContainsFunc(img.RepoDigests, func(n string) bool { return s.preloaded[n] })
	s.mu.Unlock()
	if preloaded {
		return true
	}
	for _, name := range slices.Concat(img.RepoTags, img.RepoDigests) {
		if slices.ContainsFunc(s.pinned, func(p string) bool { return matchName(p, name) }) {
			return true
		}
	}
	return false
}
