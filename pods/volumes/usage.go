package volumes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/host/quota"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// Usage measures the volumes of a pod that wanted names, by volume: of those on the node's disk that
// end with the pod, which are emptyDirs and ConfigMaps. What is mounted in a volume is not counted.
// An emptyDir that is a project of its own is asked of the file system, at once (host/quota). Other
// trees are walked, and a volume whose last look took long is not looked at again before ten times
// that has passed; until then the answer is that of the last look.
//
// # Errors
//
// The context's, and those of the file system; a volume that is not there is left out.
func (m *Manager) Usage(ctx context.Context, pod *corev1.Pod, wanted func(*corev1.Volume) bool) (map[string]space.Use, error) {
	p, err := m.placesOf(pod)
	if err != nil {
		return nil, err
	}
	uses := map[string]space.Use{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil && v.ConfigMap == nil || inMemory(v) || !wanted(v) {
			continue
		}
		use, err := m.used(ctx, p, v)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("measure volume %q: %w", v.Name, err)
		}
		uses[v.Name] = use
	}
	return uses, nil
}

func (m *Manager) used(ctx context.Context, p places, v *corev1.Volume) (space.Use, error) {
	path := m.source(p, v)
	if v.EmptyDir != nil && translate.OwnUsers(p.pod) {
		if use, counted, err := quota.Used(path); counted || err != nil {
			return use, err
		}
	}
	return m.usage.of(ctx, p.uid, path)
}

// measured keeps the last looks at volumes, by UID and path.
type measured struct {
	now  func() time.Time
	mu   sync.Mutex
	last map[string]map[string]look
}

// look is one look at a volume.
type look struct {
	use  space.Use
	next time.Time // not before
}

func (m *measured) of(ctx context.Context, uid, path string) (space.Use, error) {
	began := m.now()
	m.mu.Lock()
	last, ok := m.last[uid][path]
	m.mu.Unlock()
	if ok && began.Before(last.next) {
		return last.use, nil
	}
	use, err := space.Used(ctx, path)
	if err != nil {
		return space.Use{}, err
	}
	ended := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[string]map[string]look{}
	}
	if m.last[uid] == nil {
		m.last[uid] = map[string]look{}
	}
	m.last[uid][path] = look{use, ended.Add(10 * ended.Sub(began))}
	return use, nil
}

func (m *measured) forget(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, uid)
}
