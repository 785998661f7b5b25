package spec

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cap"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

const (
	containerID = "c0ffee0000000000000000000000000000000000000000000000000000000001"
	sandboxID   = "5a0dba0000000000000000000000000000000000000000000000000000000002"
)

// base is an ordinary container of the kubelet's in an ordinary pod.
func base() Input {
	dir := "/run/sunaba/sandboxes/" + sandboxID
	masked, readonly := DefaultPaths() // as the kubelet sends them
	return Input{
		ID: containerID, SandboxID: sandboxID,
		Sandbox: &runtime.PodSandboxConfig{
			Metadata: &runtime.PodSandboxMetadata{Name: "greeter", Namespace: "default", Uid: "8d8c", Attempt: 0},
			Hostname: "greeter",
			Linux: &runtime.LinuxPodSandboxConfig{SecurityContext: &runtime.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER},
			}},
		},
		Container: &runtime.ContainerConfig{
			Metadata: &runtime.ContainerMetadata{Name: "web"},
			Image:    &runtime.ImageSpec{Image: "sha256:1234", UserSpecifiedImage: "example.org/greeter:1"},
			Linux: &runtime.LinuxContainerConfig{SecurityContext: &runtime.LinuxContainerSecurityContext{
				NamespaceOptions: &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER},
				MaskedPaths:      masked, ReadonlyPaths: readonly,
			}},
		},
		Image:       ocispec.ImageConfig{Entrypoint: []string{"/greeter"}, Cmd: []string{"-v"}, Env: []string{"LANG=C"}, WorkingDir: "/srv"},
		Handler:     runtimeclass.OCI,
		Namespaces:  Namespaces{Net: dir + "/ns/net", IPC: dir + "/ns/ipc", UTS: dir + "/ns/uts"},
		CgroupsPath: "/kubepods/pod8d8c/" + containerID,
		User:        User{UID: 1000, GID: 1000, Groups: []uint32{1000, 2000}, Home: "/home/greeter"},
		Files:       Files{Hosts: "/s/hosts", ResolvConf: "/s/resolv.conf", Hostname: "/s/hostname", Shm: dir + "/shm"},
		Host: Host{
			Hostname: "node-1", SwapAccounting: true, Hugetlb: true, MinOOMScoreAdj: -1000, RecursiveReadOnly: true,
			Capabilities: slices.Clone(cap.Known()),
		},
	}
}

// security is the security context of a base's container.
func (in *Input) sc() *runtime.LinuxContainerSecurityContext {
	return in.Container.Linux.SecurityContext
}

// privilege makes container and sandbox privileged.
func privilege(in *Input) {
	in.sc().Privileged = true
	in.Sandbox.Linux.SecurityContext.Privileged = true
	in.Host.Devices = []Device{
		{Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229, Mode: 0o666},
		{Path: "/dev/sda", Type: "b", Major: 8, Minor: 0, Mode: 0o660, GID: 6},
	}
}

// ownUsers gives the pod a user namespace of its own.
func ownUsers(in *Input, network runtime.NamespaceMode) *runtime.UserNamespace {
	own := &runtime.UserNamespace{
		Mode: runtime.NamespaceMode_POD,
		Uids: []*runtime.IDMapping{{HostId: 131072, Length: 65536}}, Gids: []*runtime.IDMapping{{HostId: 196608, Length: 65536}},
	}
	for _, o := range []*runtime.NamespaceOption{in.Sandbox.Linux.SecurityContext.NamespaceOptions, in.sc().NamespaceOptions} {
		o.UsernsOptions, o.Network = own, network
	}
	in.Namespaces.User = "/run/sunaba/sandboxes/" + sandboxID + "/ns/user"
	return own
}

func artifact(in *Input) {
	in.Handler = runtimeclass.WASM
	in.Image = ocispec.ImageConfig{}
	in.Module = annotation.Module{Path: "/var/lib/sunaba/images/modules/hello.wasm", Digest: "sha256:abcd", Name: "hello.wasm"}
	in.Guest = true
}

