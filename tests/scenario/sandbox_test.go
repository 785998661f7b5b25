package scenario

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/tests/node"
)

// A handler that is not configured is refused by name, and nothing is left, also not the pod's
// name.
func TestUnknownHandler(t *testing.T) {
	m := start(t)
	config := m.podConfig("pod")
	for range 2 {
		_, err := m.RunPodSandbox(t.Context(), &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: "nope"})
		if grpcstatus.Code(err) != codes.InvalidArgument {
			t.Errorf("code of %v, want InvalidArgument", err)
		}
		for _, want := range []string{"nope", "crun", "runc", "wasm"} {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%v does not name %q", err, want)
			}
		}
	}
	m.clean()
	m.runConfig("runc", config)
}

// The empty handler is the default one.
func TestDefaultHandler(t *testing.T) {
	m := start(t)
	m.pull(world.Batch)
	p := m.run("")
	c := p.begin(containerConfig(world.Batch))
	c.expectEnd(0, "Completed")
	if !strings.Contains(c.text(), platformOf("runc")) {
		t.Errorf("under the default handler: %q", c.text())
	}
}

// EV11: every handler shows the pod's name, its hosts file and its resolver configuration.
func TestNamesInPod(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	for _, handler := range everyHandler {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			p := m.run(handler, func(config *runtime.PodSandboxConfig) {
				config.Hostname = "mandarin"
				config.DnsConfig = &runtime.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"example.test"}, Options: []string{"ndots:5"}}
			})
			linux := p.begin(sh("hostname; cat /etc/hostname; echo $HOSTNAME; cat /etc/hosts /etc/resolv.conf"))
			linux.expectEnd(0, "Completed")
			wants := []string{"mandarin\nmandarin\nmandarin\n", p.ip(), "127.0.0.1", "nameserver 192.0.2.53", "search example.test", "options ndots:5"}
			for _, want := range wants {
				if !strings.Contains(linux.text(), want) {
					t.Errorf("%q is not in\n%s", want, linux.text())
				}
			}
			if handler != "wasm" {
				return
			}
			var said strings.Builder
			for _, path := range []string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"} {
				guest := p.begin(containerConfig(world.Guest, "cat", path))
				guest.expectEnd(0, "Completed")
				said.WriteString(guest.text())
			}
			guest := p.begin(containerConfig(world.Guest, "env", "HOSTNAME"))
			guest.expectEnd(0, "Completed")
			for _, want := range append(wants[1:], "mandarin\n") {
				if !strings.Contains(said.String()+guest.text(), want) {
					t.Errorf("%q is not in what the guest sees:\n%s%s", want, said.String(), guest.text())
				}
			}
		})
	}
}

func TestSysctls(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, handler := range everyHandler {
		p := m.run(handler, func(config *runtime.PodSandboxConfig) {
			config.Linux.Sysctls = map[string]string{"net.ipv4.ip_local_port_range": "4000 4999", "kernel.shm_rmid_forced": "1"}
		})
		c := p.begin(sh("cat /proc/sys/net/ipv4/ip_local_port_range /proc/sys/kernel/shm_rmid_forced /proc/sys/net/ipv4/ip_unprivileged_port_start"))
		c.expectEnd(0, "Completed")
		if got, want := strings.Join(strings.Fields(c.text()), " "), "4000 4999 1 0"; got != want {
			t.Errorf("under %s: %q, want %q", handler, got, want)
		}
	}
	// One that is not namespaced would change the node.
	config := m.podConfig("pod")
	config.Linux.Sysctls = map[string]string{"kernel.panic": "7"}
	if _, err := m.RunPodSandbox(t.Context(), &runtime.RunPodSandboxRequest{Config: config}); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("a sysctl of the whole node: %v, want InvalidArgument", err)
	}
}

func hostNetwork(config *runtime.PodSandboxConfig) {
	config.Linux.SecurityContext.NamespaceOptions.Network = runtime.NamespaceMode_NODE
	config.Hostname = ""
}

