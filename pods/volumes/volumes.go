// Package volumes makes the files of pods: their volumes, the places of subPath mounts, the hosts
// files and the termination messages. What containers write there is from strangers: nothing here
// follows a link out of a volume, opens what is no regular file or folder, or deletes through a
// mount.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/host/quota"
)

// Objects answers the objects that volumes show. It is asked at each SetUp and Refresh.
type Objects interface {
	ConfigMap(namespace, name string) (*corev1.ConfigMap, bool)
	Secret(namespace, name string) (*corev1.Secret, bool)
	Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool)
}

// Options are those of New.
type Options struct {
	// Dir holds a folder for each pod, named by its UID: ROOT/pods.
	Dir string
	// Memory is where New mounts a tmpfs for what must not reach a disk: STATE/pods/volumes.
	Memory string
	// Claims holds NAMESPACE/NAME for each PersistentVolumeClaim: ROOT/pods/claims.
	Claims string
	// Objects has the ConfigMaps, Secrets and claims.
	Objects Objects
	// Field answers a field of the pod, as the downward API shows it.
	Field func(pod *corev1.Pod, path string) (string, error)
	// Resource answers a resource of one of the pod's containers, as the downward API shows it.
	Resource func(pod *corev1.Pod, ref *corev1.ResourceFieldSelector) (string, error)
	// Allocatable is the memory that pods of this node may use together, in bytes, 0 = not known.
	// No emptyDir in memory is greater.
	Allocatable int64
	// Name is the name of a pod, for errors; zero if it is not known. nil for none.
	Name   func(types.UID) types.NamespacedName
	Logger *slog.Logger
}

// Manager makes and removes the files of pods. It keeps nothing in memory that must survive: a new
// Manager of the same folders continues the work of the old one. It may be used by several
// goroutines; calls for one pod wait for each other.
type Manager struct {
	o        Options
	locks    locks
	claims   sync.Mutex // held while it is found out who uses a claim
	usage    measured
	projects quota.Giver
}

// New makes the folders, and mounts the tmpfs at Options.Memory unless one is mounted there
// already, for example by an earlier New. Close unmounts it if no pod has files in it.
//
// # Errors
//
// ErrInvalidArgument for paths that are not absolute, ErrFailedPrecondition if something else than
// a tmpfs is mounted at Options.Memory; else those of the system.
func New(o Options) (*Manager, error) {
	for _, dir := range []*string{&o.Dir, &o.Memory, &o.Claims} {
		if !filepath.IsAbs(*dir) {
			return nil, fmt.Errorf("prepare folder of volumes %q: is not an absolute path: %w", *dir, errdefs.ErrInvalidArgument)
		}
		if err := os.MkdirAll(*dir, 0o700); err != nil {
			return nil, fmt.Errorf("prepare folder of volumes: %w", err)
		}
		// The kernel's list of mounts has no symbolic links in its paths.
		real, err := filepath.EvalSymlinks(*dir)
		if err != nil {
			return nil, fmt.Errorf("prepare folder of volumes: %w", err)
		}
		*dir = real
	}
	if err := mountShared(o.Memory); err != nil {
		return nil, err
	}
	return &Manager{o: o, usage: measured{now: time.Now}}, nil
}

// Close unmounts the tmpfs if no pod has files in it; else it stays for the next New.
func (m *Manager) Close() error {
	entries, err := os.ReadDir(m.o.Memory)
	if err != nil {
		return fmt.Errorf("close volumes: %w", err)
	}
	if len(entries) > 0 {
		return nil
	}
	return mount.Detach(m.o.Memory)
}

// SetUpError says which volume of a pod failed to be set up. Its text is that of the event
// FailedMount.
type SetUpError struct {
	Volume string
	Err    error
}

func (e *SetUpError) Error() string {
	return fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", e.Volume, e.Err)
}

// Unwrap is the cause.
func (e *SetUpError) Unwrap() error { return e.Err }

