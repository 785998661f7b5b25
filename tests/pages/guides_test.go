package pages

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/tests/binaries"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// guides are the pages whose commands are run here. Those of docs/start are run by tests/machine.
var guides = []string{"README.md", "docs/operations.md", "docs/module.md", "docs/wasm.md", "docs/pods.md", "docs/troubleshooting.md"}

// before is what a page says that it was run beside.
var before = map[string]string{"docs/troubleshooting.md": "sunaba serve &\n"}

// shown are the pages whose commands need a cluster, or containerd and images of the internet.
// TestKubeadm of tests/machine runs the second one.
var shown = []string{"docs/containerd.md", "docs/replace-containerd.md"}

// elsewhere are the lines that are not run here, by what they contain, and why.
var elsewhere = map[string]string{
	"make test     #": "it is this test",
	"make demo     #": "it is a target of its own",
	"sudo apt install ./bin/dist/sunaba_*_amd64.deb": "a package's own scripts need systemd: TestInstall and TestPages of tests/machine",
	"GOBIN=/usr/local/bin go install":                "there is no network here; `make tools` builds the same module",
	"systemctl stop sunaba && sunaba check --repair": "needs systemd; tests/recovery repairs",
	"sudo sunaba run -it batch.wasm":                 "needs a terminal: cmd/sunaba/run has a test with one",
	"debug gateway --image":                          "needs a terminal: cmd/sunaba/podcmd has a test with one",
	"overhead measure":                               "takes two minutes; tests/scenario measures fewer pods",
	"skopeo copy":                                    "Debian's skopeo brings a network of its own; tests/registry pushes such a layout",
	"oras cp":                                        "oras is no package of Debian 12",
	"oras push":                                      "the same",
	"docker buildx build":                            "needs a Docker daemon",
	"wkg oci push":                                   "wkg needs a newer Rust than Debian 12 has",
}

// folderVariable is set in the namespaces.
const folderVariable = "SUNABA_PAGES_FOLDER"

// The commands of the guides do what they say, in a clone of the project, as root of a machine that
// has nothing of Sunaba: its /etc, /var, /run and /usr/local, its network, processes and cgroups
// are the page's own. It is without systemd, so what a line says behind "without systemd:" is run.
func TestGuides(t *testing.T) {
	if folder := os.Getenv(folderVariable); folder != "" {
		inside(t, folder)
		return
	}
	for part := range elsewhere {
		if !slices.ContainsFunc(guides, func(page string) bool {
			text, err := os.ReadFile(filepath.Join("../..", page))
			return err == nil && strings.Contains(string(text), part)
		}) {
			t.Errorf("no page has a line with %q", part)
		}
	}
	folder := t.TempDir()
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := binaries.Provide(filepath.Join(folder, "bin"), binaries.Sunaba, binaries.Shim); err != nil {
		t.Fatal(err)
	}
	args := []string{"-c", apart, "sh"}
	for _, hierarchy := range hierarchies(t) {
		group := filepath.Join(hierarchy.path, fmt.Sprint("sunaba-pages-", os.Getpid()))
		t.Cleanup(func() { removeCgroups(t, group) })
		if err := errors.Join(makeCgroup(group), makeCgroup(filepath.Join(group, "tests"))); err != nil {
			t.Fatal(err)
		}
		args = append(args, group)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append(args, "--", self, "-test.run="+cmp.Or(flag.Lookup("test.run").Value.String(), "^TestGuides$"), "-test.count=1", "-test.timeout=20m", "-test.v")
	cmd := exec.Command("sh", args...)
	cmd.Env = append(os.Environ(), folderVariable+"="+folder)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
}

// apart starts a command in namespaces of its own. Its arguments are cgroups, which become the
// roots of the command's hierarchies, "--", and the command. The command itself is in a leaf,
// because a cgroup of version 2 that has processes gives its children no controllers.
const apart = `
groups=
while [ "$1" != -- ]; do groups="$groups $1"; echo $$ >"$1/cgroup.procs" || echo "$1"; shift; done
shift
exec unshare --cgroup sh -c '
	groups=$1; shift
	for group in $groups; do echo $$ >"$group/tests/cgroup.procs"; done
	exec unshare --mount --net --pid --fork --kill-child --mount-proc "$@"
' sh "$groups" "$@"`

// hierarchy is where cgroups are mounted.
type hierarchy struct{ path, kind, options string }

func hierarchies(t *testing.T) []hierarchy {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var found []hierarchy
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if path, kind := fields[1], fields[2]; strings.HasPrefix(path, "/sys/fs/cgroup") && (kind == "cgroup" || kind == "cgroup2") {
			options := slices.DeleteFunc(strings.Split(fields[3], ","), func(o string) bool {
				return o == "rw" || o == "relatime" || o == "nosuid" || o == "nodev" || o == "noexec"
			})
			found = append(found, hierarchy{path, kind, strings.Join(options, ",")})
		}
	}
	if len(found) == 0 {
		t.Fatal("no cgroups are mounted below /sys/fs/cgroup")
	}
	return found
}

