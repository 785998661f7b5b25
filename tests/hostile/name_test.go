package hostile

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A name that no file or cgroup can have is refused where it comes in, and leaves nothing: neither
// a pod that cannot be removed, nor a name that is taken.
func TestNamesThatCannotBe(t *testing.T) {
	n := start(t)
	n.pull(world.busybox)
	long := strings.Repeat("x", 256)
	for field, change := range map[string]func(*runtime.PodSandboxConfig){
		"linux.cgroup_parent": func(c *runtime.PodSandboxConfig) { c.Linux.CgroupParent = "/kubepods/" + long + ".slice" },
		"cgroup_parent":       func(c *runtime.PodSandboxConfig) { c.Linux.CgroupParent = strings.Repeat("/kubepods.slice", 250) },
		"metadata.name":       func(c *runtime.PodSandboxConfig) { c.Metadata.Name = long },
		"metadata.namespace":  func(c *runtime.PodSandboxConfig) { c.Metadata.Namespace = long },
		"metadata.uid":        func(c *runtime.PodSandboxConfig) { c.Metadata.Uid = long },
		"hostname":            func(c *runtime.PodSandboxConfig) { c.Hostname = long },
		"log_directory":       func(c *runtime.PodSandboxConfig) { c.LogDirectory = filepath.Join(n.Logs, long) },
		"linux.sysctls":       func(c *runtime.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"net.ipv4." + long: "1"} },
	} {
		_, err := n.tryRun("runc", change)
		n.refused(err, codes.InvalidArgument, field)
	}
	for _, parent := range []string{" ", "\t", "/a/ ", "/a\x7f", "//a", "/a//b", "/a/", ".", "/a/.", "/a/../b", ".."} {
		_, err := n.tryRun("runc", func(c *runtime.PodSandboxConfig) { c.Linux.CgroupParent = parent })
		n.refused(err, codes.InvalidArgument, "linux.cgroup_parent")
	}
	pods, err := n.ListPodSandbox(t.Context(), &runtime.ListPodSandboxRequest{})
	n.check(err)
	if len(pods.GetItems()) != 0 {
		t.Errorf("pods are left: %v", pods.GetItems())
	}
	p := n.run("runc")
	for field, change := range map[string]func(*runtime.ContainerConfig){
		"metadata.name": func(c *runtime.ContainerConfig) { c.Metadata.Name = long },
		"log_path":      func(c *runtime.ContainerConfig) { c.LogPath = long },
		"working_dir":   func(c *runtime.ContainerConfig) { c.WorkingDir = "/" + long },
		"mounts[0].container_path": func(c *runtime.ContainerConfig) {
			c.Mounts = []*runtime.Mount{{HostPath: t.TempDir(), ContainerPath: "/" + long}}
		},
		"mounts[0].host_path": func(c *runtime.ContainerConfig) {
			c.Mounts = []*runtime.Mount{{HostPath: filepath.Join(t.TempDir(), "made", long), ContainerPath: "/m"}}
		},
	} {
		config := sh("true")
		change(config)
		_, err := p.tryCreate(config)
		n.refused(err, codes.InvalidArgument, field)
	}
	containers, err := n.ListContainers(t.Context(), &runtime.ListContainersRequest{})
	n.check(err)
	if len(containers.GetContainers()) != 0 {
		t.Errorf("containers are left: %v", containers.GetContainers())
	}
	p.start(sh("true")).wait()
	p.stop()
	p.remove()
}
