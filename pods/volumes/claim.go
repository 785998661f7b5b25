package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/pods/volumes/tree"
)

// A claim is a folder of its own, and each pod that uses it has a link to it among its volumes. The
// links are the record of who uses a claim.

// setUpClaim makes the folder of a claim and the pod's link to it.
func (m *Manager) setUpClaim(ctx context.Context, p places, v *corev1.Volume) error {
	name := v.PersistentVolumeClaim.ClaimName
	dir, err := m.checkedClaimDir(p.pod.Namespace, name)
	if err != nil {
		return err
	}
	claim, ok := m.o.Objects.Claim(p.pod.Namespace, name)
	if !ok {
		return missing("persistentvolumeclaim", name)
	}
	if mode := claim.Spec.VolumeMode; mode != nil && *mode != corev1.PersistentVolumeFilesystem {
		return fmt.Errorf("persistentvolumeclaim %q: volumeMode %s is not supported, use Filesystem: %w", name, *mode, errdefs.ErrInvalidArgument)
	}
	group, err := groupOf(p.pod)
	if err != nil {
		return err
	}
	if err := m.takeClaim(p, v.Name, dir, slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod)); err != nil {
		return fmt.Errorf("persistentvolumeclaim %q: %w", name, err)
	}
	if v.PersistentVolumeClaim.ReadOnly {
		return nil
	}
	var policy *corev1.PodFSGroupChangePolicy
	if s := p.pod.Spec.SecurityContext; s != nil {
		policy = s.FSGroupChangePolicy
	}
	return group.Give(ctx, dir, policy)
}

// takeClaim makes the folder and the link, unless another pod has a claim that is for one pod only.
func (m *Manager) takeClaim(p places, volume, dir string, onePod bool) error {
	m.claims.Lock()
	defer m.claims.Unlock()
	if onePod {
		users, err := m.claimUsers(dir)
		if err != nil {
			return err
		}
		users = slices.DeleteFunc(users, func(uid string) bool { return uid == p.uid })
		if len(users) > 0 {
			return fmt.Errorf("access mode ReadWriteOncePod: %s uses it: %w", m.podOf(users[0]), errdefs.ErrFailedPrecondition)
		}
	}
	if err := makeFolder(dir, onDisk, tree.Group{}); err != nil {
		return err
	}
	if err := os.MkdirAll(p.volumes(), 0o700); err != nil {
		return err
	}
	err := os.Symlink(dir, filepath.Join(p.volumes(), volume))
	if errors.Is(err, fs.ErrExist) {
		return nil // it is this pod's, which never changes its volumes
	}
	return err
}

// claimUsers are the UIDs of the pods that have a link to a claim's folder.
func (m *Manager) claimUsers(dir string) ([]string, error) {
	pods, err := os.ReadDir(m.o.Dir)
	if err != nil {
		return nil, err
	}
	var users []string
	for _, pod := range pods {
		p, err := m.placesFor(pod.Name())
		if err != nil {
			continue
		}
		links, err := os.ReadDir(p.volumes())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if slices.ContainsFunc(links, func(e fs.DirEntry) bool {
			target, err := os.Readlink(filepath.Join(p.volumes(), e.Name()))
			return err == nil && target == dir
		}) {
			users = append(users, p.uid)
		}
	}
	return users, nil
}

// claimUnused is ErrFailedPrecondition, naming a pod, if a pod has a link to a claim's folder.
func (m *Manager) claimUnused(dir string) error {
	users, err := m.claimUsers(dir)
	if err == nil && len(users) > 0 {
		err = fmt.Errorf("%s uses it: %w", m.podOf(users[0]), errdefs.ErrFailedPrecondition)
	}
	return err
}

// podOf names a pod in an error: by namespace and name if they are known.
func (m *Manager) podOf(uid string) string {
	if m.o.Name != nil {
		if name := m.o.Name(types.UID(uid)); name.Name != "" {
			return fmt.Sprintf("pod %q", name)
		}
	}
	return "pod with UID " + uid
}

// ClaimsWithData are the claims that have a folder, by namespace and name, whether they are still
// wanted or not.
func (m *Manager) ClaimsWithData() []types.NamespacedName {
	var claims []types.NamespacedName
	namespaces, err := os.ReadDir(m.o.Claims)
	for _, namespace := range namespaces {
		names, nerr := os.ReadDir(filepath.Join(m.o.Claims, namespace.Name()))
		if nerr != nil && namespace.IsDir() && !errors.Is(nerr, fs.ErrNotExist) {
			err = errors.Join(err, nerr)
		}
		for _, name := range names {
			if _, bad := m.checkedClaimDir(namespace.Name(), name.Name()); bad == nil && name.IsDir() {
				claims = append(claims, types.NamespacedName{Namespace: namespace.Name(), Name: name.Name()})
			}
		}
	}
	if err != nil {
		m.o.Logger.Warn("failed to list the folders of claims", "error", err)
	}
	return claims
}

// ClaimUnused is nil if no pod has the claim among its volumes.
//
// # Errors
//
// ErrFailedPrecondition, naming a pod; else those of the file system.
func (m *Manager) ClaimUnused(namespace, name string) error {
	dir, err := m.checkedClaimDir(namespace, name)
	if err != nil {
		return err
	}
	m.claims.Lock()
	defer m.claims.Unlock()
	if err := m.claimUnused(dir); err != nil {
		return fmt.Errorf("persistentvolumeclaim \"%s/%s\": %w", namespace, name, err)
	}
	return nil
}

// RemoveClaim deletes the data of a claim. One that was never used is no error.
//
// # Errors
//
// ErrFailedPrecondition if a pod uses it, or if something is mounted there: that is unmounted by
// whoever mounted it. Else those of the file system.
func (m *Manager) RemoveClaim(namespace, name string) error {
	dir, err := m.checkedClaimDir(namespace, name)
	if err != nil {
		return err
	}
	m.claims.Lock()
	defer m.claims.Unlock()
	var mounts []string
	if err = m.claimUnused(dir); err == nil {
		mounts, err = mount.Below(dir)
	}
	if err == nil && len(mounts) > 0 {
		err = fmt.Errorf("%q is a mount point, unmount it first: %w", mounts[0], errdefs.ErrFailedPrecondition)
	}
	if err == nil {
		err = space.Remove(dir)
	}
	if err != nil {
		return fmt.Errorf("remove persistentvolumeclaim \"%s/%s\": %w", namespace, name, err)
	}
	return nil
}

// checkedClaimDir is the folder of a claim whose name may be anything.
func (m *Manager) checkedClaimDir(namespace, name string) (string, error) {
	errs := append(validation.IsDNS1123Label(namespace), validation.IsDNS1123Subdomain(name)...)
	if len(errs) > 0 {
		return "", fmt.Errorf("persistentvolumeclaim \"%s/%s\": %s: %w", namespace, name, strings.Join(errs, "; "), errdefs.ErrInvalidArgument)
	}
	return m.claimDir(namespace, name), nil
}

// missing is the error of an object that is not there, in the API server's words.
func missing(kind, name string) error {
	return errdefs.ErrNotFound.WithMessage(fmt.Sprintf("%s %q not found", kind, name))
}
