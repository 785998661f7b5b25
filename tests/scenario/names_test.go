package scenario

import (
	"strings"
	"testing"

	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// An error about a pod or a container that is there calls it by its name, once, and not by its id.
func TestErrorsCallThingsByTheirNames(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	ctx := t.Context()
	for _, handler := range everyHandler {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			run := func(name string) *pod {
				return m.run(handler, func(c *runtime.PodSandboxConfig) { c.Metadata.Name = name + "-" + handler })
			}
			named := func(name string, config *runtime.ContainerConfig) *runtime.ContainerConfig {
				config.Metadata.Name = name
				return config
			}
			idle, exit, none := sh("sleep 1000"), sh("exit 3"), containerConfig(world.Busybox)
			none.Command = []string{"/no/such/program"}
			if handler == "wasm" {
				idle, exit, none = containerConfig(world.Guest, "idle"), containerConfig(world.Guest, "exit", "3"), containerConfig(world.Guest)
				none.Command = []string{"/no/such.wasm"}
			}
			p, stopped := run("web"), run("stopped")
			running := p.begin(named("running", idle))
			ended := p.begin(named("ended", exit))
			ended.wait()
			late := stopped.create(named("late", exit))
			stopped.stop()

			exec := func(id string, cmd ...string) error {
				_, err := m.ExecSync(ctx, &runtime.ExecSyncRequest{ContainerId: id, Cmd: cmd})
				return err
			}
			update := func(id string, r *runtime.LinuxContainerResources) error {
				_, err := m.UpdateContainerResources(ctx, &runtime.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
				return err
			}
			start := func(id string) error {
				_, err := m.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: id})
				return err
			}
			created, err := p.tryCreate(named("missing", none))
			if err == nil {
				err = start(created.id)
			}
			_, again := p.tryCreate(named("x", exit))
			if again != nil {
				t.Fatal(again)
			}
			_, inStopped := stopped.tryCreate(named("more", exit))
			_, reopen := m.ReopenContainerLog(ctx, &runtime.ReopenContainerLogRequest{ContainerId: ended.id})
			_, attach := m.Attach(ctx, &runtime.AttachRequest{ContainerId: ended.id, Stdout: true})
			_, execURL := m.Exec(ctx, &runtime.ExecRequest{ContainerId: ended.id, Cmd: []string{"x"}, Stdout: true})
			_, noStreams := m.Exec(ctx, &runtime.ExecRequest{ContainerId: running.id, Cmd: []string{"x"}})
			_, noCommand := m.Exec(ctx, &runtime.ExecRequest{ContainerId: running.id, Stdout: true})
			_, noAttach := m.Attach(ctx, &runtime.AttachRequest{ContainerId: running.id})
			_, forward := m.PortForward(ctx, &runtime.PortForwardRequest{PodSandboxId: stopped.id, Port: []int32{80}})
			_, checkpoint := m.CheckpointContainer(ctx, &runtime.CheckpointContainerRequest{ContainerId: ended.id, Location: "/tmp/none.tar"})
			_, pod := m.UpdatePodSandboxResources(ctx, &runtime.UpdatePodSandboxResourcesRequest{PodSandboxId: p.id, Overhead: &runtime.LinuxContainerResources{CpuShares: -1}})
			if handler != "wasm" { // a guest's exec ends with 127
				noProgram := exec(running.id, "/no/such/program")
				if noProgram == nil || !strings.Contains(noProgram.Error(), `"running"`) {
					t.Errorf("exec what is no program: %v", noProgram)
				}
			}
			for what, c := range map[string]struct {
				err  error
				name string
			}{
				"start what is no program":       {err, "missing"},
				"start what runs":                {start(running.id), "running"},
				"start what has ended":           {start(ended.id), "ended"},
				"start in a stopped pod":         {start(late.id), "late"},
				"create in a stopped pod":        {inStopped, "stopped-" + handler},
				"exec in what has ended":         {exec(ended.id, "x"), "ended"},
				"exec nothing":                   {exec(running.id), "running"},
				"stream nothing":                 {noCommand, "running"},
				"stream without a stream":        {noStreams, "running"},
				"stream what has ended":          {execURL, "ended"},
				"attach to what has ended":       {attach, "ended"},
				"attach without a stream":        {noAttach, "running"},
				"forward to a stopped pod":       {forward, "stopped-" + handler},
				"reopen the log of what ended":   {reopen, "ended"},
				"checkpoint what has ended":      {checkpoint, "ended"},
				"update what has ended":          {update(ended.id, &runtime.LinuxContainerResources{CpuShares: 100}), "ended"},
				"update by what cannot be":       {update(running.id, &runtime.LinuxContainerResources{CpusetCpus: "nonsense"}), "running"},
				"update a pod by what cannot be": {pod, "web-" + handler},
			} {
				text := grpcstatus.Convert(c.err).Message()
				if c.err == nil || strings.Count(text, `"`+c.name+`"`) != 1 {
					t.Errorf("%s: %v, want %q once", what, c.err, c.name)
				}
				for _, id := range []string{p.id, stopped.id, running.id, ended.id, late.id} {
					if strings.Contains(text, id) {
						t.Errorf("%s: it has an id: %s", what, text)
					}
				}
			}
		})
	}
}
