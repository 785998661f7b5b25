package checkpoint

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/mount"
)

// The processes of a checkpoint need what they had mounted; a pod's restore also that the program
// is the same.
func TestFits(t *testing.T) {
	base := func() *specs.Spec {
		return &specs.Spec{
			Process: &specs.Process{Args: []string{"a"}, Cwd: "/", Env: []string{"A=b"}, User: specs.User{UID: 1}},
			Mounts:  []specs.Mount{{Destination: "/data", Source: "/here"}},
		}
	}
	text := func(s *specs.Spec) []byte {
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	before := func() (s saved) {
		if err := json.Unmarshal(text(base()), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for what, c := range map[string]struct {
		change       func(*specs.Spec)
		loose, tight bool
	}{
		"another source of a mount": {func(s *specs.Spec) { s.Mounts[0].Source = "/there" }, true, true},
		"a further mount":           {func(s *specs.Spec) { s.Mounts = append(s.Mounts, specs.Mount{Destination: "/more"}) }, true, true},
		"a mount at":                {func(s *specs.Spec) { s.Mounts = nil }, false, false},
		"tty":                       {func(s *specs.Spec) { s.Process.Terminal = true }, false, false},
		"command":                   {func(s *specs.Spec) { s.Process.Args = []string{"b"} }, true, false},
		"working directory":         {func(s *specs.Spec) { s.Process.Cwd = "/x" }, true, false},
		"environment":               {func(s *specs.Spec) { s.Process.Env = nil }, true, false},
		"user":                      {func(s *specs.Spec) { s.Process.User.GID = 5 }, true, false},
	} {
		now := base()
		c.change(now)
		for strict, want := range map[bool]bool{false: c.loose, true: c.tight} {
			err := fits(before(), text(now), strict)
			if want && err != nil || !want && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), what)) {
				t.Errorf("%s, strict %t: %v", what, strict, err)
			}
		}
	}
}

func TestLayersOf(t *testing.T) {
	l, err := layersOf([]mount.Mount{{Type: "overlay", Options: []string{"index=off", "upperdir=/u", "workdir=/w", "lowerdir=/b:/a"}}})
	if err != nil || l.Upper != "/u" || len(l.Lower) != 2 || l.Lower[0] != "/b" {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err = layersOf([]mount.Mount{{Type: "bind", Source: "/s"}}); err != nil || l.Upper != "/s" || l.Lower != nil {
		t.Errorf("%+v, %v", l, err)
	}
	for _, bad := range [][]mount.Mount{nil, {{Type: "overlay", Options: []string{"lowerdir=/a"}}}} {
		if _, err := layersOf(bad); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
