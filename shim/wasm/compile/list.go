package compile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Kept is what the cache has of one module: its entries for this and for other engines, and what
// killed compilations left.
type Kept struct {
	Digest string
	Bytes  int64
	// Used is when the latest entry was made or returned by Ensure, to the hour.
	Used time.Time
	// Running says that a process has an entry mounted.
	Running bool
}

// usedGrain is the precision of the time at which an entry was used. The coarser it is, the less
// starts have to write.
const usedGrain = time.Hour

// markUsed records the use of the entry in dir, in the directory's time.
func markUsed(dir string) {
	now := time.Now()
	if info, err := os.Stat(dir); err == nil && now.Sub(info.ModTime()) > usedGrain {
		_ = os.Chtimes(dir, now, now) // on failure it only counts as older than it is
	}
}

// digestIn returns the digest in the name of an entry, an unfinished one or a dropped one; "" if
// there is none.
func digestIn(name string) string {
	sum, _, ok := strings.Cut(strings.TrimPrefix(name, tmpPrefix), "-")
	if digest := sha256Prefix + sum; ok && checkDigest(digest) == nil {
		return digest
	}
	return ""
}

// List returns what the cache has, by digest. Nothing is locked: what is added or removed
// meanwhile may be missing.
func List(cacheDir string) ([]Kept, error) {
	all, err := find(cacheDir)
	if err == nil {
		err = findMounted(all)
	}
	var kept []Kept
	for _, digest := range slices.Sorted(maps.Keys(all)) {
		kept = append(kept, all[digest])
	}
	return kept, err
}

// Digests are those of the modules that List returns, in order. It asks no process what it has
// mounted.
func Digests(cacheDir string) ([]string, error) {
	all, err := find(cacheDir)
	return slices.Sorted(maps.Keys(all)), err
}

// find is List without what is running.
func find(cacheDir string) (map[string]Kept, error) {
	found, err := os.ReadDir(cacheDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list module cache: %w", err)
	}
	all := make(map[string]Kept)
	for _, f := range found {
		digest := digestIn(f.Name())
		info, err := f.Info()
		if digest == "" || err != nil {
			continue
		}
		k := all[digest]
		k.Digest = digest
		if info.ModTime().After(k.Used) {
			k.Used = info.ModTime()
		}
		k.Bytes += sizeOf(filepath.Join(cacheDir, f.Name()))
		all[digest] = k
	}
	return all, nil
}

// sizeOf returns the sum of the sizes of the files in a directory.
func sizeOf(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // it is being removed
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// findMounted marks the modules that processes have mounted. A module with the same digest in
// another cache counts too.
func findMounted(all map[string]Kept) error {
	if len(all) == 0 {
		return nil
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	// Processes that see the same mounts are asked once: most do, and the kernel writes each table
	// anew.
	seen := make(map[string]bool)
	for _, dir := range processes {
		space, err := os.Readlink(filepath.Join(dir, "ns/mnt"))
		if err != nil {
			continue // the process has ended
		}
		root, err := os.Readlink(filepath.Join(dir, "root"))
		if err != nil || seen[space+root] {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, "mountinfo"))
		if err != nil {
			continue
		}
		seen[space+root] = true
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			if len(fields) <= mountRoot {
				continue
			}
			if k, ok := all[digestIn(filepath.Base(fields[mountRoot]))]; ok {
				k.Running = true
				all[k.Digest] = k
			}
		}
	}
	return nil
}

// mountRoot is the field of mountinfo that tells which directory of its file system is mounted.
const mountRoot = 3
