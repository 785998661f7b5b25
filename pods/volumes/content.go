package volumes

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/volumes/atomic"
	"github.com/sunaba-project/sunaba/pods/volumes/tree"
)

// Bounds of one volume's content.
const (
	mostFiles = 16384
	mostBytes = 64 << 20
)

// longestName is the most bytes that the kernel takes as the name of a file.
const longestName = 255

// setUpContent makes a volume show the present content of the objects that it names. It says
// whether that changed.
func (m *Manager) setUpContent(p places, v *corev1.Volume) (changed bool, err error) {
	group, err := groupOf(p.pod)
	if err != nil {
		return false, err
	}
	c := collector{m: m, pod: p.pod, group: group, files: atomic.Content{}, mode: 0o644}
	if err := errors.Join(c.volume(v), c.checkFolders()); err != nil {
		return false, err
	}
	dir, mode := m.source(p, v), uint32(onDisk)
	if inMemory(v) {
		mode = onMemory
	}
	if err := makeFolder(dir, group.ReadOnlyFolder(mode), group); err != nil {
		return false, err
	}
	return atomic.Writer{Dir: dir, Group: group, Now: time.Now}.Write(c.files)
}

// collector collects the content of a volume.
type collector struct {
	m      *Manager
	pod    *corev1.Pod
	group  tree.Group
	files  atomic.Content
	bytes  int
	unique bool // a path may be given once only
	// What files have that do not say it themselves.
	mode int32
	uid  int64
}

