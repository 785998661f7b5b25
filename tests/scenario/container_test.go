package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// Exit codes arrive verbatim.
func TestExitCodes(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	for _, handler := range everyHandler {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			p := m.run(handler)
			program := func(code string) *runtime.ContainerConfig { return sh("exit " + code) }
			if handler == "wasm" {
				program = func(code string) *runtime.ContainerConfig { return containerConfig(world.Guest, "exit", code) }
			}
			p.begin(program("0")).expectEnd(0, "Completed")
			p.begin(program("7")).expectEnd(7, "Error")
			p.begin(program("137")).expectEnd(137, "Error")
			p.begin(program("255")).expectEnd(255, "Error")
		})
	}
}

// A trap is 134 with a message that names it; the stack goes to stderr.
func TestTrap(t *testing.T) {
	m := start(t)
	m.pull(world.Guest)
	p := m.run("wasm")
	c := p.begin(containerConfig(world.Guest, "trap"))
	status := c.expectEnd(134, "Error")
	if !strings.Contains(status.GetMessage(), "unreachable") {
		t.Errorf("message %q does not name the trap", status.GetMessage())
	}
	var stack bool
	for _, l := range c.lines() {
		stack = stack || l.Stream == "stderr"
	}
	if !stack {
		t.Errorf("no stack on stderr: %q", c.text())
	}
}

// What cannot be started is EXITED with StartError and 128, and the error says why.
func TestStartError(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, handler := range everyHandler {
		p := m.run(handler)
		config := containerConfig(world.Busybox)
		config.Command = []string{"/no/such/program"}
		c, err := p.tryCreate(config)
		if err == nil {
			_, err = m.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: c.id})
			status := c.expectEnd(128, "StartError")
			if !strings.Contains(status.GetMessage(), "/no/such/program") {
				t.Errorf("under %s: message %q", handler, status.GetMessage())
			}
		}
		if err == nil || !strings.Contains(err.Error(), "/no/such/program") {
			t.Errorf("under %s: %v, want an error that names the program", handler, err)
		}
	}
}

// What the image has in place of a program is named, before a runtime is asked.
func TestStartErrorTellsWhatTheFileIs(t *testing.T) {
	m := start(t)
	files := []oci.File{
		oci.Program("notes", []byte("hello\n")), oci.Text("bin/data", "x"), oci.Dir("folder", 0o755), oci.Program("nothing", nil),
		oci.Program("arm", []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00")),
	}
	push := func(name string, image v1.Image, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		ref := must(world.Registry.Push(t.Context(), name, image))
		m.pull(ref)
		return ref
	}
	linux, err := oci.Busybox(oci.Host(), v1.Config{}, files...)
	odd := push("odd:linux", linux, err)
	layer, err := oci.Layer(append(files, oci.Program("bin/busybox", must(os.ReadFile("/bin/busybox"))))...)
	if err != nil {
		t.Fatal(err)
	}
	wasip1, err := oci.Image(oci.Wasip1, v1.Config{Env: []string{"PATH=/bin:/usr/bin"}}, layer)
	oddGuest := push("odd:wasip1", wasip1, err)

	for _, c := range []struct{ handler, image, command, want string }{
		{"runc", odd, "/notes", `is a text file without "#!"`},
		{"crun", odd, "/notes", `is a text file without "#!"`},
		{"runc", odd, "/folder", "is a directory"},
		{"runc", odd, "/nothing", "is empty"},
		{"runc", odd, "/bin/data", "may not be executed by any user (mode 0644)"},
		{"runc", odd, "data", `not found in PATH "/bin"`},
		{"wasm", oddGuest, "/notes", `is not a WebAssembly module: it is a text file without "#!"`},
		{"wasm", oddGuest, "/bin/busybox", "is not a WebAssembly module: it is an ELF program for " + oci.Host().Architecture},
		{"wasm", oddGuest, "/folder", "is a directory"},
		{"wasm", oddGuest, "/none.wasm", "does not exist in the image"},
		{"wasm", oddGuest, "none.wasm", `looked in PATH "/bin:/usr/bin"`},
	} {
		t.Run(c.handler+" "+c.command, func(t *testing.T) {
			m := m.in(t)
			config := containerConfig(c.image)
			config.Command = []string{c.command}
			refused := m.run(c.handler).create(config)
			_, err := m.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: refused.id})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if log, err := os.ReadFile(refused.log); err != nil || len(log) > 0 {
				t.Errorf("log %q, %v: kubelets read it for the reason of a failure, and want an empty one", log, err)
			}
			if message := refused.expectEnd(128, "StartError").GetMessage(); !strings.Contains(message, c.want) {
				t.Errorf("message %q, want %q", message, c.want)
			}
		})
	}
}

