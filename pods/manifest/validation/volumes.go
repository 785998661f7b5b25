package validation

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
)

// maxPath is the length of a path in bytes, Linux'.
const maxPath = 4096

// Bits of modes that can be given for files and for the folder of an emptyDir.
const maxFileMode, maxFolderMode = 0o777, 0o1777

// checkVolumes checks a Pod's volumes and returns them by name.
func checkVolumes(p *fields.Problems, pod *corev1.Pod) map[string]*corev1.Volume {
	volumes := map[string]*corev1.Volume{}
	for i := range pod.Spec.Volumes {
		v, at := &pod.Spec.Volumes[i], VolumePath(i)
		if p.Required(at+".name", v.Name) {
			p.Value(at+".name", v.Name, validation.IsDNS1123Label(v.Name)...)
			if volumes[v.Name] != nil {
				p.Value(at+".name", v.Name, "is the name of another volume too")
			}
			volumes[v.Name] = v
		}
		if sources(&v.VolumeSource) > 1 {
			p.Add(at, "must not have more than one source")
		}
		checkVolume(p, pod, at, v)
	}
	return volumes
}

// sources counts the members of a struct of pointers that are given.
func sources(of any) int {
	n, v := 0, reflect.ValueOf(of).Elem()
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			n++
		}
	}
	return n
}

func checkVolume(p *fields.Problems, pod *corev1.Pod, at string, v *corev1.Volume) {
	if h := v.HostPath; h != nil {
		checkHostPath(p, at+".hostPath", h)
	}
	if e := v.EmptyDir; e != nil {
		checkEmptyDir(p, at+".emptyDir", e)
	}
	if c := v.ConfigMap; c != nil {
		at := at + ".configMap"
		checkReference(p, at+".name", c.Name)
		checkFiles(p, at, c.DefaultMode, c.DefaultUser)
		checkItems(p, at, c.Items)
	}
	if s := v.Secret; s != nil {
		at := at + ".secret"
		checkReference(p, at+".secretName", s.SecretName)
		checkFiles(p, at, s.DefaultMode, s.DefaultUser)
		checkItems(p, at, s.Items)
	}
	if d := v.DownwardAPI; d != nil {
		at := at + ".downwardAPI"
		checkFiles(p, at, d.DefaultMode, d.DefaultUser)
		checkDownward(p, pod, at, d.Items)
	}
	if v.Projected != nil {
		checkProjected(p, pod, at+".projected", v.Projected)
	}
	if c := v.PersistentVolumeClaim; c != nil {
		checkReference(p, at+".persistentVolumeClaim.claimName", c.ClaimName)
	}
	if m := v.Image; m != nil {
		checkImage(p, at+".image.reference", m.Reference)
		fields.OneOf(p, at+".image.pullPolicy", m.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	}
}

// checkHostPath checks the form of VO6.
func checkHostPath(p *fields.Problems, at string, h *corev1.HostPathVolumeSource) {
	if p.Required(at+".path", h.Path) {
		switch {
		case !path.IsAbs(h.Path):
			p.Value(at+".path", h.Path, "must be an absolute path")
		case slices.Contains(strings.Split(h.Path, "/"), ".."):
			p.Value(at+".path", h.Path, "must not contain '..'")
		}
		checkPathText(p, at+".path", h.Path)
	}
	fields.OneOf(p, at+".type", *h.Type, corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory,
		corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)
}

// checkEmptyDir checks the form of VO3 to VO5.
func checkEmptyDir(p *fields.Problems, at string, e *corev1.EmptyDirVolumeSource) {
	if strings.HasPrefix(string(e.Medium), string(corev1.StorageMediumHugePages)) {
		p.Value(at+".medium", string(e.Medium), "is not supported: use Memory")
	} else {
		fields.OneOf(p, at+".medium", e.Medium, corev1.StorageMediumDefault, corev1.StorageMediumMemory)
	}
	if e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		p.Value(at+".sizeLimit", e.SizeLimit.String(), "must be greater than or equal to 0")
	}
	if e.Mode != nil {
		checkMode(p, at+".mode", *e.Mode, maxFolderMode)
	}
}