func (c *collector) volume(v *corev1.Volume) error {
	switch {
	case v.ConfigMap != nil:
		c.defaults(v.ConfigMap.DefaultMode, v.ConfigMap.DefaultUser)
		return c.configMap(v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.Secret != nil:
		c.defaults(v.Secret.DefaultMode, v.Secret.DefaultUser)
		return c.secret(v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.DownwardAPI != nil:
		c.defaults(v.DownwardAPI.DefaultMode, v.DownwardAPI.DefaultUser)
		return c.downward(v.DownwardAPI.Items)
	}
	c.unique = true
	c.defaults(v.Projected.DefaultMode, v.Projected.DefaultUser)
	for i := range v.Projected.Sources {
		if err := c.source(&v.Projected.Sources[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) defaults(mode *int32, user *int64) {
	if mode != nil {
		c.mode = *mode
	}
	if user != nil {
		c.uid = *user
	}
}

// source is one source of a projected volume.
func (c *collector) source(s *corev1.VolumeProjection) error {
	switch {
	case s.ConfigMap != nil:
		return c.configMap(s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
	case s.Secret != nil:
		return c.secret(s.Secret.Name, s.Secret.Items, s.Secret.Optional)
	case s.DownwardAPI != nil:
		return c.downward(s.DownwardAPI.Items)
	case s.ClusterTrustBundle != nil && isTrue(s.ClusterTrustBundle.Optional):
		return nil
	case s.ClusterTrustBundle != nil:
		return unsupportedSource("clusterTrustBundle", "use a configMap")
	case s.ServiceAccountToken != nil:
		return unsupportedSource("serviceAccountToken", "there is no API server to accept it")
	case s.PodCertificate != nil:
		return unsupportedSource("podCertificate", "use a secret")
	}
	return unsupportedSource("a source without a kind", "give configMap, secret or downwardAPI")
}

func unsupportedSource(kind, advice string) error {
	return fmt.Errorf("projected.sources: %s is not supported, %s: %w", kind, advice, errdefs.ErrInvalidArgument)
}

func (c *collector) configMap(name string, items []corev1.KeyToPath, optional *bool) error {
	object, ok := c.m.o.Objects.ConfigMap(c.pod.Namespace, name)
	if !ok {
		if isTrue(optional) {
			return nil
		}
		return missing("configmap", name)
	}
	data := map[string][]byte{}
	for key, value := range object.Data {
		data[key] = []byte(value)
	}
	maps.Copy(data, object.BinaryData)
	return c.keys(data, items, isTrue(optional), "configmap references non-existent config key")
}

func (c *collector) secret(name string, items []corev1.KeyToPath, optional *bool) error {
	object, ok := c.m.o.Objects.Secret(c.pod.Namespace, name)
	if !ok {
		if isTrue(optional) {
			return nil
		}
		return missing("secret", name)
	}
	return c.keys(object.Data, items, isTrue(optional), "references non-existent secret key")
}

// keys adds an object's keys, or those of them that items name.
func (c *collector) keys(data map[string][]byte, items []corev1.KeyToPath, optional bool, otherwise string) error {
	if len(items) == 0 {
		for key, value := range data {
			if strings.Contains(key, "/") {
				return fmt.Errorf("key %q: must not contain '/': %w", key, errdefs.ErrInvalidArgument)
			}
			if err := c.add(key, value, nil, nil); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok && optional {
			continue
		}
		if !ok {
			return errdefs.ErrNotFound.WithMessage(otherwise + ": " + item.Key)
		}
		if err := c.add(item.Path, value, item.Mode, item.User); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) downward(items []corev1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil && !strings.HasPrefix(item.FieldRef.FieldPath, "metadata."):
			err = fmt.Errorf("field %q: volumes show fields of metadata only: %w", item.FieldRef.FieldPath, errdefs.ErrInvalidArgument)
		case item.FieldRef != nil:
			value, err = c.m.o.Field(c.pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil && item.ResourceFieldRef.ContainerName == "":
			err = fmt.Errorf("resourceFieldRef.containerName: is required in volumes: %w", errdefs.ErrInvalidArgument)
		case item.ResourceFieldRef != nil:
			value, err = c.m.o.Resource(c.pod, item.ResourceFieldRef)
		default:
			err = fmt.Errorf("neither fieldRef nor resourceFieldRef is given: %w", errdefs.ErrInvalidArgument)
		}
		if err == nil {
			err = c.add(item.Path, []byte(value), item.Mode, item.User)
		}
		if err != nil {
			return fmt.Errorf("downwardAPI item %q: %w", item.Path, err)
		}
	}
	return nil
}

// add adds one file. Its path is from a stranger.
func (c *collector) add(name string, data []byte, mode *int32, user *int64) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("path %q: %s: %w", name, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
	}
	if err := checkPath(name); err != "" {
		return refuse("%s", err)
	}
	name = path.Clean(name)
	given := c.mode
	if mode != nil {
		given = *mode
	}
	uid := c.uid
	if user != nil {
		uid = *user
	}
	switch before, ok := c.files[name]; {
	case given < 0 || given > 0o777:
		return refuse("mode %d must be between 0 and 0777 (octal)", given)
	case uid < 0 || uid > math.MaxInt32:
		return refuse("user %d must be between 0 and 2147483647, inclusive", uid)
	case ok && c.unique:
		return refuse("is given by two sources")
	case ok:
		c.bytes -= len(before.Data)
	}
	c.files[name] = atomic.File{Data: data, Mode: c.group.ReadOnlyFile(uint32(given)), UID: int(uid)}
	if c.bytes += len(data); c.bytes > mostBytes || len(c.files) > mostFiles {
		return refuse("the volume has more than %d bytes or %d files", mostBytes, mostFiles)
	}
	return nil
}

// checkFolders refuses files whose name another file has as its folder.
func (c *collector) checkFolders() error {
	for name := range c.files {
		for above := path.Dir(name); above != "."; above = path.Dir(above) {
			if _, ok := c.files[above]; ok {
				return fmt.Errorf("path %q: %q is a file: %w", name, above, errdefs.ErrInvalidArgument)
			}
		}
	}
	return nil
}

// checkPath says what is wrong with the path of a file in a volume, "" if nothing is.
func checkPath(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case filepath.IsAbs(name):
		return "must be a relative path"
	case len(name) >= unix.PathMax/2: // the folder's path comes before it
		return fmt.Sprintf("must have no more than %d bytes", unix.PathMax/2)
	case strings.IndexByte(name, 0) >= 0:
		return "must not contain a zero byte"
	case tree.HasBackstep(name):
		return "must not contain '..'"
	case strings.HasPrefix(name, ".."):
		return "must not start with '..'"
	case path.Clean(name) == "." || strings.HasSuffix(name, "/"):
		return "must name a file"
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > longestName {
			return fmt.Sprintf("names must have no more than %d bytes", longestName)
		}
	}
	if strings.HasPrefix(path.Clean(name), "..") {
		return "must not start with '..'"
	}
	return ""
}

func isTrue(b *bool) bool { return b != nil && *b }