// makeCgroup makes a cgroup that can have processes: version 1 starts with none of its parent's
// processors.
func makeCgroup(group string) error {
	if err := os.Mkdir(group, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		file := filepath.Join(group, name)
		if own, err := os.ReadFile(file); err != nil || len(bytes.TrimSpace(own)) > 0 {
			continue // another controller's, or version 2's, which are the parent's by themselves
		}
		parents, err := os.ReadFile(filepath.Join(filepath.Dir(group), name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, parents, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes a cgroup with all below it. Its processes may still be ending.
func removeCgroups(t *testing.T, group string) {
	t.Helper()
	var err error
	for range 100 {
		var folders []string
		err = filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				folders = append(folders, path)
			}
			return err
		})
		for _, folder := range slices.Backward(folders) {
			err = os.Remove(folder)
		}
		if _, gone := os.Stat(group); errors.Is(gone, fs.ErrNotExist) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("remove cgroup %s: %v", group, err)
}

// inside runs the pages in the namespaces, one after the other. The registry runs on, and what the
// first page has installed stays; all else of Sunaba ends with each.
func inside(t *testing.T, folder string) {
	project, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	prepare(t, project, folder)
	const socket = "/run/notify" // as systemd has one
	notices, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notices.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	ready := make(chan struct{}, 100)
	go func() { // all the time: a server waits until what it tells is read
		message := make([]byte, 4096)
		for {
			n, err := notices.Read(message)
			if err != nil {
				return
			}
			if slices.Contains(strings.Split(string(message[:n]), "\n"), "READY=1") {
				ready <- struct{}{}
			}
		}
	}()
	for _, page := range guides {
		t.Run(strings.ToLower(strings.TrimSuffix(filepath.Base(page), ".md")), func(t *testing.T) { follow(t, project, page, ready) })
	}
}

// follow runs a page. ready tells of each server that is ready.
func follow(t *testing.T, project, page string, ready <-chan struct{}) {
	text, err := os.ReadFile(filepath.Join(project, page))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := Read(string(text))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	t.Cleanup(func() { end(t) })
	if script := before[page]; script != "" {
		blocks = append([]Block{{Script: script}}, blocks...)
	}
	for _, block := range blocks {
		block.Script = here(block.Script)
		begin := time.Now()
		if err := Run(t.Context(), page, []Block{block}, project, 2*node.Patience); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(block.Script, "sunaba serve &") {
			await(t, "the server", func() error {
				select {
				case <-ready:
					return nil
				default:
					return errors.New("it is not ready")
				}
			})
		}
		if strings.Contains(block.Script, "tests/cmd/registry &") {
			await(t, "the registry", registry)
		}
		t.Logf("%s:%d: %.1f s", page, block.Line, time.Since(begin).Seconds())
	}
}

// withoutSystemd is a line that says in its comment what to do on a machine like this one.
var withoutSystemd = regexp.MustCompile(`# without systemd: (.+)$`)

// here is a script without the lines that are not run here.
func here(script string) string {
	var lines strings.Builder
	for line := range strings.Lines(script) {
		if alternative := withoutSystemd.FindStringSubmatch(strings.TrimSpace(line)); alternative != nil {
			line = alternative[1] + "\n"
		}
		if notHere(line) == "" {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// notHere is the key of elsewhere that a line contains.
func notHere(line string) string {
	for part := range elsewhere {
		if strings.Contains(line, part) {
			return part
		}
	}
	return ""
}

// prepare makes the machine.
func prepare(t *testing.T, project, folder string) {
	t.Helper()
	do := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	groups := hierarchies(t)
	do("make mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	scratch := filepath.Join(folder, "scratch-"+fmt.Sprint(time.Now().UnixNano()))
	do("make a folder", os.Mkdir(scratch, 0o755))
	do("mount", unix.Mount("tmpfs", scratch, "tmpfs", 0, "mode=755"))
	for i, lower := range []string{"/etc", "/var", "/usr/local", project} {
		upper, work := filepath.Join(scratch, fmt.Sprint("upper", i)), filepath.Join(scratch, fmt.Sprint("work", i))
		do("make folders", errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)))
		do("mount "+lower, unix.Mount("overlay", lower, "overlay", 0, "lowerdir="+lower+",upperdir="+upper+",workdir="+work))
	}
	do("mount /run", unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"))
	for _, path := range []string{"/etc/sunaba", "/etc/cni", "/var/lib/sunaba", "/var/log/pods", "/usr/local/bin/sunaba"} {
		do("remove "+path, os.RemoveAll(path))
	}
	do("make a folder", os.Mkdir("/var/lib/sunaba", 0o711))
	do("mount", unix.Mount("tmpfs", "/var/lib/sunaba", "tmpfs", 0, "mode=711"))
	do("mount", unix.Mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, "mode=755"))
	for _, group := range groups {
		do("make a folder", os.MkdirAll(group.path, 0o755))
		do("mount "+group.path, unix.Mount("cgroup", group.path, group.kind, 0, group.options))
	}
	do("set up the loopback device", node.Loopback())
	programs := filepath.Join(scratch, "bin")
	do("make a folder", os.Mkdir(programs, 0o755))
	do("write sudo", os.WriteFile(filepath.Join(programs, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755))
	do("write ssh", os.WriteFile(filepath.Join(programs, "ssh"), []byte("#!/bin/sh\nshift\nexec sh -c \"$*\"\n"), 0o755))
	t.Setenv("PATH", strings.Join([]string{programs, "/usr/local/bin", filepath.Join(folder, "bin"), filepath.Join(project, "tests/tools/bin"), os.Getenv("PATH")}, ":"))
	t.Setenv("GOFLAGS", "-buildvcs=false -trimpath")
}

// end removes what a page has made. Then nothing is left over.
func end(t *testing.T) {
	if _, err := os.Stat("/run/sunaba/sunaba.sock"); err == nil { // some pages have no server
		for _, command := range []string{"sunaba delete --all --manifests", "crictl --runtime-endpoint unix:///run/sunaba/sunaba.sock rmp -fa", "sunaba check", "pkill -x sunaba"} {
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil && !strings.Contains(string(out), "this server runs no pods of manifests") {
				t.Errorf("%s: %v: %s", command, err, out)
			}
		}
		await(t, "the end of the server", func() error {
			if exec.Command("pgrep", "-x", "-r", "DRSTt", "sunaba").Run() == nil {
				return errors.New("it runs")
			}
			return nil
		})
	}
	for _, folder := range []string{"/var/lib/sunaba/*", "/run/sunaba", "/etc/sunaba"} {
		found, err := filepath.Glob(folder)
		for _, path := range found {
			if path != "/var/lib/sunaba/wasm" { // to compile the examples once is enough
				err = errors.Join(err, os.RemoveAll(path))
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// What a page has its reader type is in a block that is run: commands in a block by indentation
// would be seen by nobody.
func TestNoOtherCommands(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	command := regexp.MustCompile(`^    (sudo|sunaba|bin/sunaba|crictl|make|go|curl|systemctl|kubectl|docker) `)
	for _, page := range append(pages, "../../README.md", "../../examples/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		before := ""
		for i, line := range strings.Split(string(text), "\n") {
			if before == "" && command.MatchString(line) {
				t.Errorf("%s:%d: a command in a block by indentation: %s", page, i+1, line)
			}
			before = strings.TrimSpace(line)
		}
		if strings.Contains(string(text), "```sh\n") && !slices.Contains(slices.Concat(guides, shown), strings.TrimPrefix(page, "../../")) {
			t.Errorf("%s has commands that nobody runs", page)
		}
	}
}

func await(t *testing.T, what string, ready func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(node.Patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = ready(); err == nil {
			return
		}
	}
	t.Fatalf("%s does not answer: %v", what, err)
}

// registry is nil if all examples have been pushed but those that may lack a compiler: the last one
// comes after all others.
func registry() error {
	examples := oci.Examples()
	answer, err := http.Head("http://127.0.0.1:5000/v2/sunaba/" + examples[len(examples)-1].Name + "/manifests/v1")
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}
