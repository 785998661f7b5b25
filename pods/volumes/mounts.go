package volumes

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/translate"
	"github.com/sunaba-project/sunaba/pods/volumes/tree"
)

// MountInput is what the mounts of a container depend on beside its pod.
type MountInput struct {
	// Environment is the container's, for subPathExpr.
	Environment map[string]string
	// UserNamespace is the first host id of the pod's own user namespace, 0 without. Its volumes
	// show the owners that they have on the host.
	UserNamespace uint32
	// RecursiveReadOnly says that the pod's runtime handler can mount so.
	RecursiveReadOnly bool
	// Images are those of image volumes by the volume's name, as the pull answered them. Without, a
	// volume has the reference of its manifest.
	Images map[string]*runtime.ImageSpec
}

// userNamespaceLength is how many ids a pod's user namespace has.
const userNamespaceLength = 65536

// Mounts answers the mounts of a container's volumeMounts, in their order, for its configuration.
// SetUp must have been successful. The parts of volumes that subPath names are found now: what
// changes later in the volume under that name is not seen by the container.
//
// The caller calls release once, when the container is removed, or when its creation failed. If
// the daemon ends before, the next Mounts for the container or TearDown does that. While an attempt
// of a container is there, Mounts is not called for the next one.
//
// # Errors
//
// They are reasons for CreateContainerConfigError, and name the mount. ErrInvalidArgument for what
// the manifest has wrong, ErrNotFound for a subPath that a read-only volume does not have,
// ErrFailedPrecondition for one that leads out of its volume.
func (m *Manager) Mounts(pod *corev1.Pod, c *corev1.Container, in MountInput) (mounts []*runtime.Mount, release func(), err error) {
	p, err := m.placesOf(pod)
	if err == nil {
		err = checkName(c.Name)
	}
	if err == nil && len(c.VolumeDevices) > 0 {
		err = fmt.Errorf("volumeDevices: block volumes are not supported, use hostPath with type BlockDevice: %w", errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, nil, err
	}
	defer m.locks.lock(p.uid)()
	b := mountBuilder{m: m, p: p, c: c, in: in}
	for i := range c.VolumeMounts {
		mount, err := b.mount(i, &c.VolumeMounts[i])
		if err != nil {
			b.release()
			return nil, nil, fmt.Errorf("volumeMount %q of container %q: %w", c.VolumeMounts[i].Name, c.Name, err)
		}
		mounts = append(mounts, mount)
	}
	return mounts, b.release, nil
}

// mountBuilder makes the mounts of one container.
type mountBuilder struct {
	m  *Manager
	p  places
	c  *corev1.Container
	in MountInput
	// dir holds the places of subPath mounts, "" before the first.
	dir string
}

func (b *mountBuilder) release() {
	if b.dir == "" {
		return
	}
	if err := releaseAll(b.dir); err != nil {
		b.m.o.Logger.Error("failed to release subPath mounts", "pod", b.p.uid, "container", b.c.Name, "error", err)
		return
	}
	for _, dir := range []string{filepath.Dir(b.dir), b.p.subPaths()} {
		if err := removeIfEmpty(dir); err != nil {
			b.m.o.Logger.Error("failed to remove folder of subPath mounts", "pod", b.p.uid, "container", b.c.Name, "error", err)
		}
	}
}

func (b *mountBuilder) mount(index int, vm *corev1.VolumeMount) (*runtime.Mount, error) {
	i := slices.IndexFunc(b.p.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == vm.Name })
	if i < 0 {
		return nil, fmt.Errorf("the pod has no such volume: %w", errdefs.ErrInvalidArgument)
	}
	v := &b.p.pod.Spec.Volumes[i]
	if err := checkName(v.Name); err != nil {
		return nil, err
	}
	subPath, err := b.subPath(vm)
	if err != nil {
		return nil, err
	}
	kind := kindOf(v)
	out := &runtime.Mount{
		ContainerPath: vm.MountPath,
		Readonly: vm.ReadOnly || kind == kindContent || kind == kindImage ||
			kind == kindClaim && v.PersistentVolumeClaim.ReadOnly,
		SelinuxRelabel: kind == kindEmptyDir || kind == kindContent || kind == kindClaim,
	}
	if out.Propagation, err = propagation(vm, b.c); err != nil {
		return nil, err
	}
	if out.RecursiveReadOnly, err = recursiveReadOnly(vm, b.in.RecursiveReadOnly); err != nil {
		return nil, err
	}
	if out.MountOptions, err = bindOptions(vm, kind); err != nil {
		return nil, err
	}
	if kind == kindImage {
		return out, b.image(out, v, subPath)
	}
	if out.HostPath = b.m.source(b.p, v); subPath != "" {
		if out.HostPath, err = b.bind(index, out.HostPath, subPath, kind == kindContent); err != nil {
			return nil, fmt.Errorf("prepare subPath: %w", err)
		}
	}
	if first := b.in.UserNamespace; first != 0 {
		ids := []*runtime.IDMapping{{HostId: first, ContainerId: 0, Length: userNamespaceLength}}
		out.UidMappings, out.GidMappings = ids, ids
	}
	return out, nil
}

