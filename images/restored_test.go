package images

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Without its database and without a registry, a node has the images that it had, by the same names, for the same pods.
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
		if err := damage(filepath.Join(s.root, recordsFile)); err != nil {
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
