package stage

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// Handlers is the handler table of every scenario.
const Handlers = `
[handlers.runc]
type = "oci"
binary = "runc"
default = true

[handlers.crun]
type = "oci"
binary = "crun"

[handlers.wasm]
type = "wasm"
`

// Machine is a node under test. When its scenario ends, its pods are removed, and then nothing may
// be there that was not there when it became ready.
type Machine struct {
	*node.Watched
	T       *testing.T
	modules modules
}

// NodeDir makes a folder for a node.
func (w *World) NodeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(w.Folder, "node-")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Start starts a node in a folder, with its own, empty folder of CNI configurations. tables are the
// TOML tables of its configuration; more is added to the [network] table.
func (w *World) Start(t *testing.T, dir, tables string, more ...string) Machine {
	t.Helper()
	return w.StartIn(t, nil, dir, tables, more...)
}

// StartCompiled is Start for a node that others than Machine.Pull have pull images: it keeps what
// earlier nodes have compiled, as any node does for a day with what no image of it needs.
func (w *World) StartCompiled(t *testing.T, dir, tables string) Machine {
	t.Helper()
	m := w.Start(t, dir, tables)
	folder := filepath.Join(m.Root, "wasm")
	if err := m.modules.giveAll(folder); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.modules.takeAll(folder); err != nil {
			t.Error(err)
		}
	})
	return m
}

// StartIn is Start with variables of the daemon's environment.
func (w *World) StartIn(t *testing.T, env []string, dir, tables string, more ...string) Machine {
	t.Helper()
	config := fmt.Sprintf("cgroup_driver = %q\n[network]\nconf_dir = %q\n%s\n%s", node.Driver(), filepath.Join(dir, "cni"), strings.Join(more, "\n"), tables)
	watched, err := node.StartWatched(t.Context(), node.Options{Bin: w.Bin, Dir: dir, Config: config, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := watched.Finish(); err != nil {
			t.Error(err)
		}
	})
	return Machine{watched, t, w.modules}
}

// Restart kills the daemon and starts it again.
func (m Machine) Restart() {
	m.T.Helper()
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		m.T.Fatal(err)
	}
	if err := m.StartDaemon(m.T.Context()); err != nil {
		m.T.Fatal(err)
	}
}

// Pull pulls an image for a handler; without one as crictl does. Modules that a node of this
// package has compiled of it are not compiled again.
func (m Machine) Pull(ref, handler string) string {
	m.T.Helper()
	folder := filepath.Join(m.Root, "wasm")
	if err := m.modules.give(ref, folder); err != nil {
		m.T.Fatal(err)
	}
	before, err := entries(folder)
	if err != nil {
		m.T.Fatal(err)
	}
	id := m.PullAndCompile(ref, handler)
	if err := m.modules.take(ref, folder, before); err != nil {
		m.T.Fatal(err)
	}
	return id
}

// PullAndCompile is Pull for tests of what the node itself compiles.
func (m Machine) PullAndCompile(ref, handler string) string {
	m.T.Helper()
	answer, err := m.PullImage(m.T.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref, RuntimeHandler: handler}})
	if err != nil {
		m.T.Fatalf("pull %s: %v", ref, err)
	}
	return answer.GetImageRef()
}

// Get asks for a page until there is an answer.
func (m Machine) Get(url string) string {
	m.T.Helper()
	var body string
	var last error
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	if !node.Within(node.Patience, func() bool {
		var response *http.Response
		if response, last = client.Get(url); last != nil {
			return false
		}
		defer response.Body.Close()
		var data []byte
		data, last = io.ReadAll(response.Body)
		body = string(data)
		return last == nil
	}) {
		m.T.Fatalf("get %s: %v", url, last)
	}
	return body
}

// Sunaba runs a command of the binary.
func (m Machine) Sunaba(args ...string) (code int, stdout, stderr string) {
	m.T.Helper()
	cmd := exec.CommandContext(m.T.Context(), filepath.Join(m.Options.Bin, "sunaba"), args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); cmd.ProcessState == nil {
		m.T.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}
