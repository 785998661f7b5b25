package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// What is missing is said as something that somebody can do about it.
func TestMissingForCheckpoints(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	if err := missing(t.Context(), runtimeclass.WASM, "wasm"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), `"wasm"`) {
		t.Errorf("a guest: %v", err)
	}
	if err := missing(t.Context(), runtimeclass.OCI, "runc"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "criu is not installed") {
		t.Errorf("without criu: %v", err)
	}
	script := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, "criu"), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script("[ \"$*\" = check ]\n")
	if err := missing(t.Context(), runtimeclass.OCI, "runc"); err != nil {
		t.Errorf("with criu: %v", err)
	}
	script("echo 'Error (criu/vdso.c:381): vdso: Unexpected' >&2\necho 'Error (criu/crtools.c:260): Could not initialize.' >&2\nexit 1\n")
	err := missing(t.Context(), runtimeclass.OCI, "runc")
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "(criu check): vdso: Unexpected; Could not initialize.: ") {
		t.Errorf("with a criu that does not work: %v", err)
	}
}

func TestEmptyFolder(t *testing.T) {
	dir := t.TempDir()
	if err := emptyFolder(dir); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "relative", filepath.Join(dir, "missing"), filepath.Join(dir, "file"), dir} {
		if err := emptyFolder(bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