var goldens = map[string]func(*Input){
	"plain": func(*Input) {},
	"crictl": func(in *Input) { // a configuration with nothing but names
		in.Sandbox.Linux, in.Sandbox.Hostname, in.Container.Linux = nil, "", nil
		in.Namespaces.PID = "/proc/42/ns/pid"
		in.User = User{Home: "/root", Groups: []uint32{0}}
		in.Image.Entrypoint = nil
		in.Container.Command = []string{"sleep", "1"}
	},
	"systemd": func(in *Input) { in.CgroupsPath = "kubepods-pod8d8c.slice:sunaba:" + containerID },
	"cgroup2": func(in *Input) {
		in.Host.CgroupV2 = true
		in.Container.Linux.Resources = &runtime.LinuxContainerResources{
			CpuShares: 256, MemoryLimitInBytes: 64 << 20, OomScoreAdj: 990, Unified: map[string]string{"memory.high": "60000000"},
		}
	},
	"resources": func(in *Input) {
		in.Host.MinOOMScoreAdj = -500
		in.Container.Linux.Resources = &runtime.LinuxContainerResources{
			CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512, MemoryLimitInBytes: 128 << 20, MemorySwapLimitInBytes: 256 << 20,
			OomScoreAdj: -997, CpusetCpus: "0-1", CpusetMems: "0",
			HugepageLimits: []*runtime.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}},
		}
	},
	"mounts": func(in *Input) {
		in.Image.Volumes = map[string]struct{}{"/data": {}, "/cache": {}}
		in.Volumes = map[string]string{"/cache": "/v/cache", "/data": "/v/data"}
		in.Container.Mounts = []*runtime.Mount{
			{ContainerPath: "/data/deep/er", HostPath: "/h/3", Readonly: true},
			{ContainerPath: "/data/deep", HostPath: "/h/2", Propagation: runtime.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
			{ContainerPath: "/data", HostPath: "/h/link"},
			{ContainerPath: "/etc/hosts", HostPath: "/kubelet/hosts"},
			{ContainerPath: "/all/", HostPath: "/h/all", Readonly: true, RecursiveReadOnly: true, MountOptions: []string{"noexec", "nodev"}},
			{ContainerPath: "/shared", HostPath: "/h/shared", Propagation: runtime.MountPropagation_PROPAGATION_BIDIRECTIONAL},
			{ContainerPath: "/dev/shm", HostPath: "/h/shm"},
		}
		in.Sources = map[string]Source{
			"/h/link": {Path: "/h/real"}, "/h/2": {Path: "/h/2", Slave: true}, "/h/shared": {Path: "/h/shared", Shared: true},
		}
	},
	"image-volumes": func(in *Input) {
		in.Container.Mounts = []*runtime.Mount{
			{ContainerPath: "/models/big", Image: &runtime.ImageSpec{Image: "sha256:5678"}, ImageSubPath: "weights", Readonly: true, MountOptions: []string{"noexec"}},
			{ContainerPath: "/models", Image: &runtime.ImageSpec{Image: "sha256:1234"}, Readonly: true, RecursiveReadOnly: true},
		}
		in.Images = map[int]string{0: "/run/sunaba/images/0/weights", 1: "/run/sunaba/images/1"}
	},
	"mount-dev": func(in *Input) {
		in.Container.Mounts = []*runtime.Mount{{ContainerPath: "/dev", HostPath: "/dev"}}
	},
	"mount-sys": func(in *Input) { // as monitors of the node have it, with all cgroups
		in.Container.Mounts = []*runtime.Mount{{ContainerPath: "/sys", HostPath: "/sys", Readonly: true}}
	},
	"host-namespaces": func(in *Input) {
		all := &runtime.NamespaceOption{Network: runtime.NamespaceMode_NODE, Pid: runtime.NamespaceMode_NODE, Ipc: runtime.NamespaceMode_NODE}
		in.Sandbox.Linux.SecurityContext.NamespaceOptions = all
		in.sc().NamespaceOptions = all
		in.Sandbox.Hostname, in.Namespaces = "", Namespaces{}
	},
	"target-pid": func(in *Input) {
		in.sc().NamespaceOptions = &runtime.NamespaceOption{Pid: runtime.NamespaceMode_TARGET, TargetId: "abc"}
		in.Namespaces.PID = "/proc/77/ns/pid"
		in.Container.Tty = true
	},
	"security": func(in *Input) {
		in.sc().NoNewPrivs, in.sc().ReadonlyRootfs = true, true
		in.sc().MaskedPaths, in.sc().ReadonlyPaths = []string{"/proc/kcore"}, []string{"/proc/sys"}
		in.sc().Capabilities = &runtime.Capability{AddCapabilities: []string{"net_admin"}, DropCapabilities: []string{"ALL"}}
		in.sc().Seccomp = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Localhost, LocalhostRef: "/p.json"}
		in.Seccomp = []byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["sethostname"],"action":"SCMP_ACT_ERRNO"}]}`)
		in.sc().Apparmor = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Localhost, LocalhostRef: "mine"}
		in.Host.AppArmor, in.Host.AppArmorLoaded = true, []string{"mine"}
		in.ProcessLabel, in.MountLabel = "system_u:system_r:container_t:s0:c1,c2", "system_u:object_r:container_file_t:s0:c1,c2"
	},
	"user-namespace": func(in *Input) {
		own := ownUsers(in, runtime.NamespaceMode_POD)
		in.Container.Mounts = []*runtime.Mount{{ContainerPath: "/mapped", HostPath: "/h/1", UidMappings: own.Uids, GidMappings: own.Gids}, {ContainerPath: "/plain", HostPath: "/h/2"},
			{ContainerPath: "/image", Image: &runtime.ImageSpec{Image: "x"}, Readonly: true, UidMappings: own.Uids, GidMappings: own.Gids}}
		in.Images = map[int]string{2: "/run/sunaba/images/2"}
		in.Volumes = map[string]string{"/data": "/v/data"}
	},
	"user-namespace-host-network": func(in *Input) {
		ownUsers(in, runtime.NamespaceMode_NODE)
		in.Namespaces.Net, in.Namespaces.UTS, in.Sandbox.Hostname = "", "", ""
	},
	"unmasked": func(in *Input) { // procMount Unmasked
		in.sc().MaskedPaths, in.sc().ReadonlyPaths = nil, nil
	},
	"ambient": func(in *Input) {
		in.sc().Capabilities = &runtime.Capability{AddAmbientCapabilities: []string{"NET_BIND_SERVICE"}, DropCapabilities: []string{"CAP_MKNOD"}}
	},
	"privileged": func(in *Input) {
		privilege(in)
		in.Host.CgroupV2 = true
		in.Host.AppArmor, in.Host.AppArmorDefault = true, "sunaba"
		in.sc().Seccomp = &runtime.SecurityProfile{}
	},
	"devices": func(in *Input) {
		in.Container.Devices = []*runtime.Device{{HostPath: "/dev/fuse", ContainerPath: "/dev/fuse", Permissions: "rw"}, {HostPath: "/dev/snd"}}
		in.Devices = map[string][]Device{
			"/dev/fuse": {{Type: "c", Major: 10, Minor: 229, Mode: 0o666}},
			"/dev/snd":  {{Path: "timer", Type: "c", Major: 116, Minor: 33, Mode: 0o660, GID: 29}, {Path: "by/seq", Type: "c", Major: 116, Minor: 1, Mode: 0o660, GID: 29}},
		}
	},
	"annotations": func(in *Input) {
		in.LogLimits = stdio.Limits{Rate: 1024, Size: 1 << 20}
		in.OneStep = true
		in.PodAnnotations, in.ContainerAnnotations = []string{"run.oci.*", "io.*"}, []string{"example.org/x"}
		in.Sandbox.Annotations = map[string]string{
			"run.oci.keep": "1", "run.oci/deep": "no", "other": "no", "io.sunaba.stop-wait": "no", "io.kubernetes.cri.sandbox-id": "no",
		}
		in.Container.Annotations = map[string]string{"example.org/x": "2", "run.oci.own": "no", "blockio.resources.beta.kubernetes.io/container.other": "no"}
	},
	"wasm-image": func(in *Input) {
		in.Handler, in.Guest = runtimeclass.WASM, true
		in.Image.Entrypoint = []string{"/greeter.wasm"}
		in.Container.Annotations = map[string]string{
			PortsAnnotation:       `[{"name":"http","containerPort":8080,"protocol":"TCP"},{"containerPort":53,"protocol":"UDP"},{"hostPort":80,"containerPort":9090,"protocol":"TCP"}]`,
			annotation.StopWait:   "true",
			annotation.OptimizeGo: "true",
			annotation.ModulePath: "/etc/shadow", // has no say
		}
	},
	"wasm-artifact": func(in *Input) {
		artifact(in)
		in.Container.Args = []string{"--port", "80"}
		in.Sandbox.PortMappings = []*runtime.PortMapping{{ContainerPort: 80}, {ContainerPort: 53, Protocol: runtime.Protocol_UDP}, {ContainerPort: 443, HostPort: 8443}}
		in.Container.Mounts = []*runtime.Mount{{ContainerPath: "/data", HostPath: "/h/data", Readonly: true}}
	},
}

func TestContainerGolden(t *testing.T) {
	for name, change := range goldens {
		t.Run(name, func(t *testing.T) {
			in := base()
			change(&in)
			s, err := Container(in)
			if err != nil {
				t.Fatal(err)
			}
			checkGolden(t, name, s)
		})
	}
}

func TestPauseGolden(t *testing.T) {
	in := base()
	in.Sandbox.Linux.SecurityContext.RunAsUser = &runtime.Int64Value{Value: 1000}
	in.Sandbox.Linux.SecurityContext.RunAsGroup = &runtime.Int64Value{Value: 1001}
	in.Sandbox.Linux.SecurityContext.SupplementalGroups = []int64{7}
	s, err := Pause(PauseInput{SandboxID: sandboxID, Sandbox: in.Sandbox, Handler: runtimeclass.WASM, Namespaces: in.Namespaces,
		CgroupsPath: "/kubepods/pod8d8c/" + sandboxID, Host: Host{MinOOMScoreAdj: -1000}})
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "pause", s)
	s, err = Pause(PauseInput{SandboxID: sandboxID, Sandbox: &runtime.PodSandboxConfig{}, Handler: runtimeclass.OCI})
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "pause-host", s)
}

func checkGolden(t *testing.T, name string, s *specs.Spec) {
	t.Helper()
	got, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; see go test -update and git diff. Got:\n%s", file, got)
	}
}