// A pod of the host's network sees the host's links and answers on its addresses.
func TestHostNetwork(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Greeter)
	for i, handler := range everyHandler {
		port := 18080 + i
		p := m.run(handler, hostNetwork, withPort(int32(port), int32(port)))
		if mode := p.status().GetStatus().GetLinux().GetNamespaces().GetOptions().GetNetwork(); mode != runtime.NamespaceMode_NODE {
			t.Errorf("the status says network mode %v", mode)
		}
		config := containerConfig(world.Greeter)
		config.Envs = []*runtime.KeyValue{{Key: "PORT", Value: []byte(fmt.Sprint(port))}}
		config.Linux.SecurityContext = &runtime.LinuxContainerSecurityContext{NamespaceOptions: p.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}
		c := p.begin(config)
		c.says("listening")
		if got := m.Get(fmt.Sprintf("http://127.0.0.1:%d/", port)); !strings.Contains(got, platformOf(handler)) {
			t.Errorf("under %s: %q", handler, got)
		}
	}
}

// TM7: only a shared process namespace needs a process that holds it; nothing of it is left with
// the pod.
func TestSharedProcessNamespace(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, handler := range []string{"runc", "wasm"} {
		shared := func(config *runtime.PodSandboxConfig) {
			config.Linux.SecurityContext.NamespaceOptions.Pid = runtime.NamespaceMode_POD
		}
		p := m.run(handler, shared)
		first := sh("sleep 1000 & wait")
		first.Linux.SecurityContext = &runtime.LinuxContainerSecurityContext{NamespaceOptions: &runtime.NamespaceOption{Pid: runtime.NamespaceMode_POD}}
		p.begin(first)
		second := sh("for i in $(seq 3000); do for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done 2>/dev/null | grep -q 'sleep 1000' && echo seen && exit 0; usleep 10000; done; exit 1")
		second.Linux.SecurityContext = first.Linux.SecurityContext
		c := p.begin(second)
		c.expectEnd(0, "Completed")
		p.stop()
		p.remove()
		m.clean()
	}
}

func TestHostPort(t *testing.T) {
	m := start(t)
	m.pull(world.Greeter)
	for i, handler := range everyHandler {
		port := 18090 + i
		p := m.run(handler, withPort(8080, int32(port)))
		p.begin(containerConfig(world.Greeter)).says("listening")
		// From the node over loopback and over its own address on the bridge.
		hosts := []string{"127.0.0.1", gatewayOf(t, p.ip())}
		for _, host := range hosts {
			if got := m.Get(fmt.Sprintf("http://%s:%d/", host, port)); !strings.Contains(got, platformOf(handler)) {
				t.Errorf("under %s at %s: %q", handler, host, got)
			}
		}
		p.stop()
		if connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			connection.Close()
			t.Errorf("port %d still answers after the pod was stopped", port)
		}
	}
}

// gatewayOf is the node's address in the subnet of a pod's address.
func gatewayOf(t *testing.T, pod string) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && !network.IP.IsLoopback() && network.Contains(net.ParseIP(pod)) {
			return network.IP.String()
		}
	}
	t.Fatalf("no address of the node is in the subnet of %s: %v", pod, addresses)
	return ""
}

// The embedded network gives every pod an address of each family.
func TestIPv6(t *testing.T) {
	m := start(t)
	m.pull(world.Greeter)
	for _, handler := range everyHandler {
		p := m.run(handler, withPort(8080, 0))
		p.begin(containerConfig(world.Greeter)).says("listening")
		var found bool
		for _, more := range p.status().GetStatus().GetNetwork().GetAdditionalIps() {
			if ip := net.ParseIP(more.GetIp()); ip != nil && ip.To4() == nil {
				found = true
				if got := m.Get("http://" + net.JoinHostPort(ip.String(), "8080") + "/"); !strings.Contains(got, platformOf(handler)) {
					t.Errorf("under %s at %s: %q", handler, ip, got)
				}
			}
		}
		if !found {
			t.Errorf("under %s: no IPv6 address among %v", handler, p.status().GetStatus().GetNetwork())
		}
	}
}

