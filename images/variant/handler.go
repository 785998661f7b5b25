package variant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Handler is a runtime handler and the platforms it runs, best first.
type Handler struct {
	Name      string
	Platforms []ocispec.Platform
	Default   bool
}

// Handlers are those that are configured, the default first, or some of them.
type Handlers []Handler

// Order returns the configured handlers, the default first, then by name.
//
// # Errors
//
// ErrInvalidArgument for handlers that make no sense.
func Order(in []Handler) (Handlers, error) {
	out := slices.Clone(Handlers(in))
	slices.SortStableFunc(out, func(a, b Handler) int {
		if a.Default != b.Default {
			if a.Default {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	if len(out) == 0 || !out[0].Default {
		return nil, fmt.Errorf("no default handler: %w", errdefs.ErrInvalidArgument)
	}
	seen := make(map[string]bool)
	for i, h := range out {
		if i > 0 && h.Default {
			return nil, fmt.Errorf("handlers %q and %q are both the default: %w", out[0].Name, h.Name, errdefs.ErrInvalidArgument)
		}
		if h.Name == "" || seen[h.Name] {
			return nil, fmt.Errorf("handler name %q is empty or used twice: %w", h.Name, errdefs.ErrInvalidArgument)
		}
		if len(h.Platforms) == 0 {
			return nil, fmt.Errorf("handler %q runs no platform: %w", h.Name, errdefs.ErrInvalidArgument)
		}
		seen[h.Name] = true
	}
	return out, nil
}

// Get returns a configured handler; "" is the default.
//
// # Errors
//
// ErrInvalidArgument if no handler has that name.
func (hs Handlers) Get(name string) (Handler, error) {
	if name == "" {
		return hs[0], nil
	}
	var names []string
	for _, h := range hs {
		if h.Name == name {
			return h, nil
		}
		names = append(names, h.Name)
	}
	slices.Sort(names)
	return Handler{}, fmt.Errorf("runtime handler %q is not configured; there are %q: %w", name, names, errdefs.ErrInvalidArgument)
}

// Wanted returns the handlers that a request is for: that one, or with "" all.
func (hs Handlers) Wanted(name string) (Handlers, error) {
	if name == "" {
		return hs, nil
	}
	h, err := hs.Get(name)
	if err != nil {
		return nil, err
	}
	return Handlers{h}, nil
}

// NoMatch is the error for handlers that find nothing among the entries. It names those of all
// that do.
func NoMatch(entries []ocispec.Descriptor, handlers, all Handlers) error {
	var want []ocispec.Platform
	for _, h := range handlers {
		want = append(want, h.Platforms...)
	}
	_, err := Select(entries, want)
	if none, ok := errors.AsType[*NoMatchError](err); ok {
		for _, c := range Choices(entries, all) {
			none.Takers = append(none.Takers, c.Handler.Name)
		}
		slices.Sort(none.Takers)
	}
	return err
}
