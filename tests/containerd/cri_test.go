package containerd

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestRuntimeClasses runs pods of two handlers by containerd's CRI: Linux containers, guests, and
// both in one pod.
func TestRuntimeClasses(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		for _, ref := range []string{world.busybox, world.asLinux, world.wasip1, world.server} {
			b.image(ref)
		}
		linux := b.runPod("sunaba", "linux", nil)
		mixed := b.runPod("sunaba-wasm", "mixed", func(c *runtime.PodSandboxConfig) {
			c.Annotations = map[string]string{"io.sunaba.wasm.listen": `[{"name":"http","port":8080,"optional":true}]`}
		})
		if shims := b.shims(); len(shims) != 2 {
			t.Errorf("shims %v of 2 pods", shims)
		}

		a := linux.begin("a", world.busybox, []string{"/bin/sh", "-c", "echo hello; sleep 1000"}, nil)
		a.says("stdout F hello")
		if out, code := a.exec("/bin/sh", "-c", "echo out; exit 4"); out != "out\n" || code != 4 {
			t.Errorf("exec: %q, %d", out, code)
		}
		server := mixed.begin("server", world.server, nil, nil)
		server.says("listening")
		if text := mixed.fetch(8080); !strings.Contains(text, "wasip1") {
			t.Errorf("the server says %q", text)
		}
		side := mixed.begin("side", world.busybox, []string{"/bin/sh", "-c", "sleep 1000"}, nil)
		if out, code := side.exec("/bin/wget", "-q", "-O", "-", "http://127.0.0.1:8080/"); code != 0 || !strings.Contains(out, "wasip1") {
			t.Errorf("from the container beside it the server says %q (%d)", out, code)
		}
		idle := mixed.begin("idle", world.asLinux, []string{"/guest.wasm", "idle"}, nil)
		if out, code := idle.exec("/guest.wasm", "env", "PATH"); code != 0 || !strings.Contains(out, "/bin") {
			t.Errorf("exec in a guest's container: %q, %d", out, code)
		}
		for i, ref := range []string{world.asLinux, world.wasip1} {
			mixed.begin(name("exit", i), ref, []string{"/guest.wasm", "exit", "5"}, nil).ends(5, "Error")
		}
		// What ended a guest is its termination message, as a kubelet reads it, where it has said nothing itself.
		for text, want := range map[string]string{"": "unreachable", "mine": "mine"} {
			message := filepath.Join(t.TempDir(), "message")
			if err := os.WriteFile(message, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
			mixed.begin("trap"+text, world.asLinux, []string{"/guest.wasm", "trap"}, func(c *runtime.ContainerConfig) {
				c.Mounts = []*runtime.Mount{{HostPath: message, ContainerPath: "/dev/termination-log"}}
			}).ends(134, "Error")
			if got, err := os.ReadFile(message); err != nil || !strings.Contains(string(got), want) || text != "" && string(got) != text {
				t.Errorf("termination message %q (%v), want %q", got, err, want)
			}
		}
		mixed.begin("fill", world.asLinux, []string{"/guest.wasm", "fill", "500"}, limited).ends(3, "Error") // it is refused more memory
		linux.begin("fill", world.busybox, []string{"/bin/sh", "-c", "x=a; while true; do x=$x$x; done"}, limited).ends(137, "OOMKilled")
		if shims := b.shims(); len(shims) != 2 {
			t.Errorf("shims %v of 2 pods", shims)
		}
		for _, m := range []*member{a, server, side} {
			b.eventually("stats of "+m.log, func() bool {
				r, err := b.ContainerStats(b.ctx(), &runtime.ContainerStatsRequest{ContainerId: m.id})
				return err == nil && r.Stats.Cpu.GetUsageCoreNanoSeconds().GetValue() > 0 && r.Stats.Memory.GetWorkingSetBytes().GetValue() > 0
			})
		}
		must(b.StopContainer(b.ctx(), &runtime.StopContainerRequest{ContainerId: server.id, Timeout: 60}))(t)
		server.ends(0, "")
		linux.remove()
		mixed.remove()
	})
}

// limited gives a container little memory.
func limited(c *runtime.ContainerConfig) {
	c.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 64 << 20}
}

