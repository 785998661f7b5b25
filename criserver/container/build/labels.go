package build

import (
	"context"
	"maps"
	"slices"

	"github.com/sunaba-project/sunaba/criserver/selinux"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/host/mount"
)

// labels gives the container its SELinux labels, and the files that it shares with no other
// container theirs.
func (b *builder) labels(_ context.Context, in *spec.Input) error {
	sc := b.config().GetLinux().GetSecurityContext()
	process, mount, own, err := b.o.Labels.Container(sc.GetSelinuxOptions(), b.Pod.ProcessLabel)
	if err != nil {
		return err
	}
	if own {
		b.rec.ProcessLabel = process
	}
	if !sc.GetPrivileged() {
		in.ProcessLabel = process
	}
	in.MountLabel = mount
	labelOverlays(b.rec.RootFS, mount)
	for _, v := range b.rec.ImageVolumes {
		labelOverlays(v.Mounts, mount)
	}
	paths := slices.AppendSeq([]string{in.Files.Hosts, in.Files.Hostname, in.Files.ResolvConf, in.Files.Shm}, maps.Values(in.Volumes))
	for _, m := range b.config().GetMounts() {
		if m.GetSelinuxRelabel() && m.GetImage() == nil {
			paths = append(paths, in.Sources[m.GetHostPath()].Path)
		}
	}
	for _, path := range paths {
		if path == "" {
			continue
		}
		if err := b.o.Labels.Relabel(path, mount); err != nil {
			return err
		}
	}
	return nil
}

// labelOverlays lets all files of overlays have a label.
func labelOverlays(mounts []mount.Mount, label string) {
	option := selinux.MountOption(label)
	for i, m := range mounts {
		if m.Type == "overlay" && option != "" {
			mounts[i].Options = append(slices.Clone(m.Options), option)
		}
	}
}
