package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/volumes/tree"
)

// setUpHostPath checks a path of the host against its type, and makes what is to be made.
func setUpHostPath(h *corev1.HostPathVolumeSource) error {
	if !filepath.IsAbs(h.Path) || tree.HasBackstep(h.Path) {
		return fmt.Errorf("hostPath.path: %q is not an absolute path without ..: %w", h.Path, errdefs.ErrInvalidArgument)
	}
	kind := corev1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	if kind == corev1.HostPathUnset {
		return nil
	}
	want, ok := hostPathTypes(kind)
	if !ok {
		return fmt.Errorf("hostPath.type: %s is an invalid volume type: %w", kind, errdefs.ErrInvalidArgument)
	}
	info, err := os.Stat(h.Path)
	if errors.Is(err, fs.ErrNotExist) && want.make != nil {
		if err := want.make(h.Path); err != nil {
			return fmt.Errorf("make hostPath %q: %w", h.Path, err)
		}
		info, err = os.Stat(h.Path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || info.Mode()&os.ModeType != want.mode {
		return errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf("hostPath type check failed: %s is not a %s", h.Path, want.name))
	}
	return nil
}

type hostPathType struct {
	name string
	mode os.FileMode
	make func(path string) error
}

func hostPathTypes(kind corev1.HostPathType) (hostPathType, bool) {
	t, ok := map[corev1.HostPathType]hostPathType{
		corev1.HostPathDirectory:         {"directory", os.ModeDir, nil},
		corev1.HostPathDirectoryOrCreate: {"directory", os.ModeDir, makeHostFolder},
		corev1.HostPathFile:              {"file", 0, nil},
		corev1.HostPathFileOrCreate:      {"file", 0, makeHostFile},
		corev1.HostPathSocket:            {"socket file", os.ModeSocket, nil},
		corev1.HostPathCharDev:           {"character device", os.ModeDevice | os.ModeCharDevice, nil},
		corev1.HostPathBlockDev:          {"block device", os.ModeDevice, nil},
	}[kind]
	return t, ok
}

// makeHostFolder makes a folder and those above it, with mode 0755.
func makeHostFolder(path string) error {
	above := filepath.Dir(path)
	if _, err := os.Stat(above); errors.Is(err, fs.ErrNotExist) {
		if err := makeHostFolder(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil // what it is, is looked at later
		}
		return err
	}
	return os.Chmod(path, 0o755) // whatever the umask is
}

// makeHostFile makes an empty file with mode 0644 in a folder that is there.
func makeHostFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o644), f.Close(), durable.Sync(filepath.Dir(path)))
}
