package criwasm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

func execSpecs() map[string]func(*suite) {
	idle := func(s *suite, image string) *guest {
		config := from(image, "idle")
		config.Envs = []*runtime.KeyValue{{Key: "MINE", Value: []byte("yes")}}
		g := s.run().start(config)
		g.says("idle")
		return g
	}
	want := func(g *guest, code int32, stdout string, command ...string) *runtime.ExecSyncResponse {
		g.t.Helper()
		answer, err := g.exec(60, command...)
		g.check(err)
		if answer.GetExitCode() != code || string(answer.GetStdout()) != stdout {
			g.t.Errorf("%q: %d, %q, %q", command, answer.GetExitCode(), answer.GetStdout(), answer.GetStderr())
		}
		return answer
	}
	return map[string]func(*suite){
		"a module of the image is run": func(s *suite) {
			want(idle(s, world.guest), 0, "guest.wasm\nargs\nx\n", "guest.wasm", "args", "x")
		},
		"exit codes arrive verbatim": func(s *suite) {
			g := idle(s, world.guest)
			for _, code := range []int32{0, 3, 255} {
				want(g, code, "", "/guest.wasm", "exit", fmt.Sprint(code))
			}
		},
		"both streams arrive": func(s *suite) {
			answer := want(idle(s, world.guest), 0, "out 1\nout 2\nout 3\n", "/guest.wasm", "both")
			if string(answer.GetStderr()) != "err 1\nerr 2\nerr 3\n" {
				s.t.Errorf("%q", answer.GetStderr())
			}
		},
		"the environment is the container's": func(s *suite) {
			want(idle(s, world.guest), 0, "yes\n", "/guest.wasm", "env", "MINE")
		},
		"the files are the container's": func(s *suite) {
			g := idle(s, world.guest)
			want(g, 0, "", "/guest.wasm", "write", "/tmp/note", "from an exec")
			want(g, 0, "from an exec", "/guest.wasm", "cat", "/tmp/note")
		},
		"a trap is 134": func(s *suite) {
			want(idle(s, world.guest), 134, "", "/guest.wasm", "trap")
		},
		"a file that is no module is 126": func(s *suite) {
			if answer := want(idle(s, world.guest), 126, "", "/script"); len(answer.GetStderr()) == 0 {
				s.t.Error("no text")
			}
		},
		"a file that is not there is 127": func(s *suite) {
			if answer := want(idle(s, world.guest), 127, "", "/none.wasm"); len(answer.GetStderr()) == 0 {
				s.t.Error("no text")
			}
		},
		"a time limit ends it": func(s *suite) {
			g := idle(s, world.guest)
			begun := time.Now()
			_, err := g.exec(1, "/guest.wasm", "spin")
			s.refused(err, codes.DeadlineExceeded)
			if took := time.Since(begun); took > node.Patience {
				s.t.Errorf("it took %v", took)
			}
			if !node.Within(node.Patience, func() bool { return g.processes() == 1 }) {
				s.t.Errorf("%d processes are left", g.processes())
			}
			if got := g.status().GetState(); got != runtime.ContainerState_CONTAINER_RUNNING {
				s.t.Errorf("the guest itself is %v", got)
			}
		},
		"a probe succeeds again and again": func(s *suite) {
			g := idle(s, world.guest)
			for range 10 {
				want(g, 0, "hello from the image\n", "/guest.wasm", "cat", "/etc/greeting")
			}
		},
		"an artifact's module runs itself": func(s *suite) {
			g := idle(s, world.artifact)
			name, _, _ := strings.Cut(g.pod.prints(from(world.artifact, "args")), "\n")
			want(g, 6, "", name, "exit", "6")
			want(g, 5, "", oci.Title, "exit", "5")
			want(g, 4, "", "/"+oci.Title, "exit", "4")
			want(g, 127, "", "another", "exit", "6")
		},
		"nothing is run in a guest that has ended": func(s *suite) {
			g := s.run().start(does("exit", "0"))
			g.ends(0, "Completed")
			_, err := g.exec(1, "/guest.wasm")
			s.refused(err, codes.FailedPrecondition)
		},
	}
}

