package errtext

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestClassesAreNotSaidAtTheEnd(t *testing.T) {
	invalid := errdefs.ErrInvalidArgument
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("a: b"), "a: b"},
		{fmt.Errorf("image is empty: %w", invalid), "image is empty"},
		{fmt.Errorf("a: %w: %w", fmt.Errorf("b: %w", invalid), invalid), "a: b"},
		{fmt.Errorf("a: %w: %w", fmt.Errorf("b: %w", invalid), errdefs.ErrUnavailable), "a: b"},
		{errors.Join(fmt.Errorf("a: %w", invalid), fmt.Errorf("b: %w", errdefs.ErrFailedPrecondition)), "a\nb"},
		{fmt.Errorf("container %q: %w", "c", errdefs.ErrNotFound), `container "c": not found`},
		{fmt.Errorf("sandbox %q: %w", "c", errdefs.ErrAlreadyExists), `sandbox "c": already exists`},
		{invalid, "invalid argument"},
		{fmt.Errorf("mount: %w", unix.EINVAL), "mount: invalid argument"}, // the kernel's word is the cause
		{errors.New("it said: unavailable"), "it said: unavailable"},
		{fmt.Errorf("open executable: Permission denied: %w", errdefs.ErrPermissionDenied), "open executable: Permission denied"},
		{fmt.Errorf("update container %q: container %[1]q: %w", "c", errdefs.ErrNotFound), `update container "c": not found`},
		{fmt.Errorf("exec: %w", errdefs.ErrPermissionDenied), "exec: permission denied"},
	} {
		if got := Of(c.err); got != c.want {
			t.Errorf("%q: %q, want %q", c.err, got, c.want)
		}
	}
	long := Of(errors.New("name: " + strings.Repeat("é", 1<<20)))
	if len(long) > longest+3 || !utf8.ValidString(long) || !strings.HasPrefix(long, "name: é") || !strings.HasSuffix(long, "é…") {
		t.Errorf("a long text is cut to %d bytes", len(long))
	}
}
