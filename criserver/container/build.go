package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/regular"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

const (
	configFile = "config.json"
	rootfsDir  = "rootfs"

	// maxSeccompProfile bounds a profile; a long one has 100 KiB.
	maxSeccompProfile = 4 << 20
)

// builder makes the parts of one container: root filesystem, volumes, specification and bundle. What it made is removed
// by Manager.forget.
type builder struct {
	manager *Manager
	sandbox *sandbox.Sandbox
	pod     state.Sandbox
	image   images.Image
	rec     state.Container // what build makes is set by it
	guest   bool            // its program is a WebAssembly module
}

func (b *builder) config() *runtime.ContainerConfig { return b.rec.Config.Value }

func (b *builder) build(ctx context.Context) error {
	in := spec.Input{
		ID: b.rec.ID, SandboxID: b.pod.ID, Container: b.config(), Sandbox: b.pod.Config.Value,
		Image: b.image.Config, Handler: runtimeclass.Type(b.pod.HandlerType),
		CgroupsPath: b.rec.CgroupsPath, Files: b.sandbox.Files(b.pod.Config.Value),
		LogLimits: b.logLimits().String(), OptimizeGo: b.manager.o.OptimizeGo,
	}
	for _, step := range []func(context.Context, *spec.Input) error{
		b.rootfs, b.inRoot, b.imageVolumes, b.namespaces, b.host, b.labels, b.bundle,
	} {
		if err := step(ctx, &in); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) logLimits() stdio.Limits {
	all := b.manager.o.LogLimits
	if own, ok := all[b.pod.HandlerName]; ok {
		return own
	}
	return all[""]
}

// rootfs takes the image: a module by its path, everything else as a root filesystem of the container's own.
func (b *builder) rootfs(ctx context.Context, in *spec.Input) error {
	mounts, err := b.prepare(ctx)
	if err != nil {
		return fmt.Errorf("prepare root filesystem: %w", err)
	}
	if b.image.Kind == images.Module {
		in.ModulePath, in.ModuleDigest = b.manager.o.Images.ModulePath(b.image), b.image.Module.Digest.String()
		in.ModuleName = b.image.Module.Annotations[ocispec.AnnotationTitle]
		in.Guest = true
		return nil
	}
	b.rec.RootFS = toMounts(mounts)
	return nil
}

func (b *builder) prepare(ctx context.Context) ([]mount.Mount, error) {
	ids := spec.UserNamespace(b.pod.Config.Value)
	if ids == nil {
		return b.manager.o.Images.PrepareRootFS(ctx, b.rec.SnapshotKey, b.image)
	}
	uids, gids := mappings(ids)
	return b.manager.o.Images.PrepareMappedRootFS(ctx, b.rec.SnapshotKey, b.image, uids, gids)
}

// inRoot does what needs to look into the image.
func (b *builder) inRoot(ctx context.Context, in *spec.Input) error {
	sc := b.config().GetLinux().GetSecurityContext()
	if b.image.Kind == images.Module {
		user, err := spec.ResolveUser(nil, b.image.Config, sc)
		b.setUser(in, user)
		return err
	}
	return b.manager.o.Images.WithRootFS(ctx, b.rec.SnapshotKey, func(root string) error {
		user, err := spec.ResolveUser(regular.Tree(root), b.image.Config, sc)
		if err != nil {
			return err
		}
		b.setUser(in, user)
		if in.Guest = isGuest(root, spec.Programs(*in)); in.Guest && in.Handler != runtimeclass.WASM {
			return b.manager.wrongHandler(b.pod)
		}
		if in.Guest {
			b.readyProgram(ctx, root, spec.Programs(*in))
		}
		if err := b.volumes(root, in); err != nil {
			return err
		}
		b.rec.Unstartable = b.unstartable(root, in)
		return nil
	})
}

// readyProgram is ready for an image whose module is among its files. If the container runs another module, whose digest is not
// known, the one at hand does not have the image's digest and is not compiled: the pod's shim does that.
func (b *builder) readyProgram(ctx context.Context, root string, names []string) {
	if b.manager.o.Modules == nil || b.image.Program == "" {
		return
	}
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return
	}
	if p, ok := firstProgram(root, names); ok {
		b.manager.o.Modules.Ready(ctx, filepath.Join(root, p.real), b.image.Program.String())
	}
}

func (b *builder) setUser(in *spec.Input, user spec.User) {
	in.User = user
	b.rec.User = state.User{UID: user.UID, GID: user.GID, Groups: user.Groups}
}