// processes counts those in the guest's cgroup, by the metric.
func (g *guest) processes() uint64 {
	g.t.Helper()
	answer, err := g.ListPodSandboxMetrics(g.t.Context(), &runtime.ListPodSandboxMetricsRequest{})
	g.check(err)
	for _, pm := range answer.GetPodMetrics() {
		for _, cm := range pm.GetContainerMetrics() {
			for _, m := range cm.GetMetrics() {
				if cm.GetContainerId() == g.id && m.GetName() == "container_processes" {
					return m.GetValue().GetValue()
				}
			}
		}
	}
	return 0
}

func logSpecs() map[string]func(*suite) {
	return map[string]func(*suite){
		"each stream keeps its name and order": func(s *suite) {
			g := s.run().start(does("both"))
			g.ends(0, "Completed")
			got := map[string]string{}
			for _, l := range g.lines() {
				got[l.Stream] += l.Text + ";"
			}
			if got["stdout"] != "out 1;out 2;out 3;" || got["stderr"] != "err 1;err 2;err 3;" {
				s.t.Errorf("%q", got)
			}
		},
		"a long line is split": func(s *suite) {
			g := s.run().start(does("long", "40000"))
			g.ends(0, "Completed")
			lines := g.lines()
			if len(lines) < 3 || lines[0].Tag != "P" || lines[len(lines)-1].Tag != "F" || len(strings.TrimSuffix(g.text(), "\n")) != 40000 {
				s.t.Errorf("%d lines, %d bytes", len(lines), len(g.text()))
			}
		},
		"a last line without an end is kept": func(s *suite) {
			g := s.run().start(does("bare"))
			g.ends(0, "Completed")
			if lines := g.lines(); len(lines) != 1 || lines[0].Text != "no newline" {
				s.t.Errorf("%q", lines)
			}
		},
		"a reopened log loses and doubles nothing": func(s *suite) {
			g := s.run().start(does("tick"))
			g.says("tick 3")
			s.check(os.Rename(g.log, g.log+".1"))
			_, err := s.ReopenContainerLog(s.t.Context(), &runtime.ReopenContainerLogRequest{ContainerId: g.id})
			s.check(err)
			old := g.linesOf(g.log + ".1")
			g.says("tick")
			g.stop(0)
			for i, l := range append(old, g.lines()...) {
				if l.Text != fmt.Sprint("tick ", i+1) {
					s.t.Fatalf("line %d is %q", i+1, l.Text)
				}
			}
		},
		"the log of an ended guest is not reopened": func(s *suite) {
			g := s.run().start(does("exit", "0"))
			g.ends(0, "Completed")
			s.check(os.Remove(g.log))
			if _, err := s.ReopenContainerLog(s.t.Context(), &runtime.ReopenContainerLogRequest{ContainerId: g.id}); err == nil {
				s.t.Error("no error")
			}
			if _, err := os.Stat(g.log); err == nil {
				s.t.Error("a new file")
			}
		},
		"a guest without a log runs": func(s *suite) {
			config := does("both")
			config.LogPath = ""
			answer, err := s.CreateContainer(s.t.Context(), func() *runtime.CreateContainerRequest {
				p := s.run(func(c *runtime.PodSandboxConfig) { c.LogDirectory = "" })
				return &runtime.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config}
			}())
			s.check(err)
			_, err = s.StartContainer(s.t.Context(), &runtime.StartContainerRequest{ContainerId: answer.GetContainerId()})
			s.check(err)
		},
	}
}

