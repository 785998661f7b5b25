package spec

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/annotation"
)

func TestContainerRefuses(t *testing.T) {
	mount := func(m *runtime.Mount) func(*Input) {
		return func(in *Input) {
			m.ContainerPath, m.HostPath = "/m", "/h"
			in.Container.Mounts = []*runtime.Mount{m}
		}
	}
	image := func(m *runtime.Mount) func(*Input) {
		return func(in *Input) {
			m.ContainerPath = "/m"
			in.Container.Mounts = []*runtime.Mount{m}
		}
	}
	const shared, slave = runtime.MountPropagation_PROPAGATION_BIDIRECTIONAL, runtime.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	for _, tt := range []struct {
		name   string
		change func(*Input)
		want   string
		class  error
	}{
		{"no container", func(in *Input) { in.Container = nil }, "both needed", errdefs.ErrInvalidArgument},
		{"no name", func(in *Input) { in.Container.Metadata = nil }, "metadata.name: is empty", errdefs.ErrInvalidArgument},
		{"nothing to run", func(in *Input) { in.Image.Entrypoint, in.Image.Cmd = nil, nil }, "command: neither", errdefs.ErrInvalidArgument},
		{"command zero byte", func(in *Input) { in.Container.Command = []string{"sh", "x\x00"} }, "command: ", errdefs.ErrInvalidArgument},
		{"env name", func(in *Input) { in.Container.Envs = []*runtime.KeyValue{{Key: "a=b"}} }, "envs: ", errdefs.ErrInvalidArgument},
		{"env zero byte", func(in *Input) { in.Container.Envs = []*runtime.KeyValue{{Key: "a", Value: []byte("x\x00")}} }, "envs: ", errdefs.ErrInvalidArgument},
		{"env of bytes", func(in *Input) { in.Container.Envs = []*runtime.KeyValue{{Key: "a", Value: []byte("\xff")}} }, `envs: the value of "a" is not UTF-8`, errdefs.ErrInvalidArgument},
		{"device of a guest", func(in *Input) {
			in.Handler, in.Guest = runtimeclass.WASM, true
			in.Container.Devices = []*runtime.Device{{HostPath: "/dev/fuse"}}
		}, "devices[0]: a WebAssembly guest has no devices", errdefs.ErrInvalidArgument},
		{"image volume without image", image(&runtime.Mount{Image: &runtime.ImageSpec{}}), "mounts[0].image.image: is empty", errdefs.ErrInvalidArgument},
		{"image volume of the host", mount(&runtime.Mount{Image: &runtime.ImageSpec{Image: "x"}, Readonly: true}), `mounts[0].host_path: is "/h"`, errdefs.ErrInvalidArgument},
		{"image volume to write", image(&runtime.Mount{Image: &runtime.ImageSpec{Image: "x"}}), "mounts[0].readonly: must be true", errdefs.ErrInvalidArgument},
		{"image volume shared", image(&runtime.Mount{Image: &runtime.ImageSpec{Image: "x"}, Readonly: true, Propagation: shared}), "mounts[0].propagation: is PROPAGATION_BIDIRECTIONAL", errdefs.ErrInvalidArgument},
		{"image volume above", image(&runtime.Mount{Image: &runtime.ImageSpec{Image: "x"}, Readonly: true, ImageSubPath: "a/../../b"}), "mounts[0].image_sub_path: ", errdefs.ErrInvalidArgument},
		{"image volume absolute", image(&runtime.Mount{Image: &runtime.ImageSpec{Image: "x"}, Readonly: true, ImageSubPath: "/a"}), "mounts[0].image_sub_path: ", errdefs.ErrInvalidArgument},
		{"image volume nowhere", image(&runtime.Mount{Image: &runtime.ImageSpec{Image: "x"}, Readonly: true}), "mounts[0].image: ImageVolumeMountFailed: ", errdefs.ErrFailedPrecondition},
		{"sub-path of no image", mount(&runtime.Mount{ImageSubPath: "a"}), "mounts[0].image_sub_path: is given without image", errdefs.ErrInvalidArgument},
		{"mapped mount", mount(&runtime.Mount{UidMappings: []*runtime.IDMapping{{}}}), "mounts[0].uidMappings: is given, but the pod has no user namespace", errdefs.ErrInvalidArgument},
		{"privileged", func(in *Input) { in.sc().Privileged = true }, "security_context.privileged: the sandbox is not", errdefs.ErrInvalidArgument},
		{"group alone", func(in *Input) { in.sc().RunAsGroup = &runtime.Int64Value{} }, "run_as_group: is given without", errdefs.ErrInvalidArgument},
		{"two users", func(in *Input) { in.sc().RunAsUser, in.sc().RunAsUsername = &runtime.Int64Value{}, "a" }, "run_as_username: run_as_user", errdefs.ErrInvalidArgument},

		{"no destination", func(in *Input) { in.Container.Mounts = []*runtime.Mount{{HostPath: "/h"}} }, "mounts[0].container_path: is empty", errdefs.ErrInvalidArgument},
		{"over the root", func(in *Input) { in.Container.Mounts = []*runtime.Mount{{HostPath: "/h", ContainerPath: "/x/.."}} }, "mounts[0].container_path: a mount", errdefs.ErrInvalidArgument},
		{"no source", func(in *Input) { in.Container.Mounts = []*runtime.Mount{{ContainerPath: "/m"}} }, `mounts[0].host_path: ""`, errdefs.ErrInvalidArgument},
		{"relative source", func(in *Input) { in.Container.Mounts = []*runtime.Mount{{ContainerPath: "/m", HostPath: "h"}} }, `mounts[0].host_path: "h"`, errdefs.ErrInvalidArgument},
		{"same place twice", func(in *Input) {
			in.Container.Mounts = []*runtime.Mount{{ContainerPath: "/m", HostPath: "/h"}, {ContainerPath: "/m/", HostPath: "/h"}}
		}, `mounts[1].container_path: "/m" is the place of mounts[0] too`, errdefs.ErrInvalidArgument},
		{"mount option", mount(&runtime.Mount{MountOptions: []string{"suid"}}), `mounts[0].mount_options: "suid"`, errdefs.ErrInvalidArgument},
		{"propagation unknown", mount(&runtime.Mount{Propagation: 9}), "mounts[0].propagation: 9", errdefs.ErrInvalidArgument},
		{"recursive without readonly", mount(&runtime.Mount{RecursiveReadOnly: true}), "mounts[0].recursive_read_only: needs readonly", errdefs.ErrInvalidArgument},
		{"recursive and shared", mount(&runtime.Mount{RecursiveReadOnly: true, Readonly: true, Propagation: shared}), "recursive_read_only: needs propagation", errdefs.ErrInvalidArgument},
		{"recursive and slave", mount(&runtime.Mount{RecursiveReadOnly: true, Readonly: true, Propagation: slave}), "recursive_read_only: needs propagation", errdefs.ErrInvalidArgument},
		{"recursive unsupported", func(in *Input) {
			mount(&runtime.Mount{RecursiveReadOnly: true, Readonly: true})(in)
			in.Host.RecursiveReadOnly = false
		}, "RROUnsupported", errdefs.ErrFailedPrecondition},
		{"source not shared", func(in *Input) {
			mount(&runtime.Mount{Propagation: shared})(in)
			in.Sources = map[string]Source{"/h": {Slave: true}}
		}, "mounts[0].propagation: is BIDIRECTIONAL", errdefs.ErrFailedPrecondition},
		{"source private", func(in *Input) {
			mount(&runtime.Mount{Propagation: slave})(in)
			in.Sources = map[string]Source{"/h": {}}
		}, "mounts[0].propagation: is HOST_TO_CONTAINER", errdefs.ErrFailedPrecondition},

		{"no net", func(in *Input) { in.Namespaces.Net = "" }, "no network namespace", errdefs.ErrFailedPrecondition},
		{"no ipc", func(in *Input) { in.Namespaces.IPC = "" }, "no ipc namespace", errdefs.ErrFailedPrecondition},
		{"no pod pid", func(in *Input) { in.sc().NamespaceOptions.Pid = runtime.NamespaceMode_POD }, "no pid namespace", errdefs.ErrFailedPrecondition},
		{"host network in a pod without", func(in *Input) { in.sc().NamespaceOptions.Network = runtime.NamespaceMode_NODE }, "network: is NODE, but the sandbox's is POD", errdefs.ErrInvalidArgument},
		{"host pid in a pod without", func(in *Input) { in.sc().NamespaceOptions.Pid = runtime.NamespaceMode_NODE }, "pid: is NODE, but the sandbox's is CONTAINER", errdefs.ErrInvalidArgument},
		{"target without id", func(in *Input) { in.sc().NamespaceOptions.Pid = runtime.NamespaceMode_TARGET }, "target_id: is empty", errdefs.ErrInvalidArgument},
		{"id without target", func(in *Input) { in.sc().NamespaceOptions.TargetId = "a" }, "target_id: is given", errdefs.ErrInvalidArgument},
		{"users of its own on the host's network without recursive mounts", func(in *Input) {
			ownUsers(in, runtime.NamespaceMode_NODE)
			in.Host.RecursiveReadOnly = false
		}, "the host's network with users of its own: RROUnsupported", errdefs.ErrFailedPrecondition},
		{"user namespace", func(in *Input) {
			m := []*runtime.IDMapping{{Length: 65536}}
			in.sc().NamespaceOptions.UsernsOptions = &runtime.UserNamespace{Mode: runtime.NamespaceMode_POD, Uids: m, Gids: m}
		}, "userns_options: are not the sandbox's", errdefs.ErrInvalidArgument},

		{"capability unknown", func(in *Input) { in.sc().Capabilities = &runtime.Capability{AddCapabilities: []string{"FLY"}} }, `add_capabilities: "FLY"`, errdefs.ErrInvalidArgument},
		{"capability of the host", func(in *Input) {
			in.Host.Capabilities = []string{"CAP_CHOWN"}
			in.sc().Capabilities = &runtime.Capability{AddCapabilities: []string{"SYS_ADMIN"}}
		}, "this host cannot give CAP_SYS_ADMIN", errdefs.ErrFailedPrecondition},
		{"ambient dropped", func(in *Input) {
			in.sc().Capabilities = &runtime.Capability{AddAmbientCapabilities: []string{"CHOWN"}, DropCapabilities: []string{"CHOWN"}}
		}, "add_ambient_capabilities: CAP_CHOWN is not among", errdefs.ErrInvalidArgument},

		{"device missing", func(in *Input) { in.Container.Devices = []*runtime.Device{{HostPath: "/dev/x"}} }, `devices[0].host_path: there is no device at "/dev/x"`, errdefs.ErrInvalidArgument},
		{"device permissions", func(in *Input) { in.Container.Devices = []*runtime.Device{{HostPath: "/dev/x", Permissions: "rx"}} }, `devices[0].permissions: "rx"`, errdefs.ErrInvalidArgument},
		{"device place", func(in *Input) { in.Container.Devices = []*runtime.Device{{HostPath: "/dev/x", ContainerPath: "x"}} }, "devices[0].container_path: ", errdefs.ErrInvalidArgument},

		{"unified on v1", func(in *Input) {
			in.Container.Linux.Resources = &runtime.LinuxContainerResources{Unified: map[string]string{"memory.high": "1"}}
		}, "linux.resources: unified: needs cgroup v2", errdefs.ErrInvalidArgument},
		{"swap without memory", func(in *Input) {
			in.Container.Linux.Resources = &runtime.LinuxContainerResources{MemorySwapLimitInBytes: 1 << 20}
		}, "memory_swap_limit_in_bytes: 1048576 is given without", errdefs.ErrInvalidArgument},
		{"swap below memory", func(in *Input) {
			in.Container.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 2, MemorySwapLimitInBytes: 1}
		}, "linux.resources: memory_swap_limit_in_bytes", errdefs.ErrInvalidArgument},
		{"negative shares", func(in *Input) { in.Container.Linux.Resources = &runtime.LinuxContainerResources{CpuShares: -1} }, "cpu_shares: -1", errdefs.ErrInvalidArgument},
		{"log above", func(in *Input) { in.Container.LogPath = "web/../../0.log" }, `log_path: "web/../../0.log" is not a path below`, errdefs.ErrInvalidArgument},
		{"log with a zero byte", func(in *Input) { in.Container.LogPath = "web\x00.log" }, "log_path: ", errdefs.ErrInvalidArgument},
		{"log with a long name", func(in *Input) { in.Container.LogPath = "a/" + strings.Repeat("x", 256) }, "log_path: a name in ", errdefs.ErrInvalidArgument},
		{"log with a long path", func(in *Input) {
			in.Sandbox.LogDirectory = "/" + strings.Repeat("log/", 1000)
			in.Container.LogPath = strings.Repeat("x/", 60)
		}, "is longer than 4095 bytes", errdefs.ErrInvalidArgument},
		{"long working directory", func(in *Input) { in.Container.WorkingDir = "/" + strings.Repeat("x", 256) }, "working_dir: a name in ", errdefs.ErrInvalidArgument},
		{"long destination", func(in *Input) {
			in.Container.Mounts = []*runtime.Mount{{HostPath: "/h", ContainerPath: "/" + strings.Repeat("x", 256)}}
		}, "mounts[0].container_path: a name in ", errdefs.ErrInvalidArgument},
		{"long destination of a device", func(in *Input) {
			in.Container.Devices = []*runtime.Device{{HostPath: "/dev/null", ContainerPath: "/" + strings.Repeat("x", 256)}}
		}, "devices[0].container_path: a name in ", errdefs.ErrInvalidArgument},
		{"long masked path", func(in *Input) { in.sc().MaskedPaths = []string{"/" + strings.Repeat("x", 256)} }, "masked_paths[0]: a name in ", errdefs.ErrInvalidArgument},
		{"log that is the folder", func(in *Input) { in.Container.LogPath = "/" }, "log_path: ", errdefs.ErrInvalidArgument},
		{"working directory", func(in *Input) { in.Container.WorkingDir = "/a\x00" }, "working_dir: ", errdefs.ErrInvalidArgument},
		{"relative masked path", func(in *Input) { in.sc().MaskedPaths = []string{"/proc/kcore", "proc"} }, `masked_paths[1]: "proc" is not an absolute path`, errdefs.ErrInvalidArgument},
		{"relative read-only path", func(in *Input) { in.sc().ReadonlyPaths = []string{"./proc"} }, `readonly_paths[0]: "./proc" is not an absolute path`, errdefs.ErrInvalidArgument},

		{"seccomp relative", func(in *Input) {
			in.sc().Seccomp = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Localhost, LocalhostRef: "p.json"}
		}, "seccomp: localhost_ref: \"p.json\" is not an absolute path", errdefs.ErrInvalidArgument},
		{"seccomp ref without Localhost", func(in *Input) { in.sc().Seccomp = &runtime.SecurityProfile{LocalhostRef: "/p"} }, "localhost_ref is given", errdefs.ErrInvalidArgument},
		{"seccomp content", func(in *Input) { in.sc().SeccompProfilePath, in.Seccomp = "localhost//p.json", []byte("x") }, `read profile "/p.json"`, errdefs.ErrInvalidArgument},
		{"seccomp without action", func(in *Input) { in.sc().SeccompProfilePath, in.Seccomp = "localhost//p.json", []byte("{}") }, "has no defaultAction", errdefs.ErrInvalidArgument},
		{"seccomp unknown", func(in *Input) { in.sc().SeccompProfilePath = "strict" }, `profile "strict" is not known`, errdefs.ErrInvalidArgument},
		{"no seccomp here", func(in *Input) { in.sc().SeccompProfilePath, in.Host.NoSeccomp = "localhost//p.json", true }, "no seccomp filters", errdefs.ErrFailedPrecondition},
		{"apparmor off", func(in *Input) { in.sc().ApparmorProfile = "localhost/p" }, `profile "p" is asked for`, errdefs.ErrFailedPrecondition},
		{"apparmor default, but off", func(in *Input) { in.sc().Apparmor = &runtime.SecurityProfile{} }, `profile "RuntimeDefault" is asked for`, errdefs.ErrFailedPrecondition},
		{"seccomp of a guest", func(in *Input) {
			in.Guest, in.sc().SeccompProfilePath = true, "localhost//p"
		}, `security_context.seccomp: profile "/p" cannot be that of a WebAssembly guest`, errdefs.ErrInvalidArgument},
		{"apparmor of a guest", func(in *Input) {
			in.Guest, in.sc().ApparmorProfile, in.Host.AppArmor = true, "localhost/p", true
		}, `security_context.apparmor: profile "p" cannot be that of a WebAssembly guest`, errdefs.ErrInvalidArgument},
		{"masked path of a guest", func(in *Input) {
			in.Guest, in.sc().MaskedPaths = true, []string{"/proc/kcore", "/etc"}
		}, `masked_paths[1]: "/etc" is not below /proc or /sys`, errdefs.ErrNotImplemented},
		{"read-only path of a guest", func(in *Input) {
			in.Guest, in.sc().ReadonlyPaths = true, []string{"/proc/../etc"}
		}, `readonly_paths[0]: "/etc" is not below /proc or /sys`, errdefs.ErrNotImplemented},
		{"selinux level", func(in *Input) { in.sc().SelinuxOptions = &runtime.SELinuxOption{Level: "s0:c1;id"} }, `selinux_options.level: "s0:c1;id"`, errdefs.ErrInvalidArgument},
		{"selinux type", func(in *Input) { in.sc().SelinuxOptions = &runtime.SELinuxOption{Type: "a:b"} }, `selinux_options.type: "a:b"`, errdefs.ErrInvalidArgument},
		{"class of block I/O", func(in *Input) {
			in.Container.Annotations = map[string]string{"io.kubernetes.cri.blockio-class": "gold"}
		}, "annotations[io.kubernetes.cri.blockio-class]: class \"gold\"", errdefs.ErrNotImplemented},
		{"class of block I/O for one container", func(in *Input) {
			in.Sandbox.Annotations = map[string]string{"blockio.resources.beta.kubernetes.io/container.web": "gold"}
		}, "container.web]: class", errdefs.ErrNotImplemented},
		{"class of RDT for the pod", func(in *Input) {
			in.Sandbox.Annotations = map[string]string{"rdt.resources.beta.kubernetes.io/pod": "gold"}
		}, "annotations[rdt.resources.beta.kubernetes.io/pod]: class", errdefs.ErrNotImplemented},
		{"apparmor not loaded", func(in *Input) {
			in.sc().ApparmorProfile, in.Host.AppArmor, in.Host.AppArmorLoaded = "localhost/p", true, []string{"q"}
		}, `profile "p" is not loaded`, errdefs.ErrFailedPrecondition},

		{"rewriting of Go neither on nor off", func(in *Input) {
			in.Handler, in.Sandbox.Annotations = runtimeclass.WASM, map[string]string{annotation.OptimizeGo: "yes"}
		}, `annotations[io.sunaba.wasm.optimize-go]: "yes" is neither true nor false`, errdefs.ErrInvalidArgument},
		{"ports not JSON", func(in *Input) {
			in.Handler, in.Container.Annotations = runtimeclass.WASM, map[string]string{PortsAnnotation: "80"}
		}, "annotations[io.kubernetes.container.ports]: ", errdefs.ErrInvalidArgument},
		{"port too high", func(in *Input) {
			in.Handler, in.Container.Annotations = runtimeclass.WASM, map[string]string{PortsAnnotation: `[{"containerPort":65536}]`}
		}, "65536 is not a port", errdefs.ErrInvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := base()
			tt.change(&in)
			_, err := Container(in)
			checkRefusal(t, err, tt.want, tt.class)
		})
	}
}

