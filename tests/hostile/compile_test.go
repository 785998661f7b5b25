package hostile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

const compileMemory = 512 // MiB for all compilations

var compilerConfig = fmt.Sprintf("[wasm]\ncompile_memory_mib = %d\n", compileMemory)

// compilations is how many modules the server compiles at a time on this machine.
var compilations = min(max(2, goruntime.NumCPU()/2), 8)

// compilers are the processes that compile modules: those that are started by the daemon, and the
// locked-in ones that these start.
func (n *target) compilers() (started, inner []int) {
	t := n.t
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		program, _ := os.Readlink(filepath.Join("/proc", entry.Name(), "exe"))
		line, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		args := strings.Split(string(line), "\x00")
		if filepath.Dir(program) != world.bin || len(args) < 3 || args[1] != "compile" {
			continue
		}
		if strings.HasPrefix(args[2], "-child=") {
			inner = append(inner, pid)
		} else {
			started = append(started, pid)
		}
	}
	return started, inner
}

// compilerGroups are the cgroups of the server's compilations, in all hierarchies. Their name tells
// them from those of other servers of this machine.
func (n *target) compilerGroups() (all []string) {
	n.t.Helper()
	sum := sha256.Sum256([]byte(n.Root))
	group := node.Layout().Path(node.Layout().CompilerParent(hex.EncodeToString(sum[:4])))
	for _, hierarchy := range []string{"", "/*"} {
		found, err := filepath.Glob("/sys/fs/cgroup" + hierarchy + group)
		n.check(err)
		all = append(all, found...)
	}
	return all
}

// checkCompilers looks at what runs at this moment.
func (n *target) checkCompilers() (inner []int) {
	t := n.t
	t.Helper()
	_, inner = n.compilers()
	if len(inner) > compilations {
		t.Errorf("%d modules are compiled at a time", len(inner))
	}
	for _, dir := range n.compilerGroups() {
		for _, name := range []string{"memory.usage_in_bytes", "memory.current"} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			if used, err := strconv.Atoi(strings.TrimSpace(string(data))); err != nil || used > compileMemory<<20 {
				t.Errorf("compilations take %d bytes of memory, %v", used, err)
			}
		}
	}
	return inner
}

// noCompilers waits until nothing compiles any more, and wants nothing of it left.
func (n *target) noCompilers() {
	t := n.t
	t.Helper()
	if !node.Within(node.Patience, func() bool {
		started, inner := n.compilers()
		return len(started)+len(inner)+len(n.compilerGroups()) == 0
	}) {
		started, inner := n.compilers()
		t.Errorf("what compiles is left: %v, %v, %q", started, inner, n.compilerGroups())
	}
}

// slowModules are images of modules that take seconds to compile, each with a digest of its own.
func (n *target) slowModules(count int) (refs []string) {
	n.t.Helper()
	dir, err := filepath.Abs("../../examples/greeter")
	n.check(err)
	module, err := oci.BuildGo(n.t.Context(), dir, oci.Wasip1)
	n.check(err)
	for i := range count {
		name := fmt.Sprint(n.t.Name(), i)
		image, err := oci.Artifact(oci.Renamed(module, name))
		refs = append(refs, n.push("slow:"+name, image, err))
	}
	return refs
}

// pulls pulls images side by side until they are there or ctx ends.
func (n *target) pulls(ctx context.Context, all *sync.WaitGroup, refs ...string) {
	for _, ref := range refs {
		all.Go(func() {
			_, err := n.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref, RuntimeHandler: "wasm"}})
			if err != nil && ctx.Err() == nil {
				n.t.Errorf("pull %s: %v", ref, err)
			}
		})
	}
}

// TestManyCompilations pulls more modules at once than may be compiled at a time, cancels most of
// the pulls, and then those that are compiled at last.
func TestManyCompilations(t *testing.T) {
	n := start(t, compilerConfig)
	refs := n.slowModules(compilations + 6)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	some, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var all sync.WaitGroup
	n.pulls(some, &all, refs[:compilations+3]...)
	n.pulls(ctx, &all, refs[compilations+3:]...)
	if !node.Within(node.Patience, func() bool { return len(n.checkCompilers()) == compilations && len(n.compilerGroups()) > 0 }) {
		t.Fatalf("too few modules are compiled at a time, in the cgroups %q", n.compilerGroups())
	}
	giveUp()
	for range 50 {
		n.checkCompilers()
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	all.Wait()
	n.noCompilers()
}

// TestCompilationForTwo pulls one module twice: what one gives up is for the other, and ends with
// that.
func TestCompilationForTwo(t *testing.T) {
	n := start(t, compilerConfig)
	ref := n.slowModules(1)[0]
	first, giveUpFirst := context.WithCancel(t.Context())
	defer giveUpFirst()
	second, giveUpSecond := context.WithCancel(t.Context())
	defer giveUpSecond()
	var one, two sync.WaitGroup
	n.pulls(first, &one, ref)
	n.pulls(second, &two, ref)
	var child int
	if !node.Within(node.Patience, func() bool {
		inner := n.checkCompilers()
		if len(inner) == 1 {
			child = inner[0]
		}
		return child != 0
	}) {
		t.Fatal("nothing is compiled")
	}
	giveUpFirst()
	one.Wait()
	time.Sleep(50 * time.Millisecond)
	if inner := n.checkCompilers(); len(inner) != 1 || inner[0] != child {
		t.Errorf("after the first has given up %v compile, and not %d", inner, child)
	}
	giveUpSecond()
	two.Wait()
	n.noCompilers()
}

// TestCompilationWithoutServer kills the daemon while it has modules compiled: they end, and the
// next one finds none.
func TestCompilationWithoutServer(t *testing.T) {
	n := start(t, compilerConfig)
	refs := n.slowModules(compilations + 1)
	var all sync.WaitGroup
	for _, ref := range refs {
		all.Go(func() { // it fails with its server
			_, _ = n.PullImage(t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref, RuntimeHandler: "wasm"}})
		})
	}
	if !node.Within(node.Patience, func() bool { return len(n.checkCompilers()) == compilations }) {
		t.Fatal("too few modules are compiled at a time")
	}
	n.check(n.SignalDaemon(syscall.SIGKILL))
	all.Wait()
	n.check(n.StartDaemon(t.Context()))
	n.noCompilers()
	again, stop := context.WithTimeout(t.Context(), node.Slow(node.Patience))
	defer stop()
	n.pulls(again, &all, refs[0])
	all.Wait()
	n.noCompilers()
}
