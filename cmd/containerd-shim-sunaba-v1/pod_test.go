package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/enginetest"
)

// TestMain makes the test binary the shim binary too: a test's own flags begin with -test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	code := m.Run()
	enginetest.RemoveCgroupParent() // not before: tests run side by side, and it is empty between two containers
	os.Exit(code)
}

const patience = time.Minute

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shutDown tells a shim that has no containers to end. That it went may be known before its answer
// is.
func shutDown(t testing.TB, c *client.Client) {
	t.Helper()
	if err := c.Shutdown(within(t)); err != nil && !errdefs.IsUnavailable(err) {
		t.Fatal(err)
	}
}

// pod is a sandbox directory with a shim in it.
type pod struct {
	*client.Client
	id, dir string
	binary  string
	root    string // busybox
	logs    string
	begun   time.Time
}

// newPod starts a shim as our server does. At the end of the test nothing of it may be left.
func newPod(t testing.TB, binary string) *pod {
	t.Helper()
	return startPod(t, binary, false)
}

func startPod(t testing.TB, binary string, supervise bool) *pod {
	t.Helper()
	enginetest.NeedRoot(t)
	if binary == "" {
		binary = must(os.Executable())(t)
	}
	p := &pod{id: enginetest.NewID(), binary: binary, root: enginetest.BusyboxRoot(t), logs: t.TempDir()}
	p.dir = filepath.Join(t.TempDir(), p.id)
	check(t, os.Mkdir(p.dir, 0o700))
	p.begun = time.Now()
	p.Client = must(client.Start(within(t), client.StartOptions{
		Binary: p.binary, Namespace: "k8s.io", ID: p.id, Dir: p.dir, WasmCache: filepath.Join(p.dir, "wasm"), Supervised: supervise,
	}))(t)
	t.Cleanup(func() { p.end(t) })
	return p
}

// end cleans up as for a dead shim and looks for leftovers.
func (p *pod) end(t testing.TB) {
	p.Close()
	check(t, client.Cleanup(within(t), p.binary, "k8s.io", p.dir, p.id))
	if log, err := os.ReadFile(filepath.Join(p.dir, client.LogName)); err == nil && len(log) > 0 {
		t.Logf("shim's log: %s", log)
	}
	p.nothingLeft(t)
}

func (p *pod) nothingLeft(t testing.TB) {
	t.Helper()
	if mounts := must(os.ReadFile("/proc/self/mountinfo"))(t); strings.Contains(string(mounts), p.id) {
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, p.id) {
				t.Errorf("mount left: %s", line)
			}
		}
	}
	eventually(t, "no process is left", func() bool { return len(processesIn(t, p.dir)) == 0 }) // one that ends closes its socket first
	if state, err := os.ReadDir(filepath.Join(p.dir, "runc")); err == nil && len(state) > 0 {
		t.Errorf("runtime's state left: %v", state)
	}
}

// processesIn lists processes that work in or below a directory or name it in their command line.
func processesIn(t testing.TB, dir string) []string {
	t.Helper()
	var found []string
	for _, link := range must(filepath.Glob("/proc/[0-9]*/cwd"))(t) {
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
		cwd, _ := os.Readlink(link)
		if strings.HasPrefix(cwd, dir) || strings.Contains(string(command), dir) {
			found = append(found, filepath.Dir(link)+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}

// container is a request for a container of the pod; change its spec before create.
type container struct {
	*pod
	id   string
	spec *specs.Spec
	req  client.CreateRequest
}

func (p *pod) container(program enginetest.Program) *container {
	id := enginetest.NewID()
	c := &container{pod: p, id: id, spec: enginetest.BusyboxSpec(id, "rootfs", enginetest.BusyboxProcess(program))}
	c.spec.Annotations[annotation.SandboxID] = p.id
	log := client.CreateRequest{Stdout: "cri://" + c.logFile(), Stderr: "cri://" + c.logFile()}
	c.req = log
	return c
}

func (c *container) script(s string) *container {
	c.spec.Process.Args = []string{"/bin/sh", "-c", s}
	return c
}

func (c *container) logFile() string { return filepath.Join(c.logs, c.id[:12]+".log") }

func (c *container) path() string { return filepath.Join(c.dir, c.id) }

// tryCreate writes the bundle and creates the container over an overlay of the pod's root.
func (c *container) tryCreate(t testing.TB) (int, error) {
	t.Helper()
	c.prepare(t)
	return c.Create(within(t), c.req)
}

func (c *container) prepare(t testing.TB) {
	t.Helper()
	enginetest.WriteBundle(t, c.dir, c.id, c.spec)
	layers := t.TempDir()
	for _, name := range []string{"upper", "work"} {
		check(t, os.Mkdir(filepath.Join(layers, name), 0o755))
	}
	c.req.ID, c.req.Bundle = c.id, c.path()
	if c.spec.Root != nil {
		c.req.Rootfs = []mount.Mount{{Type: "overlay", Source: "overlay", Options: []string{
			"lowerdir=" + c.root, "upperdir=" + filepath.Join(layers, "upper"), "workdir=" + filepath.Join(layers, "work"),
		}}}
	}
}

func (c *container) create(t testing.TB) *container {
	t.Helper()
	pid := must(c.tryCreate(t))(t)
	if pid <= 0 {
		t.Fatalf("pid %d", pid)
	}
	return c
}

func (c *container) start(t testing.TB) *container {
	t.Helper()
	must(c.Start(within(t), c.id, ""))(t)
	return c
}

func (c *container) wait(t testing.TB) client.Exit {
	t.Helper()
	return must(c.Wait(within(t), c.id, ""))(t)
}

func (c *container) delete(t testing.TB) client.Exit {
	t.Helper()
	return must(c.Delete(within(t), c.id, ""))(t)
}

// log returns what the container's log file says, without times.
func (c *container) log(t testing.TB) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(string(must(os.ReadFile(c.logFile()))(t))) {
		_, rest, ok := strings.Cut(line, " ")
		if !ok {
			t.Fatalf("log line %q", line)
		}
		out.WriteString(rest)
	}
	return out.String()
}

// eventually waits for a condition that no call tells about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
