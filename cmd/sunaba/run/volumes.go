package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// volumes are the pod's, by name.
type volumes struct {
	source map[string]string // host path
	images map[string]string // reference of the image whose files the volume shows
	pulls  []volumeImage
	dirs   []dir
}

// volumeImage is an image that a volume shows.
type volumeImage struct {
	reference string
	policy    corev1.PullPolicy
}

func (v *volumes) has(name string) bool {
	_, path := v.source[name]
	_, image := v.images[name]
	return path || image
}

func planVolumes(pod *corev1.Pod, root string) (*volumes, error) {
	v := &volumes{source: map[string]string{}, images: map[string]string{}}
	for i, vol := range pod.Spec.Volumes {
		at := fmt.Sprintf("spec.volumes[%d]", i)
		if errs := validation.IsDNS1123Label(vol.Name); len(errs) > 0 {
			return nil, invalid(at+".name", "%s", strings.Join(errs, "; "))
		}
		if v.has(vol.Name) {
			return nil, invalid(at+".name", "%q is the name of another volume too", vol.Name)
		}
		switch {
		case more(vol.HostPath != nil, vol.EmptyDir != nil, vol.Image != nil):
			return nil, invalid(at, "has more than one source")
		case vol.Image != nil:
			if vol.Image.Reference == "" {
				return nil, invalid(at+".image.reference", "is empty")
			}
			policy, err := volumePolicy(at+".image.pullPolicy", vol.Image)
			if err != nil {
				return nil, err
			}
			v.images[vol.Name] = vol.Image.Reference
			v.pulls = append(v.pulls, volumeImage{vol.Image.Reference, policy})
		case vol.HostPath != nil:
			if err := v.hostPath(at+".hostPath", vol.HostPath); err != nil {
				return nil, err
			}
			v.source[vol.Name] = filepath.Clean(vol.HostPath.Path)
		default: // no source at all means emptyDir
			path := filepath.Join(root, "volumes", vol.Name)
			d := dir{path: path, mode: 0o777}
			if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
				d.gid, d.mode = int(*sc.FSGroup), 0o777|os.ModeSetgid
			}
			v.dirs = append(v.dirs, d)
			v.source[vol.Name] = path
		}
	}
	return v, nil
}

// more says whether more than one is true.
func more(which ...bool) bool {
	n := 0
	for _, w := range which {
		if w {
			n++
		}
	}
	return n > 1
}

func volumePolicy(at string, image *corev1.ImageVolumeSource) (corev1.PullPolicy, error) {
	switch image.PullPolicy {
	case "":
		return defaultPolicy(image.Reference), nil
	case corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
		return image.PullPolicy, nil
	}
	return "", invalid(at, "%q is not known", image.PullPolicy)
}

// hostPath checks a path of the host. What its type makes, is made when the pod starts.
func (v *volumes) hostPath(at string, h *corev1.HostPathVolumeSource) error {
	if !filepath.IsAbs(h.Path) || strings.Contains(h.Path, "..") {
		return invalid(at+".path", "%q is not an absolute path without ..", h.Path)
	}
	kind := corev1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	is := func(ok func(os.FileMode) bool, what string) error {
		info, err := os.Stat(h.Path)
		if err != nil {
			return invalid(at+".path", "%v", err)
		}
		if !ok(info.Mode()) {
			return invalid(at+".path", "%q is not a %s", h.Path, what)
		}
		return nil
	}
	has := func(bits os.FileMode) func(os.FileMode) bool {
		return func(m os.FileMode) bool { return m&os.ModeType == bits }
	}
	switch kind {
	case corev1.HostPathUnset:
		return nil
	case corev1.HostPathDirectoryOrCreate:
		if info, err := os.Stat(h.Path); err == nil && !info.IsDir() {
			return invalid(at+".path", "%q is not a directory", h.Path)
		} else if err != nil {
			v.dirs = append(v.dirs, dir{path: h.Path, mode: 0o755})
		}
		return nil
	case corev1.HostPathDirectory:
		return is(os.FileMode.IsDir, "directory")
	case corev1.HostPathFile:
		return is(os.FileMode.IsRegular, "file")
	case corev1.HostPathSocket:
		return is(has(os.ModeSocket), "socket")
	case corev1.HostPathCharDev:
		return is(has(os.ModeDevice|os.ModeCharDevice), "character device")
	case corev1.HostPathBlockDev:
		return is(has(os.ModeDevice), "block device")
	default:
		return invalid(at+".type", "%s is not supported", kind)
	}
}

var propagations = map[corev1.MountPropagationMode]runtime.MountPropagation{
	corev1.MountPropagationNone:            runtime.MountPropagation_PROPAGATION_PRIVATE,
	corev1.MountPropagationHostToContainer: runtime.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
	corev1.MountPropagationBidirectional:   runtime.MountPropagation_PROPAGATION_BIDIRECTIONAL,
}

func (v *volumes) mounts(at string, c *corev1.Container) ([]*runtime.Mount, error) {
	var list []*runtime.Mount
	for i, m := range c.VolumeMounts {
		at := fmt.Sprintf("%s.volumeMounts[%d]", at, i)
		if !v.has(m.Name) {
			return nil, invalid(at+".name", "the pod has no volume %q", m.Name)
		}
		if !filepath.IsAbs(m.MountPath) {
			return nil, invalid(at+".mountPath", "%q is not an absolute path", m.MountPath)
		}
		out := &runtime.Mount{ContainerPath: m.MountPath, HostPath: v.source[m.Name], Readonly: m.ReadOnly}
		if reference, ok := v.images[m.Name]; ok {
			out.Readonly, out.ImageSubPath = true, m.SubPath
			out.Image = &runtime.ImageSpec{Image: reference, UserSpecifiedImage: reference}
		} else if m.SubPath != "" {
			return nil, invalid(at+".subPath", "is supported by sunaba run for image volumes only")
		}
		if m.MountPropagation != nil {
			var ok bool
			if out.Propagation, ok = propagations[*m.MountPropagation]; !ok {
				return nil, invalid(at+".mountPropagation", "%q is not known", *m.MountPropagation)
			}
		}
		if r := m.RecursiveReadOnly; r != nil {
			switch *r {
			case corev1.RecursiveReadOnlyDisabled:
			case corev1.RecursiveReadOnlyEnabled:
				out.RecursiveReadOnly = true
			default:
				return nil, invalid(at+".recursiveReadOnly", "%s is not supported", *r)
			}
		}
		list = append(list, out)
	}
	return list, nil
}