func TestValidateSandbox(t *testing.T) {
	mapping := []*runtime.IDMapping{{Length: 65536}}
	userns := func(mode runtime.NamespaceMode, m []*runtime.IDMapping) func(*runtime.PodSandboxConfig) {
		return func(c *runtime.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &runtime.UserNamespace{Mode: mode, Uids: m, Gids: m}
		}
	}
	sysctl := func(name, value string) func(*runtime.PodSandboxConfig) {
		return func(c *runtime.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{name: value} }
	}
	onHost := func(then func(*runtime.PodSandboxConfig)) func(*runtime.PodSandboxConfig) {
		return func(c *runtime.PodSandboxConfig) {
			o := c.Linux.SecurityContext.NamespaceOptions
			o.Network, o.Ipc, o.Pid = runtime.NamespaceMode_NODE, runtime.NamespaceMode_NODE, runtime.NamespaceMode_NODE
			then(c)
		}
	}
	ports := func(p ...*runtime.PortMapping) func(*runtime.PodSandboxConfig) {
		return func(c *runtime.PodSandboxConfig) { c.PortMappings = p }
	}
	for _, tt := range []struct {
		name   string
		change func(*runtime.PodSandboxConfig)
		want   string // "" for no error
		class  error
	}{
		{"ordinary", func(*runtime.PodSandboxConfig) {}, "", nil},
		{"nothing for linux", func(c *runtime.PodSandboxConfig) { c.Linux = nil }, "", nil},
		{"no hostname", func(c *runtime.PodSandboxConfig) { c.Hostname = "" }, "", nil},
		{"host namespaces", onHost(func(*runtime.PodSandboxConfig) {}), "", nil},
		{"userns of the host", userns(runtime.NamespaceMode_NODE, nil), "", nil},
		{"ipc sysctl", sysctl("kernel.shm_rmid_forced", "1"), "", nil},
		{"mqueue sysctl", sysctl("fs.mqueue.msg_max", "100"), "", nil},
		{"sysctl with slashes", sysctl("net/ipv4/conf/eth0.1/forwarding", "1"), "", nil},
		{"ports", ports(&runtime.PortMapping{ContainerPort: 80}, &runtime.PortMapping{ContainerPort: 80, HostPort: 8080},
			&runtime.PortMapping{ContainerPort: 80, HostPort: 8080, Protocol: runtime.Protocol_UDP},
			&runtime.PortMapping{ContainerPort: 80, HostPort: 8080, HostIp: "::1"}, &runtime.PortMapping{ContainerPort: 80, HostPort: -1}), "", nil},

		{"relative log folder", func(c *runtime.PodSandboxConfig) { c.LogDirectory = "logs" }, `log_directory: "logs" is not an absolute path`, errdefs.ErrInvalidArgument},
		{"log folder with a zero byte", func(c *runtime.PodSandboxConfig) { c.LogDirectory = "/logs\x00" }, "log_directory: ", errdefs.ErrInvalidArgument},
		{"overhead below nothing", func(c *runtime.PodSandboxConfig) {
			c.Linux.Overhead = &runtime.LinuxContainerResources{MemoryLimitInBytes: -1}
		}, "linux.overhead.memory_limit_in_bytes: -1 is negative", errdefs.ErrInvalidArgument},
		{"quota of a pod", func(c *runtime.PodSandboxConfig) {
			c.Linux.Resources = &runtime.LinuxContainerResources{CpuQuota: 999}
		}, "linux.resources.cpu_quota: 999", errdefs.ErrInvalidArgument},
		{"no metadata", func(c *runtime.PodSandboxConfig) { c.Metadata = nil }, "metadata.name: is empty", errdefs.ErrInvalidArgument},
		{"no namespace", func(c *runtime.PodSandboxConfig) { c.Metadata.Namespace = "" }, "metadata.namespace: is empty", errdefs.ErrInvalidArgument},
		{"no uid", func(c *runtime.PodSandboxConfig) { c.Metadata.Uid = "" }, "metadata.uid: is empty", errdefs.ErrInvalidArgument},
		{"slash in name", func(c *runtime.PodSandboxConfig) { c.Metadata.Name = "../x" }, `metadata.name: "../x"`, errdefs.ErrInvalidArgument},
		{"long name", func(c *runtime.PodSandboxConfig) { c.Metadata.Name = strings.Repeat("x", 256) }, "metadata.name: ", errdefs.ErrInvalidArgument},
		{"long namespace", func(c *runtime.PodSandboxConfig) { c.Metadata.Namespace = strings.Repeat("x", 256) }, "metadata.namespace: ", errdefs.ErrInvalidArgument},
		{"long uid", func(c *runtime.PodSandboxConfig) { c.Metadata.Uid = strings.Repeat("x", 256) }, "metadata.uid: ", errdefs.ErrInvalidArgument},
		{"log folder with a long name", func(c *runtime.PodSandboxConfig) { c.LogDirectory = "/" + strings.Repeat("x", 256) }, "log_directory: a name in ", errdefs.ErrInvalidArgument},
		{"log folder with a long path", func(c *runtime.PodSandboxConfig) { c.LogDirectory = strings.Repeat("/x", 2048) }, "log_directory: ", errdefs.ErrInvalidArgument},
		{"sysctl without end", sysctl("net.ipv4."+strings.Repeat("x", 256), "1"), "is not the name of a kernel parameter", errdefs.ErrInvalidArgument},
		{"hostname line", func(c *runtime.PodSandboxConfig) { c.Hostname = "a\n1.2.3.4 b" }, "hostname: ", errdefs.ErrInvalidArgument},
		{"hostname long", func(c *runtime.PodSandboxConfig) { c.Hostname = strings.Repeat("a", 65) }, "longer than 64", errdefs.ErrInvalidArgument},
		{"network mode", func(c *runtime.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Network = runtime.NamespaceMode_CONTAINER
		}, "namespace_options: network: is CONTAINER", errdefs.ErrInvalidArgument},
		{"ipc mode", func(c *runtime.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Ipc = runtime.NamespaceMode_TARGET
		}, "namespace_options: ipc: is TARGET", errdefs.ErrInvalidArgument},
		{"pid target", func(c *runtime.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Pid, c.Linux.SecurityContext.NamespaceOptions.TargetId = runtime.NamespaceMode_TARGET, "a"
		}, "only a container can have", errdefs.ErrInvalidArgument},
		{"userns", userns(runtime.NamespaceMode_POD, mapping), "", nil},
		{"userns without root", userns(runtime.NamespaceMode_POD, []*runtime.IDMapping{{ContainerId: 1, HostId: 1000, Length: 10}}), "uids[0].container_id: is 1", errdefs.ErrInvalidArgument},
		{"userns of nobody", userns(runtime.NamespaceMode_POD, []*runtime.IDMapping{{HostId: 1000}}), "uids[0].length: is 0", errdefs.ErrInvalidArgument},
		{"userns beyond the last id", userns(runtime.NamespaceMode_POD, []*runtime.IDMapping{{HostId: 1<<32 - 2, Length: 2}}), "beyond the last id", errdefs.ErrInvalidArgument},
		{"userns on the host's network", func(c *runtime.PodSandboxConfig) {
			userns(runtime.NamespaceMode_POD, mapping)(c)
			c.Linux.SecurityContext.NamespaceOptions.Network = runtime.NamespaceMode_NODE
		}, "", nil},
		{"userns with the host's processes", func(c *runtime.PodSandboxConfig) {
			userns(runtime.NamespaceMode_POD, mapping)(c)
			c.Linux.SecurityContext.NamespaceOptions.Pid = runtime.NamespaceMode_NODE
		}, "pid: is NODE, which a pod with a user namespace", errdefs.ErrNotImplemented},
		{"userns with the host's IPC", func(c *runtime.PodSandboxConfig) {
			userns(runtime.NamespaceMode_POD, mapping)(c)
			c.Linux.SecurityContext.NamespaceOptions.Ipc = runtime.NamespaceMode_NODE
		}, "ipc: is NODE, which a pod with a user namespace", errdefs.ErrNotImplemented},
		{"userns two mappings", userns(runtime.NamespaceMode_POD, append(mapping, mapping...)), "want one mapping", errdefs.ErrInvalidArgument},
		{"userns of a container", userns(runtime.NamespaceMode_CONTAINER, mapping), "userns_options.mode: is CONTAINER", errdefs.ErrInvalidArgument},
		{"userns of the host with mappings", userns(runtime.NamespaceMode_NODE, mapping), "mappings are given", errdefs.ErrInvalidArgument},
		{"group alone", func(c *runtime.PodSandboxConfig) { c.Linux.SecurityContext.RunAsGroup = &runtime.Int64Value{} }, "run_as_group: is given without", errdefs.ErrInvalidArgument},
		{"negative user", func(c *runtime.PodSandboxConfig) {
			c.Linux.SecurityContext.RunAsUser = &runtime.Int64Value{Value: -1}
		}, "linux.security_context.run_as_user: -1", errdefs.ErrInvalidArgument},
		{"selinux", func(c *runtime.PodSandboxConfig) {
			c.Linux.SecurityContext.SelinuxOptions = &runtime.SELinuxOption{Level: "x"}
		}, "linux.security_context.selinux_options.level: ", errdefs.ErrInvalidArgument},
		{"seccomp", func(c *runtime.PodSandboxConfig) {
			c.Linux.SecurityContext.Seccomp = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Localhost}
		}, "seccomp: localhost_ref is empty", errdefs.ErrInvalidArgument},
		{"sysctl of the host", sysctl("vm.swappiness", "0"), "linux.sysctls[vm.swappiness]: does not belong", errdefs.ErrInvalidArgument},
		{"sysctl hostname", sysctl("kernel.hostname", "x"), "does not belong", errdefs.ErrInvalidArgument},
		{"sysctl climbs", sysctl("net.ipv4.//x", "0"), "is not the name", errdefs.ErrInvalidArgument},
		{"sysctl in two spellings", func(c *runtime.PodSandboxConfig) {
			c.Linux.Sysctls = map[string]string{"net.ipv4.ip_forward": "1", "net/ipv4/ip_forward": "0"}
		}, "is given twice", errdefs.ErrInvalidArgument},
		{"sysctl climbs with slashes", sysctl("net/../vm/swappiness", "0"), "linux.sysctls[", errdefs.ErrInvalidArgument},
		{"sysctl lines", sysctl("net.ipv4.ip_forward", "1\n2"), "line break", errdefs.ErrInvalidArgument},
		{"net sysctl on the host", onHost(sysctl("net.ipv4.ip_forward", "1")), "network namespace, which is the host's", errdefs.ErrInvalidArgument},
		{"ipc sysctl on the host", onHost(sysctl("kernel.sem", "1")), "IPC namespace, which is the host's", errdefs.ErrInvalidArgument},
		{"domain name on the host", onHost(sysctl("kernel.domainname", "a")), "UTS namespace, which is the host's", errdefs.ErrInvalidArgument},
		{"port protocol", ports(&runtime.PortMapping{Protocol: 7}), "port_mappings[0].protocol: 7", errdefs.ErrInvalidArgument},
		{"container port", ports(&runtime.PortMapping{ContainerPort: 65536}), "port_mappings[0].container_port: 65536", errdefs.ErrInvalidArgument},
		{"host port", ports(&runtime.PortMapping{ContainerPort: 1, HostPort: 65536}), "port_mappings[0].host_port: 65536", errdefs.ErrInvalidArgument},
		{"host port to nowhere", ports(&runtime.PortMapping{HostPort: 80}), "container_port: is 0", errdefs.ErrInvalidArgument},
		{"host ip", ports(&runtime.PortMapping{ContainerPort: 1, HostIp: "localhost"}), "port_mappings[0].host_ip: ", errdefs.ErrInvalidArgument},
		{"host port twice", ports(&runtime.PortMapping{ContainerPort: 1, HostPort: 80}, &runtime.PortMapping{ContainerPort: 2, HostPort: 80}), "80 is the host port of port_mappings[0] too", errdefs.ErrInvalidArgument},
		{"dns", func(c *runtime.PodSandboxConfig) { c.DnsConfig = &runtime.DNSConfig{Searches: []string{"a b"}} }, "dns_config.searches[0]: ", errdefs.ErrInvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := base().Sandbox
			tt.change(config)
			err := ValidateSandbox(config)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			checkRefusal(t, err, tt.want, tt.class)
		})
	}
	checkRefusal(t, ValidateSandbox(nil), "missing", errdefs.ErrInvalidArgument)
}

func TestCheckContainerName(t *testing.T) {
	checkRefusal(t, CheckContainerName(strings.Repeat("x", 256)), "metadata.name: ", errdefs.ErrInvalidArgument)
	if err := CheckContainerName(strings.Repeat("x", 255)); err != nil {
		t.Error(err)
	}
}

func checkRefusal(t *testing.T, err error, want string, class error) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q in it", want)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("error %q, want %q in it", err, want)
	}
	if !errors.Is(err, class) {
		t.Errorf("error %q is not of class %q", err, class)
	}
}
