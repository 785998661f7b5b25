package scripts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/stage"
)

// The scripts of testdata drive a node with the real crictl and with `sunaba run`. $BUSYBOX,
// $BATCH, $GREETER, $GUEST, $ARTIFACT, $COMPONENT, $COMPONENT_ARTIFACT and $HTTP_COMPONENT are
// image references; $HOST is the registry.
func TestScripts(t *testing.T) {
	if _, err := os.Stat(filepath.Join(world.Tools, "crictl")); err != nil {
		t.Fatalf("crictl is not built: run `make tools`: %v", err)
	}
	names := named(scripts)
	if len(names) == 0 {
		t.Fatal("no scripts")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			m := world.StartCompiled(t, world.NodeDir(t), stage.Handlers)
			// crictl makes pods behind the harness's back: their cgroups are looked for by the
			// daemon's own end.
			testscript.Run(t, testscript.Params{
				Files: []string{filepath.Join("testdata", name+".txtar")},
				Setup: func(env *testscript.Env) error { return environment(m, env) },
			})
		})
	}
}

// environment gives a script its variables, and replaces them in its files.
func environment(m stage.Machine, env *testscript.Env) error {
	for name, value := range map[string]string{
		"PATH":                       strings.Join([]string{world.Tools, world.Bin, os.Getenv("PATH")}, ":"),
		"SOCKET":                     m.Socket,
		"D":                          "$",
		"ROOT":                       m.Root,
		"STATE":                      m.State,
		"LOGS":                       m.Logs,
		"NODE":                       m.Options.Dir,
		"HOST":                       world.Registry.Host,
		"BUSYBOX":                    world.Busybox,
		"BUSYBOX2":                   world.Busybox2,
		"BATCH":                      world.Batch,
		"GREETER":                    world.Greeter,
		"GUEST":                      world.Guest,
		"ARTIFACT":                   world.Artifact,
		"COMPONENT":                  world.Component,
		"COMPONENT_ARTIFACT":         world.ComponentArtifact,
		"HTTP_COMPONENT":             world.HTTPComponent,
		"CRI_CONFIG_FILE":            filepath.Join(env.WorkDir, "crictl.yaml"),
		"CONTAINER_RUNTIME_ENDPOINT": "unix://" + m.Socket,
		"IMAGE_SERVICE_ENDPOINT":     "unix://" + m.Socket,
	} {
		env.Setenv(name, value)
	}
	// The files of a script name images by these variables.
	files, err := filepath.Glob(filepath.Join(env.WorkDir, "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // a folder
		}
		if err := os.WriteFile(file, []byte(os.Expand(string(data), env.Getenv)), 0o644); err != nil {
			return err
		}
	}
	// Its own limit is 2 s, which an emulated machine's runc needs for itself.
	config := fmt.Sprintf("timeout: %d\n", node.Slow(10*time.Second)/time.Second)
	return os.WriteFile(filepath.Join(env.WorkDir, "crictl.yaml"), []byte(config), 0o644)
}
