package modulepod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	show "github.com/sunaba-project/sunaba/cmd/sunaba/images"
	"github.com/sunaba-project/sunaba/cmd/sunaba/wasm"
	"github.com/sunaba-project/sunaba/images/pack"
)

// Pod says how a module runs as a pod.
type Pod struct {
	File    string
	Args    []string
	Env     []string // NAME=VALUE
	Dirs    []specs.Mount
	Workdir string
	User    *wasm.User // nil = nobody
	Handler string
}

// Manifest is the pod with one container of the image. It runs once.
func (p Pod) Manifest(image string) ([]byte, error) {
	container := map[string]any{"name": label(p.File), "image": image, "imagePullPolicy": "Never"}
	if len(p.Args) > 0 {
		var args []string
		for _, a := range p.Args {
			args = append(args, literal(a))
		}
		container["args"] = args
	}
	var env, mounts, volumes []any
	for _, text := range p.Env {
		name, value, _ := strings.Cut(text, "=")
		env = append(env, map[string]any{"name": name, "value": literal(value)})
	}
	for i, d := range p.Dirs {
		name := "dir-" + strconv.Itoa(i)
		volumes = append(volumes, map[string]any{"name": name, "hostPath": map[string]any{"path": d.Source}})
		mounts = append(mounts, map[string]any{"name": name, "mountPath": d.Destination, "readOnly": slices.Contains(d.Options, "ro")})
	}
	spec := map[string]any{"restartPolicy": "Never", "containers": []any{container}}
	if p.Workdir != "" {
		container["workingDir"] = p.Workdir
	}
	if p.User != nil {
		container["securityContext"] = map[string]any{"runAsUser": p.User.UID, "runAsGroup": p.User.GID}
	}
	if len(env) > 0 {
		container["env"] = env
	}
	if len(volumes) > 0 {
		container["volumeMounts"], spec["volumes"] = mounts, volumes
	}
	return json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": label(p.File)}, "spec": spec,
	})
}

// literal writes a text so that Kubernetes expands no variable in it.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// runRepo starts the names of the images of runs. The tag names the process that removes the image.
const runRepo = "localhost/sunaba-run/"

// WithImage stores the image of a module while use works with it, under a name of its own, and
// removes it then. Images of runs that were killed are removed first.
func (p Pod) WithImage(ctx context.Context, store control.Store, progress *show.Progress, use func(image string) error) (err error) {
	if err := sweep(ctx, store); err != nil {
		return err
	}
	owner, err := process(os.Getpid())
	if err != nil {
		return err
	}
	// The label makes the image one of its own: its removal takes no other name of the same module.
	img, err := New(ctx, pack.Options{
		Module: p.File, Name: runRepo + label(p.File) + ":" + owner,
		Config: ocispec.ImageConfig{Labels: map[string]string{"io.sunaba.run": owner}},
	})
	if err != nil {
		return err
	}
	_, err = Store(ctx, store, img, p.Handler, progress)
	if err = errors.Join(err, img.Close()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Remove(context.WithoutCancel(ctx), img.Name())) }()
	return use(img.Name())
}

// sweep removes the images of runs whose process has ended.
func sweep(ctx context.Context, store control.Store) error {
	all, err := store.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, img := range all {
		for _, tag := range img.RepoTags {
			owner, ok := strings.CutPrefix(tag, runRepo)
			if _, owner, _ = strings.Cut(owner, ":"); ok && !lives(owner) {
				errs = append(errs, store.Remove(ctx, tag))
			}
		}
	}
	return errors.Join(errs...)
}

// lives says of a process, as its image's tag names it, that it runs.
func lives(owner string) bool {
	pid, _, _ := strings.Cut(owner, "-")
	n, err := strconv.Atoi(pid)
	if err != nil {
		return false
	}
	now, err := process(n)
	return err == nil && now == owner || errors.Is(err, unix.EACCES)
}

// process names a process for good: by its id and the time when it was started.
func process(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", fmt.Errorf("look at process: %w", err)
	}
	// The fields after the name, which may hold anything: field 3 is the state, field 22 the start.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" { // ended, and its parent has not asked
		return "", fmt.Errorf("look at process %d: it has ended, or its state %q is of another form", pid, fields)
	}
	return fmt.Sprintf("%d-%s", pid, fields[19]), nil
}
