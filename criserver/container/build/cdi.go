package build

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
)

// cdiDevices are the qualified names of the CDI devices that a container wants: those of the field
// CDI_devices, then those of annotations cdi.k8s.io/…, in the order of the annotations' names; each
// once.
//
// # Errors
//
// ErrInvalidArgument for what is no qualified name (vendor/class=name).
func cdiDevices(config *runtime.ContainerConfig) ([]string, error) {
	var names []string
	add := func(field, name string) error {
		if !parser.IsQualifiedName(name) {
			return fmt.Errorf("%s: %q is not the name of a CDI device (vendor/class=device): %w", field, name, errdefs.ErrInvalidArgument)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		return nil
	}
	for i, d := range config.GetCDIDevices() {
		if err := add(fmt.Sprintf("CDI_devices[%d].name", i), d.GetName()); err != nil {
			return nil, err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(config.GetAnnotations())) {
		if !strings.HasPrefix(key, cdi.AnnotationPrefix) {
			continue
		}
		for name := range strings.SplitSeq(config.GetAnnotations()[key], ",") {
			if err := add("annotations["+key+"]", name); err != nil {
				return nil, err
			}
		}
	}
	return names, nil
}

// injectCDI edits a specification as the CDI specifications in dirs say for the devices that the
// container wants. They are read for each container, so a new file needs no restart.
//
// # Errors
//
// ErrInvalidArgument for names that are none, and for a guest; ErrFailedPrecondition for devices
// that no specification has, with what is wrong with those that cannot be read.
func injectCDI(config *runtime.ContainerConfig, guest bool, dirs []string, s *specs.Spec) error {
	names, err := cdiDevices(config)
	if err != nil || len(names) == 0 {
		return err
	}
	switch {
	case guest:
		return fmt.Errorf("CDI device %q is asked for, but a WebAssembly guest has no devices: %w", names[0], errdefs.ErrInvalidArgument)
	case len(dirs) == 0:
		return fmt.Errorf("CDI device %q is asked for, but this server is configured without CDI (devices.cdi_spec_dirs): %w", names[0], errdefs.ErrFailedPrecondition)
	}
	if err := checkSpecFiles(dirs); err != nil {
		return err
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return fmt.Errorf("read CDI specifications: %w", err)
	}
	unresolved, err := cache.InjectDevices(s, names...)
	if len(unresolved) > 0 {
		err := fmt.Errorf("no CDI specification in %s has device %s: %w", strings.Join(dirs, ", "), strings.Join(unresolved, ", "), errdefs.ErrFailedPrecondition)
		return errors.Join(err, unreadable(cache))
	}
	if err != nil {
		return fmt.Errorf("inject CDI devices %s: %w: %w", strings.Join(names, ", "), err, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// maxSpecFile bounds a CDI specification.
const maxSpecFile = 16 << 20

// checkSpecFiles refuses specifications that cannot be read to their end.
func checkSpecFiles(dirs []string) error {
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read CDI specifications: %w", err)
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); e.IsDir() || ext != ".json" && ext != ".yaml" {
				continue // as the library does
			}
			info, err := os.Stat(filepath.Join(dir, e.Name()))
			if err == nil && (!info.Mode().IsRegular() || info.Size() > maxSpecFile) {
				return fmt.Errorf("CDI specification %q is not a regular file of at most %d bytes: %w",
					filepath.Join(dir, e.Name()), maxSpecFile, errdefs.ErrFailedPrecondition)
			}
		}
	}
	return nil
}

// unreadable says what is wrong with specifications, nil if nothing is.
func unreadable(cache *cdi.Cache) error {
	var errs []error
	wrong := cache.GetErrors()
	for _, file := range slices.Sorted(maps.Keys(wrong)) {
		errs = append(errs, fmt.Errorf("CDI specification %q: %w", file, errors.Join(wrong[file]...)))
	}
	return errors.Join(errs...)
}
