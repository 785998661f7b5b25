package components_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/wasm/engine"
)

// runInPod runs a component as a pod's container does, with the engine of this process and its
// guest and compile faces, and returns its exit code: 134 for a trap, as wasmtime's. It takes
// wasmtime's flags --env, and --dir for the container's root.
func runInPod(args []string) int {
	code, err := inPod(context.Background(), args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 128
	}
	return code
}

func inPod(ctx context.Context, args []string) (code int, err error) {
	id := fmt.Sprintf("sunaba-components-%d", os.Getpid())
	spec := &specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{Cwd: "/"},
		Linux: &specs.Linux{CgroupsPath: "/" + id, Namespaces: []specs.LinuxNamespace{
			{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			{Type: specs.NetworkNamespace, Path: "/proc/self/ns/net"}, // making one takes long
		}},
	}
	bundle := &shim.Bundle{ID: id, Namespace: "test", Path: "/", Spec: spec}
	for ; len(args) > 1 && strings.HasPrefix(args[0], "--"); args = args[2:] {
		if args[0] == "--env" {
			spec.Process.Env = append(spec.Process.Env, args[1])
			continue
		}
		bundle.Rootfs, _, _ = strings.Cut(args[1], "::")
	}
	spec.Process.Args = args
	bundle.Facts = annotation.Facts{Module: annotation.Module{Path: args[0]}}
	r, err := reaper.New()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	e, err := engine.New(engine.Options{CacheDir: os.Getenv("SUNABA_COMPONENTS_CACHE")}, r)
	if err != nil {
		return 0, err
	}
	c, err := e.Create(ctx, bundle, shim.IO{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}, shim.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Delete(ctx)) }()
	if err := c.Init().Start(ctx); err != nil {
		return 0, err
	}
	<-c.Init().Exited()
	return int(c.Init().Exit().Code), nil
}
