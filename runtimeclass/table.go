// Package runtimeclass answers "which way does a pod run?": RuntimeClass
// objects, the table of configured handlers with the image platforms each one
// runs, and the arithmetic of pod overhead and effective resources.
//
// It is pure: it parses bytes and computes. Files are read by its callers.
package runtimeclass

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Type says which engine a handler's pods are made for.
type Type string

const (
	// OCI runs every container through an OCI runtime binary.
	OCI Type = "oci"
	// WASM runs WebAssembly modules as guests, and everything else in the same
	// pod through an OCI runtime.
	WASM Type = "wasm"
)

// Scope says how many pods one shim is for.
type Scope string

const (
	// ScopePod gives each pod a shim of its own: whatever ends that ends one pod.
	ScopePod Scope = "pod"
	// ScopeNode has one shim for all pods of a handler, with a supervisor that outlives it.
	ScopeNode Scope = "node"
)

// Handler is one configured runtime handler: what the handler field of a RuntimeClass names.
type Handler struct {
	// Name is a DNS label (RFC 1123), at most 63 characters.
	Name string
	Type Type
	// Binary is the OCI runtime's program, by name or path; a handler of type
	// WASM uses it for its pods' Linux containers.
	Binary string
	// ShimScope is that of new pods, "" for ScopeNode.
	ShimScope Scope
	// Platforms are the image platforms this handler runs, most wanted first.
	Platforms []ocispec.Platform
	// PodAnnotations and ContainerAnnotations are patterns (path.Match) of the
	// annotations of pods and containers that the OCI runtime is given.
	PodAnnotations, ContainerAnnotations []string
	// Default marks the handler of pods that name none.
	Default bool
}

// Table holds the configured handlers. It never changes.
type Table struct {
	byName map[string]Handler
	sorted []Handler
	def    Handler
}

// NewTable checks the handlers and returns their table. Names are unique DNS
// labels, exactly one handler is the default, and every type and scope is known; a
// handler without platforms gets DefaultPlatforms of its type.
//
// # Errors
//
// ErrInvalidArgument, naming the handler and what is wrong with it.
func NewTable(handlers []Handler) (*Table, error) {
	t := &Table{byName: make(map[string]Handler, len(handlers))}
	var defaults []string
	for _, h := range handlers {
		if errs := validation.IsDNS1123Label(h.Name); len(errs) > 0 {
			return nil, invalid("handler name %q: %s", h.Name, strings.Join(errs, "; "))
		}
		if _, ok := t.byName[h.Name]; ok {
			return nil, invalid("handler %q is configured twice", h.Name)
		}
		if h.Type != OCI && h.Type != WASM {
			return nil, invalid("handler %q: type %q is not known (known: %q, %q)", h.Name, h.Type, OCI, WASM)
		}
		h.ShimScope = cmp.Or(h.ShimScope, ScopeNode)
		if h.ShimScope != ScopePod && h.ShimScope != ScopeNode {
			return nil, invalid("handler %q: shim scope %q is not known (known: %q, %q)", h.Name, h.ShimScope, ScopePod, ScopeNode)
		}
		for _, pattern := range append(slices.Clone(h.PodAnnotations), h.ContainerAnnotations...) {
			if _, err := path.Match(pattern, ""); err != nil {
				return nil, invalid("handler %q: annotation pattern %q: %v", h.Name, pattern, err)
			}
		}
		h.Platforms = slices.Clone(h.Platforms)
		if len(h.Platforms) == 0 {
			h.Platforms = DefaultPlatforms(h.Type)
		}
		if h.Default {
			defaults = append(defaults, h.Name)
			t.def = h
		}
		t.byName[h.Name] = h
		t.sorted = append(t.sorted, h)
	}
	slices.SortFunc(t.sorted, func(a, b Handler) int { return cmp.Compare(a.Name, b.Name) })
	switch {
	case len(handlers) == 0:
		return nil, invalid("no handler is configured")
	case len(defaults) == 0:
		return nil, invalid("no handler is the default (configured: %s)", t.names())
	case len(defaults) > 1:
		return nil, invalid("more than one handler is the default: %s", strings.Join(defaults, ", "))
	}
	return t, nil
}

// Lookup returns the handler called name; "" is the default handler.
//
// # Errors
//
// ErrInvalidArgument for an unknown name; the text lists the configured ones.
func (t *Table) Lookup(name string) (Handler, error) {
	if name == "" {
		return t.Default(), nil
	}
	h, ok := t.byName[name]
	if !ok {
		return Handler{}, invalid("runtime handler %q is not configured (configured: %s)", name, t.names())
	}
	return h.clone(), nil
}

// All returns every handler, sorted by name.
func (t *Table) All() []Handler {
	out := make([]Handler, len(t.sorted))
	for i, h := range t.sorted {
		out[i] = h.clone()
	}
	return out
}

// Default returns the handler of pods that name none.
func (t *Table) Default() Handler { return t.def.clone() }

func (t *Table) names() string {
	names := make([]string, len(t.sorted))
	for i, h := range t.sorted {
		names[i] = h.Name
	}
	return strings.Join(names, ", ")
}

func (h Handler) clone() Handler {
	h.Platforms = slices.Clone(h.Platforms)
	h.PodAnnotations, h.ContainerAnnotations = slices.Clone(h.PodAnnotations), slices.Clone(h.ContainerAnnotations)
	return h
}

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, errdefs.ErrInvalidArgument)...)
}
