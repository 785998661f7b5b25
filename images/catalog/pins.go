package catalog

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
)

// matchName reports whether a full name fits a pattern. Slashes are like any other character.
func matchName(pattern, name string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return err == nil && ok
}

// Pins are the images that are not removed to make room.
type Pins struct {
	patterns []string

	mu        sync.Mutex
	preloaded map[string]bool // targets, by name
}

// NewPins returns pins of images whose names match patterns.
//
// # Errors
//
// ErrInvalidArgument for patterns that can match nothing.
func NewPins(patterns []string) (*Pins, error) {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return nil, fmt.Errorf("pattern of pinned images %q: it is malformed: %w", p, errdefs.ErrInvalidArgument)
		}
	}
	return &Pins{patterns: patterns, preloaded: make(map[string]bool)}, nil
}

// Preload pins the images of targets, which are "repository@digest", for as long as this process
// has the store open.
func (p *Pins) Preload(targets ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range targets {
		p.preloaded[t] = true
	}
}

// Has reports whether an image with these names is to stay: one of them is pinned, or it was
// preloaded.
func (p *Pins) Has(tags, digests []string) bool {
	p.mu.Lock()
	preloaded := slices.ContainsFunc(digests, func(n string) bool { return p.preloaded[n] })
	p.mu.Unlock()
	return preloaded || slices.ContainsFunc(slices.Concat(tags, digests), func(name string) bool {
		return slices.ContainsFunc(p.patterns, func(pattern string) bool { return matchName(pattern, name) })
	})
}
