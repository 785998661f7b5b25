package machine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/tests/binaries"
	"github.com/sunaba-project/sunaba/tests/node"
)

// The Debian package is installed on a machine with systemd, upgraded while pods run, removed,
// installed again and purged. Nothing of the pods is lost by an upgrade, what the administrator has
// set stays, and what the package brought is gone at the end.
func TestInstall(t *testing.T) {
	folder := t.TempDir()
	busybox, guest := build(t, filepath.Join(folder, "programs/amd64"))
	first, second := debs(t, folder)

	run(t, "dpkg", "-i", first)
	i := installed{t}
	i.active("active", "enabled")
	if got := run(t, "sunaba", "version"); !strings.HasPrefix(got, "sunaba ") {
		t.Errorf("version: %s", got)
	}
	var files []string
	for file := range strings.FieldsSeq(run(t, "dpkg", "-L", "sunaba")) {
		if info, err := os.Stat(file); err != nil || !info.IsDir() {
			check(t, err)
			files = append(files, file)
		}
	}
	if len(files) < 50 {
		t.Errorf("the package has %d files: %v", len(files), files)
	}
	containers := []string{i.pod(folder, "linux", "runc", busybox, `"command": ["sleep", "100000"]`), i.pod(folder, "guest", "wasm", guest, `"args": ["tick", "2000000"]`)}
	before, server := i.pids(containers), i.server()

	// A setting of the administrator, which the package asks nobody about.
	const mine = "[log]\nlevel = \"debug\"\n"
	check(t, os.WriteFile("/etc/sunaba/config.toml", []byte(mine), 0o644))
	run(t, "dpkg", "-i", second)
	i.active("active", "enabled")
	if got := run(t, "dpkg-query", "-W", "-f", "${Version}", "sunaba"); got != "1.1.0-1" {
		t.Errorf("version %s is installed", got)
	}
	if now := i.server(); now == server || now == "0" {
		t.Errorf("the server is process %s, it was %s", now, server)
	}
	if after := i.pids(containers); after != before {
		t.Errorf("the containers were processes %s and are %s", before, after)
	}
	if data, err := os.ReadFile("/etc/sunaba/config.toml"); err != nil || string(data) != mine {
		t.Errorf("the configuration is %q, %v", data, err)
	}
	if got := crictl(t, "exec", containers[0], "echo", "lives"); got != "lives" {
		t.Errorf("exec in a container that was upgraded under: %q", got)
	}

	// A server that the administrator has disabled stays so.
	run(t, "systemctl", "disable", "--now", "sunaba")
	run(t, "dpkg", "-i", second)
	i.active("inactive", "disabled")
	run(t, "systemctl", "enable", "--now", "sunaba")
	if after := i.pids(containers); after != before {
		t.Errorf("the containers were processes %s and are %s", before, after)
	}

	// Removed with pods: it says so, and they run on.
	said, err := combined("dpkg", "-r", "sunaba")
	check(t, err)
	if !strings.Contains(said, "the pods of this machine run on") {
		t.Errorf("a removal under pods says %s", said)
	}
	i.gone(files, "/etc/sunaba/config.toml")
	for _, pid := range strings.Fields(before) {
		if _, err := os.Stat("/proc/" + pid); err != nil {
			t.Errorf("process %s of a pod has ended with the package: %v", pid, err)
		}
	}
	run(t, "dpkg", "-i", second)
	i.active("active", "enabled")
	if after := i.pids(containers); after != before {
		t.Errorf("the containers were processes %s and are %s", before, after)
	}

	crictl(t, "rmp", "-f", "-a")
	if said, err = combined("dpkg", "-P", "sunaba"); err != nil || strings.Contains(said, "run on") || !strings.Contains(said, "/var/lib/sunaba") {
		t.Errorf("a purge says %s, error %v", said, err)
	}
	i.gone(files, "")
	for _, line := range strings.Split(run(t, "ps", "-e", "-o", "pid,comm"), "\n") {
		if strings.Contains(line, "sunaba") {
			t.Errorf("process left: %s", line)
		}
	}
	if out, _ := combined("systemctl", "is-enabled", "sunaba"); strings.HasPrefix(out, "enabled") || strings.HasPrefix(out, "masked") {
		t.Errorf("the unit is %s", out)
	}
}

