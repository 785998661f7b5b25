package volumes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/volumes/tree"
)

// Usage measures the emptyDir volumes of a pod, for their sizeLimit, by volume. Those in memory
// have a limit of their own and are not among them. What is mounted in a volume is not counted.
// Project quotas are not used: the trees are walked, and a volume whose last look took long is not
// looked at again before ten times that has passed; then the answer is that of the last look.
//
// # Errors
//
// The context's, and those of the file system; a volume that is not there is left out.
func (m *Manager) Usage(ctx context.Context, pod *corev1.Pod) (map[string]tree.Use, error) {
	p, err := m.placesOf(pod)
	if err != nil {
		return nil, err
	}
	uses := map[string]tree.Use{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if kindOf(v) != kindEmptyDir || inMemory(v) {
			continue
		}
		use, err := m.usage.of(ctx, p.uid, m.source(p, v))
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

// measured keeps the last looks at volumes, by UID and path.
type measured struct {
	now  func() time.Time
	mu   sync.Mutex
	last map[string]map[string]look
}

// look is one look at a volume.
type look struct {
	use  tree.Use
	next time.Time // not before
}

func (m *measured) of(ctx context.Context, uid, path string) (tree.Use, error) {
	began := m.now()
	m.mu.Lock()
	last, ok := m.last[uid][path]
	m.mu.Unlock()
	if ok && began.Before(last.next) {
		return last.use, nil
	}
	use, err := tree.Used(ctx, path)
	if err != nil {
		return tree.Use{}, err
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
