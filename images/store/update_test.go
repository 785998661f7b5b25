package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"
)

// many records n images as pulls do, each with a tag of its own.
func many(tx *Tx, n int) {
	for i := range n {
		id := fmt.Sprintf("sha256:%064x", i)
		img := Image{ID: id, Platform: ocispec.Platform{OS: "linux", Architecture: "amd64"}, Created: time.Unix(1700000000, 0).UTC()}
		img.Manifest = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString("manifest" + id), Size: 1234}
		img.Config = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.Digest(id), Size: 4321}
		img.Runtime = ocispec.ImageConfig{
			Entrypoint: []string{"/docker-entrypoint.sh"}, Cmd: []string{"nginx", "-g", "daemon off;"},
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NGINX_VERSION=1.27.0"},
		}
		img.Chain = digest.FromString("chain" + id)
		for l := range 8 {
			d := digest.FromString(fmt.Sprint(id, l))
			img.Layers = append(img.Layers, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: d, Size: 12345678})
		}
		t := Target{Repo: fmt.Sprintf("registry.example/team/app-%d", i), Digest: digest.FromString("index" + id), Answer: id}
		t.Root = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: t.Digest, Size: 2000}
		t.Images = map[digest.Digest]string{img.Manifest.Digest: id}
		t.Manifests = map[digest.Digest]Manifest{img.Manifest.Digest: {Shown: true}}
		for _, arch := range []string{"amd64", "arm64", "arm", "s390x"} {
			e := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(arch + id), Size: 1234}
			if e.Platform = (&ocispec.Platform{OS: "linux", Architecture: arch}); arch == "amd64" {
				e.Digest = img.Manifest.Digest
			}
			t.Entries = append(t.Entries, e)
		}
		tx.AddTarget(t, keepNone, img)
		tx.PointTag(t.Repo+":v1", t.Name(), keepNone)
		tx.SetGrant(id, Grant{Credentials: []string{"c"}, Namespaces: []string{"default"}})
	}
	tx.SetHolders("c", []string{"default"})
}

