package desired

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

// shown is a set as others see it. Its methods may be called at the same time.
type shown struct{ now atomic.Pointer[snapshot] }

// Objects are all objects: those of files by folder, file name and place in it, then the applied
// ones by key. The slice is the caller's.
func (s *shown) Objects() []Entry { return slices.Clone(s.now.Load().entries) }

// Get returns one object.
func (s *shown) Get(key manifest.Key) (Entry, bool) { return s.now.Load().get(key) }

// ConfigMap returns a ConfigMap, which is not to be changed.
func (s *shown) ConfigMap(namespace, name string) (*corev1.ConfigMap, bool) {
	return find[*corev1.ConfigMap](s, manifest.KindConfigMap, namespace, name)
}

// Secret returns a Secret, which is not to be changed.
func (s *shown) Secret(namespace, name string) (*corev1.Secret, bool) {
	return find[*corev1.Secret](s, manifest.KindSecret, namespace, name)
}

// Claim returns a PersistentVolumeClaim, which is not to be changed.
func (s *shown) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	return find[*corev1.PersistentVolumeClaim](s, manifest.KindClaim, namespace, name)
}

func find[T any](s *shown, kind, namespace, name string) (value T, ok bool) {
	e, ok := s.Get(manifest.Key{Kind: kind, Namespace: namespace, Name: name})
	if ok {
		value, ok = e.Value.(T)
	}
	return value, ok
}

// Classes are all RuntimeClasses, in the order of Objects. The slice is the caller's.
func (s *shown) Classes() []nodev1.RuntimeClass { return classes(s.now.Load().entries) }

func classes(entries []Entry) []nodev1.RuntimeClass {
	var out []nodev1.RuntimeClass
	for _, e := range entries {
		if rc, ok := e.Value.(*nodev1.RuntimeClass); ok {
			out = append(out, *rc)
		}
	}
	return out
}

// snapshot is the set at one moment. It is never changed.
type snapshot struct {
	entries []Entry
	byKey   map[manifest.Key]int
}

func (s *snapshot) get(key manifest.Key) (Entry, bool) {
	n, ok := s.byKey[key]
	if !ok {
		return Entry{}, false
	}
	return s.entries[n], true
}

// Fixed is a set of objects that are given at its start and are nowhere on record. All its methods
// may be called at the same time.
type Fixed struct{ shown }

// NewFixed returns a set of objects with different keys.
func NewFixed(entries []Entry) *Fixed {
	f := &Fixed{}
	f.now.Store(newSnapshot(entries))
	return f
}

func newSnapshot(entries []Entry) *snapshot {
	s := &snapshot{entries: entries, byKey: make(map[manifest.Key]int, len(entries))}
	for i, e := range entries {
		s.byKey[e.Key] = i
	}
	return s
}

// Run waits for the end of the context: nothing changes by itself.
func (f *Fixed) Run(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

// Listed is closed.
func (f *Fixed) Listed() <-chan struct{} {
	listed := make(chan struct{})
	close(listed)
	return listed
}

// Delete deletes an object. Nobody is notified: whoever deletes it does the rest.
//
// # Errors
//
// ErrNotFound if the object does not exist.
func (f *Fixed) Delete(key manifest.Key) error {
	for {
		old := f.now.Load()
		if _, found := old.get(key); !found {
			return fmt.Errorf("delete %s: there is none: %w", key, errdefs.ErrNotFound)
		}
		rest := slices.DeleteFunc(slices.Clone(old.entries), func(e Entry) bool { return e.Key == key })
		if f.now.CompareAndSwap(old, newSnapshot(rest)) {
			return nil
		}
	}
}
