// Package reference reads what images are called: references and ids.
package reference

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// Name is a normalised image reference: either a tag or a digest.
type Name struct {
	// Full is the whole name, as in "docker.io/library/busybox:latest".
	Full string
	// Repo is the name without tag or digest.
	Repo string
	// Digest is set if the reference is pinned to one.
	Digest digest.Digest
}

// Parse applies Docker's rules: the default registry, "library/", and the tag "latest" where there
// is neither tag nor digest. A reference with both keeps the digest, which says more.
func Parse(ref string) (Name, error) {
	if digest.Digest(ref).Validate() == nil {
		return Name{}, fmt.Errorf("parse image reference %q: it is an image id, which no registry knows: %w", ref, errdefs.ErrInvalidArgument)
	}
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return Name{}, fmt.Errorf("parse image reference %q: %w: %w", ref, err, errdefs.ErrInvalidArgument)
	}
	_, port, _ := net.SplitHostPort(reference.Domain(named))
	if _, err := strconv.ParseUint("0"+port, 10, 16); err != nil {
		return Name{}, fmt.Errorf("parse image reference %q: %s is no port: %w", ref, port, errdefs.ErrInvalidArgument)
	}
	n := Name{Full: named.String(), Repo: named.Name()}
	if d, ok := named.(reference.Digested); ok {
		n.Digest = d.Digest()
	}
	return n, nil
}

// WithDigest returns "repo@digest".
func (n Name) WithDigest(d digest.Digest) string { return n.Repo + "@" + d.String() }

var hexPrefix = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(sha(256|384|512):)?[0-9a-f]{4,128}$`) })

// IsIDPrefix reports whether s may be the prefix of an image id, with or
// without its algorithm. Fewer than four digits are not taken as an id.
func IsIDPrefix(s string) bool { return hexPrefix().MatchString(s) }

// ParseTag reads a reference that is to name something new: it has a tag, "latest" if it says none.
//
// # Errors
//
// ErrInvalidArgument, also for a reference with a digest: that is content's own name.
func ParseTag(ref string) (Name, error) {
	n, err := Parse(ref)
	if err == nil && n.Digest != "" {
		err = fmt.Errorf("image reference %q: a digest cannot be given as a name, a tag can: %w", ref, errdefs.ErrInvalidArgument)
	}
	return n, err
}