// checkProjected checks VO13 and SA2.
func checkProjected(p *fields.Problems, pod *corev1.Pod, at string, v *corev1.ProjectedVolumeSource) {
	checkFiles(p, at, v.DefaultMode, v.DefaultUser)
	paths := map[string]string{}
	once := func(at, file string) {
		file = path.Clean(file)
		if other, twice := paths[file]; twice {
			p.Value(at, file, "is the path of "+other+" too")
		}
		paths[file] = at
	}
	for i := range v.Sources {
		s, at := &v.Sources[i], fmt.Sprintf("%s.sources[%d]", at, i)
		if sources(s) != 1 {
			p.Add(at, "must have exactly one of secret, configMap, downwardAPI")
		}
		if s.Secret != nil {
			checkReference(p, at+".secret.name", s.Secret.Name)
			for _, path := range checkItems(p, at+".secret", s.Secret.Items) {
				once(at+".secret", path)
			}
		}
		if s.ConfigMap != nil {
			checkReference(p, at+".configMap.name", s.ConfigMap.Name)
			for _, path := range checkItems(p, at+".configMap", s.ConfigMap.Items) {
				once(at+".configMap", path)
			}
		}
		if s.DownwardAPI != nil {
			for _, path := range checkDownward(p, pod, at+".downwardAPI", s.DownwardAPI.Items) {
				once(at+".downwardAPI", path)
			}
		}
		if b := s.ClusterTrustBundle; b != nil && !is(b.Optional) {
			p.Add(at+".clusterTrustBundle", "is not supported: there is no API server, so there are no bundles; use a ConfigMap")
		}
	}
}

// checkItems checks VO7's items and returns their paths.
func checkItems(p *fields.Problems, at string, items []corev1.KeyToPath) (paths []string) {
	for i, item := range items {
		at := fmt.Sprintf("%s.items[%d]", at, i)
		if p.Required(at+".key", item.Key) {
			p.Value(at+".key", item.Key, validation.IsConfigMapKey(item.Key)...)
		}
		if checkFilePath(p, at+".path", item.Path) {
			paths = append(paths, item.Path)
		}
		if item.Mode != nil {
			checkMode(p, at+".mode", *item.Mode, maxFileMode)
		}
		checkUser(p, at+".user", item.User)
	}
	return paths
}

// checkDownward checks the files of a downward API and returns their paths.
func checkDownward(p *fields.Problems, pod *corev1.Pod, at string, items []corev1.DownwardAPIVolumeFile) (paths []string) {
	for i, item := range items {
		at := fmt.Sprintf("%s.items[%d]", at, i)
		if checkFilePath(p, at+".path", item.Path) {
			paths = append(paths, item.Path)
		}
		if (item.FieldRef == nil) == (item.ResourceFieldRef == nil) {
			p.Add(at, "must have exactly one of fieldRef, resourceFieldRef")
		}
		if item.FieldRef != nil {
			checkFieldRef(p, at+".fieldRef", item.FieldRef, fileFields)
		}
		if item.ResourceFieldRef != nil {
			checkResourceRef(p, pod, at+".resourceFieldRef", item.ResourceFieldRef, true)
		}
		if item.Mode != nil {
			checkMode(p, at+".mode", *item.Mode, maxFileMode)
		}
		checkUser(p, at+".user", item.User)
	}
	return paths
}

// checkFiles checks the mode and the owner that files have by default.
func checkFiles(p *fields.Problems, at string, mode *int32, user *int64) {
	if mode != nil {
		checkMode(p, at+".defaultMode", *mode, maxFileMode)
	}
	checkUser(p, at+".defaultUser", user)
}

func checkMode(p *fields.Problems, path string, mode, most int32) {
	if mode < 0 || mode > most {
		p.Value(path, fmt.Sprintf("%#o", mode), fmt.Sprintf("must be between 0 and %#o (octal), inclusive", most))
	}
}

// checkFilePath checks the path of a file in a volume that the agent writes; names that start with
// two dots are its own.
func checkFilePath(p *fields.Problems, at, file string) bool {
	if !p.Required(at, file) {
		return false
	}
	if strings.HasPrefix(file, "..") {
		p.Value(at, file, "must not start with '..'")
		return false
	}
	return checkDescending(p, at, file)
}

