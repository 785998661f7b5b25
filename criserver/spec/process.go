package spec

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/binfmt"
)

// defaultPath is the PATH of a Linux container whose image sets none.
const defaultPath = "PATH=" + binfmt.DefaultPath

func (in *Input) process(s *specs.Spec) error {
	args, err := in.args()
	if err != nil {
		return err
	}
	if strings.Contains(strings.Join(args, ""), "\x00") {
		return invalid("command", "it, or an argument, holds a zero byte")
	}
	env, err := in.env()
	if err != nil {
		return err
	}
	p := s.Process
	p.Args = args
	p.Env = env
	p.Cwd = in.cwd()
	p.Terminal = in.Container.GetTty()
	p.User = specs.User{UID: in.User.UID, GID: in.User.GID, AdditionalGids: in.User.Groups}
	p.NoNewPrivileges = in.security().GetNoNewPrivs()
	p.SelinuxLabel = in.ProcessLabel
	return nil
}

// args: a command replaces the image's entrypoint and its command; arguments
// alone replace the image's command.
func (in *Input) args() ([]string, error) {
	command, args := in.Container.GetCommand(), in.Container.GetArgs()
	if in.artifact() {
		return in.moduleArgs(command, args), nil
	}
	if len(command) == 0 {
		if len(args) == 0 {
			args = in.Image.Cmd
		}
		command = in.Image.Entrypoint
	}
	all := append(append([]string(nil), command...), args...)
	if len(all) == 0 || all[0] == "" {
		return nil, invalid("command", "neither the container nor its image says what to run")
	}
	return all, nil
}

// Programs returns the paths in the container that its program may be, in the
// order in which they are tried; none for a configuration that is refused.
func Programs(in Input) []string {
	args, err := in.args()
	if err != nil {
		return nil
	}
	env, err := in.env()
	if err != nil {
		return nil
	}
	return binfmt.Paths(args[0], in.cwd(), env)
}

// moduleArgs are those of an artifact, whose entry is the module itself: a
// command is its arguments, not a program.
func (in *Input) moduleArgs(command, args []string) []string {
	entrypoint := in.Image.Entrypoint
	name := in.Module.Path
	switch {
	case len(entrypoint) > 0 && entrypoint[0] != "":
		name = entrypoint[0]
	case in.Module.Name != "":
		name = in.Module.Name
	}
	all := []string{path.Base(name)}
	if len(command) > 0 || len(args) > 0 {
		return append(append(all, command...), args...)
	}
	if len(entrypoint) > 1 {
		all = append(all, entrypoint[1:]...)
	}
	return append(all, in.Image.Cmd...)
}

// env: what every container has, then the image's, then the container's; the
// last value of a name wins, at the place where the name first stood.
func (in *Input) env() ([]string, error) {
	e := &environment{at: map[string]int{}}
	if !in.artifact() {
		e.set(defaultPath)
		if in.User.Home != "" && !slices.ContainsFunc(in.Container.GetMounts(), func(m *runtime.Mount) bool { // the runtime reads that passwd
			return !in.Guest && strings.HasPrefix("/etc/passwd/", path.Join("/", m.GetContainerPath())+"/")
		}) {
			e.set("HOME=" + in.User.Home)
		}
	}
	if name := Hostname(in.Sandbox, in.Host); name != "" {
		e.set("HOSTNAME=" + name)
	}
	if in.Container.GetTty() {
		e.set("TERM=xterm")
	}
	for _, kv := range in.Image.Env {
		e.set(kv)
	}
	for _, kv := range in.Container.GetEnvs() {
		key, value := kv.GetKey(), string(kv.GetValue())
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.Contains(value, "\x00") {
			return nil, invalid("envs", "%q cannot be the name of an environment variable, or its value holds a zero byte", key)
		}
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return nil, invalid("envs", "the value of %q is not UTF-8, which no OCI specification can hold: encode it", key)
		}
		e.set(key + "=" + value)
	}
	return e.list, nil
}

type environment struct {
	list []string
	at   map[string]int
}

func (e *environment) set(kv string) {
	key, _, ok := strings.Cut(kv, "=")
	if !ok || key == "" {
		return
	}
	if i, ok := e.at[key]; ok {
		e.list[i] = kv
		return
	}
	e.at[key] = len(e.list)
	e.list = append(e.list, kv)
}

// Hostname returns a sandbox's host name: its own, or the node's where the configuration has none.
func Hostname(sandbox *runtime.PodSandboxConfig, host Host) string {
	return cmp.Or(sandbox.GetHostname(), host.Hostname)
}

func (in *Input) cwd() string {
	dir := cmp.Or(in.Container.GetWorkingDir(), in.Image.WorkingDir)
	return path.Join("/", dir)
}