// A program on a volume is none of the image's business, whatever the image has there.
func TestProgramOnAVolume(t *testing.T) {
	m := start(t)
	image, err := oci.Busybox(oci.Host(), v1.Config{}, oci.Program("tool/run", []byte("no program\n")))
	if err != nil {
		t.Fatal(err)
	}
	ref := must(world.Registry.Push(t.Context(), "odd:volume", image))
	m.pull(ref)
	volume := filepath.Join(m.Options.Dir, "volume")
	if err := os.Mkdir(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(volume, "run"), []byte("#!/bin/sh\necho from the volume\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	config := containerConfig(ref)
	config.Command = []string{"/tool/run"}
	config.Mounts = []*runtime.Mount{{ContainerPath: "/tool", HostPath: volume}}
	c := m.run("runc").begin(config)
	c.wait()
	c.says("from the volume")
	if err := os.RemoveAll(volume); err != nil {
		t.Error(err)
	}
}

// A module that does not decode is refused where it is first seen, and the text says what is wrong.
func TestBrokenModule(t *testing.T) {
	m := start(t)
	_, err := m.PullImage(t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: world.Broken}})
	p := m.run("wasm")
	if err == nil {
		var c *container
		if c, err = p.tryCreate(containerConfig(world.Broken)); err == nil {
			if _, err = m.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: c.id}); err != nil {
				c.expectEnd(128, "StartError")
			}
		}
	}
	if err == nil {
		t.Error("a broken module was started")
	}
}

// A wasm pod holds Linux containers too: sidecars and debug containers.
func TestMixedPod(t *testing.T) {
	m := start(t)
	m.pull(world.Greeter)
	m.pull(world.Busybox)
	p := m.run("wasm", withPort(8080, 0))
	p.begin(containerConfig(world.Greeter)).says("listening")
	sidecar := p.begin(sh("wget -q -O - http://127.0.0.1:8080/ && sleep 1000"))
	sidecar.says("wasip1/wasm")
	list, err := m.ListContainers(t.Context(), &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{PodSandboxId: p.id}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.GetContainers() {
		if c.GetState() != runtime.ContainerState_CONTAINER_RUNNING {
			t.Errorf("%s is %v", c.GetMetadata().GetName(), c.GetState())
		}
	}
}

// A symbolic link in an image does not lead out of it.
func TestHostileSymlinks(t *testing.T) {
	m := start(t)
	m.pull(world.Hostile)
	host, err := os.ReadFile("/etc/os-release") // a file that the image does not have
	if err != nil {
		t.Fatal(err)
	}
	p := m.run("wasm", func(config *runtime.PodSandboxConfig) { config.Hostname = "inside" })
	for _, path := range []string{"/absolute", "/relative", "/through"} {
		c := p.begin(containerConfig(world.Hostile, "cat", path))
		c.wait()
		if name, err := os.Hostname(); err == nil && strings.Contains(c.text(), name) {
			t.Errorf("cat %s shows the host's name: %q", path, c.text())
		}
	}
	for _, path := range []string{"/folder/os-release", "/up/up/up/etc/os-release", "/up/../../etc/os-release", "../../../etc/os-release"} {
		c := p.begin(containerConfig(world.Hostile, "cat", path))
		c.expectEnd(1, "Error")
		if strings.Contains(c.text(), string(host)) {
			t.Errorf("cat %s shows the host's file", path)
		}
	}
	// Inside, the links work.
	c := p.begin(containerConfig(world.Hostile, "cat", "/folder/greeting"))
	c.expectEnd(0, "Completed")
	if c.text() != "hello from the image\n" {
		t.Errorf("a link inside the image: %q", c.text())
	}
}

// Logs have the format that the kubelet reads; each stream keeps its name and long lines are split.
func TestLogs(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Batch)
	p := m.run("runc")
	c := p.begin(sh("echo err >&2; echo out; head -c 40000 /dev/zero | tr '\\0' x; echo; printf 'no newline'"))
	c.expectEnd(0, "Completed")
	// The order within a stream is kept; between the two there is none.
	streams := map[string][]node.LogLine{}
	for _, l := range c.lines() {
		streams[l.Stream] = append(streams[l.Stream], l)
	}
	lines := streams["stdout"]
	if errs := streams["stderr"]; len(errs) != 1 || errs[0].Text != "err" || len(lines) < 4 || lines[0].Text != "out" {
		t.Fatalf("stderr %+v, stdout %+.100v", errs, lines)
	}
	long, last := lines[1:len(lines)-1], lines[len(lines)-1]
	if got := len(c.text()); got != len("out\nerr\n")+40001+len("no newline") && got != len("out\nerr\n")+40001+len("no newline\n") {
		t.Errorf("%d bytes of text", got)
	}
	for i, l := range long {
		if want := map[bool]string{true: "F", false: "P"}[i == len(long)-1]; l.Tag != want {
			t.Errorf("piece %d of %d is %s", i, len(long), l.Tag)
		}
	}
	if last.Text != "no newline" {
		t.Errorf("last line %+v", last)
	}

	guest := m.run("wasm").begin(containerConfig(world.Batch, "-lines", "1", "-stderr"))
	guest.expectEnd(0, "Completed")
	var errs []string
	for _, l := range guest.lines() {
		if l.Stream == "stderr" {
			errs = append(errs, l.Text)
		}
	}
	if len(errs) != 1 || errs[0] != "batch: line 1" {
		t.Errorf("the guest's stderr: %q", errs)
	}
}

