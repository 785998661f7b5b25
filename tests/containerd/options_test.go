package containerd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// wrapper is an OCI runtime that notes what it was asked before it asks runc.
func wrapper(t *testing.T) (path, notes string) {
	t.Helper()
	dir := t.TempDir()
	path, notes = filepath.Join(dir, "runc-noting"), filepath.Join(dir, "notes")
	runc := must(exec.LookPath("runc"))(t)
	check(t, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\necho \"$@\" >>%s\nexec %s \"$@\"\n", notes, runc), 0o755))
	return path, notes
}

// TestRuntimeOptions gives the shim options in a file, as ctr does, and in both types that
// containerd's CRI makes of a table.
func TestRuntimeOptions(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.pull(world.busybox, "")
		binary, notes := wrapper(t)
		root := t.TempDir()
		group := "/" + b.namespace + "/shims"
		hierarchy := "/sys/fs/cgroup"
		if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
			hierarchy += "/memory"
		}
		check(t, os.MkdirAll(hierarchy+group, 0o755))
		defer func() {
			b.eventually("the shims' group is free", func() bool { err := os.Remove(hierarchy + group); return err == nil || os.IsNotExist(err) })
		}()
		file := filepath.Join(t.TempDir(), "options.toml")
		write := func(text string) { check(t, os.WriteFile(file, []byte(text), 0o600)) }
		write(fmt.Sprintf("BinaryName = %q\nRoot = '%s'\nNoPivotRoot = true\nNoNewKeyring = true\nIoUid = 1234\nIoGid = 4321\nShimCgroup = '%s'\n", binary, root, group))
		b.run("given", []string{"--runtime-config-path", file}, world.busybox, "/bin/sleep", "1000")
		if _, err := os.Stat(filepath.Join(root, b.namespace, "given", "state.json")); err != nil {
			t.Errorf("the runtime's root: %v", err)
		}
		for _, word := range []string{"create", "--no-pivot", "--no-new-keyring", "--root " + root} {
			if said := string(must(os.ReadFile(notes))(t)); !strings.Contains(said, word) {
				t.Errorf("the runtime was not told %q: %s", word, said)
			}
		}
		if shims := b.shims(); len(shims) != 1 {
			t.Errorf("shims %v", shims)
		} else if said := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", shims[0])))(t)); !strings.Contains(said, group) {
			t.Errorf("the shim is in %s", said)
		}
		pid := must(b.tasks.Get(b.ctx(), &tasks.GetRequest{ContainerID: "given"}))(t).Process.Pid
		var owner unix.Stat_t
		check(t, unix.Stat(fmt.Sprintf("/proc/%d/fd/1", pid), &owner))
		if owner.Gid != 4321 { // the user is runc's own choice
			t.Errorf("its output belongs to %d:%d", owner.Uid, owner.Gid)
		}
		b.remove("given")

		for text, want := range map[string]string{
			"BinaryName = '/nowhere/runc'\n": "/nowhere/runc", "SystemdCGroup = true\n": "SystemdCGroup", "ShimCgroup = '/nowhere'\n": "/nowhere",
		} {
			write(text)
			_, err := b.Ctr(b.ctx(), b.namespace, "run", "-d", "--runtime", ours, "--runtime-config-path", file, world.busybox, "refused", "/bin/true")
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("options %q: %v", text, err)
			}
			_, _ = b.Ctr(b.ctx(), b.namespace, "containers", "rm", "refused") // some releases keep the record, some do not
		}
	})
}

// TestRuntimePath gives containerd the shim as the program of its own runtime type: then containerd
// understands the options.
func TestRuntimePath(t *testing.T) {
	for _, release := range world.releases {
		if release.old() {
			continue // 1.6 reads no path
		}
		t.Run(release.Name, func(t *testing.T) {
			binary, notes := wrapper(t)
			b := newBenchWith(t, release, Runtime{
				Name: "sunaba", Type: "io.containerd.runc.v2", Path: filepath.Join(world.bin, "containerd-shim-sunaba-v1"),
				Options: fmt.Sprintf("BinaryName = %q\nSystemdCgroup = false", binary),
			})
			b.image(world.busybox)
			b.image(world.asLinux)
			p := b.runPod("sunaba", "path", nil)
			if len(b.shims()) != 1 {
				t.Errorf("shims %v", b.shims())
			}
			p.begin("linux", world.busybox, []string{"/bin/sh", "-c", "exit 4"}, nil).ends(4, "")
			p.begin("guest", world.asLinux, []string{"/guest.wasm", "exit", "5"}, nil).ends(5, "")
			if said := string(must(os.ReadFile(notes))(t)); strings.Count(said, " create ") != 2 { // pause and the Linux container
				t.Errorf("the runtime was told %s", said)
			}
			r := must(b.RuntimeConfig(b.ctx(), &runtime.RuntimeConfigRequest{}))(t)
			if r.Linux.CgroupDriver != runtime.CgroupDriver_CGROUPFS {
				t.Errorf("cgroup driver %v", r.Linux.CgroupDriver)
			}
			p.remove()
		})
	}
}

