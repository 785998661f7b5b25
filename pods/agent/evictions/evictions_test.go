package evictions

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/pods/pressure"
)

// EX8: the history outlives the agent; a pod that was declared anew has none; an older write does
// not undo a newer one.
func TestBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "evictions")
	fails := error(nil)
	open := func() *Book {
		t.Helper()
		b, err := Open(path, func(path string, data []byte, sync bool) error {
			if !sync {
				t.Error("the write is not durable")
			}
			return errors.Join(fails, os.WriteFile(path, data, 0o600))
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	key := func(name string) manifest.Key {
		return manifest.Key{Kind: manifest.KindPod, Namespace: "default", Name: name}
	}
	pause := func(d time.Duration) *pressure.Eviction { return &pressure.Eviction{Pause: d} }
	b := open()
	web, feed := cycle.Source{Hash: "1"}, cycle.Source{Hash: "2"}
	first, second := b.Put(key("web"), web, pause(time.Second)), b.Put(key("feed"), feed, pause(2*time.Second))
	if err := errors.Join(second(), first()); err != nil {
		t.Fatal(err)
	}
	b = open()
	b.Forget(func(k manifest.Key) bool { return k.Name != "gone" })
	if e := b.Take(key("web"), web); e == nil || e.Pause != time.Second {
		t.Errorf("web: %+v", e)
	}
	if e := b.Take(key("feed"), web); e != nil {
		t.Errorf("feed is another object: %+v", e)
	}
	if e := b.Take(key("web"), web); e != nil {
		t.Errorf("web again: %+v", e)
	}
	b = open()
	if b.Forget(func(manifest.Key) bool { return false }); b.Take(key("web"), web) != nil {
		t.Error("what nobody wants is kept")
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of evictions that nobody needs is kept: %v", err)
	}
	late := b.Put(key("web"), web, pause(time.Second))
	b.Forget(func(manifest.Key) bool { return false })
	if err := late(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a late save writes what nobody needs: %v", err)
	}
	if err := b.Put(key("web"), web, pause(time.Second))(); err != nil {
		t.Error(err)
	}
	b.Take(key("web"), web) // its record may not be written yet
	b.Forget(func(manifest.Key) bool { return true })
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file went with an eviction whose new pod is wanted: %v", err)
	}
	fails = errors.New("no room")
	if err := b.Put(key("web"), web, pause(time.Second))(); !errors.Is(err, fails) {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Open(path, nil); err == nil || b.Take(key("web"), web) != nil {
		t.Errorf("a damaged file: %v", err)
	}
}