// The kubelet renames the log and asks for a new one: no line is lost, none is in both.
func TestReopenLog(t *testing.T) {
	m := start(t)
	m.pull(world.Batch)
	for _, handler := range []string{"runc", "wasm"} {
		p := m.run(handler)
		c := p.begin(containerConfig(world.Batch, "-lines", "-1", "-every", "2ms"))
		c.says("line 5")
		old := c.log + ".1"
		if err := os.Rename(c.log, old); err != nil {
			t.Fatal(err)
		}
		if _, err := m.ReopenContainerLog(t.Context(), &runtime.ReopenContainerLogRequest{ContainerId: c.id}); err != nil {
			t.Fatalf("under %s: reopen: %v", handler, err)
		}
		size := len(c.linesOf(old))
		c.says("line ")
		c.stop(0)
		c.wait()
		before, after := c.linesOf(old), c.lines()
		if len(before) != size {
			t.Errorf("under %s: the old log grew from %d to %d lines after the new one was opened", handler, size, len(before))
		}
		n := 0
		for _, l := range append(before, after...) {
			if !strings.Contains(l.Text, "line ") {
				continue
			}
			if n++; l.Text != fmt.Sprintf("batch: line %d", n) {
				t.Fatalf("under %s: line %d is %q", handler, n, l.Text)
			}
		}
		if _, err := m.ReopenContainerLog(t.Context(), &runtime.ReopenContainerLogRequest{ContainerId: c.id}); err == nil {
			t.Errorf("under %s: the log of a container that has ended was reopened", handler)
		}
	}
}

// Stop: TERM that is heard, TERM that is ignored, and no grace at all.
func TestStopWithGrace(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, handler := range []string{"runc", "crun"} {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			p := m.run(handler)
			heard := p.begin(sh("trap 'echo bye; exit 3' TERM; echo up; while :; do usleep 5000; done"))
			ignored := p.begin(sh("trap '' TERM; echo up; while :; do usleep 5000; done"))
			atOnce := p.begin(sh("trap '' TERM; echo up; while :; do usleep 5000; done"))
			for _, c := range []*container{heard, ignored, atOnce} {
				c.says("up")
			}
			if took := heard.stop(120); took > node.Patience {
				t.Errorf("a program that hears TERM took %v", took)
			}
			heard.expectEnd(3, "Error")
			heard.says("bye")
			if took := ignored.stop(1); took < 900*time.Millisecond || took > node.Slow(node.Patience) {
				t.Errorf("a program that ignores TERM took %v, want about 1 s", took)
			}
			ignored.expectEnd(137, "Error")
			if took := atOnce.stop(0); took > node.Slow(9*time.Second) { // a grace that nobody has named is ten seconds
				t.Errorf("no grace took %v", took)
			}
			atOnce.expectEnd(137, "Error")
		})
	}
}