// Pods reach each other over the bridge, whatever runs in them.
func TestPodsReachEachOther(t *testing.T) {
	m := start(t)
	m.pull(world.Greeter)
	m.pull(world.Busybox)
	server := m.run("wasm", withPort(8080, 0))
	server.begin(containerConfig(world.Greeter)).says("listening")
	client := m.run("runc")
	c := client.begin(sh("wget -q -O - http://" + server.ip() + ":8080/"))
	c.expectEnd(0, "Completed")
	if !strings.Contains(c.text(), "wasip1/wasm") {
		t.Errorf("answer %q", c.text())
	}
}

// The declared overhead comes back, and the measured one stands beside it.
func TestOverhead(t *testing.T) {
	m := start(t)
	m.pull(world.Guest)
	m.pull(world.Busybox)
	for _, handler := range everyHandler {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			p := m.run(handler, func(config *runtime.PodSandboxConfig) {
				config.Linux.Overhead = &runtime.LinuxContainerResources{MemoryLimitInBytes: 16 << 20, CpuQuota: 1000, CpuPeriod: 100000}
				config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 128 << 20, CpuShares: 102}
			})
			if handler == "wasm" {
				p.begin(containerConfig(world.Guest, "idle")).says("idle")
			} else {
				p.begin(sh("echo idle; sleep 1000")).says("idle")
			}
			info := p.status().GetInfo()
			text := fmt.Sprint(info)
			for _, want := range []string{fmt.Sprint(16 << 20), fmt.Sprint(128 << 20)} {
				if !strings.Contains(text, want) {
					t.Errorf("%s is not in the verbose status: %s", want, text)
				}
			}
			if measured := measuredMemory(t, info); measured < 256<<10 || measured > 64<<20 {
				t.Errorf("measured overhead %d bytes: %s", measured, text)
			}
		})
	}
}

// measuredMemory finds the measured overhead's memory in bytes in a verbose status.
func measuredMemory(t *testing.T, info map[string]string) int64 {
	t.Helper()
	for _, value := range info {
		var tree map[string]any
		if json.Unmarshal([]byte(value), &tree) != nil {
			continue
		}
		overhead, _ := tree["overhead"].(map[string]any)
		measured, _ := overhead["measured"].(map[string]any)
		if bytes, ok := measured["memoryBytes"].(float64); ok {
			return int64(bytes)
		}
	}
	t.Fatalf("no measured overhead in %v", info)
	return 0
}

// A parent cgroup that the kubelet made holds all of the pod, one leaf for each container, and
// stays.
func TestCgroupParent(t *testing.T) {
	controller := "/sys/fs/cgroup"
	if _, err := os.Stat(controller + "/cgroup.procs"); err != nil {
		controller = "/sys/fs/cgroup/memory"
	}
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	for _, handler := range everyHandler {
		parent, made := madeByKubelet(t, fmt.Sprintf("sunaba_scenario_%d_%s", os.Getpid(), handler))
		p := m.run(handler, func(config *runtime.PodSandboxConfig) { config.Linux.CgroupParent = parent })
		config := sh("sleep 1000")
		if handler == "wasm" {
			config = containerConfig(world.Guest, "idle")
		}
		c := p.begin(config)
		if pids, err := processesIn(filepath.Join(controller, leafCgroup(t, parent, c.id))); err != nil || len(pids) == 0 {
			t.Errorf("under %s: no process in the container's cgroup: %q, %v", handler, pids, err)
		}
		p.stop()
		p.remove()
		for _, dir := range made {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Errorf("the kubelet's cgroup is gone: %v", err)
			}
			for _, entry := range entries {
				if entry.IsDir() {
					t.Errorf("under %s: %s is left in %s", handler, entry.Name(), dir)
				}
			}
		}
	}
}

// processesIn lists the processes of a cgroup and of those below it: crun has one in each scope of
// systemd.
func processesIn(dir string) (pids []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		data, err := os.ReadFile(path)
		pids = append(pids, strings.Fields(string(data))...)
		return err
	})
	return pids, err
}