// TestFeatures asks containerd for what our handlers can do, which it learns from the shim.
func TestFeatures(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		if b.Release.old() {
			t.Skip("it does not ask shims")
		}
		features := map[string]*runtime.RuntimeHandlerFeatures{}
		for _, h := range must(b.Status(b.ctx(), &runtime.StatusRequest{}))(t).RuntimeHandlers {
			features[h.Name] = h.Features
		}
		if features["sunaba"] == nil || features["runc"] == nil || features["sunaba"].String() != features["runc"].String() {
			t.Errorf("features %v", features)
		}
	})
}

// TestOutOfMemory has something killed in a container that goes on: the event comes at once.
func TestOutOfMemory(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.pull(world.busybox, "")
		heard := b.listen()
		k := b.task("oom", []string{"--memory-limit", "30000000"}, world.busybox, "/bin/gorge")
		k.create()
		k.start("")
		b.eventually("a process was killed", func() bool { return k.figures().kills > 0 })
		k.is("", tasktypes.Status_RUNNING)
		b.eventually("that is told", func() bool { return slices.Contains(heard.heard(), "oom oom") })
		k.stdin.Close()
		k.stdin = nil
		must(b.tasks.CloseIO(b.ctx(), &tasks.CloseIORequest{ContainerID: k.id, Stdin: true}))(t)
		if code := k.wait(""); code != 0 {
			t.Errorf("code %d", code)
		}
		k.delete()
		want := []string{"create oom", "start oom", "oom oom", "exit oom", "delete oom"}
		if got := heard.end(len(want)); !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

// TestLogAddresses sends a container's output where containerd's clients may want it.
func TestLogAddresses(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.pull(world.busybox, "")
		dir := t.TempDir()
		program := filepath.Join(dir, "logger")
		text := "#!/bin/sh\ncat <&4 >$1.err & cat <&3 >$1.out & echo $CONTAINER_NAMESPACE/$CONTAINER_ID $2 >$1.begun\nprintf r >&5\nexec 5>&-\nexec 3<&- 4<&-\nwait\necho done >>$1.begun\n"
		check(t, os.WriteFile(program, []byte(text), 0o755))
		read := func(name string) string { data, _ := os.ReadFile(filepath.Join(dir, name)); return string(data) }
		run := func(id, address string) {
			t.Helper()
			b.run(id, []string{"--log-uri", address}, world.busybox, "/bin/sh", "-c", "echo out; echo err >&2")
			b.eventually("the container ends", func() bool {
				return must(b.tasks.Get(b.ctx(), &tasks.GetRequest{ContainerID: id}))(t).Process.Status == tasktypes.Status_STOPPED
			})
			b.remove(id)
		}
		run("file", "file://"+dir+"/deep/file")
		if got := read("deep/file"); got != "out\nerr\n" && got != "err\nout\n" {
			t.Errorf("the file holds %q", got)
		}
		for _, scheme := range []string{"binary", "binary-v2"} {
			if scheme == "binary-v2" && b.Release.old() {
				continue
			}
			run(scheme, scheme+"://"+program+"?"+dir+"/"+scheme+"=x")
			if out, err, begun := read(scheme+".out"), read(scheme+".err"), read(scheme+".begun"); out != "out\n" || err != "err\n" || begun != b.namespace+"/"+scheme+" x\ndone\n" {
				t.Errorf("%s: output %q, %q, begun %q", scheme, out, err, begun)
			}
		}
		_, err := b.Ctr(b.ctx(), b.namespace, "run", "-d", "--runtime", ours, "--log-uri", "binary:///nowhere", world.busybox, "bad", "/bin/true")
		if err == nil || !strings.Contains(err.Error(), "/nowhere") {
			t.Errorf("a program that is not there: %v", err)
		}
		_, _ = b.Ctr(b.ctx(), b.namespace, "containers", "rm", "bad")
		var exit *exec.ExitError
		if _, err := b.Ctr(b.ctx(), b.namespace, "run", "--rm", "--runtime", ours, world.busybox, "after", "/bin/false"); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("after all this: %v", err)
		}
	})
}
