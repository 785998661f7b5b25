// Package spec translates the CRI's words into an OCI runtime specification.
//
// It is pure: its Input has all facts about the host (collected by package facts), the image and
// the sandbox. Errors name the container and the field: ErrInvalidArgument for what no runtime can
// do, ErrFailedPrecondition for what this host or sandbox cannot, ErrNotImplemented for what this
// runtime does not do.
package spec

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// version of the runtime specification that is asked for. Runtimes in use
// (crun of Debian 12) refuse newer ones, also where they have what came with
// them: recursive read-only mounts, which Host answers for.
const version = "1.0.2"

// Input is everything that decides a container's specification.
type Input struct {
	ID, SandboxID string
	Container     *runtime.ContainerConfig
	Sandbox       *runtime.PodSandboxConfig
	Image         ocispec.ImageConfig
	// Handler is the type of the pod's handler.
	Handler runtimeclass.Type
	// Module is the module when the image is a wasm artifact, which has no root filesystem.
	Module annotation.Module
	// LogLimits are the bounds of the container's log.
	LogLimits stdio.Limits
	// OptimizeGo says whether the functions of Go's guests are rewritten where
	// neither container nor pod says it.
	OptimizeGo bool
	// OneStep says that the container's runtime can make it and let it run at once; see Runtime.
	OneStep bool
	// Guest says that the container is WebAssembly: such a module, or an image
	// whose program is one; see Programs.
	Guest      bool
	Namespaces Namespaces
	// CgroupsPath is the container's own cgroup, as the OCI runtime's driver
	// writes it (cgroupfs: a path; systemd: slice:prefix:name).
	CgroupsPath string
	// User is what ResolveUser answered.
	User  User
	Files Files
	// Sources are facts about the host paths of the container's mounts, by host_path. A path that
	// is missing here is used as it is, and the propagation that it needs is not checked.
	Sources map[string]Source
	// Images are the host paths at which the shim shows the images that the
	// container mounts, by the index of the mount; see ImageVolumes.
	Images map[int]string
	// Devices are the devices found at the host paths of the container's devices, by host_path.
	Devices map[string][]Device
	// Volumes are host directories for the image's anonymous volumes, by path
	// in the container; see Volumes.
	Volumes map[string]string
	// Seccomp is the content of the file that SeccompFile named.
	Seccomp []byte
	// PodAnnotations and ContainerAnnotations say which annotations of pod and
	// container are handed to the OCI runtime: patterns of path.Match.
	PodAnnotations, ContainerAnnotations []string
	// ProcessLabel and MountLabel are SELinux labels, "" where SELinux is off.
	ProcessLabel, MountLabel string
	Host                     Host
}

// Namespaces are paths of the sandbox's pinned namespaces. Whether one is joined follows from the
// modes in the sandbox's and container's configuration; see Modes. UTS may be "" for a new one. PID
// is the pod's for mode POD, the target's for mode TARGET; mode CONTAINER needs none. User is ""
// for the host's.
type Namespaces struct {
	Net, IPC, UTS, PID, User string
}

// User is who a container's first process runs as. Groups are its
// supplementary groups, with GID first.
type User struct {
	UID, GID uint32
	Groups   []uint32
	Home     string
}

// Files are host paths of what the sandbox gives to each of its containers;
// "" for none. Shm is a directory.
type Files struct {
	Hosts, ResolvConf, Hostname, Shm string
}

// Source is a host path that a container mounts.
type Source struct {
	// Path is the host path with symbolic links resolved.
	Path string
	// Shared and Slave are the propagation of the mount that Path lies on.
	Shared, Slave bool
}

// Device is a device file of the host.
type Device struct {
	// Path is where it was found: below the host path asked for ("" for that
	// path itself), or absolute in Host.Devices.
	Path         string
	Type         string // "c", "b" or "p"
	Major, Minor int64
	Mode         uint32 // permission bits
	UID, GID     uint32
}

// Host is what must be known about the machine.
type Host struct {
	// Hostname is the node's name, for sandboxes in the host's network.
	Hostname string
	// Capabilities that a container can have ("CAP_…"): what "ALL" and
	// privileged mean. nil: all that this package knows.
	Capabilities []string
	CgroupV2     bool
	// SwapAccounting says that the memory controller limits swap, Hugetlb that
	// there is a hugetlb controller. Without them such limits are left out.
	SwapAccounting, Hugetlb bool
	// CPUs and MemoryNodes are those that are online, as lists like "0-3,8"; "" if that is not known.
	CPUs, MemoryNodes string
	// MinOOMScoreAdj is the lowest oom_score_adj that may be set, -1000 with
	// CAP_SYS_RESOURCE. Lower wishes are raised to it.
	MinOOMScoreAdj int
	// RecursiveReadOnly says that kernel and handler have recursive read-only mounts.
	RecursiveReadOnly bool
	// IDMappedMounts says that the kernel can show root filesystems and volumes
	// with other owners, which user namespaces need.
	IDMappedMounts bool
	// NoSeccomp says that the kernel lacks seccomp filters.
	NoSeccomp bool
	// AppArmor says that the kernel enforces AppArmor. AppArmorDefault is the
	// profile of RuntimeDefault, "" for none; AppArmorLoaded are the profiles
	// that are loaded, nil if that is not known.
	AppArmor        bool
	AppArmorDefault string
	AppArmorLoaded  []string
	// Devices are all devices of the host, for privileged containers.
	Devices []Device
}

