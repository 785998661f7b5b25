package boltfile

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

// newFile makes a database with buckets of pages of their own, buckets in values, long values and
// free pages.
func newFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for round := range 4 {
		err := db.Update(func(tx *bolt.Tx) error {
			for _, name := range []string{"a", "b", "empty"} {
				b, err := tx.CreateBucketIfNotExists([]byte(name))
				if err != nil {
					return err
				}
				inner, err := b.CreateBucketIfNotExists([]byte("inner"))
				if err != nil {
					return err
				}
				for i := range 300 {
					if name == "empty" || i > 3 && name == "b" {
						break
					}
					if err := b.Put(fmt.Appendf(nil, "key %d", i), []byte(strings.Repeat("value", 10*(i%7+round)))); err != nil {
						return err
					}
					if err := inner.Put(fmt.Appendf(nil, "key %d", i%5), []byte("x")); err != nil {
						return err
					}
				}
				if err := b.Put([]byte("long"), make([]byte, 3*4096)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// read opens what Check has found sound, and reads all of it.
func read(t *testing.T, path string, strictly bool) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			if strictly && !strings.Contains(err.Error(), "unreachable unfreed") { // room that is lost, no damage
				t.Errorf("bbolt: %v", err)
			}
		}
		b, err := tx.CreateBucketIfNotExists([]byte("new"))
		if err != nil {
			return err
		}
		return b.Put([]byte("k"), make([]byte, 64<<10))
	}); err != nil {
		t.Error(err)
	}
}

func TestSoundFile(t *testing.T) {
	path := newFile(t)
	if err := Check(path); err != nil {
		t.Fatal(err)
	}
	read(t, path, true)
	if err := Check(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, nil)
	if err := Check(path); err != nil {
		t.Errorf("a file that is empty: %v", err)
	}
}

// Whatever is damaged, either Check says so, or bbolt can work with it.
func TestDamage(t *testing.T) {
	path := newFile(t)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const size = 4096
	random := rand.New(rand.NewPCG(1, 2))
	found, cases := 0, 0
	w := walk{data: sound, seen: map[uint64]bool{}}
	if w.meta, err = newest(sound); err == nil {
		err = w.tree(w.root, nil, nil, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	used := func(i int) bool { return w.seen[uint64(i)] && binary.LittleEndian.Uint64(sound[i*size:]) == uint64(i) }
	damaged := 0
	try := func(name string, must bool, damage func(data []byte) []byte) {
		t.Helper()
		cases++
		write(t, path, damage(append([]byte(nil), sound...)))
		err := Check(path)
		switch {
		case errdefs.IsDataLoss(err):
			found++
		case err != nil || must:
			t.Errorf("%s: %v", name, err)
		default:
			read(t, path, damaged > 1) // of the first two pages, one is enough
		}
	}
	damaged = 2
	try("cut short", true, func(data []byte) []byte { return data[:size*3/2] })
	try("half", true, func(data []byte) []byte { return data[:3*size] })
	try("zeros", true, func(data []byte) []byte { return make([]byte, len(data)) })
	try("another file", true, func([]byte) []byte { return []byte(strings.Repeat("this is no database\n", 1000)) })
	try("wrong magic", true, func(data []byte) []byte { data[16], data[size+16] = 0, 0; return data })
	for i := range len(sound) / size {
		damaged = i
		page := func(data []byte) []byte { return data[i*size:][:size] }
		try(fmt.Sprintf("page %d of zeros", i), used(i), func(data []byte) []byte { clear(page(data)); return data })
		try(fmt.Sprintf("page %d flipped", i), used(i), func(data []byte) []byte {
			for k, b := range page(data) {
				page(data)[k] = ^b
			}
			return data
		})
		try(fmt.Sprintf("page %d at random", i), used(i), func(data []byte) []byte {
			for k := range page(data) {
				page(data)[k] = byte(random.Uint32())
			}
			return data
		})
		for range 4 {
			at := random.IntN(256)
			try(fmt.Sprintf("page %d, byte %d", i, at), false, func(data []byte) []byte { page(data)[at] ^= byte(1 << random.IntN(8)); return data })
		}
		try(fmt.Sprintf("page %d leads to itself", i), false, func(data []byte) []byte {
			if binary.LittleEndian.Uint16(page(data)[8:]) == branchPage {
				binary.LittleEndian.PutUint64(page(data)[headerSize+8:], uint64(i))
			}
			return data
		})
	}
	t.Logf("%d of %d damages were found", found, cases)
}

func TestEnsure(t *testing.T) {
	path := newFile(t)
	logger := slog.New(slog.DiscardHandler)
	prepared := 0
	ensure := func() {
		t.Helper()
		if err := Ensure(path, func() error { prepared++; return nil }, logger); err != nil {
			t.Error(err)
		}
	}
	ensure()
	aside := func() []string {
		t.Helper()
		files, err := filepath.Glob(path + ".damaged-*")
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	if _, err := os.Stat(path); err != nil || prepared != 0 || len(aside()) != 0 {
		t.Errorf("a sound file: %v, %q", err, aside())
	}
	held, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 5000); err != nil {
		t.Fatal(err)
	}
	ensure()
	if len(aside()) != 0 {
		t.Error("a file that is open was put aside")
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	ensure()
	if _, err := os.Stat(path); !os.IsNotExist(err) || prepared != 1 || len(aside()) != 1 {
		t.Errorf("a damaged file: %v, %d, %q", err, prepared, aside())
	}
	ensure() // nothing there
}
