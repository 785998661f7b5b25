package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/shims"
	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/images"
)

// sight is what is on the machine.
type sight struct {
	held   network.Held
	roots  map[string]bool   // keys of root filesystems
	stray  []images.Prepared // compiled modules that nothing needs
	faults []Fault
	mounts []string // mount points below the server's folders, outermost first
	shims  shims.Survey
	// folders holds the names in each of the folders that are made for pods and containers.
	folders map[string][]string
	// cgroups are the groups that this program's pods are in, by their paths below the hierarchies.
	cgroups map[string]*group
}

// group is a cgroup, in all hierarchies together.
type group struct{ pids []int }

func (o Options) files() string   { return filepath.Join(o.Root, "sandboxes") }
func (o Options) volumes() string { return filepath.Join(o.Root, "volumes") }
func (o Options) images() string  { return filepath.Join(o.Root, "images") }

// layout says where the server's shims work.
func (o Options) layout() shims.Layout {
	return shims.Layout{Pods: filepath.Join(o.State, "sandboxes"), Shared: filepath.Join(o.State, "shims"), Cgroups: o.Cgroups}
}

func survey(ctx context.Context, o Options) (*sight, error) {
	s := &sight{roots: map[string]bool{}, folders: map[string][]string{}, cgroups: map[string]*group{}}
	var err error
	if s.held, err = network.Survey(o.Network); err != nil {
		return nil, err
	}
	kept, err := s.seeModules(o)
	if err != nil {
		return nil, err
	}
	store, err := images.Glance(o.images())
	if err != nil {
		return nil, err
	}
	for _, k := range store.Keys() {
		s.roots[k] = true
	}
	s.stray = store.Stray(kept, o.Served)
	for _, look := range []func(Options) error{s.seeMounts, s.seeFolders, s.seeShims, s.seeCgroups} {
		if err := look(o); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *sight) seeMounts(o Options) error {
	for _, dir := range []string{o.State, o.Root} {
		points, err := mount.Below(dir)
		if err != nil {
			return err
		}
		s.mounts = append(s.mounts, slices.DeleteFunc(points, func(point string) bool { return point == dir })...)
	}
	return nil
}

func (s *sight) seeFolders(o Options) error {
	for _, dir := range []string{o.layout().Pods, o.files(), o.volumes()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("list folder: %w", err)
		}
		for _, e := range entries {
			s.folders[dir] = append(s.folders[dir], e.Name())
		}
	}
	return nil
}

func (s *sight) seeShims(o Options) (err error) {
	s.shims, err = o.layout().Look()
	return err
}

// seeCgroups finds the cgroups of pods that came without a parent: /sunaba/pod-ID, or the slice
// sunaba-podID.slice.
func (s *sight) seeCgroups(o Options) error {
	pattern, _, err := o.Cgroups.Pod("*", "")
	if err != nil {
		return err
	}
	for _, root := range o.Cgroups.Roots() {
		dirs, err := filepath.Glob(filepath.Join(root, o.Cgroups.Path(pattern)))
		if err != nil {
			return fmt.Errorf("list cgroups: %w", err)
		}
		for _, dir := range dirs {
			if err := s.seeCgroup(root, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// seeCgroup adds a cgroup of one hierarchy and all below it.
func (s *sight) seeCgroup(root, top string) error {
	return filepath.WalkDir(top, func(dir string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was removed meanwhile
		}
		if !d.IsDir() {
			return nil
		}
		path := strings.TrimPrefix(dir, root)
		g := s.cgroups[path]
		if g == nil {
			g = &group{}
			s.cgroups[path] = g
		}
		pids, _ := cgroup.PidsIn(dir) // it may have been removed meanwhile
		for _, pid := range pids {
			if !slices.Contains(g.pids, pid) {
				g.pids = append(g.pids, pid)
			}
		}
		return nil
	})
}

// pidsBelow are the processes in a cgroup and in all below it.
func (s *sight) pidsBelow(path string) []int {
	var pids []int
	for p, g := range s.cgroups {
		if p == path || strings.HasPrefix(p, path+"/") {
			pids = append(pids, g.pids...)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
