package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Where the ids of the pods' user namespaces begin on the machine.
const firstUser, firstGroup = 131072, 196608

func ownUsers() *runtime.UserNamespace {
	return &runtime.UserNamespace{
		Mode: runtime.NamespaceMode_POD,
		Uids: []*runtime.IDMapping{{HostId: firstUser, Length: 65536}},
		Gids: []*runtime.IDMapping{{HostId: firstGroup, Length: 65536}},
	}
}

// The root of a pod with a user namespace is nobody on the machine, and sees image and volumes as
// their owners meant them, whether the pod shares its processes or not.
func TestUserNamespace(t *testing.T) {
	m := start(t)
	// The namespace's root passes through this folder to its root filesystem, as through /run/sunaba.
	if err := os.Chmod(m.Options.Dir, 0o711); err != nil {
		t.Fatal(err)
	}
	m.pull(world.Busybox)
	for _, handler := range []string{"runc", "crun"} {
		for _, pid := range []runtime.NamespaceMode{runtime.NamespaceMode_POD, runtime.NamespaceMode_CONTAINER} {
			t.Run(fmt.Sprint(handler, " ", pid), func(t *testing.T) { m.in(t).inUserNamespace(handler, pid) })
		}
	}
	for _, pid := range []runtime.NamespaceMode{runtime.NamespaceMode_POD, runtime.NamespaceMode_CONTAINER} {
		t.Run(fmt.Sprint("wasm ", pid), func(t *testing.T) { m.in(t).guestInUserNamespace(pid) })
	}
	for _, handler := range []string{"runc", "crun"} {
		t.Run(handler+" host network", func(t *testing.T) { m.in(t).hostNetworkInUserNamespace(handler) })
	}
	answer, err := m.Status(t.Context(), &runtime.StatusRequest{})
	if err != nil || !answer.GetFeatures().GetUserNamespacesHostNetwork() {
		t.Errorf("features %v, %v", answer.GetFeatures(), err)
	}
	for _, h := range answer.GetRuntimeHandlers() {
		if !h.GetFeatures().GetUserNamespaces() {
			t.Errorf("handler %q has no user namespaces", h.GetName())
		}
	}
}

// A guest is a user of its pod's range, and owns its files as its image and its volumes mean them.
func (m *machine) guestInUserNamespace(pid runtime.NamespaceMode) {
	m.t.Helper()
	m.pull(world.Guest)
	volume := m.t.TempDir()
	secret := filepath.Join(volume, "secret")
	if err := os.WriteFile(secret, []byte("for user 7 only\n"), 0o400); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Chown(secret, 7, 7); err != nil {
		m.t.Fatal(err)
	}
	options := &runtime.NamespaceOption{Pid: pid, UsernsOptions: ownUsers()}
	p := m.run("wasm", func(config *runtime.PodSandboxConfig) { config.Linux.SecurityContext.NamespaceOptions = options })
	guest := func(user int64, args ...string) *container {
		config := containerConfig(world.Guest, args...)
		config.Linux.SecurityContext.NamespaceOptions = options
		config.Linux.SecurityContext.RunAsUser = &runtime.Int64Value{Value: user}
		config.Mounts = []*runtime.Mount{{ContainerPath: "/volume", HostPath: volume, UidMappings: ownUsers().Uids, GidMappings: ownUsers().Gids}}
		return p.begin(config)
	}
	for user, ends := range map[int64]int32{7: 0, 8: 1, 0: 1} {
		c := guest(user, "cat", "/volume/secret")
		if status := c.wait(); (status.GetExitCode() == 0) != (ends == 0) {
			m.t.Errorf("user %d: %d %q", user, status.GetExitCode(), c.text())
		}
	}
	idle := guest(0, "idle")
	idle.says("idle")
	var ids string
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", taskPID(m.t, idle)))
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Uid:") || strings.HasPrefix(line, "Gid:") {
			ids += strings.Fields(line)[1] + " "
		}
	}
	if want := fmt.Sprintf("%d %d ", firstUser, firstGroup); ids != want {
		m.t.Errorf("its root is %q on the machine, want %q", ids, want)
	}
	seven := guest(7, "idle")
	seven.says("idle")
	answer, err := m.ExecSync(m.t.Context(), &runtime.ExecSyncRequest{ContainerId: seven.id, Cmd: []string{"/guest.wasm", "cat", "/volume/secret"}})
	if err != nil || string(answer.GetStdout()) != "for user 7 only\n" {
		m.t.Errorf("exec: %v, %v", answer, err)
	}
	// A Linux container beside it joins the namespace.
	config := sh("tr -s ' ' </proc/self/uid_map")
	config.Linux.SecurityContext.NamespaceOptions = options
	linux := p.begin(config)
	linux.expectEnd(0, "Completed")
	if got := linux.text(); got != " 0 131072 65536\n" {
		m.t.Errorf("the Linux container has %q", got)
	}
	p.remove()
}

