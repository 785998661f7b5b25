package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
)

// marker is the file in a log folder that says which agent made it.
const marker = ".sunaba-agent"

// Make makes the log folder of a pod, with the mark of the agent in it.
func Make(dir, mark string) error {
	path := filepath.Join(dir, marker)
	if data, err := regular.Read(path, 128); err == nil && string(data) == mark {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create log folder: %w", err)
	}
	if err := durable.Replace(path, []byte(mark), 0o644); err != nil {
		return fmt.Errorf("mark log folder: %w", err)
	}
	return nil
}

// Remove deletes the log folder of a pod. One that is not there is no error.
func Remove(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove log folder: %w", err)
	}
	return nil
}

// RemoveFile deletes the log of one container's start, with its rotated parts.
func RemoveFile(path string) error {
	parts, err := partsOf(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, p := range append(parts, path) {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove log: %w", err)
	}
	return nil
}

// Sweep deletes the log folders NAMESPACE_NAME_UID below root of pods that are not known. Only
// those with the agent's mark are touched.
func Sweep(root, mark string, known func(types.UID) bool) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep log folders: %w", err)
	}
	var errs []error
	for _, e := range entries {
		parts := strings.Split(e.Name(), "_")
		if !e.IsDir() || len(parts) != 3 || known(types.UID(parts[2])) {
			continue
		}
		dir := filepath.Join(root, e.Name())
		if data, err := regular.Read(filepath.Join(dir, marker), 128); err != nil || string(data) != mark {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, fmt.Errorf("sweep log folder: %w", err))
		}
	}
	return errors.Join(errs...)
}
