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
	// cgroups are those of pods that came without a parent, by their paths below the hierarchies.
	cgroups map[string]bool
}

func (o Options) files() string   { return filepath.Join(o.Root, "sandboxes") }
func (o Options) volumes() string { return filepath.Join(o.Root, "volumes") }
func (o Options) images() string  { return filepath.Join(o.Root, "images") }

// layout says where the server's shims work.
func (o Options) layout() shims.Layout {
	return shims.Layout{Pods: filepath.Join(o.State, "sandboxes"), Shared: filepath.Join(o.State, "shims"), Cgroups: o.Cgroups}
}

func survey(ctx context.Context, o Options) (*sight, error) {
	s := &sight{roots: map[string]bool{}, folders: map[string][]string{}, cgroups: map[string]bool{}}
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
			s.cgroups[strings.TrimPrefix(dir, root)] = true
		}
	}
	return nil
}