// A pod can have users of its own in the host's network; the host's /sys is shown and cannot be
// written.
func (m *machine) hostNetworkInUserNamespace(handler string) {
	m.t.Helper()
	options := &runtime.NamespaceOption{Network: runtime.NamespaceMode_NODE, Pid: runtime.NamespaceMode_CONTAINER, UsernsOptions: ownUsers()}
	p := m.run(handler, func(config *runtime.PodSandboxConfig) {
		config.Hostname = ""
		config.Linux.SecurityContext.NamespaceOptions = options
	})
	config := sh(`exec 2>/dev/null; tr -s ' ' </proc/self/uid_map; ls /sys/class/net/lo/mtu; readlink /proc/self/ns/net
echo 1500 >/sys/class/net/lo/mtu || echo refused; ip link set lo down || echo refused too; sleep 60`)
	config.Linux.SecurityContext.NamespaceOptions = options
	config.Linux.SecurityContext.Capabilities = &runtime.Capability{AddCapabilities: []string{"NET_ADMIN"}}
	c := p.begin(config)
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		m.t.Fatal(err)
	}
	c.says(" 0 131072 65536\n/sys/class/net/lo/mtu\n" + own + "\n")
	c.says("refused\n")
	c.says("refused too\n")
	p.remove()
}

func (m *machine) inUserNamespace(handler string, pid runtime.NamespaceMode) {
	m.t.Helper()
	volume := m.t.TempDir()
	old := filepath.Join(volume, "old")
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Chown(old, 33, 44); err != nil {
		m.t.Fatal(err)
	}
	options := &runtime.NamespaceOption{Pid: pid, UsernsOptions: ownUsers()}
	p := m.run(handler, func(config *runtime.PodSandboxConfig) {
		config.Hostname = "mapped"
		config.Linux = &runtime.LinuxPodSandboxConfig{
			Sysctls:         map[string]string{"net.ipv4.ip_forward": "1", "kernel.shm_rmid_forced": "1"},
			SecurityContext: &runtime.LinuxSandboxSecurityContext{NamespaceOptions: options},
		}
	})
	config := sh(`cat /proc/self/uid_map /proc/self/gid_map | tr -s ' '
stat -c %u:%g /bin/busybox /etc/hosts /dev/shm /volume/old /one/private /two/private
touch /made /volume/new /dev/shm/new && ip link set lo down && hostname && cat /proc/sys/kernel/shm_rmid_forced && sleep 60`)
	config.Linux.SecurityContext.NamespaceOptions = options
	config.Linux.SecurityContext.Capabilities = &runtime.Capability{AddCapabilities: []string{"NET_ADMIN"}}
	config.Mounts = []*runtime.Mount{
		{ContainerPath: "/volume", HostPath: volume},
		imageMount(m.pull(pushData(m.t, "data/mapped:one", false)), "", "/one", "weights"),
		imageMount(m.pull(pushData(m.t, "data/mapped:two", true)), "", "/two", "weights"),
	}
	for _, mount := range config.Mounts {
		mount.UidMappings, mount.GidMappings = ownUsers().Uids, ownUsers().Gids
	}
	c := p.begin(config)
	c.says(" 0 131072 65536\n 0 196608 65536\n0:0\n0:0\n0:0\n33:44\n33:33\n33:33\nmapped\n1\n")

	for path, want := range map[string]string{
		filepath.Join(volume, "new"):             "0:0", // on the disk as in the pod: another pod may have other ids
		fmt.Sprintf("/proc/%d", taskPID(m.t, c)): fmt.Sprintf("%d:%d", firstUser, firstGroup),
	} {
		info, err := os.Stat(path)
		if err != nil {
			m.t.Error(err)
			continue
		}
		st := info.Sys().(*syscall.Stat_t)
		if got := fmt.Sprintf("%d:%d", st.Uid, st.Gid); got != want {
			m.t.Errorf("%s belongs to %s, want %s", path, got, want)
		}
	}
	out, err := m.ExecSync(m.t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"/bin/sh", "-c", "id -u; tr -s ' ' </proc/self/uid_map"}})
	if got := string(out.GetStdout()); err != nil || got != "0\n 0 131072 65536\n" {
		m.t.Errorf("exec: %q, %v", got, err)
	}
	for _, user := range []int64{0, 1000} { // a program may open its streams anew, as nginx does
		config := sh("echo out >/dev/stdout; echo err >/dev/stderr; sleep 60")
		config.Linux.SecurityContext.NamespaceOptions, config.Linux.SecurityContext.RunAsUser = options, &runtime.Int64Value{Value: user}
		c := p.begin(config)
		c.says("out\n")
		c.says("err\n")
		out, err := m.ExecSync(m.t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"/bin/sh", "-c", "echo anew >/proc/self/fd/1"}})
		if got := string(out.GetStdout()); err != nil || got != "anew\n" {
			m.t.Errorf("exec as user %d: %q, %q, %v", user, got, out.GetStderr(), err)
		}
	}
	other := sh("true")
	other.Linux.SecurityContext.NamespaceOptions = &runtime.NamespaceOption{Pid: pid, UsernsOptions: &runtime.UserNamespace{Mode: runtime.NamespaceMode_NODE}}
	if _, err := p.tryCreate(other); grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "not the sandbox's") {
		m.t.Errorf("a container of the host's users: %v", err)
	}
	p.remove()
}

// taskPID is the pid of a container's first process.
func taskPID(t *testing.T, c *container) int {
	t.Helper()
	var pid int
	answer, err := c.pod.ContainerStatus(t.Context(), &runtime.ContainerStatusRequest{ContainerId: c.id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(answer.GetInfo()["info"], `"pid":`)
	if _, err := fmt.Sscanf(rest, "%d", &pid); err != nil {
		t.Fatalf("%v in %s", err, answer.GetInfo()["info"])
	}
	return pid
}
