package unpack

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

// records are what the folders of layers and roots say, read once.
type records struct {
	boots
	changing sync.Mutex // one change of folders and records at a time; taken before staging.mu

	index   sync.RWMutex // guards the maps
	byChain map[digest.Digest]folder
	byKey   map[string]folder
	options []string // of overlays on this machine
	lost    bool     // when the store was opened
}

func (s *records) layersDir() string { return filepath.Join(s.root, "snapshots") }

// stagingDir is where folders are made. It is emptied when the store is opened.
func (s *records) stagingDir() string { return filepath.Join(s.root, "staging") }

func (s *records) dir(f folder) string { return filepath.Join(s.layersDir(), f.name) }

// upper returns the directory that holds the files of a folder.
func (s *records) upper(f folder) string { return filepath.Join(s.dir(f), "fs") }

// Lost reports whether a folder without a usable record was found when the store was opened.
func (s *records) Lost() bool { return s.lost }

// load reads the records of all folders. One that is not whole is deleted, or set aside while
// containers may have it mounted.
func (s *records) load() error {
	s.byChain, s.byKey = make(map[digest.Digest]folder), make(map[string]folder)
	entries, err := os.ReadDir(s.layersDir())
	if err != nil {
		return fmt.Errorf("list layers: %w", err)
	}
	s.countIDs(entries)
	var errs []error
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), whyRemoved) {
			continue
		}
		f := folder{name: e.Name()}
		f.record, err = readRecord(s.dir(f))
		id, isID := folderID(f.name)
		if err == nil && f.Chain != "" && !isID {
			err = fmt.Errorf("the name of its folder is no number: %w", errdefs.ErrDataLoss)
		}
		switch {
		case errdefs.IsDataLoss(err):
			s.lost = true
			s.logger.Warn("failed to use folder of a layer or of a container's root, it is damaged", "folder", s.dir(f), "error", err)
			errs = append(errs, s.dropLost(s.dir(f)))
		case err != nil:
			return err
		case f.Key != "":
			s.byKey[f.Key] = f
		default:
			// The lesser of two was removed, see Sweep.
			if other, _ := folderID(s.byChain[f.Chain].name); id > other {
				s.byChain[f.Chain] = f
			}
		}
	}
	return errors.Join(errs...)
}

// layer returns the folder of a layer.
//
// # Errors
//
// ErrNotFound if it is not there.
func (s *records) layer(chain digest.Digest) (folder, error) {
	s.index.RLock()
	defer s.index.RUnlock()
	f, ok := s.byChain[chain]
	if !ok {
		return f, fmt.Errorf("find layer %s: %w", chain, errdefs.ErrNotFound)
	}
	return f, nil
}

// set records a folder.
func (s *records) set(f folder) {
	s.index.Lock()
	defer s.index.Unlock()
	if f.Key != "" {
		s.byKey[f.Key] = f
	} else {
		s.byChain[f.Chain] = f
	}
}

// all returns the folders of all layers and of all roots.
func (s *records) all() (layers, roots []folder) {
	s.index.RLock()
	defer s.index.RUnlock()
	return slices.Collect(maps.Values(s.byChain)), slices.Collect(maps.Values(s.byKey))
}

// chain returns the folders of which a chain consists, the topmost first.
func (s *records) chain(top digest.Digest) (out []folder, err error) {
	for c := top; c != ""; {
		f, err := s.layer(c)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
		c = f.Parent
	}
	return out, nil
}

// create makes a folder for the files of a layer or a root, where what is not complete is.
func (s *records) create() (dir string, err error) {
	if dir, err = os.MkdirTemp(s.stagingDir(), ""); err != nil {
		return "", err
	}
	files := filepath.Join(dir, "fs")
	err = os.Mkdir(files, 0o755)
	if err == nil {
		err = os.Chmod(files, 0o755) // whatever the umask is
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// Sync brings everything that has been unpacked to disk.
func (s *records) Sync() error {
	f, err := os.Open(s.root)
	if err != nil {
		return fmt.Errorf("sync layers: %w", err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync layers of %q: %w", s.root, err)
	}
	return nil
}
