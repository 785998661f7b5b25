package runc_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	goruntime "github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/enginetest"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/runc"
	"github.com/sunaba-project/sunaba/tests/binaries"
)

// inside says that this test process is alone in a mount namespace.
const inside = "SUNABA_TEST_PRIVATE_MOUNTS"

func newEngine(t *testing.T, binary string) (*runc.Engine, string) {
	t.Helper()
	r, err := reaper.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	before := goruntime.Monitor
	goruntime.Monitor = reaper.Monitor{Reaper: r}
	t.Cleanup(func() { goruntime.Monitor = before })
	root := filepath.Join(t.TempDir(), "state")
	return runc.New(runc.Options{Binary: binary, Root: root}, r), root
}

func conformance(t *testing.T, binary string) {
	enginetest.NeedRoot(t)
	if _, err := exec.LookPath(binary); err != nil {
		t.Fatal(err)
	}
	engine, root := newEngine(t, binary)
	enginetest.Run(t, harness(t, engine, binary))
	if entries, err := os.ReadDir(root); err != nil || len(entries) > 0 {
		t.Errorf("runtime's state left: %v, %v", entries, err)
	}
}

func harness(t *testing.T, engine *runc.Engine, binary string) enginetest.Harness {
	return enginetest.Harness{
		Engine:   engine,
		Bundle:   enginetest.BusyboxBundle(enginetest.BusyboxRoot(t)),
		Process:  func(t *testing.T, p enginetest.Program) *specs.Process { return enginetest.BusyboxProcess(p) },
		CanPause: true,
		Launch:   binary == "runc",
	}
}

// adoption has shims die.
func adoption(t *testing.T, binary string) {
	enginetest.NeedRoot(t)
	bin := t.TempDir()
	if err := binaries.Provide(bin, binaries.Shim); err != nil {
		t.Fatal(err)
	}
	h := harness(t, nil, binary)
	h.Options.Binary = binary // the engine of the shim has another default
	enginetest.RunAdopted(t, h, filepath.Join(bin, binaries.Shim))
}

func TestRunc(t *testing.T) { conformance(t, "runc") }

func TestSuccessorOfRunc(t *testing.T) { adoption(t, "runc") }

func TestCrun(t *testing.T) { privately(t, func() { conformance(t, "crun") }) }

func TestSuccessorOfCrun(t *testing.T) { privately(t, func() { adoption(t, "crun") }) }

// privately hides the second cgroup hierarchy that is mounted beside the older ones on some
// machines: crun 1.8 takes it for the only one. So the test runs in a process with mounts of its
// own.
func privately(t *testing.T, test func()) {
	if os.Getenv(inside) != "" {
		err := unix.Unmount("/sys/fs/cgroup/unified", unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			t.Fatal(err)
		}
		if err == nil { // crun leaves directories where the hierarchy was
			if err := unix.Mount("tmpfs", "/sys/fs/cgroup/unified", "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
		}
		test()
		return
	}
	enginetest.NeedRoot(t)
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v="+fmt.Sprint(testing.Verbose()))
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil || testing.Verbose() {
		t.Logf("%s", out)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestErrorsCarryTheRuntimesWords checks that a caller reads what is wrong, not an exit status.
func TestErrorsCarryTheRuntimesWords(t *testing.T) {
	enginetest.NeedRoot(t)
	engine, _ := newEngine(t, "runc")
	root := enginetest.BusyboxRoot(t)
	for name, c := range map[string]struct {
		change func(*specs.Spec)
		want   string
	}{
		"missing program": {func(s *specs.Spec) { s.Process.Args = []string{"nothing-here"} }, "executable file not found"},
		"missing directory": {func(s *specs.Spec) {
			s.Process.Args = []string{"/no/such/program"}
		}, "no such file or directory"},
		"bad mount": {func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/x", Type: "bind", Source: "/nowhere", Options: []string{"bind"}})
		}, "/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			id := enginetest.NewID()
			b := enginetest.BusyboxBundle(root)(t, id, enginetest.Program{})
			c.change(b.Spec)
			b.Path = enginetest.WriteBundle(t, t.TempDir(), id, b.Spec)
			before := enginetest.Before(t, b.Path, id)
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			_, err = engine.Create(t.Context(), b, shim.IO{Stdin: null, Stdout: null, Stderr: null}, shim.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "exit status") {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			before.Check(t)
		})
	}
	enginetest.RemoveCgroupParent()
}