// A guest hears of a stop by its listener or its input; one with neither ends at once, unless it is
// told to use its grace.
func TestStopGuestWithGrace(t *testing.T) {
	m := start(t)
	m.pull(world.Guest)
	m.pull(world.Greeter)
	p := m.run("wasm", withPort(8080, 0))

	server := p.begin(containerConfig(world.Greeter))
	server.says("listening")
	if took := server.stop(120); took > node.Patience {
		t.Errorf("a server took %v", took)
	}
	server.expectEnd(0, "Completed")

	quiet := m.run("wasm")
	input := containerConfig(world.Guest, "read")
	input.Stdin = true
	reader := quiet.begin(input)
	reader.says("reading")
	if took := reader.stop(120); took > node.Patience {
		t.Errorf("a reader took %v", took)
	}
	reader.expectEnd(0, "Completed")

	deaf := quiet.begin(containerConfig(world.Guest, "idle"))
	deaf.says("idle")
	if took := deaf.stop(120); took > node.Patience {
		t.Errorf("a guest that cannot hear took %v", took)
	}
	deaf.expectEnd(143, "Error")

	patient := containerConfig(world.Guest, "idle")
	patient.Annotations = map[string]string{"io.sunaba.stop-wait": "true"}
	waiting := quiet.begin(patient)
	waiting.says("idle")
	if took := waiting.stop(1); took < 900*time.Millisecond || took > node.Slow(node.Patience) {
		t.Errorf("a guest that waits its grace out took %v", took)
	}
	waiting.expectEnd(137, "Error")

	spinning := quiet.begin(containerConfig(world.Guest, "spin"))
	if took := spinning.stop(0); took > node.Slow(9*time.Second) {
		t.Errorf("a computing guest took %v without grace", took)
	}
	spinning.expectEnd(137, "Error")
}

// Stats come from the container's own cgroup, under every handler.
func TestStats(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	for _, handler := range everyHandler {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			p := m.run(handler)
			config := sh("while :; do :; done")
			if handler == "wasm" {
				config = containerConfig(world.Guest, "spin")
			}
			c := p.begin(config)
			var stats *runtime.ContainerStats
			if !node.Within(node.Patience, func() bool {
				answer, err := m.ContainerStats(t.Context(), &runtime.ContainerStatsRequest{ContainerId: c.id})
				if err != nil {
					t.Fatal(err)
				}
				stats = answer.GetStats()
				return stats.GetCpu().GetUsageCoreNanoSeconds().GetValue() > 50e6 && stats.GetMemory().GetWorkingSetBytes().GetValue() > 0
			}) {
				t.Errorf("stats of a busy container: %v", stats)
			}
			if stats.GetCpu().GetTimestamp() == 0 || stats.GetMemory().GetTimestamp() == 0 {
				t.Errorf("stats without a time: %v", stats)
			}
			sandbox, err := m.PodSandboxStats(t.Context(), &runtime.PodSandboxStatsRequest{PodSandboxId: p.id})
			if err != nil {
				t.Fatal(err)
			}
			linux := sandbox.GetStats().GetLinux()
			if linux.GetCpu().GetUsageCoreNanoSeconds().GetValue() == 0 || linux.GetMemory().GetWorkingSetBytes().GetValue() == 0 {
				t.Errorf("pod stats: %v", linux)
			}
			c.stop(0)
		})
	}
}

// Memory has a limit, and a guest learns of it by a refused growth before the kernel does.
func TestMemoryLimit(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	limit := func(config *runtime.ContainerConfig) *runtime.ContainerConfig {
		config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 48 << 20}
		return config
	}
	c := m.run("runc").begin(limit(sh("x=0123456789abcdef; while :; do x=$x$x; done")))
	c.expectEnd(137, "OOMKilled")

	guest := m.run("wasm").begin(limit(containerConfig(world.Guest, "fill", "200")))
	guest.expectEnd(3, "Error")
	if !strings.Contains(guest.text(), "then no more") {
		t.Errorf("the guest said %q", guest.text())
	}
}

