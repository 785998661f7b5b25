package unpack

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A root for a user namespace says how its owners are mapped, belongs to the mapped root, and can
// be read like any other.
func TestMappedRoot(t *testing.T) {
	s, _ := newStore(t)
	labels := map[string]string{"sunaba/image": "i"}
	maps.Copy(labels, MapLabels("0:70000:65536", "0:80000:65536"))
	mounts, err := s.Prepare("c", apply(t, s, tarOf(t, text("a", "x"))), labels)
	if err != nil {
		t.Fatal(err)
	}
	options := mounts[0].Options
	if !slices.Contains(options, "uidmap=0:70000:65536") || !slices.Contains(options, "gidmap=0:80000:65536") {
		t.Errorf("options %q", options)
	}
	for _, o := range options {
		upper, ok := strings.CutPrefix(o, "upperdir=")
		if !ok {
			continue
		}
		info, err := os.Stat(upper)
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != 70000 || st.Gid != 80000 {
			t.Errorf("the root belongs to %d:%d", st.Uid, st.Gid)
		}
	}
	if err := s.WithRoot("c", func(dir string) error {
		_, err := os.Stat(filepath.Join(dir, "a"))
		return err
	}); err != nil {
		t.Error(err)
	}
	if roots := s.Roots(); len(roots) != 1 || len(roots[0].Labels) != 1 {
		t.Errorf("%+v", roots)
	}
	if err := s.Remove("c"); err != nil {
		t.Error(err)
	}
}
