package criwasm

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

func lifecycleSpecs() map[string]func(*suite) {
	return map[string]func(*suite){
		"a guest is created, runs, ends and is removed": func(s *suite) {
			p := s.run()
			g := p.create(does("idle"))
			if got := g.status().GetState(); got != runtime.ContainerState_CONTAINER_CREATED {
				s.t.Errorf("created: %v", got)
			}
			s.check(g.start())
			if st := g.status(); st.GetState() != runtime.ContainerState_CONTAINER_RUNNING || st.GetStartedAt() == 0 {
				s.t.Errorf("started: %v", st)
			}
			g.says("idle")
			g.stop(0)
			if st := g.ends(137, "Error"); st.GetFinishedAt() < st.GetStartedAt() {
				s.t.Errorf("ended: %v", st)
			}
			_, err := s.RemoveContainer(s.t.Context(), &runtime.RemoveContainerRequest{ContainerId: g.id})
			s.check(err)
			_, err = s.ContainerStatus(s.t.Context(), &runtime.ContainerStatusRequest{ContainerId: g.id})
			s.refused(err, codes.NotFound)
		},
		"exit codes arrive verbatim": func(s *suite) {
			p := s.run()
			for _, code := range []int32{0, 1, 42, 125, 255} {
				reason := "Error"
				if code == 0 {
					reason = "Completed"
				}
				p.start(does("exit", fmt.Sprint(code))).ends(code, reason)
			}
		},
		"a trap is 134 and named": func(s *suite) {
			if st := s.run().start(does("trap")).ends(134, "Error"); !strings.Contains(st.GetMessage(), "unreachable") {
				s.t.Errorf("%q", st.GetMessage())
			}
		},
		"memory beyond the limit is refused to the guest": func(s *suite) {
			config := does("fill", "200")
			config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 48 << 20}
			g := s.run().start(config)
			g.ends(3, "Error")
			if !strings.Contains(g.text(), " 46 MiB, then no more") && !strings.Contains(g.text(), " 47 MiB, then no more") {
				s.t.Errorf("%q", g.text())
			}
		},
		"a guest that traps at its limit is out of memory": func(s *suite) {
			config := does("demand", "200")
			config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 48 << 20}
			if st := s.run().start(config).ends(134, "OOMKilled"); !strings.Contains(st.GetMessage(), "limit") {
				s.t.Errorf("%q", st.GetMessage())
			}
		},
		"a running guest is removed by force": func(s *suite) {
			g := s.run().start(does("spin"))
			for range 2 {
				_, err := s.RemoveContainer(s.t.Context(), &runtime.RemoveContainerRequest{ContainerId: g.id})
				s.check(err)
			}
		},
		"a guest starts once": func(s *suite) {
			g := s.run().start(does("exit", "0"))
			g.ends(0, "Completed")
			s.refused(g.start(), codes.FailedPrecondition)
		},
		"a stopped sandbox takes no guest": func(s *suite) {
			p := s.run()
			g := p.create(does("idle"))
			p.stop()
			_, err := p.tryCreate(does("idle"))
			s.refused(err, codes.FailedPrecondition)
			s.refused(g.start(), codes.FailedPrecondition)
		},
		"an image that is not there makes no guest": func(s *suite) {
			_, err := s.run().tryCreate(from(world.registry.Host + "/suite/none:1"))
			s.refused(err, codes.NotFound)
		},
		"a file that is not there cannot be started": func(s *suite) {
			config := does()
			config.Command = []string{"/none.wasm"}
			g, err := s.run().tryCreate(config)
			if err == nil {
				err = g.start()
				g.ends(128, "StartError")
			}
			if err == nil || !strings.Contains(err.Error(), "none.wasm") {
				s.t.Errorf("%v", err)
			}
		},
		"a broken module is refused": func(s *suite) {
			_, err := s.PullImage(s.t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: world.broken}})
			if err == nil {
				var g *guest
				if g, err = s.run().tryCreate(from(world.broken)); err == nil {
					err = g.start()
				}
			}
			if err == nil {
				s.t.Error("it was started")
			}
		},
		"guests are listed by id, state, pod and label": func(s *suite) {
			p := s.run()
			config := does("idle")
			config.Labels = map[string]string{"find": "it"}
			g := p.start(config)
			p.create(does("idle"))
			for name, f := range map[string]*runtime.ContainerFilter{
				"id": {Id: g.id}, "label": {LabelSelector: map[string]string{"find": "it"}},
				"pod and state": {PodSandboxId: p.id, State: &runtime.ContainerStateValue{State: runtime.ContainerState_CONTAINER_RUNNING}},
			} {
				list, err := s.ListContainers(s.t.Context(), &runtime.ListContainersRequest{Filter: f})
				s.check(err)
				if len(list.GetContainers()) != 1 || list.GetContainers()[0].GetId() != g.id {
					s.t.Errorf("by %s: %v", name, list)
				}
			}
		},
		"a guest keeps its labels, annotations and attempt": func(s *suite) {
			config := does("idle")
			config.Metadata.Attempt = 7
			config.Labels, config.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
			st := s.run().create(config).status()
			if st.GetMetadata().GetAttempt() != 7 || st.GetLabels()["a"] != "b" || st.GetAnnotations()["c"] != "d" || st.GetImageId() == "" || st.GetImageRef() == "" {
				s.t.Errorf("%v", st)
			}
		},
		"two guests of one name are refused": func(s *suite) {
			p := s.run()
			config := does("idle")
			p.create(config)
			_, err := p.tryCreate(does("exit", "0"))
			s.check(err)
			again := does("exit", "0")
			again.Metadata = config.GetMetadata()
			_, err = p.tryCreate(again)
			s.refused(err, codes.AlreadyExists)
		},
		"a Linux container runs beside a guest": func(s *suite) {
			p := s.run()
			p.start(does("idle")).says("idle")
			config := from(world.busybox)
			config.Command = []string{"/bin/sh", "-c", "hostname"}
			if got := p.prints(config); got != "guesthost\n" {
				s.t.Errorf("%q", got)
			}
		},
	}
}

