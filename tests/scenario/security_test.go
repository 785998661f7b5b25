package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/apparmor"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/tests/node"
)

// What a security context and the other fields ask for is what the container's process finds, under
// every OCI runtime.
func TestSecurityContext(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	profile := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(profile, []byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	type sc = runtime.LinuxContainerSecurityContext
	n := func(v int64) *runtime.Int64Value { return &runtime.Int64Value{Value: v} }
	status := func(names string) string { return "grep -E '^(" + names + "):' /proc/self/status | tr -s '\\t ' ' '" }
	tests := []struct {
		name   string
		change func(*runtime.ContainerConfig, *sc)
		script string
		want   string
	}{
		{"no_new_privs", func(_ *runtime.ContainerConfig, s *sc) { s.NoNewPrivs = true }, status("NoNewPrivs"), "NoNewPrivs: 1\n"},
		{"privileges can be gained", func(*runtime.ContainerConfig, *sc) {}, status("NoNewPrivs"), "NoNewPrivs: 0\n"},
		{"no seccomp", func(*runtime.ContainerConfig, *sc) {}, status("Seccomp"), "Seccomp: 0\n"},
		{"seccomp RuntimeDefault", func(_ *runtime.ContainerConfig, s *sc) { s.Seccomp = &runtime.SecurityProfile{} }, status("Seccomp"), "Seccomp: 2\n"},
		{"seccomp Localhost", func(_ *runtime.ContainerConfig, s *sc) {
			s.Seccomp = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Localhost, LocalhostRef: profile}
		}, "mkdir /d 2>&1; mkdir /tmp/d 2>/dev/null || echo refused", "mkdir: can't create directory '/d': Operation not permitted\nrefused\n"},
		{"capabilities dropped", func(_ *runtime.ContainerConfig, s *sc) {
			s.Capabilities = &runtime.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_BIND_SERVICE"}}
		}, status("CapEff|CapBnd|CapAmb"), "CapEff: 0000000000000400\nCapBnd: 0000000000000400\nCapAmb: 0000000000000000\n"},
		{"capabilities ambient", func(_ *runtime.ContainerConfig, s *sc) {
			s.RunAsUser = n(1000)
			s.Capabilities = &runtime.Capability{DropCapabilities: []string{"ALL"}, AddAmbientCapabilities: []string{"NET_BIND_SERVICE"}}
		}, status("CapEff|CapAmb"), "CapEff: 0000000000000400\nCapAmb: 0000000000000400\n"},
		{"groups merged", func(_ *runtime.ContainerConfig, s *sc) {
			s.RunAsUser, s.RunAsGroup, s.SupplementalGroups = n(1000), n(5), []int64{77, 66}
		}, "id -u; id -g; " + status("Groups"), "1000\n5\nGroups: 5 66 77 \n"},
		{"read-only root", func(_ *runtime.ContainerConfig, s *sc) { s.ReadonlyRootfs = true }, "touch /new 2>&1", "touch: /new: Read-only file system\n"},
		{"masked and read-only paths", func(_ *runtime.ContainerConfig, s *sc) {
			s.MaskedPaths, s.ReadonlyPaths = []string{"/proc/uptime", "/etc"}, []string{"/proc/sys"}
		}, "cat /proc/uptime; ls /etc; (echo 1 >/proc/sys/kernel/shm_rmid_forced) 2>/dev/null || echo refused", "refused\n"},
		{"unmasked", func(*runtime.ContainerConfig, *sc) {}, "wc -c </proc/timer_list | grep -q '^0$' || echo shown", "shown\n"},
		{"environment and folder", func(c *runtime.ContainerConfig, _ *sc) {
			c.Envs = []*runtime.KeyValue{{Key: "A", Value: []byte("b c\u00e9")}}
			c.WorkingDir = "/usr/../made"
		}, "pwd; echo $A", "/made\nb c\u00e9\n"},
		{"device", func(c *runtime.ContainerConfig, _ *sc) {
			c.Devices = []*runtime.Device{{HostPath: "/dev/null", ContainerPath: "/dev/mine", Permissions: "rw"}}
		}, "stat -c %t:%T /dev/mine; echo x >/dev/mine && echo written", "1:3\nwritten\n"},
		{"oom_score_adj", func(c *runtime.ContainerConfig, _ *sc) {
			c.Linux.Resources = &runtime.LinuxContainerResources{OomScoreAdj: 765}
		}, "cat /proc/self/oom_score_adj", "765\n"},
		{"huge pages", func(c *runtime.ContainerConfig, _ *sc) {
			c.Linux.Resources = &runtime.LinuxContainerResources{HugepageLimits: []*runtime.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}}}
		}, "echo up", "up\n"},
	}
	for _, handler := range []string{"runc", "crun"} {
		t.Run(handler, func(t *testing.T) {
			p := m.in(t).run(handler)
			for _, tt := range tests {
				config := sh(tt.script)
				tt.change(config, config.Linux.SecurityContext)
				c := p.begin(config)
				c.wait()
				if got := c.text(); got != tt.want && !strings.HasSuffix(got, "\n"+tt.want) {
					t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
				}
			}
			p.remove()
		})
	}
}

