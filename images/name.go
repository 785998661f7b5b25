package images

import (
	"fmt"
	"regexp"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// name is a normalised image reference: either a tag or a digest.
type name struct {
	// full is the whole name, as in "docker.io/library/busybox:latest".
	full string
	// repo is the name without tag or digest.
	repo string
	// digest is set if the reference is pinned to one.
	digest digest.Digest
}

// parseName applies Docker's rules: the default registry, "library/", and the
// tag "latest" where there is neither tag nor digest. A reference with both
// keeps the digest, which says more.
func parseName(ref string) (name, error) {
	if digest.Digest(ref).Validate() == nil {
		return name{}, fmt.Errorf("parse image reference %q: it is an image id, which no registry knows: %w", ref, errdefs.ErrInvalidArgument)
	}
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return name{}, fmt.Errorf("parse image reference %q: %w: %w", ref, err, errdefs.ErrInvalidArgument)
	}
	n := name{full: named.String(), repo: named.Name()}
	if d, ok := named.(reference.Digested); ok {
		n.digest = d.Digest()
	}
	return n, nil
}

// withDigest returns "repo@digest".
func (n name) withDigest(d digest.Digest) string { return n.repo + "@" + d.String() }

var hexPrefix = regexp.MustCompile(`^(sha256:)?[0-9a-f]{4,64}$`)

// isIDPrefix reports whether s may be the beginning of an image id, with or
// without its algorithm. Fewer than four digits are not taken as an id.
func isIDPrefix(s string) bool { return hexPrefix.MatchString(s) }
