package scenario

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-project/sunaba/tests/node"
)

// A node whose folders are reached through symbolic links, as when /var/lib/sunaba leads to a data
// disk, is the node that it is without them: also for a server that was started with the other
// spelling, and for the commands that are given a folder.
func TestSymlinkedFolders(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	before := map[string]*container{}
	for _, handler := range everyHandler {
		before[handler] = m.run(handler).begin(sh("i=0; while :; do i=$((i+1)); echo tick $i; usleep 20000; done"))
		before[handler].says("tick 2")
	}
	link := filepath.Join(world.Folder, "link-"+filepath.Base(m.Options.Dir))
	if err := os.Symlink(m.Options.Dir, link); err != nil {
		t.Fatal(err)
	}
	root, state := m.Root, m.State
	t.Cleanup(func() { m.Root, m.State = root, state }) // for the look at what is left
	for _, as := range []struct{ root, state string }{
		{filepath.Join(link, "root"), filepath.Join(link, "state")},
		{relative(t, filepath.Join(link, "root")), relative(t, state)},
		{root, state},
	} {
		t.Run(as.root, func(t *testing.T) {
			m := m.in(t)
			if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			m.Root, m.State = as.root, as.state
			if err := m.StartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
			trials := filepath.Join(root, "trials")
			if !node.Within(node.Patience, func() bool { left, err := os.ReadDir(trials); return err == nil && len(left) == 0 }) {
				t.Errorf("a trial does not end in %s", trials)
			}
			if _, info := m.ready(); strings.Contains(info, "problem") {
				t.Errorf("the runtimes: %s", info)
			}
			for _, handler := range everyHandler {
				c := before[handler]
				n := strings.Count(c.text(), "\n")
				if !node.Within(node.Patience, func() bool { return strings.Count(c.text(), "\n") > n }) {
					t.Errorf("%s: the log does not go on: %q", handler, c.text())
				}
				p := m.run(handler)
				c = p.begin(sh("echo one; exit 3"))
				c.says("one")
				c.expectEnd(3, "Error")
				if handler == "wasm" {
					p.begin(containerConfig(world.Guest, "idle")).says("idle")
				}
				m.expectSound(handler)
				p.remove()
			}
			out, err := exec.Command(filepath.Join(world.Bin, "sunaba"), "images", "list", "--root", m.Root, "--state", t.TempDir()).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "another server uses") {
				t.Errorf("the images of a node with a server are read beside it: %v: %s", err, out)
			}
		})
	}
}

// relative is a path as one that starts at the working folder.
func relative(t *testing.T, path string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	rel, err := filepath.Rel(here, path)
	if err != nil {
		t.Fatal(err)
	}
	return rel
}