// What cannot be given is refused when the container is created, and the text says which field it
// is.
func TestSecurityContextsThatAreRefused(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	dir := t.TempDir()
	for name, text := range map[string]string{"broken.json": "{", "empty.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	type sc = runtime.LinuxContainerSecurityContext
	seccomp := func(ref string) func(*runtime.ContainerConfig, *sc) {
		return func(_ *runtime.ContainerConfig, s *sc) {
			s.Seccomp = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Localhost, LocalhostRef: ref}
		}
	}
	p := m.run("runc")
	for _, tt := range []struct {
		name   string
		change func(*runtime.ContainerConfig, *sc)
		code   codes.Code
		says   string
	}{
		{"no such profile", seccomp("/nowhere/profile.json"), codes.InvalidArgument, "/nowhere/profile.json"},
		{"profile is no path", seccomp("profile.json"), codes.InvalidArgument, `"profile.json" is not an absolute path`},
		{"profile is no JSON", seccomp(dir + "/broken.json"), codes.InvalidArgument, "broken.json"},
		{"profile says nothing", seccomp(dir + "/empty.json"), codes.InvalidArgument, "has no defaultAction"},
		{"privileged", func(_ *runtime.ContainerConfig, s *sc) { s.Privileged = true }, codes.InvalidArgument, "the sandbox is not privileged"},
		{"group alone", func(_ *runtime.ContainerConfig, s *sc) { s.RunAsGroup = &runtime.Int64Value{Value: 1} }, codes.InvalidArgument, "run_as_group"},
		{"unknown user", func(_ *runtime.ContainerConfig, s *sc) { s.RunAsUsername = "mallory" }, codes.InvalidArgument, `no user "mallory"`},
		{"environment", func(c *runtime.ContainerConfig, _ *sc) {
			c.Envs = []*runtime.KeyValue{{Key: "BYTES", Value: []byte("\xff")}}
		}, codes.InvalidArgument, `"BYTES" is not UTF-8`},
		{"capability", func(_ *runtime.ContainerConfig, s *sc) {
			s.Capabilities = &runtime.Capability{AddCapabilities: []string{"FLY"}}
		}, codes.InvalidArgument, `"FLY"`},
		{"no device", func(c *runtime.ContainerConfig, _ *sc) {
			c.Devices = []*runtime.Device{{HostPath: "/dev/no-such-device"}}
		}, codes.InvalidArgument, "devices[0].host_path"},
		{"oom_score_adj out of range", func(c *runtime.ContainerConfig, _ *sc) {
			c.Linux.Resources = &runtime.LinuxContainerResources{OomScoreAdj: 9999}
		}, codes.InvalidArgument, "oom_score_adj: 9999"},
		{"nobody's processes", func(_ *runtime.ContainerConfig, s *sc) {
			s.NamespaceOptions = &runtime.NamespaceOption{Pid: runtime.NamespaceMode_TARGET}
		}, codes.InvalidArgument, "target_id: is empty, but pid is TARGET"},
		{"log above its folder", func(c *runtime.ContainerConfig, _ *sc) { c.LogPath = "../0.log" }, codes.InvalidArgument, `log_path: "../0.log"`},
		{"less swap than memory", func(c *runtime.ContainerConfig, _ *sc) {
			c.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 2 << 20, MemorySwapLimitInBytes: 1 << 20}
		}, codes.InvalidArgument, "memory_swap_limit_in_bytes"},
		{"class", func(c *runtime.ContainerConfig, _ *sc) {
			c.Annotations = map[string]string{"io.kubernetes.cri.rdt-class": "gold"}
		}, codes.Unimplemented, "io.kubernetes.cri.rdt-class"},
		{"selinux level", func(_ *runtime.ContainerConfig, s *sc) { s.SelinuxOptions = &runtime.SELinuxOption{Level: "high"} }, codes.InvalidArgument, "selinux_options.level"},
	} {
		config := sh("true")
		tt.change(config, config.Linux.SecurityContext)
		if _, err := p.tryCreate(config); grpcstatus.Code(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v; want %s that says %q", tt.name, err, tt.code, tt.says)
		}
	}
}

// mine is a profile for a test; it lets nobody write to /guarded.
const mine = `profile %s flags=(attach_disconnected,mediate_deleted) {
	file,
	capability,
	network,
	umount,
	deny /guarded/** w,
}
`