// SetUp makes all volumes of a pod, also those that no container mounts; what is there already is
// left as it is, and content from objects is brought up to date. It is called before each start of
// the pod's sandbox, in particular after a reboot, when what was in memory is lost.
//
// # Errors
//
// Joined ones of type *SetUpError, one for each volume that failed; the others are made. They are
// of class ErrNotFound if an object or a key is missing, ErrInvalidArgument if the pod is wrong,
// ErrFailedPrecondition if the host is not as a volume needs it.
func (m *Manager) SetUp(ctx context.Context, pod *corev1.Pod) error {
	p, err := m.placesOf(pod)
	if err != nil {
		return err
	}
	defer m.locks.lock(p.uid)()
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if err := m.setUp(ctx, p, v); err != nil {
			errs = append(errs, &SetUpError{v.Name, err})
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) setUp(ctx context.Context, p places, v *corev1.Volume) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkName(v.Name); err != nil {
		return err
	}
	switch kindOf(v) {
	case kindEmptyDir:
		return m.setUpEmptyDir(p, v)
	case kindHostPath:
		return setUpHostPath(v.HostPath)
	case kindClaim:
		return m.setUpClaim(ctx, p, v)
	case kindContent:
		_, err := m.setUpContent(p, v)
		return err
	case kindImage:
		return nil // the agent pulls it, the server mounts it
	}
	return errRefusedKind
}

var errRefusedKind = errdefs.ErrInvalidArgument.WithMessage("this kind of volume is not supported: mount it on the node and use hostPath")

// Refresh brings the files of ConfigMap, Secret, downwardAPI and projected volumes up to date, each
// volume at once. It says whether any of them changed. A volume whose object is missing keeps its
// files. SetUp must have been successful.
//
// # Errors
//
// Those of SetUp.
func (m *Manager) Refresh(ctx context.Context, pod *corev1.Pod) (changed bool, err error) {
	p, err := m.placesOf(pod)
	if err != nil {
		return false, err
	}
	defer m.locks.lock(p.uid)()
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if kindOf(v) != kindContent || ctx.Err() != nil {
			continue
		}
		err := checkName(v.Name)
		if err == nil {
			var c bool
			c, err = m.setUpContent(p, v)
			changed = changed || c
		}
		if err != nil {
			errs = append(errs, &SetUpError{v.Name, err})
		}
	}
	return changed, errors.Join(append(errs, ctx.Err())...)
}

// kind says how a volume is made.
type kind int

const (
	kindOther    kind = iota // refused
	kindEmptyDir             // a volume without a source is one too
	kindHostPath
	kindClaim
	kindContent // files with the content of objects
	kindImage
)

func kindOf(v *corev1.Volume) kind {
	switch s := &v.VolumeSource; {
	case s.EmptyDir != nil:
		return kindEmptyDir
	case s.HostPath != nil:
		return kindHostPath
	case s.PersistentVolumeClaim != nil:
		return kindClaim
	case s.ConfigMap != nil, s.Secret != nil, s.DownwardAPI != nil, s.Projected != nil:
		return kindContent
	case s.Image != nil:
		return kindImage
	case *s == (corev1.VolumeSource{}):
		return kindEmptyDir
	}
	return kindOther
}

// locks are locks by UID.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	sync.Mutex
	users int
}

// lock waits for the lock of a UID and answers what releases it.
func (l *locks) lock(uid string) func() {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	one := l.held[uid]
	if one == nil {
		one = &lock{}
		l.held[uid] = one
	}
	one.users++
	l.mu.Unlock()
	one.Lock()
	return func() {
		one.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.held, uid)
		}
	}
}

// checkName refuses names of volumes and containers that are no DNS labels, which alone are safe as
// names of files.
func checkName(name string) error {
	if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
		return fmt.Errorf("name %q: %s: %w", name, strings.Join(errs, "; "), errdefs.ErrInvalidArgument)
	}
	return nil
}
