package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Create creates the group in every hierarchy, with the groups above it. What exists is no error.
func (g *Group) Create() error { return g.CreateWith(nil) }

// CreateWith is Create. It calls created with each group that did not exist and with its directory,
// in each hierarchy, before it creates others below.
func (g *Group) CreateWith(created func(path, dir string) error) error {
	for _, root := range g.mounts.Roots() {
		err := createIn(g.mounts, root, g.path, created)
		for range 4 {
			// The group above was just removed with the last other one in it, or is being removed.
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
				break
			}
			err = createIn(g.mounts, root, g.path, created)
		}
		if err != nil {
			return fmt.Errorf("make cgroup %q: %w", g.path, err)
		}
	}
	return nil
}

func createIn(m *Mounts, root, path string, created func(path, dir string) error) error {
	dir := filepath.Join(root, path)
	cpuset := root == m.V1["cpuset"]
	if _, err := os.Stat(dir); err == nil && (!cpuset || filled(dir)) {
		return nil
	}
	if parent := filepath.Dir(path); parent != "/" {
		if err := createIn(m, root, parent, created); err != nil {
			return err
		}
	}
	if m.Unified != "" {
		enableControllers(filepath.Dir(dir))
	}
	err := os.Mkdir(dir, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err == nil && created != nil {
		if err := created(path, dir); err != nil {
			return err
		}
	}
	if cpuset {
		return inheritCpuset(dir)
	}
	return nil
}

// enableControllers hands the controllers of a version 2 group on to its children, as far as the
// kernel lets it.
func enableControllers(dir string) {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	on, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return
	}
	enabled := " " + strings.TrimSpace(string(on)) + " "
	for c := range strings.FieldsSeq(string(have)) {
		if strings.Contains(enabled, " "+c+" ") {
			continue
		}
		// One by one: a controller that cannot be handed on must not keep the others back. Whoever
		// needs a limit that is then missing gets the error when it writes the limit.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
	}
}

// filled says whether a version 1 cpuset takes processes. One that somebody else is just creating
// does not yet.
func filled(dir string) bool {
	for _, name := range cpusetFiles() {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.TrimSpace(string(data)) == "" {
			return false
		}
	}
	return true
}

func cpusetFiles() []string { return []string{"cpuset.cpus", "cpuset.mems"} }

// inheritCpuset fills a new version 1 cpuset, which takes no process while it is empty.
func inheritCpuset(dir string) error {
	for _, name := range cpusetFiles() {
		own, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(own)) != "" {
			continue
		}
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), above, 0); err != nil {
			return err
		}
	}
	return nil
}