// checkDescending checks a path that must stay below its folder.
func checkDescending(p *fields.Problems, at, file string) bool {
	switch {
	case path.IsAbs(file):
		p.Value(at, file, "must be a relative path")
	case slices.Contains(strings.Split(file, "/"), ".."):
		p.Value(at, file, "must not contain '..'")
	default:
		return checkPathText(p, at, file)
	}
	return false
}

// checkPathText checks what no path can have.
func checkPathText(p *fields.Problems, at, file string) bool {
	ok := len(file) < maxPath && !strings.ContainsRune(file, 0)
	if !ok {
		p.Value(at, file, fmt.Sprintf("must have less than %d bytes, none of them 0", maxPath))
	}
	return ok
}

// bindOptions are those of VO20.
var bindOptions = []string{"noexec", "nodev", "nosuid"}

// checkMounts checks where a container has its volumes (VO15, VO16, VO18 to VO20).
func checkMounts(p *fields.Problems, c Container, volumes map[string]*corev1.Volume) {
	paths := map[string]string{}
	for i, m := range c.VolumeMounts {
		at := fmt.Sprintf("%s.volumeMounts[%d]", c.Path, i)
		v := volumes[m.Name]
		if p.Required(at+".name", m.Name) && v == nil {
			p.Value(at+".name", m.Name, "is no volume of this pod")
		}
		if p.Required(at+".mountPath", m.MountPath) {
			checkMountPath(p, at+".mountPath", m.MountPath, paths)
		}
		if m.SubPath != "" {
			checkDescending(p, at+".subPath", m.SubPath)
		}
		if m.SubPathExpr != "" {
			checkDescending(p, at+".subPathExpr", m.SubPathExpr)
			if m.SubPath != "" {
				p.Add(at+".subPathExpr", "must not be given with subPath")
			}
		}
		checkPropagation(p, at, c, m)
		options := map[string]bool{}
		for j, o := range m.BindMountOptions {
			fields.OneOf(p, fmt.Sprintf("%s.bindMountOptions[%d]", at, j), o, bindOptions...)
			if options[o] {
				p.Value(fmt.Sprintf("%s.bindMountOptions[%d]", at, j), o, "stands there twice")
			}
			options[o] = true
		}
		if len(m.BindMountOptions) > 0 && v != nil && v.Image != nil {
			p.Add(at+".bindMountOptions", "must not be given for an image volume")
		}
	}
}

func checkMountPath(p *fields.Problems, at, mountPath string, paths map[string]string) {
	switch {
	case !path.IsAbs(mountPath):
		p.Value(at, mountPath, "must be an absolute path")
	case strings.Contains(mountPath, ":"):
		p.Value(at, mountPath, "must not contain ':'")
	case checkPathText(p, at, mountPath):
		clean := path.Clean(mountPath)
		if other, twice := paths[clean]; twice {
			p.Value(at, mountPath, "must be unique: it is that of "+other+" too")
		}
		paths[clean] = at
	}
}

func checkPropagation(p *fields.Problems, at string, c Container, m corev1.VolumeMount) {
	propagates := false
	if v := m.MountPropagation; v != nil {
		fields.OneOf(p, at+".mountPropagation", *v, corev1.MountPropagationNone, corev1.MountPropagationHostToContainer,
			corev1.MountPropagationBidirectional)
		propagates = *v != corev1.MountPropagationNone
		if *v == corev1.MountPropagationBidirectional && (c.SecurityContext == nil || !is(c.SecurityContext.Privileged)) {
			p.Value(at+".mountPropagation", string(*v), "is for privileged containers only")
		}
	}
	v := m.RecursiveReadOnly
	if v == nil {
		return
	}
	fields.OneOf(p, at+".recursiveReadOnly", *v, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)
	if *v != corev1.RecursiveReadOnlyDisabled && !m.ReadOnly {
		p.Value(at+".recursiveReadOnly", string(*v), "needs readOnly true")
	}
	if *v != corev1.RecursiveReadOnlyDisabled && propagates {
		p.Value(at+".recursiveReadOnly", string(*v), "needs mountPropagation None")
	}
}