// image makes a mount one of an image. The server resolves the subPath.
func (b *mountBuilder) image(out *runtime.Mount, v *corev1.Volume, subPath string) error {
	if subPath != "" && !tree.IsLocal(subPath) {
		return fmt.Errorf("subPath %q is not a relative path without ..: %w", subPath, errdefs.ErrInvalidArgument)
	}
	out.ImageSubPath = subPath
	if out.Image = b.in.Images[v.Name]; out.Image == nil {
		out.Image = &runtime.ImageSpec{Image: v.Image.Reference, UserSpecifiedImage: v.Image.Reference}
	}
	return nil
}

// bind binds a part of a volume to a place of this container.
func (b *mountBuilder) bind(index int, volume, subPath string, readOnly bool) (string, error) {
	if b.dir == "" {
		var err error
		if b.dir, err = newSubPaths(b.p, b.c.Name); err != nil {
			return "", err
		}
	}
	at := place(b.dir, index)
	return at, tree.Bind(volume, subPath, at, readOnly)
}

// subPath is that of a mount, "" if it shows the whole volume.
func (b *mountBuilder) subPath(vm *corev1.VolumeMount) (string, error) {
	if vm.SubPathExpr == "" {
		return vm.SubPath, nil
	}
	if vm.SubPath != "" {
		return "", fmt.Errorf("subPathExpr and subPath are mutually exclusive: %w", errdefs.ErrInvalidArgument)
	}
	// What is empty counts as missing: the path would lead somewhere else.
	vars := maps.Clone(b.in.Environment)
	maps.DeleteFunc(vars, func(_, value string) bool { return value == "" })
	out, absent, err := translate.Expand(vm.SubPathExpr, vars)
	if err != nil {
		return "", err
	}
	if len(absent) > 0 {
		slices.Sort(absent)
		return "", errdefs.ErrInvalidArgument.WithMessage("missing value for " + strings.Join(slices.Compact(absent), ", "))
	}
	return out, nil
}

func propagation(vm *corev1.VolumeMount, c *corev1.Container) (runtime.MountPropagation, error) {
	if vm.MountPropagation == nil {
		return runtime.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *vm.MountPropagation {
	case corev1.MountPropagationNone:
		return runtime.MountPropagation_PROPAGATION_PRIVATE, nil
	case corev1.MountPropagationHostToContainer:
		return runtime.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case corev1.MountPropagationBidirectional:
		if c.SecurityContext == nil || !isTrue(c.SecurityContext.Privileged) {
			return 0, fmt.Errorf("mountPropagation: Bidirectional is available only to privileged containers: %w", errdefs.ErrInvalidArgument)
		}
		return runtime.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("mountPropagation: %q is not supported, use None, HostToContainer or Bidirectional: %w", *vm.MountPropagation, errdefs.ErrInvalidArgument)
}

func recursiveReadOnly(vm *corev1.VolumeMount, supported bool) (bool, error) {
	if vm.RecursiveReadOnly == nil || *vm.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	refuse := func(why string) (bool, error) {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it %s: %w", vm.Name, why, errdefs.ErrInvalidArgument)
	}
	if !vm.ReadOnly {
		return refuse("is not read-only")
	}
	if vm.MountPropagation != nil && *vm.MountPropagation != corev1.MountPropagationNone {
		return refuse(fmt.Sprintf("is not compatible with propagation %q", *vm.MountPropagation))
	}
	switch *vm.RecursiveReadOnly {
	case corev1.RecursiveReadOnlyIfPossible:
		return supported, nil
	case corev1.RecursiveReadOnlyEnabled:
		if !supported {
			return refuse("is not supported by the runtime")
		}
		return true, nil
	}
	return false, fmt.Errorf("recursiveReadOnly: %q is not supported, use Disabled, IfPossible or Enabled: %w", *vm.RecursiveReadOnly, errdefs.ErrInvalidArgument)
}

func bindOptions(vm *corev1.VolumeMount, kind kind) ([]string, error) {
	if len(vm.BindMountOptions) > 0 && kind == kindImage {
		return nil, fmt.Errorf("bindMountOptions: image volumes have none: %w", errdefs.ErrInvalidArgument)
	}
	var errs []error
	for _, o := range vm.BindMountOptions {
		if o != "noexec" && o != "nodev" && o != "nosuid" {
			errs = append(errs, fmt.Errorf("bindMountOptions: %q is not one of noexec, nodev, nosuid: %w", o, errdefs.ErrInvalidArgument))
		}
	}
	return vm.BindMountOptions, errors.Join(errs...)
}
