package build

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const widget = `{
	"cdiVersion": "0.7.0", "kind": "example.org/widget",
	"containerEdits": {"env": ["WIDGETS=yes"]},
	"devices": [
		{"name": "one", "containerEdits": {"deviceNodes": [{"path": "/dev/widget1", "hostPath": "/dev/null", "permissions": "rw"}],
			"mounts": [{"hostPath": "/opt/widget", "containerPath": "/usr/lib/widget", "options": ["ro", "bind"]}],
			"hooks": [{"hookName": "createContainer", "path": "/bin/true"}], "additionalGids": [44]}},
		{"name": "two", "containerEdits": {"env": ["TWO=2"]}}
	]}`

func TestInjectCDI(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	put := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(dirs[0], "widget.json", widget)
	put(dirs[1], "over.json", strings.ReplaceAll(strings.ReplaceAll(widget, "TWO=2", "TWO=over"), `"one"`, `"three"`))
	config := func(annotation string, names ...string) *runtime.ContainerConfig {
		c := &runtime.ContainerConfig{}
		for _, name := range names {
			c.CDIDevices = append(c.CDIDevices, &runtime.CDIDevice{Name: name})
		}
		if annotation != "" {
			c.Annotations = map[string]string{"cdi.k8s.io/plugin_x": annotation, "other": "x"}
		}
		return c
	}
	inject := func(c *runtime.ContainerConfig) *specs.Spec {
		t.Helper()
		s := &specs.Spec{Process: &specs.Process{Env: []string{"A=1"}}, Linux: &specs.Linux{Resources: &specs.LinuxResources{}}}
		if err := injectCDI(c, false, dirs, s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := inject(config("")); len(s.Process.Env) != 1 || s.Linux.Devices != nil {
		t.Errorf("no devices: %+v", s)
	}
	s := inject(config("example.org/widget=one,example.org/widget=two", "example.org/widget=one"))
	if !slices.Contains(s.Process.Env, "WIDGETS=yes") || !slices.Contains(s.Process.Env, "TWO=over") || !slices.Contains(s.Process.User.AdditionalGids, 44) {
		t.Errorf("process %+v", s.Process)
	}
	if len(s.Linux.Devices) != 1 || s.Linux.Devices[0].Path != "/dev/widget1" || s.Linux.Devices[0].Type != "c" ||
		len(s.Linux.Resources.Devices) != 1 || s.Linux.Resources.Devices[0].Access != "rw" {
		t.Errorf("devices %+v, rules %+v", s.Linux.Devices, s.Linux.Resources.Devices)
	}
	if len(s.Mounts) != 1 || s.Mounts[0].Destination != "/usr/lib/widget" || s.Hooks == nil || len(s.Hooks.CreateContainer) != 1 {
		t.Errorf("mounts %+v, hooks %+v", s.Mounts, s.Hooks)
	}

	put(dirs[1], "broken.json", "{")
	for _, tt := range []struct {
		name   string
		config *runtime.ContainerConfig
		guest  bool
		dirs   []string
		says   []string
		is     func(error) bool
	}{
		{"unknown device", config("", "example.org/widget=one", "example.org/widget=four"), false, dirs, []string{"example.org/widget=four", dirs[0], "broken.json"}, errdefs.IsFailedPrecondition},
		{"unknown by annotation", config("none.org/x=y"), false, dirs, []string{"none.org/x=y"}, errdefs.IsFailedPrecondition},
		{"no name", config("", "widget"), false, dirs, []string{`CDI_devices[0].name: "widget"`}, errdefs.IsInvalidArgument},
		{"no name in annotation", config("example.org/widget=one,"), false, dirs, []string{"annotations[cdi.k8s.io/plugin_x]"}, errdefs.IsInvalidArgument},
		{"guest", config("", "example.org/widget=one"), true, dirs, []string{"a WebAssembly guest has no devices"}, errdefs.IsInvalidArgument},
		{"off", config("", "example.org/widget=one"), false, nil, []string{"configured without CDI"}, errdefs.IsFailedPrecondition},
	} {
		s := &specs.Spec{Process: &specs.Process{}, Linux: &specs.Linux{}}
		err := injectCDI(tt.config, tt.guest, tt.dirs, s)
		if err == nil || !tt.is(err) {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for _, says := range tt.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v does not say %q", tt.name, err, says)
			}
		}
		if len(s.Process.Env)+len(s.Linux.Devices)+len(s.Mounts) > 0 {
			t.Errorf("%s: %+v", tt.name, s)
		}
	}
}

// A pipe among the specifications, or one without end, holds up no container.
func TestCDISpecificationThatIsNoFile(t *testing.T) {
	for _, target := range []string{"pipe", "/dev/zero"} {
		dir := t.TempDir()
		err := errors.Join(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.Symlink(target, filepath.Join(dir, "widget.json")))
		if err != nil {
			t.Fatal(err)
		}
		config := &runtime.ContainerConfig{CDIDevices: []*runtime.CDIDevice{{Name: "example.org/widget=one"}}}
		err = injectCDI(config, false, []string{dir}, &specs.Spec{})
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "widget.json") {
			t.Errorf("%s: %v", target, err)
		}
	}
}
