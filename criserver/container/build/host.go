package build

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
)

// maxSeccompProfile bounds a profile; a long one has 100 KiB.
const maxSeccompProfile = 4 << 20

// host looks at what the configuration names on this machine.
func (b *builder) host(ctx context.Context, in *spec.Input) error {
	var err error
	if in.Sources, err = b.paths.Sources(ctx, b.config()); err != nil {
		return err
	}
	if in.Devices, err = b.paths.Devices(ctx, b.config()); err != nil {
		return err
	}
	file, err := spec.SeccompFile(b.config())
	if err != nil {
		return err
	}
	if file != "" {
		if in.Seccomp, err = b.paths.Read(ctx, file, maxSeccompProfile); err != nil {
			return fmt.Errorf("seccomp: localhost_ref: %w", err)
		}
	}
	in.Host = facts.Online(b.o.Host)
	b.handler(in)
	oci := b.o.Runtime(b.Pod.Binary)
	if oci.Missing && !in.Guest {
		return fmt.Errorf("%s: %w", oci.Text(b.Pod.HandlerName), errdefs.ErrFailedPrecondition)
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
	h, err := b.o.Handlers.Lookup(b.Pod.HandlerName)
	if err == nil {
		in.PodAnnotations, in.ContainerAnnotations = h.PodAnnotations, h.ContainerAnnotations
	}
}
