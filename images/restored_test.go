package images

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/disk"
)

// Without its database and without a registry, a node has the images that it had, by the same
// names, for the same pods.
func TestImagesSurviveTheirDatabase(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	appIndex(t, r, "app", "v1", "1")
	for _, repo := range []string{"mine", "removed"} {
		r.image(repo, "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: repo, content: "1"}))
	}
	r.setFront(private)
	s.close()
	s.options.Verification = VerifyPrivate
	s.options.Pinned = []string{r.host + "/app:*"}
	s.open()
	for _, repo := range []string{"app", "mine", "removed"} {
		if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/" + repo + ":v1", Auth: userAuth("u"), Namespace: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove(t.Context(), r.host+"/removed:v1"); err != nil {
		t.Fatal(err)
	}
	list := func() []Image {
		all, err := s.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := list()
	answer, _ := s.Answer(r.host + "/app:v1")
	r.server.Close()
	for name, damage := range map[string]func(string) error{
		"lost": os.Remove,
		"cut":  func(file string) error { return os.Truncate(file, 5000) },
		"zeroed": func(file string) error {
			info, err := os.Stat(file)
			if err == nil {
				err = os.WriteFile(file, make([]byte, info.Size()), 0o600)
			}
			return err
		},
	} {
		s.close()
		if err := damage(disk.RecordsPath(s.root)); err != nil {
			t.Fatal(err)
		}
		s.open()
		if after := list(); len(after) != 3 || !reflect.DeepEqual(after, before) {
			t.Errorf("%s: there are %+v, there were %+v", name, after, before)
		}
		if got, ok := s.Answer(r.host + "/app:v1"); !ok || got != answer {
			t.Errorf("%s: the image goes by %q, it went by %q", name, got, answer)
		}
		mine := s.mustFind(r.host+"/mine:v1", "")
		if err := s.Permit(mine, "a"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Permit(mine, "b"); !errdefs.IsPermissionDenied(err) {
			t.Errorf("%s: a namespace that has shown nothing may use the image: %v", name, err)
		}
		equal(t, "tree", s.tree("c", mine), []string{"mine=1"})
		if err := s.RemoveRootFS(t.Context(), "c"); err != nil {
			t.Error(err)
		}
		s.check()
	}
}

// Without the record of a layer, images are there that have all of theirs. One that lacks a layer
// is named, and the next pull brings only that layer. What else the disk has damaged is found in
// the background.
func TestImagesSurviveTheRecordsOfLayers(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	for _, repo := range []string{"whole", "lacking"} {
		r.image(repo, "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: repo, content: "1"}), gzipLayer(t, file{name: repo + "-top", content: "1"}))
		s.mustPull(r.host+"/"+repo+":v1", "")
	}
	lacking := s.mustFind(r.host+"/lacking:v1", "")
	folder := func(name string) string {
		dirs, err := filepath.Glob(filepath.Join(s.root, "layers/snapshots/*/fs", name))
		if err != nil || len(dirs) != 1 {
			t.Fatalf("layer of %s: %q, %v", name, dirs, err)
		}
		return filepath.Dir(filepath.Dir(dirs[0]))
	}
	var log bytes.Buffer
	lose := func(name string, also func() error, says ...string) {
		t.Helper()
		s.close()
		if err := errors.Join(os.Truncate(filepath.Join(folder(name), "record"), 0), also()); err != nil {
			t.Fatal(err)
		}
		log.Reset()
		s.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s.open()
		s.background.Wait()
		for _, text := range append(says, "failed to use folder") {
			if !strings.Contains(log.String(), text) {
				t.Errorf("log lacks %q:\n%s", text, &log)
			}
		}
	}
	lose("lacking", func() error { return nil }, "pull it again\" image="+lacking.ID, "images checked\" images=1 damaged=0")
	equal(t, "whole", s.tree("c", s.mustFind(r.host+"/whole:v1", "")), []string{"whole-top=1", "whole=1"})
	if _, err := s.Find(t.Context(), r.host+"/lacking:v1", ""); !errdefs.IsNotFound(err) {
		t.Errorf("the image that lacks a layer: %v", err)
	}
	kept := folder("lacking-top")
	equal(t, "lacking", s.tree("l", s.mustPull(r.host+"/lacking:v1", "")), []string{"lacking-top=1", "lacking=1"})
	if now := folder("lacking-top"); now != kept {
		t.Errorf("the layer that was there is in %s, was in %s", now, kept)
	}
	for _, key := range []string{"c", "l"} {
		if err := s.RemoveRootFS(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	lose("lacking", func() error { return os.WriteFile(filepath.Join(folder("whole"), "fs/whole"), []byte("2"), 0o644) },
		"damaged image fetched again", "images checked\" images=1 damaged=1")
	equal(t, "repaired", s.tree("c", s.mustFind(r.host+"/whole:v1", "")), []string{"whole-top=1", "whole=1"})
	if err := s.RemoveRootFS(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	s.check()
}
