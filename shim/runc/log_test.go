package runc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/go-runc"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/tests/disk"
)

// The words are those of runc 1.1.5 and 1.5.2 and of crun 1.8.1 and 1.28.
func TestClassOf(t *testing.T) {
	for text, want := range map[string]error{
		`exec failed: unable to start container process: exec: "nope": executable file not found in $PATH`:                                   errdefs.ErrInvalidArgument,
		`runc create failed: unable to start container process: error during container init: exec: "/x": stat /x: no such file or directory`: errdefs.ErrInvalidArgument,
		`exec failed: unable to start container process: exec: "/bin/true/x": stat /bin/true/x: not a directory`:                             errdefs.ErrInvalidArgument,
		`exec failed: unable to start container process: exec: "/x": permission denied`:                                                      errdefs.ErrPermissionDenied,
		`exec failed: unable to start container process: exec: "/etc": is a directory`:                                                       errdefs.ErrPermissionDenied,
		"executable file `nope` not found in $PATH: No such file or directory":                                                               errdefs.ErrInvalidArgument,
		"open executable: Not a directory":                                                                                                 errdefs.ErrInvalidArgument,
		"open executable: Permission denied":                                                                                               errdefs.ErrPermissionDenied,
		"open executable: Operation not permitted":                                                                                         errdefs.ErrPermissionDenied,
		"executable file `/nope` not found: No such file or directory":                                                                     errdefs.ErrInvalidArgument,
		"open `/bin/true/x`: Not a directory":                                                                                              errdefs.ErrInvalidArgument,
		"the path `/noexec` exists but it is not executable: Operation not permitted":                                                      errdefs.ErrPermissionDenied,
		"the path `/etc` is not a regular file: Operation not permitted":                                                                   errdefs.ErrPermissionDenied,
		"exec process failed with error error in executing process : executable '/nope' not found in $PATH":                                errdefs.ErrInvalidArgument,
		`exec process failed with error error in executing process : executable '/etc' at path '"/etc"' does not have correct permissions`: errdefs.ErrPermissionDenied,
		"exec failed: cannot exec in a paused container (use --ignore-paused to override)":                                                 errdefs.ErrFailedPrecondition,
		"container does not exist":                                                                                                         errdefs.ErrNotFound,
		"container `id` does not exist":                                                                                                    errdefs.ErrNotFound,
		`unable to start container process: chdir to cwd ("/x") set in config.json failed: no such file or directory`:                      nil,
		`error mounting "/nowhere" to rootfs at "/x": stat /nowhere: no such file or directory`:                                            nil,
	} {
		if got := classOf(text); !errors.Is(got, want) || want == nil && got != nil {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestLastError(t *testing.T) {
	path := filepath.Join(t.TempDir(), logName)
	earlier := `{"level":"error","msg":"of an earlier call"}` + "\n"
	for name, tt := range map[string]struct{ log, want string }{
		"runc":        {`{"level":"warning","msg":"a"}` + "\n" + `{"level":"error","msg":"b\n","time":"t"}` + "\n", "b"},
		"crun 1.28":   {"{\n  \"msg\": \"executable file `\\/x` not found\",\n  \"level\": \"error\",\n  \"time\": \"t\"\n}\n", "executable file `/x` not found"},
		"youki":       {`{"timestamp":"t","level":"ERROR","message":"a\n\nStack backtrace:\n   0: <unknown>","target":"youki"}`, "a"},
		"the last":    {`{"level":"error","msg":"a"}{"level":"fatal","msg":"b"}`, "b"},
		"other lines": {"panic: x\n{\n" + `{"level":"error","msg":"a"}` + "\nend", "a"},
		"cut off":     {`{"level":"error","msg":"a"}` + "\n" + `{"level":"error","ms`, "a"},
		"nothing":     {"", ""},
	} {
		if err := os.WriteFile(path, []byte(earlier+tt.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastError(path, int64(len(earlier))); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A Delete beside a call removes the log that the call would read.
func TestClassWithoutLog(t *testing.T) {
	c := &container{dir: t.TempDir(), runtime: &runc.Runc{Command: "/bin/sh"}}
	for words, want := range map[string]error{
		"container not running":    errdefs.ErrFailedPrecondition,
		"container does not exist": errdefs.ErrNotFound,
		"something else":           errdefs.ErrUnknown,
	} {
		log := filepath.Join(c.dir, logName)
		if err := os.WriteFile(log, []byte(`{"level":"error","msg":"an earlier one"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(c.dir, "runtime")
		script := fmt.Sprintf("#!/bin/sh\nrm %s\necho %s >&2\nexit 1\n", log, words)
		if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		c.runtime.Command = program
		err := c.Pause(t.Context())
		if err == nil || !strings.Contains(err.Error(), words) || errdefs.Resolve(err) != want {
			t.Errorf("%s: %v, want %v", words, err, want)
		}
	}
	c.runtime.Command = filepath.Join(c.dir, "missing")
	if err := c.Pause(t.Context()); err == nil || errdefs.IsInvalidArgument(err) {
		t.Errorf("without the runtime: %v", err)
	}
}

// A runtime that fails because the disk is full or read-only does not always say so. The words are
// those of runc 1.1.5 and crun 1.8.1.
func TestClassOnADiskThatRefuses(t *testing.T) {
	for _, d := range []struct {
		refuse func(t *testing.T, dir string) (undo func())
		errno  error
		class  error
	}{
		{disk.TakeBytes, unix.ENOSPC, errdefs.ErrResourceExhausted},
		{disk.Cover, unix.EROFS, errdefs.ErrFailedPrecondition},
	} {
		t.Run(d.errno.Error(), func(t *testing.T) {
			c := &container{dir: disk.New(t, t.TempDir(), 16), runtime: &runc.Runc{}}
			defer d.refuse(t, c.dir)()
			for words, want := range map[string]struct {
				text  string
				class error
			}{
				"unable to store init state: %!w(<nil>)":         {"unable to store init state: %!w(<nil>): " + d.errno.Error(), d.class},
				"cannot create state directory for `x`":          {"cannot create state directory for `x`: " + d.errno.Error(), d.class},
				"mkdir /run/x: " + d.errno.Error():               {"mkdir /run/x: " + d.errno.Error(), d.class},
				`exec: "/x": stat /x: no such file or directory`: {`exec: "/x": stat /x: no such file or directory`, errdefs.ErrInvalidArgument},
			} {
				err := c.ask(func() error { return errors.New("runc did not terminate successfully: exit status 1: " + words) })
				err = api.FromStatus(api.ToStatus(err))
				if !errors.Is(err, want.class) || !strings.Contains(err.Error(), want.text) || strings.Count(err.Error(), d.errno.Error()) > 1 {
					t.Errorf("%v; want %q, %v", err, want.text, want.class)
				}
			}
		})
	}
}

// Errors whose cause the runtime does not name, or for which there is a remedy, with the words of
// runc 1.1.5 and crun 1.8.1.
func TestClassOfStarts(t *testing.T) {
	c := &container{dir: t.TempDir(), runtime: &runc.Runc{}}
	for words, want := range map[string]struct {
		text  string
		class error
	}{
		"unable to store init state: %!w(<nil>)": {"unable to store init state: the runtime does not say why", errdefs.ErrInternal},
		"cgroups in hybrid mode not supported, drop all controllers from cgroupv2": {
			"drop all controllers from cgroupv2: boot with systemd.unified_cgroup_hierarchy=1, or use runc", errdefs.ErrFailedPrecondition},
	} {
		err := c.ask(func() error { return errors.New("runc did not terminate successfully: exit status 1: " + words) })
		err = api.FromStatus(api.ToStatus(err))
		if errdefs.Resolve(err) != want.class || !strings.HasSuffix(err.Error(), want.text) && !strings.HasSuffix(err.Error(), want.text+": internal") {
			t.Errorf("%v; want %q, %v", err, want.text, want.class)
		}
	}
}
