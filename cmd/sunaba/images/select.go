package images

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	"github.com/sunaba-project/sunaba/images"
	own "github.com/sunaba-project/sunaba/images/reference"
)

// Row is an image under one of its names.
type Row struct {
	images.Image
	Name string
}

// Sorted are images under each of their tags, or digests where they have no tag: by name, then the
// newest first.
func Sorted(imgs []images.Image) []Row {
	var rows []Row
	for _, img := range imgs {
		names := img.RepoTags
		if len(names) == 0 {
			names = img.RepoDigests
		}
		for _, name := range names {
			rows = append(rows, Row{img, name})
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
	})
	return slices.CompactFunc(rows, func(a, b Row) bool { return a.Name == b.Name && a.ID == b.ID })
}

// Brought shows images that came, each with the other variants that bear its names or, for a
// pull, ref; with --handler, those alone.
func Brought(ctx context.Context, cmd *cli.Command, store control.Store, format, ref string, brought ...images.Image) error {
	if cmd.String("handler") == "" && len(brought) > 0 {
		all, err := store.List(ctx)
		if err != nil {
			return err
		}
		brought = withVariants(all, ref, brought)
	}
	return Images(cmd.Root().Writer, brought, format)
}

// withVariants returns the images of all that bear the reference or, where that is "", a name of
// the images that came. Those that came stay, whatever they are called.
func withVariants(all []images.Image, ref string, came []images.Image) []images.Image {
	bears := func(img, of images.Image) bool {
		if n, err := own.Parse(ref); ref != "" && err == nil {
			return slices.Contains(img.RepoTags, n.Full) || slices.Contains(img.RepoDigests, n.Full)
		}
		return slices.ContainsFunc(of.RepoTags, func(name string) bool { return slices.Contains(img.RepoTags, name) }) ||
			len(of.RepoTags) == 0 && slices.ContainsFunc(of.RepoDigests, func(name string) bool { return slices.Contains(img.RepoDigests, name) })
	}
	out := slices.Clone(came)
	for _, img := range all {
		has := func(i images.Image) bool { return i.ID == img.ID }
		if !slices.ContainsFunc(out, has) && slices.ContainsFunc(came, func(of images.Image) bool { return bears(img, of) }) {
			out = append(out, img)
		}
	}
	return out
}

// FilterTexts are the filters of a list, for people.
const FilterTexts = "reference=PATTERN, dangling=true|false, label=NAME[=VALUE]"

// Filters choose images of a list. Those of one kind are alternatives, except labels: an image has
// all of them.
type Filters struct {
	references, labels []string
	dangling           []bool
}

// ParseFilters reads filters as "KEY=VALUE".
func ParseFilters(texts []string) (f Filters, err error) {
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		bad := func(why string) (Filters, error) {
			return Filters{}, fmt.Errorf("images list: --filter %q %s; filters are %s", text, why, FilterTexts)
		}
		if !ok || value == "" {
			return bad("has no value")
		}
		switch key {
		case "reference":
			if _, err := path.Match(value, ""); err != nil {
				return bad("is a malformed pattern")
			}
			f.references = append(f.references, value)
		case "dangling":
			if value != "true" && value != "false" {
				return bad("is neither true nor false")
			}
			f.dangling = append(f.dangling, value == "true")
		case "label":
			f.labels = append(f.labels, value)
		default:
			return bad("is unknown")
		}
	}
	return f, nil
}

// Of returns the images that pass. What is not listed of an image are names that no pattern for
// references matches.
func (f Filters) Of(imgs []images.Image) []images.Image {
	out := []images.Image{}
	for _, img := range imgs {
		if f.dangling != nil && !slices.Contains(f.dangling, len(img.RepoTags) == 0) || !f.hasLabels(img) {
			continue
		}
		if f.references != nil {
			img.RepoTags = slices.DeleteFunc(slices.Clone(img.RepoTags), func(name string) bool { return !f.matches(name) })
			digests := slices.DeleteFunc(slices.Clone(img.RepoDigests), func(name string) bool { return !f.matches(name) })
			if len(img.RepoTags)+len(digests) == 0 {
				continue
			}
			if len(img.RepoTags) == 0 {
				img.RepoDigests = digests
			}
		}
		out = append(out, img)
	}
	return out
}

func (f Filters) hasLabels(img images.Image) bool {
	return !slices.ContainsFunc(f.labels, func(want string) bool {
		name, value, exact := strings.Cut(want, "=")
		have, ok := img.Config.Labels[name]
		return !ok || exact && have != value
	})
}

// matches compares a full name with patterns, as Docker does: with and without its tag, and also
// without the registry and folder that are the default ones.
func (f Filters) matches(full string) bool {
	named, err := reference.ParseNormalizedNamed(full)
	if err != nil {
		return false
	}
	names := []string{full, named.Name(), reference.FamiliarString(named), reference.FamiliarName(named)}
	return slices.ContainsFunc(f.references, func(pattern string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			ok, err := path.Match(pattern, name)
			return ok && err == nil
		})
	})
}
