package archive

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
)

func TestImportName(t *testing.T) {
	sum := digest.FromString("x").String()
	for _, tt := range []struct{ called, given, want string }{
		{"docker.io/library/a:v1", "", "docker.io/library/a:v1"},
		{"a:v1", "", "docker.io/library/a:v1"},
		{"a:v1", "other", "docker.io/library/a:v1"},
		{"v1", "example.org/a", "example.org/a:v1"},
		{"v1", "example.org:5000/a", "example.org:5000/a:v1"},
		{"v1", "example.org/a:v2", "example.org/a:v2"},
		{"", "a", "docker.io/library/a:latest"},
		{"example.org/a@" + sum, "", "example.org/a@" + sum},
		{"v1", "", ""}, {"", "", ""}, {"A:v1", "", ""}, {"", "A", ""},
	} {
		n, err := importName(tt.called, tt.given)
		if n.Full != tt.want || (tt.want == "") != errdefs.IsInvalidArgument(err) {
			t.Errorf("%q, %q: %q, %v", tt.called, tt.given, n.Full, err)
		}
	}
}
