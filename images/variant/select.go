// Package variant chooses which of an image's platforms a runtime handler runs.
package variant

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
)

// NoMatchError says that none of the platforms wanted is among those there are.
// Its class is ErrFailedPrecondition.
type NoMatchError struct {
	// Want are the platforms asked for, best first.
	Want []ocispec.Platform
	// Have are the platforms of the image, in the order of its index.
	Have []ocispec.Platform
	// Takers are the configured handlers that run one of Have, if any were asked.
	Takers []string
}

// Error lists what the image has, and who would take it.
func (e *NoMatchError) Error() string {
	if len(e.Have) == 0 {
		return "the image holds nothing that can run"
	}
	text := fmt.Sprintf("the image is for %s, not for %s", platformList(e.Have), platformList(e.Want))
	if len(e.Takers) > 0 {
		text += "; " + takersText(e.Takers)
	}
	return text
}

// Unwrap returns the error's class.
func (e *NoMatchError) Unwrap() error { return errdefs.ErrFailedPrecondition }

func takersText(takers []string) string {
	if len(takers) == 1 {
		return fmt.Sprintf("handler %q takes it", takers[0])
	}
	quoted := make([]string, len(takers))
	for i, t := range takers {
		quoted[i] = fmt.Sprintf("%q", t)
	}
	return "handlers " + strings.Join(quoted, ", ") + " take it"
}

func platformList(ps []ocispec.Platform) string {
	if len(ps) == 0 {
		return "any platform"
	}
	seen := make(map[string]bool)
	var names []string
	for _, p := range ps {
		if f := platforms.FormatAll(p); !seen[f] {
			seen[f] = true
			names = append(names, f)
		}
	}
	return strings.Join(names, ", ")
}

// Select chooses from the entries of an index the one for the first platform of want that any entry
// serves. Of several the nearest wins, by the rules of github.com/containerd/platforms: arm/v7
// takes v7, v6, v5; amd64/v3 takes v3, v2, v1; then the 32-bit sibling. An entry that needs
// features of the system (os.features) serves only a platform that has them. Of equals the one with
// no version of the system (os.version), or with the wanted one, is nearer; then the first in the
// index wins.
//
// Entries that cannot run are passed over: attestations and other artifacts, unknown/unknown, and
// entries without a platform (the caller fills that in before).
//
// # Errors
//
// A *NoMatchError when no entry serves any platform of want.
func Select(descs []ocispec.Descriptor, want []ocispec.Platform) (ocispec.Descriptor, error) {
	if d, _, ok := SelectAt(descs, want); ok {
		return d, nil
	}
	err := &NoMatchError{Want: want}
	for _, d := range descs {
		if Runnable(d) {
			err.Have = append(err.Have, *d.Platform)
		}
	}
	return ocispec.Descriptor{}, err
}

// SelectAt is Select; it also tells which of want was served.
func SelectAt(descs []ocispec.Descriptor, want []ocispec.Platform) (_ ocispec.Descriptor, place int, ok bool) {
	for place, w := range want {
		match := platforms.Only(w)
		best := -1
		for i, d := range descs {
			if !Runnable(d) || !match.Match(*d.Platform) {
				continue
			}
			if best < 0 || nearer(match, w, *d.Platform, *descs[best].Platform) {
				best = i
			}
		}
		if best >= 0 {
			return descs[best], place, true
		}
	}
	return ocispec.Descriptor{}, 0, false
}

// nearer reports whether a platform serves the wanted one better than another that serves it too.
func nearer(match platforms.MatchComparer, want, p, other ocispec.Platform) bool {
	if match.Less(p, other) {
		return true
	}
	return !match.Less(other, p) && versionDistance(want, p) < versionDistance(want, other)
}

// versionDistance ranks what an image says about the version of its system: the
// one that is wanted, none, another.
func versionDistance(want, p ocispec.Platform) int {
	switch p.OSVersion {
	case want.OSVersion:
		return 0
	case "":
		return 1
	}
	return 2
}

// Runnable reports whether an index entry with a platform can be a workload.
func Runnable(d ocispec.Descriptor) bool {
	return d.Platform != nil && !manifest.DescribesOther(d) &&
		d.Platform.OS != "unknown" && d.Platform.Architecture != "unknown"
}

// Choice is what one handler takes of an image.
type Choice struct {
	Handler  Handler
	Manifest ocispec.Descriptor
}

// Choices returns what each handler selects, in the order of handlers; one that
// finds nothing is left out.
func Choices(entries []ocispec.Descriptor, handlers Handlers) []Choice {
	var out []Choice
	for _, h := range handlers {
		if d, err := Select(entries, h.Platforms); err == nil {
			out = append(out, Choice{h, d})
		}
	}
	return out
}

// ChosenBy returns the names of the handlers that select the manifest with a digest.
func ChosenBy(entries []ocispec.Descriptor, handlers Handlers, chosen digest.Digest) []string {
	var names []string
	for _, c := range Choices(entries, handlers) {
		if c.Manifest.Digest == chosen {
			names = append(names, c.Handler.Name)
		}
	}
	return names
}
