package lease

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// Read says what the open book says, and changes nothing.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	if l, err := Read(path, "boot"); err != nil || l != nil {
		t.Errorf("no book: %v, %v", l, err)
	}
	b := open(t, path, &clock{now: time.Now()}, "boot")
	for _, pod := range []string{"a", "b", "c"} {
		if _, err := b.Take(pod, pod, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Free("b"); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(path, "boot")
	if err != nil || !reflect.DeepEqual(got, b.All()) || len(got) != 2 {
		t.Errorf("%+v, %v; the book has %+v", got, err, b.All())
	}
	if other, err := Read(path, "another boot"); err != nil || len(other) != 0 {
		t.Errorf("leases of another boot: %+v, %v", other, err)
	}
	if err := os.WriteFile(path, append(before, "torn"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path, "boot"); err != nil || len(got) != 2 {
		t.Errorf("with a torn last line: %+v, %v", got, err)
	}
	if err := os.WriteFile(path, append([]byte("bad\n"), before...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, "boot"); err == nil {
		t.Error("a damaged book was read")
	}
}

// A journal of another format is refused while its leases count, by who owns it and by who reads
// it.
func TestAnotherFormat(t *testing.T) {
	for _, version := range []int{0, journalVersion + 1} {
		path := filepath.Join(t.TempDir(), "leases")
		line, err := encode(entry{Open: &opened{Version: version, Boot: "boot", Next: 7}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, line, 0o600); err != nil {
			t.Fatal(err)
		}
		_, opening := Open(path, Options{Boot: "boot"})
		_, reading := Read(path, "boot")
		for _, err := range []error{opening, reading} {
			if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove the file") {
				t.Errorf("version %d: %v", version, err)
			}
		}
		if b := open(t, path, &clock{now: time.Now()}, "another boot"); len(b.All()) != 0 {
			t.Errorf("version %d after a reboot: %v", version, b.All())
		}
	}
}
