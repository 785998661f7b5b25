package enginetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/host/cgroup"
)

// Snapshot is what a container may leave behind, as it was before the container.
type Snapshot struct {
	dir   string // bundle
	id    string
	files []string
}

// Before looks at a bundle directory before anything was made of it.
func Before(t testing.TB, dir, id string) *Snapshot {
	t.Helper()
	return &Snapshot{dir: dir, id: id, files: list(t, dir)}
}

// Check fails the test if there is a process, mount, cgroup or file that was not there before.
func (s *Snapshot) Check(t testing.TB) {
	t.Helper()
	if now := list(t, s.dir); strings.Join(now, "\n") != strings.Join(s.files, "\n") {
		t.Errorf("files in the bundle: %q, before: %q", now, s.files)
	}
	for _, m := range mountsOf(t, s.id) {
		t.Errorf("mount left: %s", m)
	}
	for _, p := range ProcessesOf(s.id) {
		t.Errorf("process left: %s", p)
	}
	group, err := cgroup.Open(CgroupParent + "/" + s.id)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range group.Dirs() {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("cgroup left: %s", dir)
		}
	}
}

// RemoveCgroupParent removes the groups above the test's own, when nobody else's are in them.
func RemoveCgroupParent() {
	if group, err := cgroup.Open(CgroupParent); err == nil {
		for _, dir := range group.Dirs() {
			_ = os.Remove(dir)
		}
	}
}

// list names a bundle's files, but nothing below its root.
func list(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		names = append(names, strings.TrimPrefix(path, dir))
		if d.IsDir() && d.Name() == "rootfs" {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(names)
	return names
}

func mountsOf(t testing.TB, id string) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, id) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// ProcessesOf lists processes whose cgroup names the id, dead ones that nobody reaped included.
func ProcessesOf(id string) []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range entries {
		if e.Name()[0] < '0' || e.Name()[0] > '9' {
			continue
		}
		groups, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if err == nil && strings.Contains(string(groups), id) {
			command, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			found = append(found, e.Name()+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}
