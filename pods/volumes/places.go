package volumes

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
)

// places are the folders of one pod.
type places struct {
	pod    *corev1.Pod // nil where only the UID is known
	uid    string
	dir    string // ROOT/pods/UID
	memory string // STATE/pods/volumes/UID
}

func (m *Manager) placesOf(pod *corev1.Pod) (places, error) {
	p, err := m.placesFor(string(pod.UID))
	p.pod = pod
	return p, err
}

func (m *Manager) placesFor(uid string) (places, error) {
	if !isUID(uid) {
		return places{}, fmt.Errorf("find folder of pod: UID %q is not a UUID: %w", uid, errdefs.ErrInvalidArgument)
	}
	return places{uid: uid, dir: filepath.Join(m.o.Dir, uid), memory: filepath.Join(m.o.Memory, uid)}, nil
}

// volumes holds the volumes on disk, and links to claims.
func (p places) volumes() string { return filepath.Join(p.dir, "volumes") }

// subPaths holds what subPath mounts of containers show, each bound to a place of its own:
// CONTAINER/RANDOM/INDEX.
func (p places) subPaths() string { return filepath.Join(p.dir, "subpaths") }

// messages holds termination messages: CONTAINER/ATTEMPT.
func (p places) messages() string { return filepath.Join(p.dir, "containers") }

func (p places) hosts() string { return filepath.Join(p.dir, "hosts") }

// record is the file in which the agent keeps the pod. It is not of this package, which removes no
// folder that still has one.
func (p places) record() string { return filepath.Join(p.dir, "pod.json") }

// source is where a volume is on the host. Volumes of kindImage have no place.
func (m *Manager) source(p places, v *corev1.Volume) string {
	switch kindOf(v) {
	case kindHostPath:
		return v.HostPath.Path
	case kindClaim:
		return m.claimDir(p.pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	}
	if inMemory(v) {
		return filepath.Join(p.memory, v.Name)
	}
	return filepath.Join(p.volumes(), v.Name)
}

func (m *Manager) claimDir(namespace, name string) string {
	return filepath.Join(m.o.Claims, namespace, name)
}

// inMemory says whether a volume is below Options.Memory.
func inMemory(v *corev1.Volume) bool {
	if e := v.EmptyDir; e != nil {
		return e.Medium == corev1.StorageMediumMemory
	}
	return v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// isUID says whether a name has the form of the UIDs that the agent makes: a UUID in lower case.
func isUID(name string) bool {
	if len(name) != 36 {
		return false
	}
	for i, c := range []byte(name) {
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if !strings.ContainsRune("0123456789abcdef", rune(c)) {
				return false
			}
		}
	}
	return true
}