// madeByKubelet makes a cgroup in every hierarchy, or a slice of systemd, and removes it at the end
// of the test. It returns what a kubelet would call it, and its folders.
func madeByKubelet(t *testing.T, name string) (parent string, made []string) {
	t.Helper()
	parent = "/" + name
	if node.Layout().Driver == cgroup.Systemd {
		parent += ".slice"
		if out, err := exec.Command("systemctl", "start", name+".slice").CombinedOutput(); err != nil {
			t.Fatalf("start slice %q: %v: %s", name, err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("systemctl", "stop", name+".slice").CombinedOutput(); err != nil {
				t.Errorf("stop slice %q: %v: %s", name, err, out)
			}
		})
	}
	roots := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err != nil {
		if roots, err = filepath.Glob("/sys/fs/cgroup/*"); err != nil {
			t.Fatal(err)
		}
	}
	for _, root := range roots {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(root, parent)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(made, dir) {
			continue
		}
		made = append(made, dir)
		t.Cleanup(func() {
			// systemd has taken away its slice.
			if err := os.Remove(dir); err != nil && node.Layout().Driver != cgroup.Systemd {
				t.Errorf("remove the kubelet's cgroup: %v", err)
			}
		})
	}
	return parent, made
}

// A debugger, as `kubectl debug --target` asks for it, sees the processes of one container and no
// others, may end it, and ends with it.
func TestTargetOfADebugger(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	if err := os.Chmod(m.Options.Dir, 0o711); err != nil { // as TestUserNamespace does
		t.Fatal(err)
	}
	for _, users := range []*runtime.UserNamespace{nil, ownUsers()} {
		for _, handler := range everyHandler {
			t.Run(fmt.Sprint(handler, " ", users != nil), func(t *testing.T) {
				m := m.in(t)
				p := m.run(handler, func(config *runtime.PodSandboxConfig) {
					config.Linux.SecurityContext.NamespaceOptions = &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER, UsernsOptions: users}
				})
				target := busy(handler)
				target.Linux.SecurityContext.NamespaceOptions = &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER, UsernsOptions: users}
				c := p.begin(target)
				c.says("idle")
				beside := sh("exec sleep 999")
				beside.Linux.SecurityContext.NamespaceOptions = target.Linux.SecurityContext.NamespaceOptions
				p.begin(beside)
				debug := func(script string) *runtime.ContainerConfig {
					config := sh(script)
					config.Linux.SecurityContext.NamespaceOptions = &runtime.NamespaceOption{Pid: runtime.NamespaceMode_TARGET, TargetId: c.id, UsernsOptions: users}
					return config
				}
				debugger := func(script string) *container { return p.begin(debug(script)) }
				if handler == "wasm" && users != nil { // a guest does not join the namespace of its pod's users
					if _, err := p.tryCreate(debug("true")); grpcstatus.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "is a guest") {
						t.Errorf("a debugger of a guest: %v, want FailedPrecondition", err)
					}
					return
				}
				d := debugger(`echo $$; grep -c . /proc/1/status >/dev/null && echo first; for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline; echo; done`)
				d.expectEnd(0, "Completed")
				if got := d.text(); !strings.Contains(got, "first\n") || strings.Contains(got, "sleep 999") || strings.HasPrefix(got, "1\n") {
					t.Errorf("the debugger sees %q", got)
				}
				if handler != "wasm" && !strings.Contains(d.text(), "sleep 1000") {
					t.Errorf("the debugger does not see its target: %q", d.text())
				}
				d = debugger("echo here; sleep 1000")
				d.says("here")
				d.stop(0)
				if status := c.status(); status.GetState() != runtime.ContainerState_CONTAINER_RUNNING {
					t.Errorf("the target does not outlive its debugger: %v", status)
				}
				d = debugger("echo here; sleep 1000")
				d.says("here")
				c.stop(0)
				d.expectEnd(137, "Error")
				p.remove()
			})
		}
	}
}