// fileOf returns all records as the file holds them, by bucket and key.
func fileOf(t *testing.T, d *DB) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := d.bolt.View(func(tx *bolt.Tx) error {
		for _, k := range kinds() {
			err := tx.Bucket(k.bucket).ForEach(func(key, value []byte) error {
				out[string(k.bucket)+" "+string(key)] = string(value)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// An update neither reads nor writes the records that it does not change: here they cannot be read.
func TestUpdateLeavesOtherRecordsAlone(t *testing.T) {
	d := mustOpenDB(t, filepath.Join(t.TempDir(), "records.db"), slog.New(slog.DiscardHandler))
	defer d.Close()
	if err := d.Update(func(tx *Tx) error { many(tx, 5); return nil }); err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("sha256:%064x", 3)
	target := d.State().Holding(id)[0].Name()
	own := map[string]bool{
		"images " + id: true, "grants " + id: true, "targets " + target: true, "tags " + d.State().TagsOf(id)[0]: true,
	}
	err := d.bolt.Update(func(tx *bolt.Tx) error {
		for _, k := range kinds() {
			var keys [][]byte
			b := tx.Bucket(k.bucket)
			err := b.ForEach(func(key, _ []byte) error { keys = append(keys, bytes.Clone(key)); return nil })
			for _, key := range keys {
				if !own[string(k.bucket)+" "+string(key)] {
					err = errors.Join(err, b.Put(key, []byte("{ no record")))
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		change func(*Tx) error
		own    int // records that are left of own
	}{
		{func(tx *Tx) error { tx.SetGrant(id, Grant{Open: true}); return nil }, 4},
		{func(tx *Tx) error { tx.PointTag(tx.TagsOf(id)[0], target, keepNone); return nil }, 4},
		{func(tx *Tx) error { tx.AddTarget(tx.Targets[target], keepNone, tx.Images[id]); return nil }, 4},
		{func(tx *Tx) error { tx.Forget(id); return nil }, 0},
	} {
		if err := d.Update(step.change); err != nil {
			t.Fatal(err)
		}
		left := 0
		for key, value := range fileOf(t, d) {
			switch {
			case own[key]:
				left++
			case value != "{ no record":
				t.Errorf("%s was written: %s", key, value)
			}
		}
		if left != step.own {
			t.Errorf("%d of its own records are left, want %d", left, step.own)
		}
	}
	// The copy is of all records, and of none that cannot be read.
	c, _, err := readCopy(d.copyPath)
	if err != nil || len(c.State.Images) != 4 || len(c.State.Tags) != 4 || len(c.State.Grants) != 4 {
		t.Errorf("the copy holds %+v, %v", c, err)
	}
}

// A State stays what it was, whatever is updated later; file, copy and State agree after each
// update.
func TestUpdateKeepsStatesApart(t *testing.T) {
	d := mustOpenDB(t, filepath.Join(t.TempDir(), "records.db"), slog.New(slog.DiscardHandler))
	defer d.Close()
	asJSON := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	one, images := target("r", "one", "a", "b")
	one.Manifests = map[digest.Digest]Manifest{digest.FromString("a"): {Shown: true}, digest.FromString("b"): {Title: "<t>"}}
	again, moreImages := target("r", "one", "c")
	two, others := target("r", "two", "d")
	var states []*State
	var texts []string
	for _, change := range []func(tx *Tx){
		func(*Tx) {},
		func(tx *Tx) { tx.AddTarget(one, keepNone, images...); tx.PointTag("r:t", one.Name(), keepNone) },
		func(tx *Tx) {
			tx.SetGrant("a", Grant{Credentials: []string{"<c>"}})
			tx.SetHolders("<c>", []string{"n"})
		},
		func(tx *Tx) { tx.SetPrepared("sha256:1", true); tx.SetPrepared("sha256:2", true) },
		func(tx *Tx) { tx.AddTarget(again, keepNone, moreImages...) },
		func(tx *Tx) { tx.AddTarget(two, keepAll, others...); tx.PointTag("r:t", two.Name(), keepAll) },
		func(tx *Tx) { tx.SetPrepared("sha256:1", false); tx.SetPrepared("sha256:3", false) },
		func(tx *Tx) { tx.Forget("a") },
		func(tx *Tx) { tx.Forget("b", "c") },
		func(tx *Tx) { tx.Forget("d", "never") },
	} {
		if err := d.Update(func(tx *Tx) error { change(tx); return nil }); err != nil {
			t.Fatal(err)
		}
		s := d.State()
		if w := s.Check(); len(w) > 0 {
			t.Error(w)
		}
		states, texts = append(states, s), append(texts, asJSON(s))
		for i := range states {
			if got := asJSON(states[i]); got != texts[i] {
				t.Errorf("after update %d, state %d became\n%s, was\n%s", len(states), i, got, texts[i])
			}
		}
		var stored *State
		if err := d.bolt.View(func(tx *bolt.Tx) (err error) { stored, err = load(tx); return err }); err != nil || asJSON(stored) != asJSON(s) {
			t.Errorf("the file holds\n%s, %v, want\n%s", asJSON(stored), err, asJSON(s))
		}
		data, err := os.ReadFile(d.copyPath)
		_, data, _ = bytes.Cut(data, []byte("\n"))
		if want := asJSON(copied{schemaVersion, d.salt, s}); err != nil || string(data) != want {
			t.Errorf("the copy holds\n%s, %v, want\n%s", data, err, want)
		}
	}
	if last := d.State(); len(last.Images)+len(last.Targets)+len(last.Tags)+len(last.Grants)+len(last.Holders) != 0 {
		t.Errorf("left: %+v", last)
	}
}

// After a commit that failed nobody knows what the file holds: the next update reads it.
func TestUpdateAfterAFailedCommit(t *testing.T) {
	d := mustOpenDB(t, filepath.Join(t.TempDir(), "records.db"), slog.New(slog.DiscardHandler))
	defer d.Close()
	if err := d.Update(func(tx *Tx) error { many(tx, 1); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := d.Update(func(tx *Tx) error { tx.SetHolders("", nil); return nil }); err == nil {
		t.Fatal("a record without a key was committed")
	}
	if _, ok := d.State().Holders[""]; ok {
		t.Error("the state has what was not committed")
	}
	// As if what failed was the last step, when all was written.
	err := d.bolt.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketPrepared).Put([]byte("sha256:1"), []byte("true")) })
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Update(func(tx *Tx) error { tx.SetPrepared("sha256:2", true); return nil }); err != nil {
		t.Fatal(err)
	}
	c, _, err := readCopy(d.copyPath)
	if err != nil || len(c.State.Prepared) != 2 || len(c.State.Holders) != 1 || len(d.State().Prepared) != 2 || len(d.State().Images) != 1 {
		t.Errorf("the copy holds %+v, %v, the state %+v", c, err, d.State())
	}
}

// What a pull of a present image for another namespace costs beside 1,000 others.
func BenchmarkUpdate(b *testing.B) {
	d, err := OpenDB(filepath.Join(b.TempDir(), "records.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	if err := d.Update(func(tx *Tx) error { many(tx, 1000); return nil }); err != nil {
		b.Fatal(err)
	}
	id := fmt.Sprintf("sha256:%064x", 5)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		err := d.Update(func(tx *Tx) error { tx.SetGrant(id, Grant{Namespaces: []string{fmt.Sprint(n)}}); return nil })
		if err != nil {
			b.Fatal(err)
		}
	}
}
