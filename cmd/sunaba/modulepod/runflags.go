package modulepod

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	show "github.com/sunaba-project/sunaba/cmd/sunaba/images"
	pod "github.com/sunaba-project/sunaba/cmd/sunaba/run"
	"github.com/sunaba-project/sunaba/cmd/sunaba/wasm"
)

// moduleHandler is the handler of a module that is run without a manifest.
const moduleHandler = "wasm"

// RunFlags are the flags of `sunaba run` for a module.
func RunFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}, Usage: "of a module: `NAME=VALUE`, or NAME for the one that this command has; may be repeated"},
		&cli.StringSliceFlag{Name: "dir", Usage: "of a module: `HOST[:GUEST][:ro]`, a directory or file that the guest sees; may be repeated"},
		&cli.StringFlag{Name: "workdir", Usage: "of a module: working `DIRECTORY` of the guest"},
		&cli.StringFlag{Name: "user", Usage: "of a module: `UID[:GID]` of the guest's process; root is 65534"},
	}
}

// PodOf is the pod of the module that the command line names, nil for a manifest.
func PodOf(cmd *cli.Command) (*Pod, error) {
	file := cmd.Args().First()
	if !IsModule(file) {
		if cmd.NArg() != 1 {
			return nil, errors.New("run: want one manifest, or a module and its arguments")
		}
		for _, f := range RunFlags() {
			if name := f.Names()[0]; cmd.IsSet(name) {
				return nil, fmt.Errorf("run: --%s is for a module: a manifest says it itself", name)
			}
		}
		return nil, nil
	}
	for _, name := range []string{"detach", "keep", "runtimeclass"} {
		if cmd.IsSet(name) {
			return nil, fmt.Errorf("run: --%s is for a manifest: pack the module (sunaba images pack) and name the image in one", name)
		}
	}
	p := &Pod{File: file, Args: cmd.Args().Tail(), Workdir: cmd.String("workdir"), Handler: cmd.String("handler")}
	p.Handler = cmp.Or(p.Handler, moduleHandler)
	if p.Workdir != "" && !path.IsAbs(p.Workdir) {
		return nil, fmt.Errorf("run: --workdir %q is not absolute", p.Workdir)
	}
	err := wasm.CheckTexts(append(p.Args, p.Workdir)...)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	if p.Env, err = wasm.ParseEnv(cmd.StringSlice("env")); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	if p.Dirs, err = wasm.ParseDirs(cmd.StringSlice("dir")); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	for _, d := range p.Dirs {
		if d.Destination == "/" {
			return nil, errors.New("run: a pod's root is that of its image: give the directory a path, as in --dir .:/work --workdir /work")
		}
	}
	if p.User, err = wasm.ParseUser(cmd.String("user")); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	return p, nil
}

// Run runs a module as a pod of the server of the options.
func (p Pod) Run(ctx context.Context, o pod.Options) (code int, err error) {
	client, err := dial.Connect(ctx, o.Socket)
	if err != nil {
		return 1, err
	}
	state := client.Config().StateDir
	if err := client.Close(); err != nil {
		return 1, err
	}
	store, err := control.Connect(ctx, filepath.Join(state, "images.sock"))
	if err != nil {
		return 1, fmt.Errorf("run: the server on %q has no store for the module: %w", o.Socket, err)
	}
	defer store.Close()
	o.Handler = p.Handler
	err = p.WithImage(ctx, store, show.NewProgress(o.Stderr, "sunaba: "+p.File), func(image string) error {
		data, err := p.Manifest(image)
		if err != nil {
			return err
		}
		o.Reader = bytes.NewReader(data)
		code, err = pod.Run(ctx, o)
		return err
	})
	return code, err
}
