package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// damages are what may happen to a database.
func damages() map[string]func(path string) error {
	return map[string]func(path string) error{
		"lost": os.Remove,
		"a text": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("no records\n", 1000)), 0o600)
		},
		"cut":     func(path string) error { return os.Truncate(path, 9000) },
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"a record that is none": func(path string) error {
			return put(path, func(tx *bolt.Tx) error { return tx.Bucket(bucketImages).Put([]byte("a"), []byte("{")) })
		},
		"no version": func(path string) error {
			return put(path, func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyVersion, []byte("\xce")) })
		},
		"a value for a bucket": func(path string) error {
			return put(path, func(tx *bolt.Tx) error {
				err := tx.Bucket(bucketMeta).Delete(keySalt)
				if err == nil {
					_, err = tx.Bucket(bucketMeta).CreateBucket(keySalt)
				}
				return err
			})
		},
	}
}

// filled makes records of two images, of which the second was removed, and returns the salt.
func filled(t *testing.T, path string) []byte {
	t.Helper()
	d := mustOpenDB(t, path, slog.New(slog.DiscardHandler))
	tg, images := target("r", "one", "a", "b")
	err := d.Update(func(s *Tx) error {
		s.AddTarget(tg, keepNone, images...)
		s.PointTag("r:t", tg.Name(), keepNone)
		s.SetGrant("a", Grant{Credentials: []string{"c"}, Namespaces: []string{"n"}})
		s.SetGrant("b", Grant{Open: true})
		s.SetHolders("c", []string{"n"})
		return nil
	})
	if err == nil {
		err = d.Update(func(s *Tx) error { s.Forget("b"); return nil })
	}
	if err = errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	return d.Salt()
}

func mustOpenDB(t *testing.T, path string, logger *slog.Logger) *DB {
	t.Helper()
	d, err := OpenDB(path, logger)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Records that are damaged, as a file or in what they say, are put aside; they, and lost ones, come
// back from their copy, with nothing that was removed. That is so each time.
func TestDamagedDBIsRestored(t *testing.T) {
	for name, damage := range damages() {
		path := filepath.Join(t.TempDir(), "records.db")
		salt := filled(t, path)
		for range 2 {
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			d := mustOpenDB(t, path, slog.New(slog.NewTextHandler(&log, nil)))
			s := d.State()
			if len(s.Images) != 1 || len(s.Named("r:t")) != 1 || len(s.Grants) != 1 || s.Grants["a"].Open ||
				fmt.Sprint(s.Grants["a"], s.Holders) != "{false [c] [n]} map[c:[n]]" || !bytes.Equal(d.Salt(), salt) {
				t.Errorf("%s: %+v", name, s)
			}
			if w := s.Check(); len(w) > 0 {
				t.Errorf("%s: %q", name, w)
			}
			if !strings.Contains(log.String(), "restored from their copy") {
				t.Errorf("%s: log %s", name, &log)
			}
			aside, err := filepath.Glob(path + ".damaged-*")
			if err = errors.Join(err, d.Close()); err != nil || name != "lost" && name != "emptied" && len(aside) == 0 {
				t.Errorf("%s: %v, put aside: %q", name, err, aside)
			}
		}
	}
}

// A copy that is damaged too, or is no file, restores nothing, keeps no store from opening, and is
// replaced. One beside a whole database does nothing.
func TestDamagedCopy(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"none":    os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 200) },
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"flipped": func(path string) error {
			data, err := os.ReadFile(path)
			if err == nil {
				data[len(data)-10] ^= 1
				err = os.WriteFile(path, data, 0o600)
			}
			return err
		},
		"huge":  func(path string) error { return os.Truncate(path, 1<<40) },
		"pipe":  func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
		"other": func(path string) error { return os.WriteFile(path, []byte("sha256:0\n{}"), 0o600) },
	} {
		path := filepath.Join(t.TempDir(), "records.db")
		filled(t, path)
		if err := damage(copyPath(path)); err != nil {
			t.Fatal(err)
		}
		d := mustOpenDB(t, path, slog.New(slog.DiscardHandler))
		if err := d.Close(); err != nil || len(d.State().Images) != 1 {
			t.Errorf("%s: beside a whole database: %+v, %v", name, d.State(), err)
		}
		if err := errors.Join(os.Truncate(path, 9000), damage(copyPath(path))); err != nil {
			t.Errorf("%s: the copy was not replaced: %v", name, err)
			continue
		}
		var log bytes.Buffer
		d = mustOpenDB(t, path, slog.New(slog.NewTextHandler(&log, nil)))
		tg, images := target("r", "one", "a")
		err := d.Update(func(s *Tx) error { s.AddTarget(tg, keepNone, images...); return nil })
		if err = errors.Join(err, d.Close()); err != nil || !strings.Contains(log.String(), "image records are lost") {
			t.Errorf("%s: %v, log %s", name, err, &log)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		d = mustOpenDB(t, path, slog.New(slog.DiscardHandler))
		if err := d.Close(); err != nil || len(d.State().Images) != 1 {
			t.Errorf("%s: the new copy restores %+v, %v", name, d.State(), err)
		}
	}
}

// A copy that cannot be written, here as it would be too large, is removed: it would be older than
// the records, which change all the same. Their next change writes it.
func TestCopyIsNeverOlder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	filled(t, path)
	var log bytes.Buffer
	d := mustOpenDB(t, path, slog.New(slog.NewTextHandler(&log, nil)))
	large := Image{ID: "large", Runtime: ocispec.ImageConfig{Labels: map[string]string{"l": strings.Repeat("x", maxCopy)}}}
	add := func(s *Tx) error {
		tg, images := target("r", "two", "large")
		images[0] = large
		s.AddTarget(tg, keepNone, images...)
		return nil
	}
	if err := d.Update(add); err != nil || len(d.State().Images) != 2 {
		t.Errorf("Update: %d images, %v", len(d.State().Images), err)
	}
	if _, err := os.Stat(copyPath(path)); !os.IsNotExist(err) || !strings.Contains(log.String(), "have no copy") {
		t.Errorf("the copy that is older is still there: %v, log %s", err, &log)
	}
	if err := errors.Join(d.Update(func(s *Tx) error { s.Forget("large", "a"); return nil }), d.Close(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	d = mustOpenDB(t, path, slog.New(slog.NewTextHandler(&log, nil)))
	if err := d.Close(); err != nil || len(d.State().Images) != 0 || len(d.State().Grants) != 0 || !strings.Contains(log.String(), "restored from") {
		t.Errorf("restored %+v, %v, log %s", d.State(), err, &log)
	}
}

// Records of a later program are left as they are.
func TestLaterDB(t *testing.T) {
	later := filepath.Join(t.TempDir(), "records.db")
	d := mustOpenDB(t, later, slog.New(slog.DiscardHandler))
	err := errors.Join(d.Close(), put(later, func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyVersion, []byte("99")) }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDB(later, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("records of a later program: %v", err)
	}
}

// A copy that could not be written is written by the next request to change records, also by one
// that finds nothing to change.
func TestCopyIsMadeUpFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	filled(t, path)
	d := mustOpenDB(t, path, slog.New(slog.DiscardHandler))
	if err := os.Remove(copyPath(path)); err != nil {
		t.Fatal(err)
	}
	d.copySum = "" // as writeCopy leaves it on a full disk
	if err := d.Update(func(*Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(copyPath(path)); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