func processSpecs() map[string]func(*suite) {
	return map[string]func(*suite){
		"arguments follow the entrypoint": func(s *suite) {
			if got := s.run().prints(does("args", "a b", "", "ü")); got != "/guest.wasm\nargs\na b\n\nü\n" {
				s.t.Errorf("%q", got)
			}
		},
		"the image's command is used when there are no arguments": func(s *suite) {
			if got := s.run().prints(from(world.cmd)); !strings.HasSuffix(got, "args\nfrom\nimage\n") {
				s.t.Errorf("%q", got)
			}
		},
		"a command replaces entrypoint and command": func(s *suite) {
			config := from(world.cmd)
			config.Command, config.Args = []string{"/guest.wasm", "args"}, []string{"mine"}
			if got := s.run().prints(config); got != "/guest.wasm\nargs\nmine\n" {
				s.t.Errorf("%q", got)
			}
		},
		"the environment is the image's, then the request's": func(s *suite) {
			config := does("env")
			config.Envs = []*runtime.KeyValue{{Key: "BOTH", Value: []byte("request")}, {Key: "MINE", Value: []byte("a=b c")}}
			got := "\n" + s.run().prints(config)
			for _, want := range []string{"\nFROM_IMAGE=yes\n", "\nBOTH=request\n", "\nMINE=a=b c\n", "\nHOSTNAME=guesthost\n"} {
				if !strings.Contains(got, want) {
					s.t.Errorf("no %q in %q", want, got)
				}
			}
			if strings.Contains(got, "BOTH=image") {
				s.t.Error("a variable twice")
			}
		},
		"the environment of the server does not leak": func(s *suite) {
			for _, l := range strings.Split(s.run().prints(does("env")), "\n") {
				name, _, _ := strings.Cut(l, "=")
				switch name {
				case "", "FROM_IMAGE", "BOTH", "HOSTNAME", "PATH", "PWD", "HOME":
				default:
					s.t.Errorf("%q", l)
				}
			}
		},
		"clock and randomness are real": func(s *suite) {
			var at int64
			_, err := fmt.Sscan(s.run().prints(does("time")), &at)
			s.check(err)
			if st, err := os.Stat(world.folder); err != nil || at < st.ModTime().Unix()-1 {
				s.t.Errorf("%d, %v", at, err)
			}
		},
		"the working directory, as PWD, is the request's, else the image's": func(s *suite) {
			p := s.run()
			if got := p.prints(from(world.cmd, "env", "PWD")); got != "/work\n" {
				s.t.Errorf("%q", got)
			}
			config := from(world.cmd, "env", "PWD")
			config.WorkingDir = "/tmp"
			if got := p.prints(config); got != "/tmp\n" {
				s.t.Errorf("%q", got)
			}
		},
		"user 0 is nobody on the node": func(s *suite) {
			g := s.run().start(does("idle"))
			g.says("idle")
			status := g.proc("status")
			for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
				if !strings.Contains(status, want) {
					s.t.Errorf("no %q in %q", want, status)
				}
			}
		},
		"another user is taken as it is": func(s *suite) {
			config := does("idle")
			config.Linux.SecurityContext = &runtime.LinuxContainerSecurityContext{
				RunAsUser: &runtime.Int64Value{Value: 1234}, RunAsGroup: &runtime.Int64Value{Value: 5678},
			}
			g := s.run().start(config)
			g.says("idle")
			if status := g.proc("status"); !strings.Contains(status, "Uid:\t1234\t") || !strings.Contains(status, "Gid:\t5678\t") {
				s.t.Errorf("%q", status)
			}
			if u := g.status().GetUser().GetLinux(); u.GetUid() != 1234 || u.GetGid() != 5678 {
				s.t.Errorf("%v", u)
			}
		},
		"a guest is in its own cgroup": func(s *suite) {
			g := s.run().start(does("idle"))
			g.says("idle")
			if got := g.proc("cgroup"); !strings.Contains(got, g.id) {
				s.t.Errorf("%q", got)
			}
		},
	}
}

