package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/tests/pty"
)

func TestExec(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	root := b.bundle.Rootfs
	copyFile(t, shared.build(t, "hello"), filepath.Join(root, "hello.wasm"))
	copyFile(t, shared.build(t, "lacking"), filepath.Join(root, "lacking.wasm"))
	for name, content := range map[string]string{"script": "#!/bin/sh\n", "component.wasm": "\x00asm\x0d\x00\x01\x00"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	b.bundle.Spec.Mounts = []specs.Mount{{Type: "tmpfs", Destination: "/tmp"}}
	c := b.create()
	start(t, c.Init())
	b.stdout.await(t, "sleep=on")
	for _, e := range []struct {
		args           []string
		code           uint32
		stdout, stderr string // what they contain
	}{
		{[]string{"/hello.wasm", "there"}, 3, "hello there\n", ""},
		{[]string{"hello.wasm"}, 3, "hello\n", ""},
		{[]string{"/app.wasm", "write:/tmp/f", "env:CODE"}, 0, "write:/tmp/f=ok\nenv:CODE=3\n", ""},
		{[]string{"/app.wasm", "read:/tmp/f"}, 0, "read:/tmp/f=written\n", ""}, // one tmpfs for all processes
		{[]string{"/app.wasm", "trap"}, 134, "", "unreachable"},
		{[]string{"/script"}, 126, "", "not a WebAssembly module"},
		{[]string{"/component.wasm"}, 126, "", "component"},
		{[]string{"/lacking.wasm"}, 126, "", "launch_missiles"},
		{[]string{"/nothing"}, 127, "", "no such file"},
		{[]string{"nothing"}, 127, "", "no such file"},
	} {
		exit, stdout, stderr := runFurther(t, c, &specs.Process{Args: e.args, Cwd: "/", Env: []string{"CODE=3"}})
		if exit.Code != e.code || !strings.Contains(stdout, e.stdout) || !strings.Contains(stderr, e.stderr) {
			t.Errorf("%v: exit %+v, stdout %q, stderr %q; want %d, %q, %q", e.args, exit, stdout, stderr, e.code, e.stdout, e.stderr)
		}
	}
	// What still runs goes with the container.
	left := startFurther(t, c, &specs.Process{Args: []string{"/app.wasm", "sleep"}, Cwd: "/"}, "sleep=on")
	signal(t, c.Init(), unix.SIGKILL)
	ended(t, c.Init())
	ended(t, left)
	p, err := c.Exec(context.Background(), "late", &specs.Process{Args: []string{"/app.wasm"}}, shim.IO{})
	if err == nil {
		err = p.Start(context.Background())
	}
	if !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("exec after the end: %v", err)
	}
}

func TestExecStop(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	c := b.create()
	start(t, c.Init())
	p := startFurther(t, c, &specs.Process{Args: []string{"/app.wasm", "sleep"}, Cwd: "/"}, "sleep=on")
	signal(t, p, unix.SIGTERM)
	if exit := ended(t, p); exit.Code != 143 {
		t.Errorf("exit %+v", exit)
	}
	stillRuns(t, c.Init())
}

// A command whose terminal was closed ends also if it does not read its input. So does one in a
// paused container, once that runs on.
func TestExecHangUp(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	c := b.create()
	start(t, c.Init())
	for _, paused := range []bool{false, true} {
		master, slave := pty.Open(t)
		p, err := c.Exec(t.Context(), "x", &specs.Process{Args: []string{"/app.wasm", "sleep"}, Cwd: "/", Terminal: true},
			shim.IO{Stdin: slave, Stdout: slave, Stderr: slave, Terminal: true, Console: master})
		if err != nil {
			t.Fatal(err)
		}
		start(t, p)
		slave.Close()
		if _, err := master.Read(make([]byte, 100)); err != nil { // it sleeps
			t.Fatal(err)
		}
		if paused {
			if err := c.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		signal(t, p, unix.SIGHUP)
		if paused {
			select {
			case <-p.Exited():
				t.Error("the end of a terminal has resumed the container")
			case <-time.After(2 * hearing):
			}
			if err := c.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ended(t, p)
	}
	stillRuns(t, c.Init())
}

// A command that is being started while its container is killed has no process yet to kill.
func TestKillBesideAnExecThatStarts(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	c := b.create()
	start(t, c.Init())
	unborn := newProcess(c.(*container), shim.IO{})
	if err := unborn.container.admit(unborn); err != nil {
		t.Fatal(err)
	}
	defer unborn.container.forget(unborn)
	if err := c.Init().Signal(t.Context(), unix.SIGKILL, true); err != nil {
		t.Error(err)
	}
	ended(t, c.Init())
}

func TestExecInArtifactRunsTheModule(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	artifact(b)
	b.bundle.Spec.Process.Args[0] = "app"
	b.bundle.Facts.Module.Name = "bin/tool.wasm"
	data := openDir(t)
	copyFile(t, shared.build(t, "hello"), filepath.Join(data, "app"))
	b.bundle.Spec.Mounts = []specs.Mount{{Type: "bind", Source: data, Destination: "/data", Options: []string{"rbind"}}}
	c := b.create()
	start(t, c.Init())
	for name, want := range map[string]string{
		"app": "list:/=1\n", "/app": "list:/=1\n", "./app": "list:/=1\n", // its first argument
		"bin/tool.wasm": "list:/=1\n", "tool.wasm": "list:/=1\n", "/tool.wasm": "list:/=1\n", // its file
		"/data/app": "hello list:/\n", // another, in a mount
		"sh":        "", "/data/tool.wasm": "", "/bin/tool.wasm": "", "../data/none": "",
	} {
		exit, stdout, _ := runFurther(t, c, &specs.Process{Args: []string{name, "list:/"}, Cwd: "/"})
		if stdout != want || (want == "") != (exit.Code == 127) {
			t.Errorf("%q: exit %+v, stdout %q, want %q", name, exit, stdout, want)
		}
	}
}
