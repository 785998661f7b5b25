package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/container/program"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// inRoot does what needs to look into the image.
func (b *builder) inRoot(ctx context.Context, in *spec.Input) error {
	sc := b.config().GetLinux().GetSecurityContext()
	if b.Image.Kind == images.Module {
		user, err := spec.ResolveUser(nil, b.Image.Config, sc)
		b.setUser(in, user)
		return err
	}
	return b.o.Images.WithRootFS(ctx, b.rec.SnapshotKey, func(root string) error {
		user, err := spec.ResolveUser(regular.Tree(root), b.Image.Config, sc)
		if err != nil {
			return err
		}
		b.setUser(in, user)
		p, err := program.First(root, spec.Programs(*in))
		if err != nil && !errdefs.IsNotFound(err) { // the runtime says what it looked for
			return fmt.Errorf("look for the container's program: %w", err)
		}
		if in.Guest = p.Wasm(); in.Guest && in.Handler != runtimeclass.WASM {
			return b.wrongHandler(b.Pod)
		}
		if in.Guest {
			b.readyProgram(ctx, filepath.Join(root, p.Path))
		}
		if err := b.volumes(root, in); err != nil {
			return err
		}
		b.rec.Unstartable = b.unstartable(root, in)
		return nil
	})
}

// readyProgram is Ready for an image whose module is among its files. If the container runs another
// module, whose digest is not known, the one at this path does not have the image's digest and is
// not compiled: the pod's shim does that.
func (b *builder) readyProgram(ctx context.Context, path string) {
	if b.o.Modules != nil && b.Image.Program != "" {
		b.o.Modules.Ready(ctx, path, b.Image.Program.String())
	}
}

func (b *builder) setUser(in *spec.Input, user spec.User) {
	in.User = user
	b.rec.User = state.User{UID: user.UID, GID: user.GID, Groups: user.Groups}
}

// volumes makes a folder for each anonymous volume of the image and fills it with what the image
// has at that place.
func (b *builder) volumes(root string, in *spec.Input) error {
	paths := spec.Volumes(b.Image.Config.Volumes, b.config())
	if len(paths) == 0 {
		return nil
	}
	in.Volumes = map[string]string{}
	for i, p := range paths {
		dir := filepath.Join(b.Volumes, strconv.Itoa(i))
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

// unstartable says why nothing can execute a container's program, "" if that is not certain before
// it is tried: what is in a volume is not looked at, and what the runtime itself finds out it says
// itself.
func (b *builder) unstartable(root string, in *spec.Input) string {
	names := spec.Programs(*in)
	if len(names) == 0 || in.Guest {
		return ""
	}
	s := program.Search{Root: root, Names: names, Covered: b.covered(root, in), Others: facts.RunsOtherFormats}
	if IsWasm(b.Image) {
		return s.NotWasm(b.rec.ImagePlatform)
	}
	return s.NotExecutable()
}

// covered are the places at which the container mounts something else.
func (b *builder) covered(root string, in *spec.Input) []string {
	var all []string
	add := func(at string) {
		at = path.Join("/", at)
		all = append(all, at)
		if p, err := program.LookUp(root, at); err == nil {
			all = append(all, p.Path)
		}
	}
	for _, m := range b.config().GetMounts() {
		add(m.GetContainerPath())
	}
	for at := range in.Volumes {
		add(at)
	}
	return all
}
