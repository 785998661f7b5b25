package unpack

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/opencontainers/go-digest"
)

// older makes a store of the format before this one: layers with records in their folders, and
// containerd's records of snapshots, in which the roots of containers are as well. It returns what
// is mounted for the roots "c", "m", "e" and "v".
func (s *lossy) older(bottom, top []byte) map[string]string {
	s.t.Helper()
	ctx := s.t.Context()
	chain := apply(s.t, s.Store, bottom, top)
	layers, err := s.Chain(chain)
	s.check(err)
	s.Close()
	// An older program: layers have got ids from 1 on, as here.
	sn, err := overlay.NewSnapshotter(filepath.Join(s.root, "layers"), overlay.WithUpperdirLabel, overlay.AsynchronousRemove, overlay.WithRemapIDs)
	s.check(err)
	for i, c := range []digest.Digest{layers[1], layers[0]} {
		name := filepath.Join(s.layersDir(), fmt.Sprint(i+1))
		s.check(os.Rename(name, name+"x"))
		parent := []string{"", layers[1].String()}[i]
		_, err := sn.Prepare(ctx, "work/x", parent)
		s.check(errors.Join(err, sn.Commit(ctx, c.String(), "work/x")))
		s.check(errors.Join(os.RemoveAll(name), os.Rename(name+"x", name)))
	}
	mounts := map[string]string{}
	add := func(key string, prepare func() (any, error)) {
		m, err := prepare()
		s.check(err)
		mounts[key] = fmt.Sprint(m)
	}
	labels := map[string]string{"sunaba/image": "i", "sunaba/module": "sha256:m"}
	mapped := maps.Clone(labels)
	maps.Copy(mapped, MapLabels("0:70000:65536", "0:80000:65536"))
	add("c", func() (any, error) {
		return sn.Prepare(ctx, "root/c", chain.String(), snapshots.WithLabels(labels))
	})
	add("m", func() (any, error) {
		return sn.Prepare(ctx, "root/m", chain.String(), snapshots.WithLabels(mapped))
	})
	add("e", func() (any, error) { return sn.Prepare(ctx, "root/e", "") })
	add("v", func() (any, error) { return sn.View(ctx, "root/v", chain.String(), snapshots.WithLabels(labels)) })
	s.check(errors.Join(sn.Close(), os.WriteFile(filepath.Join(s.layersDir(), "3", "fs", "written"), []byte("by c"), 0o644)))
	s.check(os.RemoveAll(filepath.Join(s.root, "layers", "aside")))
	return mounts
}

// A store of the format before this one is taken over: layers and roots are there, with what was
// written to them and under the same paths, and what containers have mounted stays.
func TestTakeOver(t *testing.T) {
	bottom, top := tarOf(t, text("1", "")), tarOf(t, text("2", ""))
	for name, interrupt := range map[string]func(s *lossy){
		"at once": func(*lossy) {},
		"killed in the middle": func(s *lossy) {
			data, err := os.ReadFile(filepath.Join(s.root, "layers", "metadata.db"))
			s.check(err)
			s.open() // writes all, and has not deleted the file
			s.check(os.WriteFile(filepath.Join(s.root, "layers", "metadata.db"), data, 0o600))
			s.check(os.Remove(filepath.Join(s.layersDir(), "4", recordFile)))
		},
	} {
		s := newLossy(t)
		before := s.older(bottom, top)
		interrupt(s)
		for range 2 { // taken over, and the next process
			s.again()
			if s.Lost() || s.log.Len() > 0 {
				t.Errorf("%s: log %s", name, &s.log)
			}
			chain := s.Roots()[0].Chain
			s.holds(name, chain, "1= 2=")
			if got := s.Roots(); len(got) != 4 || !reflect.DeepEqual(got[0].Labels, map[string]string{"sunaba/image": "i", "sunaba/module": "sha256:m"}) {
				t.Errorf("%s: roots %+v", name, got)
			}
			for _, root := range s.Roots() {
				f, err := s.folder(root.Key)
				s.check(err)
				mounts, err := s.mountsOf(f)
				s.check(err)
				if got := fmt.Sprint(mounts); got != before[root.Key] {
					t.Errorf("%s: %s has %s, had %s", name, root.Key, got, before[root.Key])
				}
			}
			s.check(s.WithRoot("c", func(dir string) error {
				data, err := os.ReadFile(filepath.Join(dir, "written"))
				if string(data) != "by c" {
					t.Errorf("%s: written was %q", name, data)
				}
				return err
			}))
			if s.Sweep(nil) != 0 || len(s.names()) != 6 {
				t.Errorf("%s: folders %q", name, s.names())
			}
			if _, err := os.Stat(filepath.Join(s.root, "layers", "metadata.db")); !os.IsNotExist(err) {
				t.Errorf("%s: metadata.db: %v", name, err)
			}
		}
		for _, root := range s.Roots() {
			s.check(s.Remove(root.Key))
		}
		if s.sweep(); len(s.names()) != 0 {
			t.Errorf("%s: left %q", name, s.names())
		}
	}
}

// Of a store whose metadata.db is damaged layers are there, and what containers may have mounted
// stays until the next boot.
func TestTakeOverDamaged(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"lost": os.Remove,
		"a text": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("no records\n", 1000)), 0o600)
		},
		"cut": func(path string) error { return os.Truncate(path, 9000) },
	} {
		s := newLossy(t)
		s.older(tarOf(t, text("1", "")), tarOf(t, text("2", "")))
		s.check(damage(filepath.Join(s.root, "layers", "metadata.db")))
		s.open()
		layers, roots := s.all()
		if len(layers) != 2 || len(roots) != 0 || !s.Lost() || len(s.aside("*.lost-6.*")) != 4 {
			t.Errorf("%s: layers %v, roots %v, aside %q", name, layers, roots, s.aside("*"))
		}
		for range 2 {
			s.again()
			if s.sweep(); len(s.names()) != 0 || len(s.aside("*.removed.*/fs")) != 2 {
				t.Errorf("%s: folders %q, aside %q", name, s.names(), s.aside("*"))
			}
		}
	}
}

// The format of records is one that stays: what is on disk is read by the next release.
func TestFormat(t *testing.T) {
	s := newLossy(t)
	chain := apply(t, s.Store, tarOf(t, text("1", "")))
	_, err := s.View("c", chain, map[string]string{"sunaba/image": "i"})
	s.check(err)
	f, err := s.folder("c")
	s.check(err)
	for dir, want := range map[string]map[string]any{
		s.dirOf(chain): {"Version": 1.0, "Chain": chain.String(), "Parent": "", "Bytes": nil, "Inodes": nil, "Labels": nil},
		s.dir(f): {"Version": 1.0, "Key": "c", "View": true, "Parent": chain.String(), "Bytes": 0.0, "Inodes": 0.0,
			"Labels": map[string]any{"sunaba/image": "i"}},
	} {
		data, err := os.ReadFile(filepath.Join(dir, recordFile))
		s.check(err)
		sum, text, _ := strings.Cut(string(data), "\n")
		got := map[string]any{}
		s.check(json.Unmarshal([]byte(text), &got))
		for k, v := range want {
			if v == nil { // depends on the file system
				want[k] = got[k]
			}
		}
		if !reflect.DeepEqual(got, want) || sum != digest.FromString(text).String() {
			t.Errorf("record %q %s, want %v", sum, text, want)
		}
	}
}
