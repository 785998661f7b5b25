package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/pods/volumes"
)

// wishes are the wanted objects, as a test sets them.
type wishes struct {
	mu      sync.Mutex
	entries []desired.Entry
	changed func()
}

// set replaces all objects by those of a manifest in one file.
func (w *wishes) set(t *testing.T, text string) {
	t.Helper()
	objects, _, err := manifest.Parse("web.yaml", []byte(text), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.entries = nil
	for _, o := range objects {
		w.entries = append(w.entries, desired.Entry{Object: o, Source: cycle.Source{Kind: "api", Hash: o.Hash()}, Seen: time.Now()})
	}
	changed := w.changed
	w.mu.Unlock()
	if changed != nil {
		changed()
	}
}

func (w *wishes) Run(ctx context.Context, changed func()) error {
	w.mu.Lock()
	w.changed = changed
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.changed = nil
	w.mu.Unlock()
	return nil
}

func (w *wishes) Listed() <-chan struct{} {
	listed := make(chan struct{})
	close(listed)
	return listed
}

func (w *wishes) Verdicts() []desired.Verdict { return nil }

func (w *wishes) Objects() []desired.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.entries)
}

func (w *wishes) Get(key manifest.Key) (desired.Entry, bool) {
	for _, e := range w.Objects() {
		if e.Key == key {
			return e, true
		}
	}
	return desired.Entry{}, false
}

func (w *wishes) Delete(key manifest.Key) error {
	w.mu.Lock()
	w.entries = slices.DeleteFunc(slices.Clone(w.entries), func(e desired.Entry) bool { return e.Key == key })
	w.mu.Unlock()
	return nil
}

func (w *wishes) Classes() (list []nodev1.RuntimeClass) {
	for _, e := range w.Objects() {
		if c, ok := e.Value.(*nodev1.RuntimeClass); ok {
			list = append(list, *c)
		}
	}
	return list
}

func (w *wishes) ConfigMap(namespace, name string) (*corev1.ConfigMap, bool) {
	e, _ := w.Get(manifest.Key{Kind: manifest.KindConfigMap, Namespace: namespace, Name: name})
	c, ok := e.Value.(*corev1.ConfigMap)
	return c, ok
}

func (w *wishes) Secret(namespace, name string) (*corev1.Secret, bool) {
	e, _ := w.Get(manifest.Key{Kind: manifest.KindSecret, Namespace: namespace, Name: name})
	s, ok := e.Value.(*corev1.Secret)
	return s, ok
}

func (w *wishes) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	e, _ := w.Get(manifest.Key{Kind: manifest.KindClaim, Namespace: namespace, Name: name})
	c, ok := e.Value.(*corev1.PersistentVolumeClaim)
	return c, ok
}

// files are the volumes of a test: folders below a folder.
type files struct {
	dir string

	mu        sync.Mutex
	refreshed int
	held      map[string]int // mounts, by pod
	fail      error
	pause     time.Duration // a sweep lasts at least so long
	// wrote answers what a container wrote as its termination message before it ended.
	wrote map[string]string
	// used is what the volumes of pods take, in bytes, by pod and volume: "web/scratch".
	used map[string]int64
}

func (f *files) Usage(_ context.Context, pod *corev1.Pod, wanted func(*corev1.Volume) bool) (map[string]space.Use, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	uses := map[string]space.Use{}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; wanted(v) {
			uses[v.Name] = space.Use{Bytes: f.used[pod.Name+"/"+v.Name], Inodes: 1}
		}
	}
	return uses, nil
}

func (f *files) SetUp(_ context.Context, pod *corev1.Pod) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail
	}
	return os.MkdirAll(filepath.Join(f.dir, string(pod.UID)), 0o700)
}

func (f *files) Refresh(context.Context, *corev1.Pod) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refreshed++
	return true, nil
}

func (f *files) Mounts(pod *corev1.Pod, _ *corev1.Container, _ volumes.MountInput) ([]*runtime.Mount, func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	uid := string(pod.UID)
	f.held[uid]++
	return nil, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held[uid]--
	}, nil
}

func (f *files) TerminationLog(uid, container string, attempt uint32) (string, error) {
	path := filepath.Join(f.dir, uid, fmt.Sprintf("%s-%d", container, attempt))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(f.wrote[container])
	return path, errors.Join(err, file.Close())
}

func (f *files) WriteHosts(uid string, content []byte) (string, error) {
	path := filepath.Join(f.dir, uid, "hosts")
	return path, os.WriteFile(path, content, 0o600)
}

// TearDown releases the mounts of an agent that was killed, and only those.
func (f *files) TearDown(uid string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.held, uid)
	return os.RemoveAll(filepath.Join(f.dir, uid))
}

func (f *files) Sweep(known func(types.UID) bool) error {
	time.Sleep(f.pause)
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !known(types.UID(e.Name())) {
			if err := f.TearDown(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}