func statsSpecs() map[string]func(*suite) {
	return map[string]func(*suite){
		"a busy guest's figures are its cgroup's": func(s *suite) {
			g := s.run().start(does("spin"))
			if !node.Within(node.Patience, func() bool {
				answer, err := s.ContainerStats(s.t.Context(), &runtime.ContainerStatsRequest{ContainerId: g.id})
				s.check(err)
				st := answer.GetStats()
				return st.GetCpu().GetUsageCoreNanoSeconds().GetValue() > 50e6 && st.GetCpu().GetTimestamp() > 0 &&
					st.GetMemory().GetWorkingSetBytes().GetValue() > 0 && st.GetMemory().GetTimestamp() > 0 && st.GetWritableLayer() != nil
			}) {
				s.t.Error("no figures")
			}
		},
		"stats are listed by label, and not of ended guests": func(s *suite) {
			p := s.run()
			config := does("idle")
			config.Labels = map[string]string{"measure": "me"}
			g := p.start(config)
			p.start(does("idle"))
			ended := does("exit", "0")
			ended.Labels = config.GetLabels()
			p.start(ended).ends(0, "Completed")
			list, err := s.ListContainerStats(s.t.Context(), &runtime.ListContainerStatsRequest{Filter: &runtime.ContainerStatsFilter{LabelSelector: config.GetLabels()}})
			s.check(err)
			if len(list.GetStats()) != 1 || list.GetStats()[0].GetAttributes().GetId() != g.id {
				s.t.Errorf("%v", list)
			}
		},
		"a pod's figures hold those of its guests and its network": func(s *suite) {
			p := s.run()
			p.start(does("idle")).says("idle")
			answer, err := s.PodSandboxStats(s.t.Context(), &runtime.PodSandboxStatsRequest{PodSandboxId: p.id})
			s.check(err)
			linux := answer.GetStats().GetLinux()
			if len(linux.GetContainers()) != 1 || linux.GetNetwork().GetDefaultInterface().GetName() != "eth0" || linux.GetMemory().GetUsageBytes().GetValue() == 0 ||
				linux.GetProcess().GetProcessCount().GetValue() < 2 {
				s.t.Errorf("%v", linux)
			}
		},
		"a guest has cAdvisor's metrics": func(s *suite) {
			g := s.run().start(does("idle"))
			g.says("idle")
			// Who has started it was in its cgroup with a thread, which ends at its own time.
			if !node.Within(node.Patience, func() bool { return g.processes() == 1 }) {
				s.t.Errorf("%d processes", g.processes())
			}
		},
	}
}

func stopSpecs() map[string]func(*suite) {
	port := func(c *runtime.PodSandboxConfig) { c.PortMappings = []*runtime.PortMapping{{ContainerPort: 8080}} }
	quick := func(s *suite, took time.Duration) {
		if took > node.Patience { // half of what it had
			s.t.Errorf("it took %v", took)
		}
	}
	return map[string]func(*suite){
		"a serving guest hears it and keeps its code": func(s *suite) {
			g := s.run(port).start(does("serve"))
			g.says("serving")
			quick(s, g.stop(120))
			g.ends(0, "Completed")
			g.says("no more connections")
		},
		"a reading guest hears it": func(s *suite) {
			config := does("read")
			config.Stdin = true
			g := s.run().start(config)
			g.says("reading")
			quick(s, g.stop(120))
			g.ends(0, "Completed")
			g.says("end of input")
		},
		"a guest that cannot hear ends at once": func(s *suite) {
			g := s.run().start(does("idle"))
			g.says("idle")
			quick(s, g.stop(120))
			g.ends(143, "Error")
		},
		"a computing guest that cannot hear ends at once": func(s *suite) {
			g := s.run().start(does("spin"))
			quick(s, g.stop(120))
			g.ends(143, "Error")
		},
		"a guest that may wait out its grace does": func(s *suite) {
			config := does("idle")
			config.Annotations = map[string]string{"io.sunaba.stop-wait": "true"}
			g := s.run().start(config)
			g.says("idle")
			if took := g.stop(1); took < 900*time.Millisecond || took > node.Patience {
				s.t.Errorf("it took %v", took)
			}
			g.ends(137, "Error")
		},
		"a serving guest that does not end is killed": func(s *suite) {
			g := s.run(port).start(does("deaf"))
			g.says("serving")
			if took := g.stop(1); took < 900*time.Millisecond || took > node.Patience {
				s.t.Errorf("it took %v", took)
			}
			g.ends(137, "Error")
		},
		"without grace it is killed": func(s *suite) {
			g := s.run(port).start(does("serve"))
			g.says("serving")
			g.stop(0)
			g.ends(137, "Error")
		},
		"an ended guest may be stopped": func(s *suite) {
			g := s.run().start(does("exit", "5"))
			g.ends(5, "Error")
			g.stop(10)
			g.stop(0)
			g.ends(5, "Error")
		},
	}
}

