package compile

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestListKnowsWhatIsKept(t *testing.T) {
	o := Options{CacheDir: filepath.Join(t.TempDir(), "cache")}
	if kept, err := List(o.CacheDir); err != nil || len(kept) != 0 {
		t.Errorf("without a cache: %v, %v", kept, err)
	}
	path := writeModule(t, module("list"))
	e, err := Ensure(t.Context(), o, path, "")
	if err != nil {
		t.Fatal(err)
	}
	// The same module of another engine, and what a compilation that was killed left.
	dead := filepath.Join(o.CacheDir, stagePrefix(e.Digest)+"1")
	other := filepath.Join(o.CacheDir, hash(e.Digest)+"-0123456789ab")
	alone := sha256Prefix + hash(e.Digest)[1:] + "0"
	for _, dir := range []string{dead, other, filepath.Join(o.CacheDir, stagePrefix(alone)+"2"), filepath.Join(o.CacheDir, "notes")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "in"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := List(o.CacheDir)
	if err != nil || len(kept) != 2 {
		t.Fatalf("%+v, %v; want two modules", kept, err)
	}
	for _, k := range kept {
		if k.Running || time.Since(k.Used) > time.Hour || k.Bytes < 1<<20 || k.Digest == e.Digest && k.Bytes < 2<<20 {
			t.Errorf("%+v", k)
		}
		if err := Drop(o.CacheDir, k.Digest); err != nil {
			t.Error(err)
		}
	}
	if got := names(t, o.CacheDir); len(got) != 1 || got[0] != "notes" {
		t.Errorf("after Drop the cache holds %v", got)
	}
}

func TestUseIsRemembered(t *testing.T) {
	o := Options{CacheDir: t.TempDir()}
	path := writeModule(t, module("used"))
	e, err := Ensure(t.Context(), o, path, "")
	if err != nil {
		t.Fatal(err)
	}
	used := func() time.Time {
		t.Helper()
		kept, err := List(o.CacheDir)
		if err != nil || len(kept) != 1 {
			t.Fatalf("%+v, %v", kept, err)
		}
		return kept[0].Used
	}
	for age, keeps := range map[time.Duration]bool{usedGrain / 2: true, 2 * usedGrain: false} {
		was := time.Now().Add(-age).Truncate(time.Second)
		if err := os.Chtimes(e.Dir, was, was); err != nil {
			t.Fatal(err)
		}
		if again, err := Ensure(t.Context(), o, path, e.Digest); err != nil || again != e {
			t.Fatalf("%+v, %v", again, err)
		}
		if got := used(); got.Equal(was) != keeps {
			t.Errorf("used %v ago, then again: %v", age, got)
		}
	}
}

func TestListFace(t *testing.T) {
	o := Options{CacheDir: t.TempDir()}
	e, err := Ensure(t.Context(), o, writeModule(t, module("face")), "")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/proc/self/exe", "compile", "-cache", o.CacheDir, "-list").Output()
	var kept []Kept
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(out)).Decode(&kept)
	}
	if err != nil || len(kept) != 1 || kept[0].Digest != e.Digest {
		t.Errorf("%s: %v", out, err)
	}
}
