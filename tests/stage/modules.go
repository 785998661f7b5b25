package stage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// modules is the folder with what nodes have compiled of the images that they pulled: one folder
// for each image, with the entries of the node's own folder by the names that they have there, so
// that what another build of the product or another configuration would not use is not used here.
// All processes of a package share it, and in `make test` all packages.
type modules string

// pulledByNodes is the folder of what nodes have compiled of images that they pulled by themselves.
const pulledByNodes = "nodes"

// image is the folder of an image in a registry of these tests, whose port is each process's own.
func (m modules) image(ref string) string {
	_, path, _ := strings.Cut(ref, "/")
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(string(m), hex.EncodeToString(sum[:8]))
}

// give puts what was compiled of an image into a node's folder of compiled modules.
func (m modules) give(ref, folder string) error { return linkEntries(m.image(ref), folder) }

// take keeps what a node has compiled since its entries were those before.
func (m modules) take(ref, folder string, before map[string]bool) error {
	fresh, err := entries(folder)
	if err != nil {
		return err
	}
	for name := range fresh {
		if !before[name] {
			if err := linkEntry(folder, m.image(ref), name); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveAll puts all that was compiled into a node's folder.
func (m modules) giveAll(folder string) error {
	images, err := filepath.Glob(filepath.Join(string(m), "*"))
	if err != nil {
		return err
	}
	for _, image := range images {
		if strings.HasPrefix(filepath.Base(image), unfinished) {
			continue
		}
		if err := linkEntries(image, folder); err != nil {
			return err
		}
	}
	return nil
}

// takeAll keeps all that is in a node's folder.
func (m modules) takeAll(folder string) error {
	return linkEntries(folder, filepath.Join(string(m), pulledByNodes))
}

// entries are the names of the compiled modules in a folder, which need not be there.
func entries(folder string) (map[string]bool, error) {
	records, err := filepath.Glob(filepath.Join(folder, "*", "entry.json"))
	names := map[string]bool{}
	for _, record := range records {
		if name := filepath.Base(filepath.Dir(record)); !strings.HasPrefix(name, "tmp-") {
			names[name] = true
		}
	}
	return names, err
}

func linkEntries(from, to string) error {
	names, err := entries(from)
	if err != nil {
		return err
	}
	for name := range names {
		if err := linkEntry(from, to, name); err != nil {
			return err
		}
	}
	return nil
}

// unfinished is the prefix of folders in which entries are being linked.
const unfinished = "entry-"

// linkEntry gives the files of an entry names in another folder, all at once. What is there stays.
// Nothing is done on another file system, which cannot have such names, or if the entry's node
// removes it meanwhile.
func linkEntry(from, to, name string) error {
	if _, err := os.Stat(filepath.Join(to, name)); err == nil {
		return nil
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	made, err := os.MkdirTemp(filepath.Dir(to), unfinished)
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	err = filepath.WalkDir(filepath.Join(from, name), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		own := filepath.Join(made, strings.TrimPrefix(path, from))
		if d.IsDir() {
			return os.Mkdir(own, 0o755)
		}
		return os.Link(path, own)
	})
	if errors.Is(err, unix.EXDEV) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Rename(filepath.Join(made, name), filepath.Join(to, name))
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) { // another process was faster
		return nil
	}
	if err != nil {
		return fmt.Errorf("link compiled module: %w", err)
	}
	return nil
}