// debs makes the packages of two versions of the programs in a folder.
func debs(t *testing.T, folder string) (first, second string) {
	t.Helper()
	tools := filepath.Join(folder, "tools")
	for _, name := range []string{"man", "dist"} {
		cmd := "cd ../../packaging && CGO_ENABLED=0 go build -trimpath -o " + filepath.Join(tools, name) + " ./" + name
		run(t, "sh", "-c", cmd)
	}
	program, share := filepath.Join(folder, "programs/amd64", binaries.Sunaba), filepath.Join(folder, "share")
	check(t, os.MkdirAll(filepath.Join(share, "completion"), 0o755))
	for _, shell := range []string{"bash", "zsh", "fish"} {
		check(t, os.WriteFile(filepath.Join(share, "completion", shell), []byte(run(t, program, "completion", shell)), 0o644))
	}
	run(t, filepath.Join(tools, "man"), "-program", program, "-out", filepath.Join(share, "man"))
	var made []string
	for _, version := range []string{"1.0.0", "1.1.0"} {
		run(t, filepath.Join(tools, "dist"), "-version", version, "-source", "../../packaging", "-programs", filepath.Join(folder, "programs"),
			"-share", share, "-out", folder, "-only", "amd64", "-formats", "deb")
		made = append(made, filepath.Join(folder, "sunaba_"+version+"-1_amd64.deb"))
	}
	return made[0], made[1]
}

// installed is a machine with the package.
type installed struct{ t *testing.T }

// active wants the unit in a state, with its server ready if that is active.
func (i installed) active(state, enabled string) {
	i.t.Helper()
	if out, _ := combined("systemctl", "is-active", "sunaba"); strings.TrimSpace(out) != state {
		i.t.Fatalf("the unit is %s, not %s\n%s", out, state, journald("sunaba"))
	}
	out, err := combined("systemctl", "is-enabled", "sunaba")
	if strings.TrimSpace(out) != enabled {
		i.t.Errorf("the unit is %s, %v; want %s", out, err, enabled)
	}
	if state != "active" {
		return
	}
	var info string
	if !node.Within(node.Patience, func() bool { info = crictl(i.t, "info"); return strings.Count(info, `"status": true`) >= 2 }) {
		i.t.Fatalf("the server is not ready: %s\n%s", info, journald("sunaba"))
	}
}

// gone wants none of the files, except one.
func (i installed) gone(files []string, except string) {
	i.t.Helper()
	for _, file := range files {
		if _, err := os.Lstat(file); (err == nil) != (file == except) {
			i.t.Errorf("%s after the removal: %v", file, err)
		}
	}
	if out, _ := combined("systemctl", "is-active", "sunaba"); strings.TrimSpace(out) == "active" {
		i.t.Error("the server runs on without its package")
	}
}

// server is the process of the server.
func (i installed) server() string {
	i.t.Helper()
	return run(i.t, "systemctl", "show", "-P", "MainPID", "sunaba")
}

// pod starts a pod of one container and returns the container.
func (i installed) pod(folder, name, handler, image, more string) string {
	i.t.Helper()
	logs := filepath.Join(folder, "logs", name)
	check(i.t, os.MkdirAll(logs, 0o755))
	pod, container := filepath.Join(folder, name+"-pod.json"), filepath.Join(folder, name+".json")
	check(i.t, os.WriteFile(pod, fmt.Appendf(nil, `{"metadata": {"name": %q, "namespace": "default", "uid": %q}, "log_directory": %q, "linux": {}}`, name, name, logs), 0o600))
	check(i.t, os.WriteFile(container, fmt.Appendf(nil, `{"metadata": {"name": "app"}, "image": {"image": %q}, "log_path": "app.log", %s, "linux": {}}`, image, more), 0o600))
	crictl(i.t, "pull", image)
	id := crictl(i.t, "runp", "-r", handler, pod)
	made := crictl(i.t, "create", id, container, pod)
	crictl(i.t, "start", made)
	return made
}

// pids are the processes of running containers.
func (i installed) pids(containers []string) string {
	i.t.Helper()
	var all []string
	for _, id := range containers {
		var c struct {
			Status struct{ State string }
			Info   struct{ Pid int }
		}
		check(i.t, json.Unmarshal([]byte(crictl(i.t, "inspect", id)), &c))
		if c.Status.State != "CONTAINER_RUNNING" || c.Info.Pid == 0 {
			i.t.Errorf("container %s is %s, process %d", id, c.Status.State, c.Info.Pid)
		}
		all = append(all, fmt.Sprint(c.Info.Pid))
	}
	return strings.Join(all, " ")
}