// volume makes a folder that every user may write to, with a file in it.
func (s *suite) volume() string {
	s.t.Helper()
	dir := s.t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		s.check(os.Chmod(d, 0o755))
	}
	s.check(os.Chmod(dir, 0o777))
	s.check(os.WriteFile(filepath.Join(dir, "note"), []byte("from the volume\n"), 0o644))
	return dir
}

func mountSpecs() map[string]func(*suite) {
	mounted := func(config *runtime.ContainerConfig, mounts ...*runtime.Mount) *runtime.ContainerConfig {
		config.Mounts = mounts
		return config
	}
	return map[string]func(*suite){
		"a volume is read": func(s *suite) {
			if got := s.run().prints(mounted(does("cat", "/v/note"), &runtime.Mount{ContainerPath: "/v", HostPath: s.volume()})); got != "from the volume\n" {
				s.t.Errorf("%q", got)
			}
		},
		"a volume is written": func(s *suite) {
			dir := s.volume()
			s.run().prints(mounted(does("write", "/v/new", "by a guest"), &runtime.Mount{ContainerPath: "/v", HostPath: dir}))
			if got, err := os.ReadFile(filepath.Join(dir, "new")); err != nil || string(got) != "by a guest" {
				s.t.Errorf("%q, %v", got, err)
			}
		},
		"a read-only volume is not written": func(s *suite) {
			dir := s.volume()
			s.run().start(mounted(does("write", "/v/new", "x"), &runtime.Mount{ContainerPath: "/v", HostPath: dir, Readonly: true})).ends(1, "Error")
			if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
				s.t.Error("it was")
			}
		},
		"a single file is mounted": func(s *suite) {
			if got := s.run().prints(mounted(does("cat", "/etc/note"), &runtime.Mount{ContainerPath: "/etc/note", HostPath: filepath.Join(s.volume(), "note")})); got != "from the volume\n" {
				s.t.Errorf("%q", got)
			}
		},
		"a link as the source is followed": func(s *suite) {
			dir := s.volume()
			link := filepath.Join(s.t.TempDir(), "link")
			s.check(os.Symlink(dir, link))
			if got := s.run().prints(mounted(does("cat", "/v/note"), &runtime.Mount{ContainerPath: "/v", HostPath: link})); got != "from the volume\n" {
				s.t.Errorf("%q", got)
			}
		},
		"mounts lie in mounts": func(s *suite) {
			outer, inner := s.volume(), s.volume()
			s.check(os.Mkdir(filepath.Join(outer, "in"), 0o755))
			s.check(os.WriteFile(filepath.Join(inner, "deep"), []byte("deep\n"), 0o644))
			got := s.run().prints(mounted(does("cat", "/v/in/deep"), &runtime.Mount{ContainerPath: "/v", HostPath: outer}, &runtime.Mount{ContainerPath: "/v/in", HostPath: inner}))
			if got != "deep\n" {
				s.t.Errorf("%q", got)
			}
		},
		"the status shows the mounts": func(s *suite) {
			dir := s.volume()
			got := s.run().create(mounted(does(), &runtime.Mount{ContainerPath: "/v", HostPath: dir, Readonly: true})).status().GetMounts()
			if len(got) != 1 || got[0].GetContainerPath() != "/v" || got[0].GetHostPath() != dir || !got[0].GetReadonly() {
				s.t.Errorf("%v", got)
			}
		},
		"an artifact has its mounts and nothing else": func(s *suite) {
			p := s.run()
			if got := p.prints(mounted(from(world.artifact, "cat", "/v/note"), &runtime.Mount{ContainerPath: "/v", HostPath: s.volume()})); got != "from the volume\n" {
				s.t.Errorf("%q", got)
			}
			p.start(from(world.artifact, "write", "/new", "x")).ends(1, "Error")
		},
		"the root is written by one guest and not seen by another": func(s *suite) {
			p := s.run()
			p.prints(does("write", "/tmp/note", "x"))
			p.start(does("cat", "/tmp/note")).ends(1, "Error")
		},
		"a read-only root is not written": func(s *suite) {
			config := does("write", "/tmp/note", "x")
			config.Linux.SecurityContext = &runtime.LinuxContainerSecurityContext{ReadonlyRootfs: true}
			g := s.run().start(config)
			g.ends(1, "Error")
			if !strings.Contains(g.text(), "Read-only") && !strings.Contains(g.text(), "/tmp/note") {
				s.t.Errorf("%q", g.text())
			}
		},
		"a read-only volume can be read-only below too": func(s *suite) {
			dir := s.t.TempDir()
			below := filepath.Join(dir, "below")
			s.check(os.Mkdir(below, 0o755))
			s.check(unix.Mount("tmpfs", below, "tmpfs", 0, "mode=777"))
			s.t.Cleanup(func() { s.check(unix.Unmount(below, 0)) })
			p := s.run()
			flat := &runtime.Mount{ContainerPath: "/v", HostPath: dir, Readonly: true}
			p.prints(mounted(does("write", "/v/below/one", "x"), flat))
			deep := &runtime.Mount{ContainerPath: "/v", HostPath: dir, Readonly: true, RecursiveReadOnly: true}
			p.start(mounted(does("write", "/v/below/two", "x"), deep)).ends(1, "Error")
			if _, err := os.Stat(filepath.Join(below, "two")); err == nil {
				s.t.Error("it was written")
			}
		},
		"mount options are taken": func(s *suite) {
			p := s.run()
			v := &runtime.Mount{ContainerPath: "/v", HostPath: s.volume(), MountOptions: []string{"noexec", "nodev", "nosuid"}}
			if got := p.prints(mounted(does("cat", "/v/note"), v)); got != "from the volume\n" {
				s.t.Errorf("%q", got)
			}
			v.MountOptions = []string{"exec"}
			_, err := p.tryCreate(mounted(does(), v))
			s.refused(err, codes.InvalidArgument)
		},
		"a guest is confined by its own profiles only": func(s *suite) {
			p := s.run()
			config := does("args")
			config.Linux = &runtime.LinuxContainerConfig{SecurityContext: &runtime.LinuxContainerSecurityContext{
				Seccomp: &runtime.SecurityProfile{}, NoNewPrivs: true, Capabilities: &runtime.Capability{AddCapabilities: []string{"ALL"}},
			}}
			p.start(config).ends(0, "Completed")
			config = does()
			config.Linux = &runtime.LinuxContainerConfig{SecurityContext: &runtime.LinuxContainerSecurityContext{
				Seccomp: &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Localhost, LocalhostRef: "/etc/hostname"},
			}}
			_, err := p.tryCreate(config)
			s.refused(err, codes.InvalidArgument)
		},
		"a guest has no devices": func(s *suite) {
			config := does()
			config.Devices = []*runtime.Device{{HostPath: "/dev/null", ContainerPath: "/dev/mine", Permissions: "rw"}}
			_, err := s.run().tryCreate(config)
			s.refused(err, codes.InvalidArgument)
		},
		"an image is a volume": func(s *suite) {
			id := s.pull(world.guest)
			p := s.run()
			image := &runtime.Mount{ContainerPath: "/image", Image: &runtime.ImageSpec{Image: id}, ImageSubPath: "etc", Readonly: true}
			p.prints(mounted(does("ls", "/image"), image))
			p.start(mounted(does("write", "/image/new", "x"), image)).ends(1, "Error")
			p.prints(mounted(from(world.artifact, "ls", "/image"), image))
		},
		"a path cannot leave the root": func(s *suite) {
			secret := filepath.Join(s.t.TempDir(), "secret")
			s.check(os.WriteFile(secret, []byte("x"), 0o644))
			p := s.run()
			for _, path := range []string{secret, "../../../../../../../.." + secret, "/etc/../../../../../.." + secret, "/proc/self/root" + secret} {
				p.start(does("cat", path)).ends(1, "Error")
			}
		},
	}
}