// With AppArmor in the kernel, containers are confined by the default profile or by that which they
// name; without it, a profile that is asked for is refused.
func TestAppArmor(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	p := m.run("runc")
	with := func(kind runtime.SecurityProfile_ProfileType, ref string) *runtime.ContainerConfig {
		config := sh("cat /proc/self/attr/apparmor/current 2>/dev/null || cat /proc/self/attr/current; mkdir /guarded; touch /guarded/x || echo refused")
		config.Linux.SecurityContext.Apparmor = &runtime.SecurityProfile{ProfileType: kind, LocalhostRef: ref}
		return config
	}
	refused := func(config *runtime.ContainerConfig, says string) {
		t.Helper()
		if _, err := p.tryCreate(config); grpcstatus.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	if !apparmor.HostSupports() {
		refused(with(runtime.SecurityProfile_RuntimeDefault, ""), `profile "RuntimeDefault" is asked for, but this host does not use AppArmor`)
		refused(with(runtime.SecurityProfile_Localhost, "mine"), `profile "mine" is asked for, but this host does not use AppArmor`)
		p.begin(with(runtime.SecurityProfile_Unconfined, "")).expectEnd(0, "Completed")
		t.Log("the kernel has no AppArmor: only refusals were tested")
		return
	}
	name := fmt.Sprintf("sunaba-scenario-%d", os.Getpid())
	load := func(flag string) {
		t.Helper()
		cmd := exec.Command("apparmor_parser", flag)
		cmd.Stdin = strings.NewReader(fmt.Sprintf(mine, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("apparmor_parser %s: %v: %s", flag, err, out)
		}
	}
	refused(with(runtime.SecurityProfile_Localhost, name), fmt.Sprintf("profile %q is not loaded", name))
	load("-a")
	t.Cleanup(func() { load("-R") })
	silent := with(0, "")
	silent.Linux.SecurityContext.Apparmor = nil
	for _, tt := range []struct {
		config *runtime.ContainerConfig
		says   string
	}{
		{silent, "sunaba-default (enforce)\n"},
		{with(runtime.SecurityProfile_RuntimeDefault, ""), "sunaba-default (enforce)\n"},
		{with(runtime.SecurityProfile_Unconfined, ""), "unconfined\n"},
		{with(runtime.SecurityProfile_Localhost, name), name + " (enforce)\n"},
		{with(runtime.SecurityProfile_Localhost, name), "refused\n"},
	} {
		c := p.begin(tt.config)
		c.wait()
		if !strings.Contains(c.text(), tt.says) {
			t.Errorf("%v: %q does not say %q", tt.config.GetLinux().GetSecurityContext().GetApparmor(), c.text(), tt.says)
		}
	}
}

// A change of oom_score_adj reaches what runs: a kubelet asks for it when it resizes the memory of
// a pod. A process that has chosen a score by itself keeps it.
func TestOOMScoreOfARunningContainer(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	for _, handler := range everyHandler {
		config := sh("echo 990 > /proc/self/oom_score_adj; sleep 1000 & echo 900 > /proc/self/oom_score_adj; sleep 1000 & echo idle; wait")
		if handler == "wasm" {
			config = containerConfig(world.Guest, "idle")
		}
		config.Linux.Resources = &runtime.LinuxContainerResources{OomScoreAdj: 900}
		c := m.run(handler).begin(config)
		c.says("idle")
		for _, step := range []struct {
			change *runtime.LinuxContainerResources
			fails  bool
			want   int
		}{
			{&runtime.LinuxContainerResources{OomScoreAdj: 950}, false, 950},
			{&runtime.LinuxContainerResources{CpuShares: 500}, false, 950}, // not given
			{&runtime.LinuxContainerResources{OomScoreAdj: 960, CpusetCpus: "4000"}, true, 950},
			{&runtime.LinuxContainerResources{OomScoreAdj: 300}, false, 300},
		} {
			_, err := m.UpdateContainerResources(t.Context(), &runtime.UpdateContainerResourcesRequest{ContainerId: c.id, Linux: step.change})
			if (err != nil) != step.fails {
				t.Errorf("under %s: update to %v: %v", handler, step.change, err)
			}
			if got := c.status().GetResources().GetLinux().GetOomScoreAdj(); got != int64(step.want) {
				t.Errorf("under %s: after an update to %v the status has %d", handler, step.change, got)
			}
			want := fmt.Sprint(step.want)
			if handler != "wasm" {
				want = fmt.Sprintf("%[1]d %[1]d 990", step.want)
			}
			if got := c.oomScores(); got != want {
				t.Errorf("under %s: after an update to %v the processes have %s, want %s", handler, step.change, got, want)
			}
		}
	}
}

// oomScores are those of the container's processes, in order.
func (c *container) oomScores() string {
	c.t.Helper()
	group := must(cgroup.Open(node.ContainerCgroup(c.pod.id, c.id)))
	var scores []string
	for _, pid := range must(group.Pids()) {
		scores = append(scores, strings.TrimSpace(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))))))
	}
	slices.Sort(scores)
	return strings.Join(scores, " ")
}