// Container translates a container's configuration. The specification names
// its root filesystem "rootfs", below the bundle; a wasm artifact has none.
func Container(in Input) (*specs.Spec, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	s := &specs.Spec{
		Version: version,
		Process: &specs.Process{},
		Linux:   &specs.Linux{CgroupsPath: in.CgroupsPath, MountLabel: in.MountLabel},
	}
	if in.Module.Path == "" {
		s.Root = &specs.Root{Path: "rootfs", Readonly: in.security().GetReadonlyRootfs()}
	}
	for _, step := range []func(*specs.Spec) error{
		in.process,
		in.capabilities,
		in.namespaces,
		in.mounts,
		in.devices,
		in.resources,
		in.paths,
		in.apparmor,
		in.seccomp, // after capabilities, which the default profile looks at
		in.annotations,
	} {
		if err := step(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// check refuses what the container may not ask for of this sandbox, and what is not done yet.
func (in *Input) check() error {
	if in.Container == nil || in.Sandbox == nil {
		return fmt.Errorf("configuration of container and sandbox are both needed: %w", errdefs.ErrInvalidArgument)
	}
	if err := CheckContainerName(in.Container.GetMetadata().GetName()); err != nil {
		return fmt.Errorf("container %.300q: %w", in.Container.GetMetadata().GetName(), err)
	}
	log := in.Container.GetLogPath()
	if log != "" && !filepath.IsLocal(strings.TrimLeft(log, "/")) {
		return invalid("log_path", "%.300q is not a path below the sandbox's log_directory", log)
	}
	if err := CheckPath(path.Join(in.Sandbox.GetLogDirectory(), log)); err != nil {
		return invalid("log_path", "%w", err)
	}
	if err := CheckPath(in.Container.GetWorkingDir()); err != nil {
		return invalid("working_dir", "%w", err)
	}
	if in.Guest {
		if err := in.checkGuest(); err != nil {
			return err
		}
	}
	if _, err := ImageVolumes(in.Container); err != nil {
		return err
	}
	if in.privileged() && !in.Sandbox.GetLinux().GetSecurityContext().GetPrivileged() {
		return invalid("linux.security_context.privileged", "the sandbox is not privileged, so its containers cannot be")
	}
	if err := checkUser(in.security()); err != nil {
		return inField("linux.security_context", err)
	}
	if err := checkSELinux(in.security().GetSelinuxOptions()); err != nil {
		return inField("linux.security_context", err)
	}
	return checkClasses(in.Container, in.Sandbox)
}

// checkGuest refuses what a guest would be given by nobody. What it has more strictly than asked
// for (capabilities, privileges, RuntimeDefault profiles) it keeps.
func (in *Input) checkGuest() error {
	const sc = "linux.security_context."
	if len(in.Container.GetDevices()) > 0 {
		return invalid("devices[0]", "a WebAssembly guest has no devices")
	}
	for _, p := range []struct {
		field string
		of    func(*runtime.LinuxContainerSecurityContext) (*runtime.SecurityProfile, error)
	}{{"seccomp", seccompProfile}, {"apparmor", apparmorProfile}} {
		profile, err := p.of(in.security())
		if err == nil && profile.GetProfileType() == runtime.SecurityProfile_Localhost {
			return invalid(sc+p.field, "profile %q cannot be that of a WebAssembly guest, which is confined by its own; RuntimeDefault and Unconfined can be asked for", profile.GetLocalhostRef())
		}
	}
	return eachPath(in.security(), func(field, p string) error {
		if p = path.Clean(p); !strings.HasPrefix(p, "/proc/") && !strings.HasPrefix(p, "/sys/") {
			return unimplemented(field, "%q is not below /proc or /sys, which a WebAssembly guest does not have", p)
		}
		return nil
	})
}

func (in *Input) security() *runtime.LinuxContainerSecurityContext {
	return in.Container.GetLinux().GetSecurityContext()
}

func (in *Input) privileged() bool { return in.security().GetPrivileged() }

// artifact says that the container is a lone wasm module without an image's root filesystem.
func (in *Input) artifact() bool { return in.Module.Path != "" }
