package meminfo

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	for text, want := range map[string]map[string]int64{
		"MemTotal:  1000 kB\nMemFree:\t1 kB\nHugePages_Total:  4\nOdd: x kB\n": {Total: 1000 << 10, "MemFree": 1 << 10},
		"MemFree: 1 kB\n":               nil,
		"MemTotal: 0 kB\n":              nil,
		"MemTotal: 1000\n":              nil,
		"MemTotal: 9007199254740992 kB": nil,
		"":                              nil,
	} {
		if err := os.WriteFile(filepath.Join(dir, "meminfo"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Read(dir)
		if want == nil && !errdefs.IsDataLoss(err) || want != nil && err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	if sizes, err := Read("/proc"); err != nil || sizes[Total] < sizes[Available] || sizes[Available] <= 0 {
		t.Errorf("this machine: %v, %v", sizes, err)
	}
}