// proc reads a file of the guest's process in /proc.
func (g *guest) proc(name string) string {
	g.t.Helper()
	answer, err := g.ContainerStatus(g.t.Context(), &runtime.ContainerStatusRequest{ContainerId: g.id, Verbose: true})
	g.check(err)
	var info struct{ PID int }
	g.check(json.Unmarshal([]byte(answer.GetInfo()["info"]), &info))
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", info.PID, name))
	g.check(err)
	return string(data)
}

func updateSpecs() map[string]func(*suite) {
	update := func(g *guest, r *runtime.LinuxContainerResources) error {
		_, err := g.UpdateContainerResources(g.t.Context(), &runtime.UpdateContainerResourcesRequest{ContainerId: g.id, Linux: r})
		return err
	}
	return map[string]func(*suite){
		"limits of a running guest are changed": func(s *suite) {
			config := does("idle")
			config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuQuota: 50000, CpuPeriod: 100000}
			g := s.run().start(config)
			g.says("idle")
			s.check(update(g, &runtime.LinuxContainerResources{MemoryLimitInBytes: 128 << 20}))
			r := g.status().GetResources().GetLinux()
			if r.GetMemoryLimitInBytes() != 128<<20 || r.GetCpuQuota() != 50000 {
				s.t.Errorf("%v", r)
			}
			stats, err := s.ContainerStats(s.t.Context(), &runtime.ContainerStatsRequest{ContainerId: g.id})
			s.check(err)
			if got := stats.GetStats().GetMemory().GetAvailableBytes().GetValue(); got < 64<<20 || got > 160<<20 { // with the engine's part
				s.t.Errorf("%d bytes are available", got)
			}
		},
		"limits of a guest that was not started are changed": func(s *suite) {
			config := does("fill", "40")
			config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}
			g := s.run().create(config)
			s.check(update(g, &runtime.LinuxContainerResources{MemoryLimitInBytes: 128 << 20}))
			s.check(g.start())
			g.ends(0, "Completed")
		},
		"an ended guest is not updated": func(s *suite) {
			g := s.run().start(does("exit", "0"))
			g.ends(0, "Completed")
			s.refused(update(g, &runtime.LinuxContainerResources{MemoryLimitInBytes: 128 << 20}), codes.FailedPrecondition)
		},
		"a pod's overhead and resources are changed": func(s *suite) {
			p := s.run()
			_, err := s.UpdatePodSandboxResources(s.t.Context(), &runtime.UpdatePodSandboxResourcesRequest{
				PodSandboxId: p.id, Overhead: &runtime.LinuxContainerResources{MemoryLimitInBytes: 8 << 20},
				Resources: &runtime.LinuxContainerResources{MemoryLimitInBytes: 64 << 20},
			})
			s.check(err)
			if got := p.status().GetInfo()["info"]; !strings.Contains(got, fmt.Sprint(72<<20)) {
				s.t.Errorf("%s", got)
			}
		},
	}
}

func restartSpecs() map[string]func(*suite) {
	return map[string]func(*suite){
		"guests run on while the server is killed": func(s *suite) {
			p := s.run()
			ticking := p.start(does("tick"))
			ticking.says("tick 3")
			ending := p.start(does("read"))
			ending.ends(0, "Completed") // without stdin it reads an end
			short := p.start(from(world.guest, "exit", "9"))
			s.check(s.SignalDaemon(syscall.SIGKILL))
			s.check(s.StartDaemon(s.t.Context()))
			short.ends(9, "Error")
			before := len(ticking.lines())
			if !node.Within(node.Patience, func() bool { return len(ticking.lines()) > before+5 }) {
				s.t.Error("the log does not grow")
			}
			for i, l := range ticking.lines() {
				if l.Text != fmt.Sprint("tick ", i+1) {
					s.t.Fatalf("line %d is %q", i+1, l.Text)
				}
			}
			ticking.stop(0)
			ticking.ends(137, "Error")
		},
	}
}