// A mount keeps its read-only flag under every handler.
func TestMounts(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	volume := t.TempDir()
	if err := os.WriteFile(volume+"/note", []byte("from the volume\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	with := func(config *runtime.ContainerConfig) *runtime.ContainerConfig {
		config.Mounts = []*runtime.Mount{{ContainerPath: "/volume", HostPath: volume, Readonly: true}}
		return config
	}
	c := m.run("runc").begin(with(sh("cat /volume/note; touch /volume/new || echo refused")))
	c.expectEnd(0, "Completed")
	if got := c.text(); !strings.Contains(got, "from the volume\n") || !strings.Contains(got, "refused\n") {
		t.Errorf("under runc: %q", got)
	}
	guest := m.run("wasm").begin(with(containerConfig(world.Guest, "cat", "/volume/note")))
	guest.expectEnd(0, "Completed")
	if got := guest.text(); got != "from the volume\n" {
		t.Errorf("under wasm: %q", got)
	}
	if got := guest.status().GetMounts(); len(got) != 1 || got[0].GetContainerPath() != "/volume" || !got[0].GetReadonly() {
		t.Errorf("mounts in the status: %v", got)
	}
}

// A command that takes too long is killed with all that it started, also what has a session of its
// own or lost its parent; one that leaves something behind which holds its output is answered in
// bounded time.
func TestExecSyncLeavesNothing(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, handler := range []string{"runc", "crun"} {
		c := m.run(handler).begin(sh("echo up; sleep 1000"))
		c.says("up")
		running := func() string {
			answer, err := m.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"ps"}})
			if err != nil {
				t.Fatal(err)
			}
			return string(answer.GetStdout())
		}
		_, err := m.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Timeout: 1, Cmd: []string{"sh", "-c",
			"/bin/busybox setsid sh -c 'sleep 4321 & sleep 4322' & (sleep 4323 &); sh -c 'sleep 4324; true' | cat",
		}})
		if grpcstatus.Code(err) != codes.DeadlineExceeded {
			t.Errorf("under %s: %v, want DeadlineExceeded", handler, err)
		}
		if list := running(); strings.Contains(list, "432") || !strings.Contains(list, "sleep 1000") {
			t.Errorf("under %s, after a command that took too long:\n%s", handler, list)
		}

		begun := time.Now()
		answer, err := m.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"sh", "-c", "sleep 4325 & echo said"}})
		if err != nil || string(answer.GetStdout()) != "said\n" || answer.GetExitCode() != 0 {
			t.Errorf("under %s: %v, %v", handler, answer, err)
		}
		if took := time.Since(begun); took > node.Slow(node.Patience) {
			t.Errorf("under %s: a command whose child holds its output took %v", handler, took)
		}
	}
}

// ExecSync's exit code is not an error, and its time limit is.
func TestExecSync(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, handler := range everyHandler {
		c := m.run(handler).begin(sh("echo up; sleep 1000"))
		c.says("up")
		answer, err := m.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"sh", "-c", "echo out; echo err >&2; exit 4"}})
		if err != nil {
			t.Fatal(err)
		}
		if answer.GetExitCode() != 4 || string(answer.GetStdout()) != "out\n" || string(answer.GetStderr()) != "err\n" {
			t.Errorf("under %s: %v", handler, answer)
		}
		if _, err := m.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"sleep", "100"}, Timeout: 1}); grpcstatus.Code(err) != codes.DeadlineExceeded {
			t.Errorf("under %s: %v, want DeadlineExceeded", handler, err)
		}
	}
}

// Of commands that fail side by side in one container, each is answered with its own reason.
func TestExecsThatFailAtOnce(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, handler := range everyHandler {
		c := m.run(handler).begin(sh("echo up; sleep 1000"))
		c.says("up")
		var all sync.WaitGroup
		for n := range 10 {
			command, want := fmt.Sprintf("/absent-%d", n), codes.InvalidArgument
			word := command
			if n%2 == 0 {
				command, want, word = "/etc/passwd", codes.PermissionDenied, "ermission denied" // crun does not say of what
			}
			all.Go(func() {
				_, err := m.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{command}})
				if grpcstatus.Code(err) != want || !strings.Contains(err.Error(), word) {
					t.Errorf("under %s: exec of %s: %v, want %s", handler, command, err, want)
				}
			})
		}
		all.Wait()
	}
}
