package network

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/inotify"
)

// Watched is a Network that says when it may have become ready.
type Watched interface {
	// Watch calls changed when a CNI configuration or plugin was added, changed or removed, until the
	// context ends. What Status says by then may be the same as before.
	//
	// # Errors
	//
	// That of inotify, if there is none.
	Watch(ctx context.Context, changed func()) error
}

// What is watched of a folder, and of one above a folder that does not exist. ATTRIB tells of a
// plugin that was made executable, CREATE of links and folders, which nobody closes.
const (
	cniEvents = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_DELETE_SELF |
		unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	aboveEvents = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR
)

// burst is how long what belongs to one change may take: an installer writes several plugins.
const burst = 20 * time.Millisecond

// Watch implements Watched.
func (s *switching) Watch(ctx context.Context, changed func()) error {
	if s.confDir == "" {
		<-ctx.Done()
		return nil
	}
	w, err := inotify.Open()
	if err != nil {
		return fmt.Errorf("watch CNI configurations: %w", err)
	}
	defer w.Close()
	var before watches
	for {
		now := watches{}
		for _, dir := range slices.Concat([]string{s.confDir}, s.cni.binDirs, pluginFolders(s.confDir)) {
			now.add(w, dir)
		}
		for wd := range before {
			if now[wd] == nil {
				w.Remove(wd)
			}
		}
		before = now
		changed() // also for what was made before it was watched
		if !now.settled(ctx, w) {
			return nil
		}
	}
}

// watches have the names that are of interest in each folder, "" for all.
type watches map[int32][]string

// add watches a folder, or the nearest one above it if it does not exist.
func (all watches) add(w *inotify.Watcher, dir string) {
	events, name := uint32(cniEvents), ""
	for {
		if wd, err := w.Add(dir, events|unix.IN_MASK_ADD); err == nil {
			all[wd] = append(all[wd], name)
			return
		}
		above := filepath.Dir(dir)
		if above == dir {
			return
		}
		name, dir, events = filepath.Base(dir), above, aboveEvents
	}
}

// settled waits for an event, and until a burst of them is over. It says whether the context lives.
func (all watches) settled(ctx context.Context, w *inotify.Watcher) bool {
	var quiet <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case notices := <-w.Notices:
			if quiet == nil && slices.ContainsFunc(notices, all.concerns) {
				quiet = time.After(burst)
			}
		case <-quiet:
			return true
		}
	}
}

// concerns says whether an event is about what is watched. One of a watch that was removed is not.
func (all watches) concerns(n inotify.Notice) bool {
	names := all[n.WD]
	return n.Mask&unix.IN_Q_OVERFLOW != 0 || slices.Contains(names, "") || slices.Contains(names, n.Name)
}

// pluginFolders are the folders beside configurations, from which they may load plugins (CNI 1.1).
func pluginFolders(confDir string) []string {
	entries, err := os.ReadDir(confDir)
	if err != nil {
		return nil
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(confDir, e.Name()))
		}
	}
	return dirs
}
