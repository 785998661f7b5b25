// Package classes is the client behind `sunaba runtimeclass`: RuntimeClasses from files and
// folders, pods as admission would leave them, and what the node's handlers make of the classes.
package classes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	nodev1 "k8s.io/api/node/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// extensions are those of manifests in a folder.
var extensions = []string{".yaml", ".yml", ".json"}

// Read reads the RuntimeClasses of files and folders: of a folder all manifests that lie directly
// in it, by name, hidden ones left out. A file that is named holds nothing else; in a folder, other
// kinds are passed over.
//
// # Errors
//
// ErrInvalidArgument with file and line for a manifest that is not right, and for a class that two
// of them define.
func Read(paths []string) ([]nodev1.RuntimeClass, error) {
	var all []nodev1.RuntimeClass
	from := map[string]string{}
	for _, path := range paths {
		files, folder, err := manifests(path)
		if err != nil {
			return nil, fmt.Errorf("read RuntimeClasses: %w", err)
		}
		for _, file := range files {
			found, err := readFile(file, folder)
			if err != nil {
				return nil, err
			}
			for _, rc := range found {
				if other, ok := from[rc.Name]; ok {
					return nil, fmt.Errorf("%s: RuntimeClass %q is defined in %s too: %w", file, rc.Name, other, errdefs.ErrInvalidArgument)
				}
				from[rc.Name] = file
				all = append(all, rc)
			}
		}
	}
	return all, nil
}

// readFile reads one manifest; mixed ones may hold other kinds.
func readFile(file string, mixed bool) ([]nodev1.RuntimeClass, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read RuntimeClasses: %w", err)
	}
	if !mixed {
		return runtimeclass.Parse(file, data)
	}
	var all []nodev1.RuntimeClass
	for _, d := range runtimeclass.Documents(file, data) {
		meta, err := d.TypeMeta()
		if err != nil {
			return nil, err
		}
		if meta.Kind != "RuntimeClass" {
			continue
		}
		rc, err := d.RuntimeClass()
		if err != nil {
			return nil, err
		}
		all = append(all, rc)
	}
	return all, nil
}

// manifests are the files that a path stands for.
func manifests(path string) (files []string, folder bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, err
	}
	if !info.IsDir() {
		return []string{path}, false, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, true, err
	}
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && slices.Contains(extensions, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, true, nil
}
