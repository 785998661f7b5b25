package containerd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/sunaba-project/sunaba/tests/leftovers"
)

// patience bounds every call and every wait of a test, on a machine that is busy with others: the
// first start of a guest compiles it.
const patience = 3 * time.Minute

const ours = "io.containerd.sunaba.v1"

// bench is a daemon of one test with a namespace of the test's own.
type bench struct {
	*Daemon
	t         *testing.T
	namespace string
	tasks     tasksClient
	cgroups   []string
	before    leftovers.Snapshot
	booted    int // length of the daemon's log when it was ready
}

// each runs a test under every release.
func each(t *testing.T, test func(t *testing.T, b *bench)) {
	for _, release := range world.releases {
		t.Run(release.Name, func(t *testing.T) { test(t, newBench(t, release)) })
	}
}

// newBench starts a daemon. The test fails if anything is left when it ends.
func newBench(t *testing.T, release Release) *bench {
	t.Helper()
	return newBenchWith(t, release,
		Runtime{Name: "sunaba", Type: ours}, Runtime{Name: "sunaba-wasm", Type: ours}, Runtime{Name: "runc", Type: "io.containerd.runc.v2"})
}

// newBenchWith starts a daemon with these runtimes, whose first is its default.
func newBenchWith(t *testing.T, release Release, runtimes ...Runtime) *bench {
	t.Helper()
	return newBenchOf(t, Options{Release: release, Default: runtimes[0].Name, Runtimes: runtimes})
}

// newBenchOf starts a daemon in a folder of its own.
func newBenchOf(t *testing.T, o Options) *bench {
	t.Helper()
	random := make([]byte, 4)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	namespace := "sunaba-" + hex.EncodeToString(random)
	o.Dir, o.Path, o.CNI, o.Sandbox = filepath.Join(world.folder, hex.EncodeToString(random)), []string{world.bin}, world.plugins, world.pause
	d, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{
		Daemon: d, t: t, namespace: namespace,
		tasks:   tasksOf(d.Conn),
		cgroups: []string{namespace}, // pods are told to be there too
	}
	t.Cleanup(b.end)
	b.booted, b.before = len(d.Log()), b.look()
	return b
}

func (b *bench) scope() leftovers.Scope {
	return leftovers.Scope{
		Dirs: []string{b.Dir, "/run/sunaba", "/run/containerd/s"}, Cgroups: b.cgroups,
		SkipFile: func(path string) bool { return !b.counts(path) },
	}
}

// counts says whether a file counts as left over: one of a bundle, a shim's socket, an OCI
// runtime's state. All else is containerd's own.
func (b *bench) counts(path string) bool {
	bundles := filepath.Dir(b.bundles("x"))
	for _, dir := range []string{bundles, b.socketDir(), "/run/sunaba"} {
		if path == dir || strings.HasPrefix(path, dir+"/") || strings.HasPrefix(dir, path+"/") {
			return true
		}
	}
	return false
}

func (b *bench) look() leftovers.Snapshot {
	b.t.Helper()
	found, err := leftovers.Take(b.scope())
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// left returns what is there and was not when the daemon had started, but for empty folders that a
// namespace keeps.
func (b *bench) left() []string {
	var left []string
	for _, line := range b.look().Since(b.before) {
		path := strings.TrimPrefix(line, "file ")
		switch {
		case strings.HasPrefix(line, "process ") && (!strings.Contains(line, b.Dir) || strings.Contains(line, filepath.Join(b.Release.Bin, "containerd "))):
		case path == b.bundles(b.namespace), path == b.bundles("k8s.io"), path == filepath.Dir(b.bundles("x")):
		case path == "/run/sunaba", path == "/run/sunaba/runc", path == "/run/sunaba/runc/"+b.namespace, path == "/run/sunaba/runc/k8s.io":
		case strings.HasPrefix(line, "cgroup ") && slices.Contains(b.cgroups, filepath.Base(line)): // a namespace's
		default:
			left = append(left, line)
		}
	}
	return left
}

// end looks at what is left and takes the daemon away.
func (b *bench) end() {
	if b.t.Failed() {
		b.t.Logf("containerd's log:\n%s", tail(b.Log()[b.booted:], 60))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.RemovePods(ctx); err != nil {
			b.t.Logf("remove the pods of a failed test: %v", err)
		}
	}
	b.eventually("nothing is left", func() bool { return len(b.left()) == 0 })
	for i, line := range b.left() {
		if i == 0 {
			b.t.Logf("containerd's log:\n%s", tail(b.Log()[b.booted:], 60))
		}
		if i == 20 {
			b.t.Error("left over: and more")
			break
		}
		b.t.Errorf("left over: %s", line)
	}
	forced, err := b.Close()
	if err != nil {
		b.t.Error(err)
	}
	if len(forced) > 0 && !b.t.Failed() {
		b.t.Errorf("taken away by force: %q", forced)
	}
	// What a failed test left running, with another root than the daemon's folder.
	for _, pid := range must(leftovers.Processes(leftovers.Scope{Cgroups: b.cgroups}))(b.t) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, dir := range b.cgroups {
		for _, path := range glob(b.t, "/sys/fs/cgroup/*/"+dir) {
			_ = os.Remove(path)
		}
	}
	_ = os.Remove("/run/sunaba/runc/" + b.namespace)
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func tail(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// eventually waits for something that is to come by itself.
func (b *bench) eventually(what string, reached func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !reached() {
		if time.Now().After(deadline) {
			b.t.Errorf("waited in vain: %s", what)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// ctx is for one call in the test's namespace.
func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	b.t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", b.namespace)
}

// ctr runs a command that is to succeed and returns its output.
func (b *bench) ctr(args ...string) string {
	b.t.Helper()
	out, err := b.Ctr(b.ctx(), b.namespace, args...)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// pull fetches an image; platform "" is the machine's.
func (b *bench) pull(ref, platform string) string {
	b.t.Helper()
	args := []string{"images", "pull", "--plain-http"}
	if platform != "" {
		args = append(args, "--platform", platform)
		if !b.Release.old() {
			args = append(args, "--local") // the daemon's own way of pulling unpacks no foreign platform
		}
	}
	b.ctr(append(args, ref)...)
	return ref
}

// run starts a container in the background under our shim; args are the image and what follows,
// flags come before.
func (b *bench) run(id string, flags []string, ref string, args ...string) {
	b.t.Helper()
	command := append([]string{"run", "-d", "--runtime", ours}, flags...)
	b.ctr(append(append(command, ref, id), args...)...)
}

// remove ends a container and removes it.
func (b *bench) remove(id string) {
	b.t.Helper()
	b.ctr("tasks", "rm", "-f", id)
	b.ctr("containers", "rm", id)
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// name is short and new in a test's namespace.
func name(prefix string, n int) string { return fmt.Sprintf("%s%d", prefix, n) }