// fetch asks the pod's server.
func (p *pod) fetch(port int) string {
	p.t.Helper()
	status := must(p.PodSandboxStatus(p.ctx(), &runtime.PodSandboxStatusRequest{PodSandboxId: p.id}))(p.t).Status
	request := must(http.NewRequestWithContext(p.ctx(), http.MethodGet, fmt.Sprintf("http://%s:%d/", status.Network.Ip, port), nil))(p.t)
	response := must(http.DefaultClient.Do(request))(p.t)
	defer response.Body.Close()
	return string(must(io.ReadAll(response.Body))(p.t))
}

// TestSharedProcessNamespace looks at the pause container as containerd wants it: from the pause
// image, as process 1.
func TestSharedProcessNamespace(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.image(world.busybox)
		p := b.runPod("sunaba", "shared", func(c *runtime.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions = &runtime.NamespaceOption{Pid: runtime.NamespaceMode_POD}
		})
		m := p.begin("a", world.busybox, []string{"/bin/sleep", "1000"}, nil)
		if out, _ := m.exec("/bin/cat", "/proc/1/cmdline"); out != "/pause\x00" {
			t.Errorf("process 1 is %q", out)
		}
		must(b.StopContainer(b.ctx(), &runtime.StopContainerRequest{ContainerId: m.id}))(t)
		m.ends(137, "")
		p.remove()
	})
}

// TestKilledShim kills shims with SIGKILL: containerd cleans up by the shim's delete, and nothing
// is left.
func TestKilledShim(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.image(world.busybox)
		b.image(world.asLinux)
		p := b.runPod("sunaba-wasm", "killed", nil)
		linux := p.begin("linux", world.busybox, []string{"/bin/sleep", "1000"}, nil)
		guest := p.begin("guest", world.asLinux, []string{"/guest.wasm", "idle"}, nil)
		guest.says("idle")
		over := p.begin("over", world.asLinux, []string{"/guest.wasm", "exit", "5"}, nil)
		over.ends(5, "")
		b.pull(world.busybox, "")
		b.run("alone", nil, world.busybox, "/bin/sleep", "1000")
		shims := b.shims()
		if len(shims) != 2 {
			t.Errorf("shims %v", shims)
		}
		for _, pid := range shims {
			check(t, syscall.Kill(pid, syscall.SIGKILL))
		}
		for _, m := range []*member{linux, guest} { // 255 is containerd's own word for a shim that has gone
			m.ends(255, "")
		}
		over.ends(5, "")
		b.eventually("pod is not ready", func() bool {
			s := must(b.PodSandboxStatus(b.ctx(), &runtime.PodSandboxStatusRequest{PodSandboxId: p.id}))(t).Status
			return s.State == runtime.PodSandboxState_SANDBOX_NOTREADY
		})
		// containerd may still be talking to the shim that it cleans up after. Whoever removes a
		// pod asks again, as the kubelet does.
		b.eventually("pod can be removed", func() bool {
			_, err := b.RemovePodSandbox(b.ctx(), &runtime.RemovePodSandboxRequest{PodSandboxId: p.id})
			return err == nil
		})
		b.ctr("containers", "rm", "alone")
	})
}

// TestContainerdRestarts kills containerd while containers run, end, and are killed: the shim keeps
// what they say and how they end for the next one.
func TestContainerdRestarts(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.image(world.busybox)
		b.image(world.asLinux)
		p := b.runPod("sunaba-wasm", "kept", nil)
		linux := p.begin("linux", world.busybox, []string{"/bin/sh", "-c", "echo first; sleep 1; exit 9"}, nil)
		guest := p.begin("guest", world.asLinux, []string{"/guest.wasm", "idle"}, nil)
		guest.says("idle")
		before := b.shims()
		check(t, b.Signal(syscall.SIGKILL))
		time.Sleep(1500 * time.Millisecond) // the first ends meanwhile
		check(t, b.Run(context.Background()))
		linux.ends(9, "")
		linux.says("first")
		if s := guest.status(); s.State != runtime.ContainerState_CONTAINER_RUNNING {
			t.Errorf("guest: %v", s)
		}
		if after := b.shims(); len(after) != 1 || after[0] != before[0] {
			t.Errorf("shims %v, before %v", after, before)
		}
		late := p.begin("late", world.asLinux, []string{"/guest.wasm", "exit", "3"}, nil)
		late.ends(3, "")
		must(b.StopContainer(b.ctx(), &runtime.StopContainerRequest{ContainerId: guest.id}))(t)
		guest.ends(137, "")
		p.remove()
	})
}
