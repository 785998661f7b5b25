package scenario

import (
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/oci"
)

// Fields of a container's configuration that no other scenario shows, under every OCI runtime and
// in a pod of guests.
func TestContainerFields(t *testing.T) {
	m := start(t)
	image := must(oci.Busybox(oci.Host(), v1.Config{
		Entrypoint: []string{"/bin/sh", "-c"}, Cmd: []string{"echo by the image"}, WorkingDir: "/data", Env: []string{"A=image", "B=image"},
		Volumes: map[string]struct{}{"/data": {}, "/taken": {}, "/new": {}}, StopSignal: "SIGUSR1",
	}, oci.Dir("data", 0o700), oci.Text("data/note", "from the image\n"), oci.Dir("taken", 0o755), oci.Text("taken/note", "x")))
	ref, err := world.Registry.Push(t.Context(), "fields:v1", image)
	if err != nil {
		t.Fatal(err)
	}
	m.pull(ref)
	for _, handler := range everyHandler {
		t.Run(handler, func(t *testing.T) {
			p := m.in(t).run(handler, func(config *runtime.PodSandboxConfig) { config.Linux.SecurityContext.Privileged = true })
			p.t = t
			says := func(name string, config *runtime.ContainerConfig, want string) {
				t.Helper()
				c := p.begin(config)
				c.wait()
				if got := c.text(); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			says("entrypoint and command of the image", containerConfig(ref), "by the image\n")
			says("arguments in place of the command", containerConfig(ref, "pwd; echo $A $B"), "/data\nimage image\n")

			config := containerConfig(ref)
			config.Command = []string{"/bin/sh", "-c", "echo $0 $# $A $B $C; pwd"}
			config.WorkingDir = "/tmp"
			config.Envs = []*runtime.KeyValue{{Key: "B", Value: []byte("cri")}, {Key: "C", Value: []byte("cri")}}
			says("command in place of both", config, "/bin/sh 0 image cri cri\n/tmp\n")

			config = containerConfig(ref, "cat /data/note; stat -c %a /data; ls /taken; touch /new/x /data/y && echo written; grep -c ' /data \\| /new \\| /taken ' /proc/self/mountinfo")
			config.Linux.SecurityContext.ReadonlyRootfs = true
			config.Mounts = []*runtime.Mount{{ContainerPath: "/taken", HostPath: t.TempDir()}}
			says("volumes of the image", config, "from the image\n700\nwritten\n3\n")

			missing := filepath.Join(t.TempDir(), "a/b")
			config = containerConfig(ref, "touch /v/x && echo written")
			config.Mounts = []*runtime.Mount{{ContainerPath: "/v", HostPath: missing}}
			says("a host path that is missing", config, "written\n")
			if _, err := os.Stat(filepath.Join(missing, "x")); err != nil {
				t.Error(err)
			}

			config = containerConfig(ref, "[ -c /dev/kmsg ] && echo devices; touch /sys/kernel/mm/ksm/run 2>/dev/null; grep -c '/sys rw' /proc/self/mountinfo; grep CapEff /proc/self/status | tr -d '\t' >/tmp/c; [ $(stat -c %s /tmp/c) -gt 0 ] && grep -q 'CapEff:0*[1-9a-f]' /tmp/c && echo capable; grep Seccomp: /proc/self/status | tr -d '\t'")
			config.Linux.SecurityContext.Privileged = true
			config.Linux.SecurityContext.Seccomp = &runtime.SecurityProfile{}
			says("privileged", config, "devices\n1\ncapable\nSeccomp:0\n")

			config = containerConfig(ref, "trap 'echo got it; exit 5' USR1; echo up; while :; do sleep 0.1; done")
			c := p.begin(config)
			c.says("up")
			if got := c.status().GetStopSignal(); got != runtime.Signal_SIGNAL_SIGUSR1 {
				t.Errorf("stop signal in the status: %v", got)
			}
			c.stop(60)
			c.expectEnd(5, "Error")
			config = containerConfig(ref, "trap 'echo got it; exit 6' INT; echo up; while :; do sleep 0.1; done")
			config.StopSignal = runtime.Signal_SIGNAL_SIGINT
			c = p.begin(config)
			c.says("up")
			c.stop(60)
			c.expectEnd(6, "Error")
			if got := c.status().GetStopSignal(); got != runtime.Signal_SIGNAL_SIGINT {
				t.Errorf("stop signal in the status: %v", got)
			}

			config = containerConfig(ref, "echo logged")
			config.LogPath = "some/where/else/7.log"
			c = p.begin(config)
			c.wait()
			if got := c.status().GetLogPath(); got != filepath.Join(p.config.GetLogDirectory(), "some/where/else/7.log") || c.text() != "logged\n" {
				t.Errorf("log path %q: %q", got, c.text())
			}
			config = containerConfig(ref, "echo not logged")
			config.LogPath = ""
			c = p.begin(config)
			c.wait()
			if got := c.status().GetLogPath(); got != "" {
				t.Errorf("log path %q of a container without a log", got)
			}
			p.remove()
		})
	}
	if entries, err := os.ReadDir(filepath.Join(m.Root, "volumes")); err != nil || len(entries) > 0 {
		t.Errorf("volumes of images are left: %v, %v", entries, err)
	}
}

// A user whose passwd is mounted, as for ids that no image knows, has the home that stands there.
func TestHomeOfMountedPasswd(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	passwd := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(passwd, []byte("root:x:0:0::/root:/bin/sh\nalice:x:123456:0::/home/alice:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, handler := range []string{"runc", "crun"} {
		config := sh("echo $HOME; exec sleep 1000")
		config.Linux.SecurityContext.RunAsUser = &runtime.Int64Value{Value: 123456}
		config.Mounts = []*runtime.Mount{{ContainerPath: "/etc/passwd", HostPath: passwd, Readonly: true}}
		c := m.run(handler).begin(config)
		c.says("/home/alice\n")
		out, err := m.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"/bin/sh", "-c", "echo $HOME"}})
		if got := string(out.GetStdout()); err != nil || got != "/home/alice\n" {
			t.Errorf("home of a command under %s: %q, %v", handler, got, err)
		}
	}
}