// volumes makes a folder for each anonymous volume of the image and fills it with what the image has at that place.
func (b *builder) volumes(root string, in *spec.Input) error {
	paths := spec.Volumes(b.image.Config.Volumes, b.config())
	if len(paths) == 0 {
		return nil
	}
	in.Volumes = map[string]string{}
	for i, p := range paths {
		dir := filepath.Join(b.manager.volumesDir(b.rec.ID), strconv.Itoa(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make volume %q: %w", p, err)
		}
		in.Volumes[p] = dir
		source, err := fs.RootPath(root, p)
		if err != nil {
			return fmt.Errorf("make volume %q: %w", p, err)
		}
		if info, err := os.Stat(source); errors.Is(err, os.ErrNotExist) || err == nil && !info.IsDir() {
			continue
		} else if err != nil {
			return fmt.Errorf("make volume %q: %w", p, err)
		}
		if err := fs.CopyDir(dir, source); err != nil {
			return fmt.Errorf("fill volume %q: %w", p, err)
		}
	}
	return nil
}

// namespaces finds what the container joins.
func (b *builder) namespaces(_ context.Context, in *spec.Input) error {
	in.Namespaces = b.sandbox.Namespaces(b.pod.Config.Value)
	if _, _, pid := spec.Modes(in.Container, in.Sandbox); pid != runtime.NamespaceMode_TARGET {
		return nil
	}
	target := b.config().GetLinux().GetSecurityContext().GetNamespaceOptions().GetTargetId()
	if target == "" {
		return nil // spec.Container refuses that
	}
	rec, err := b.manager.Get(target)
	if err != nil {
		return fmt.Errorf("target of the PID namespace: %w", err)
	}
	_, _, mode := spec.Modes(rec.Config.Value, b.pod.Config.Value)
	switch {
	case rec.SandboxID != b.pod.ID:
		return fmt.Errorf("target %q of the PID namespace is in another sandbox: %w", target, errdefs.ErrInvalidArgument)
	case mode != runtime.NamespaceMode_CONTAINER:
		return fmt.Errorf("target %q has no PID namespace of its own: %w", target, errdefs.ErrInvalidArgument)
	case rec.Phase != state.Running:
		return fmt.Errorf("target %q of the PID namespace does not run: %w", target, errdefs.ErrFailedPrecondition)
	}
	in.Namespaces.PID = fmt.Sprintf("/proc/%d/ns/pid", rec.PID)
	return nil
}

// host looks at what the configuration names on this machine.
func (b *builder) host(ctx context.Context, in *spec.Input) error {
	var err error
	if in.Sources, err = b.manager.paths.Sources(ctx, b.config()); err != nil {
		return err
	}
	if in.Devices, err = b.manager.paths.Devices(ctx, b.config()); err != nil {
		return err
	}
	file, err := spec.SeccompFile(b.config())
	if err != nil {
		return err
	}
	if file != "" {
		if in.Seccomp, err = b.manager.paths.Read(ctx, file, maxSeccompProfile); err != nil {
			return fmt.Errorf("seccomp: localhost_ref: %w", err)
		}
	}
	in.Host = facts.Online(b.manager.o.Host)
	b.handler(in)
	oci := b.manager.o.Runtime(b.pod.Binary)
	if oci.Missing && !in.Guest {
		return fmt.Errorf("%s: %w", oci.Text(b.pod.HandlerName), errdefs.ErrFailedPrecondition)
	}
	in.OneStep = oci.Features.OneStep
	in.Host.RecursiveReadOnly = in.Host.RecursiveReadOnly && (in.Guest || oci.Features.RecursiveReadOnly)
	if in.Host.AppArmor {
		need := ""
		if spec.DefaultAppArmor(b.config()) && !in.Guest {
			need = in.Host.AppArmorDefault
		}
		if in.Host.AppArmorLoaded, err = facts.LoadedProfiles(need); err != nil {
			return err
		}
	}
	if b.config().GetLinux().GetSecurityContext().GetPrivileged() {
		if in.Host.Devices, err = facts.HostDevices(); err != nil {
			return err
		}
	}
	return nil
}

// handler looks up what the pod's handler lets through; nothing if it is not configured any more.
func (b *builder) handler(in *spec.Input) {
	h, err := b.manager.o.Handlers.Lookup(b.pod.HandlerName)
	if err == nil {
		in.PodAnnotations, in.ContainerAnnotations = h.PodAnnotations, h.ContainerAnnotations
	}
}

// bundle writes what the shim is given.
func (b *builder) bundle(_ context.Context, in *spec.Input) error {
	b.guest = in.Guest
	s, err := spec.Container(*in)
	if err != nil {
		return err
	}
	if err := injectCDI(b.config(), in.Guest, b.manager.o.CDISpecDirs, s); err != nil {
		return err
	}
	dir := filepath.Join(b.sandbox.Dir, b.rec.ID)
	if err := os.MkdirAll(filepath.Join(dir, rootfsDir), 0o711); err != nil {
		return fmt.Errorf("make bundle: %w", err)
	}
	return writeSpec(dir, s)
}

// writeSpec replaces a bundle's specification as a whole. It is not synced: the folder is on a tmpfs as a rule, and no
// bundle outlives a reboot.
func writeSpec(dir string, s *specs.Spec) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write specification: %w", err)
	}
	return writeConfig(dir, data)
}

func writeConfig(dir string, data []byte) error {
	if err := durable.Replace(filepath.Join(dir, configFile), data, 0o600); err != nil {
		return fmt.Errorf("write specification: %w", err)
	}
	return nil
}
