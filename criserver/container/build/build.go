// Package build makes what a container consists of: root filesystem, volumes, specification and
// bundle.
package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	snapshot "github.com/containerd/containerd/v2/core/mount"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/ociruntime"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/selinux"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// ConfigFile is the specification in a bundle.
const ConfigFile = "config.json"

const rootfsDir = "rootfs"

// Options configure New.
type Options struct {
	Images   *images.Service
	Modules  Modules // nil = nothing is made ready
	Handlers *runtimeclass.Table
	Host     spec.Host
	Runtime  func(binary string) ociruntime.Report // what is known of an OCI runtime now
	Labels   *selinux.Labels
	// CDISpecDirs are the folders of CDI specifications, the later before the earlier ones; none
	// turns CDI devices off.
	CDISpecDirs []string
	// LogLimits bound a container's log, by its pod's handler; "" stands for those that are not
	// named.
	LogLimits map[string]stdio.Limits
	// OptimizeGo says whether the functions of Go's guests are rewritten where neither container
	// nor pod says it.
	OptimizeGo bool
}

// Modules makes modules ready for their start, as far as that works. With path "" it compiles
// nothing.
type Modules interface {
	Ready(ctx context.Context, path, digest string)
}

// Maker makes containers.
type Maker struct {
	o     Options
	paths facts.Paths
}

// New returns a Maker.
func New(o Options) *Maker { return &Maker{o: o} }

// Request is what a container is made of, beside its configuration.
type Request struct {
	Sandbox      *sandbox.Sandbox
	Pod          state.Sandbox
	Image        images.Image
	PIDNamespace string // that of another container, "" = none
	Volumes      string // the folder of the image's anonymous volumes
}

// Build makes the parts of a container and notes in its record what it has made, also if it fails:
// its caller deletes that then.
func (m *Maker) Build(ctx context.Context, r Request, rec *state.Container) error {
	b := &builder{Maker: m, Request: r, rec: rec}
	return b.build(ctx)
}

// builder makes one container.
type builder struct {
	*Maker
	Request
	rec *state.Container
}

func (b *builder) config() *runtime.ContainerConfig { return b.rec.Config.Value }

func (b *builder) build(ctx context.Context) error {
	in := spec.Input{
		ID: b.rec.ID, SandboxID: b.Pod.ID, Container: b.config(), Sandbox: b.Pod.Config.Value,
		Image: b.Image.Config, Handler: runtimeclass.Type(b.Pod.HandlerType),
		CgroupsPath: b.rec.CgroupsPath, Files: b.Sandbox.Files(b.Pod.Config.Value), Namespaces: b.Sandbox.Namespaces(b.Pod.Config.Value),
		LogLimits: b.logLimits(), OptimizeGo: b.o.OptimizeGo,
	}
	if b.PIDNamespace != "" {
		in.Namespaces.PID = b.PIDNamespace
	}
	for _, step := range []func(context.Context, *spec.Input) error{
		b.rootfs, b.inRoot, b.imageVolumes, b.host, b.labels, b.bundle,
	} {
		if err := step(ctx, &in); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) logLimits() stdio.Limits {
	all := b.o.LogLimits
	if own, ok := all[b.Pod.HandlerName]; ok {
		return own
	}
	return all[""]
}

// rootfs takes the image: a module by its path, everything else as a root filesystem of the
// container's own.
func (b *builder) rootfs(ctx context.Context, in *spec.Input) error {
	mounts, err := b.prepare(ctx)
	if err != nil {
		return fmt.Errorf("prepare root filesystem: %w", err)
	}
	if b.Image.Kind == images.Module {
		in.Module = annotation.Module{
			Path: b.o.Images.ModulePath(b.Image), Digest: b.Image.Module.Digest.String(), Name: b.Image.Module.Annotations[ocispec.AnnotationTitle],
		}
		in.Guest = true
		return nil
	}
	b.rec.RootFS = toMounts(mounts)
	return nil
}

func (b *builder) prepare(ctx context.Context) (_ []snapshot.Mount, err error) {
	ctx, span := trace.Start(ctx, "prepare root filesystem")
	defer func() { span.End(err) }()
	ids := spec.UserNamespace(b.Pod.Config.Value)
	if ids == nil {
		return b.o.Images.PrepareRootFS(ctx, b.rec.SnapshotKey, b.Image)
	}
	uids, gids := mappings(ids)
	return b.o.Images.PrepareMappedRootFS(ctx, b.rec.SnapshotKey, b.Image, uids, gids)
}

// bundle writes what the shim is given.
func (b *builder) bundle(_ context.Context, in *spec.Input) error {
	s, err := spec.Container(*in)
	if err != nil {
		return err
	}
	if err := injectCDI(b.config(), in.Guest, b.o.CDISpecDirs, s); err != nil {
		return err
	}
	dir := filepath.Join(b.Sandbox.Dir, b.rec.ID)
	if err := os.MkdirAll(filepath.Join(dir, rootfsDir), 0o711); err != nil {
		return fmt.Errorf("make bundle: %w", err)
	}
	return WriteSpec(dir, s)
}
