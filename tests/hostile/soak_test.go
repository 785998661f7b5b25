package hostile

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/tests/disk"
	"github.com/sunaba-project/sunaba/tests/leftovers"
	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/registry"
)

var hours = flag.Float64("hours", 0.005, "how long TestHoursOfFaults lasts")

// turn is how long faults last before a node comes to rest and is looked at.
const turn = 10 * time.Minute

// Clients ask for all that a pod can have done to it, under both handlers, with shims of their own
// and shared ones, and leave in the middle of a third of it. Meanwhile the daemon, shims,
// supervisors and containers are killed and stopped, and the disk, the registry, the network and
// the memory fail in turns. After each turn the check finds nothing, what
// was killed says so, nothing is left once all pods are removed, and the daemon has not grown.
func TestHoursOfFaults(t *testing.T) {
	full := disk.New(t, world.folder, 512)
	n := startIn(t, filepath.Join(full, "node"), node.OwnShims("[handlers.runc-own]\ntype = \"oci\"\n[handlers.wasm-own]\ntype = \"wasm\"\n"), "[images]\nstall_timeout = \"5s\"\n")
	f := &faults{
		disk:  full,
		storm: &storm{target: n, pods: map[string]string{}, handlers: []string{"runc", "wasm", "runc-own", "wasm-own"}, faulty: true, refusals: map[string]int{}},
		count: map[string]int{}, judged: map[string]bool{}, complete: map[string]int{}, random: rand.New(rand.NewPCG(*seed, 99)),
	}
	f.prepare()
	end := time.Now().Add(time.Duration(*hours * float64(time.Hour)))
	var first figures
	for number := 1; time.Now().Before(end) && !t.Failed(); number++ {
		f.turn(min(turn, time.Until(end)))
		f.rest()
		now := f.figures()
		t.Logf("turn %d: %v; faults %v; %d requests, %d given up; logs that are complete: %v; refused:\n%s", number, now, f.count, f.asked.Load(), f.left.Load(), f.complete, f.failures())
		if number == 1 {
			first = now
		} else if now.files > first.files+8 || now.threads > first.threads+16 || now.memory > first.memory+8<<10 {
			t.Errorf("the daemon has grown: %v after the first turn, %v now", first, now)
		}
	}
	n.restart()
}

// faults are a storm on a node whose processes are killed and stopped.
type faults struct {
	*storm
	random   *rand.Rand
	disk     string // that the node is on
	count    map[string]int
	full     [][2]int64      // from when until when the disk was, in ns since 1970
	judged   map[string]bool // containers, by id
	complete map[string]int  // containers that have written all of their lines, by kind
	deck     []func()        // the faults that come next
	proxy    *registry.Proxy // before the registry of the storm's own images
	server   string          // image of a guest that answers connections
	// registryFaults is how many there were.
	registryFaults int
	checkpoints    int // that were asked for
}

// turn has clients ask for so long, while processes die.
func (f *faults) turn(length time.Duration) {
	ctx, cancel := context.WithTimeout(f.t.Context(), length)
	defer cancel()
	var clients sync.WaitGroup
	defer clients.Wait()
	for i := range 8 {
		random := rand.New(rand.NewPCG(*seed, f.random.Uint64()+uint64(i)))
		clients.Go(func() {
			for ctx.Err() == nil {
				f.ask(ctx, random)
			}
		})
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(f.random.IntN(3000)) * time.Millisecond):
			f.judgeAll()
			f.fault()
		}
	}
}

// kill kills or stops one process.
func (f *faults) kill() {
	kill := f.random.IntN(3) > 0
	what := []string{"daemon", "shim", "container"}[f.random.IntN(3)]
	pid := f.DaemonPID()
	switch what {
	case "shim": // or a supervisor
		pids, err := measure.Shims(f.Node)
		f.check(err)
		pid = f.anyOf(pids)
	case "container":
		pids, err := leftovers.Processes(leftovers.Scope{Cgroups: f.groups()})
		f.check(err)
		pid = f.anyOf(pids)
	}
	switch {
	case pid == 0:
		return
	case kill && what == "daemon":
		f.restart()
	case kill:
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	default:
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		time.Sleep(time.Duration(f.random.IntN(2000)) * time.Millisecond)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	f.count[map[bool]string{true: "kill ", false: "stop "}[kill]+what]++
}

func (f *faults) anyOf(pids []int) int {
	if len(pids) == 0 {
		return 0
	}
	return pids[f.random.IntN(len(pids))]
}

var (
	// orphaned is a finding about a supervisor that was killed.
	orphaned = regexp.MustCompile(`(?m)^.*its supervisor \d+ does not run.*\n.*to do: .*\n`)
	// finding is the head of any other one.
	finding = regexp.MustCompile(`(?m)^ +to do: `)
)

// groups are the cgroups of the pods that there are.
func (f *faults) groups() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var groups []string
	for id := range f.pods {
		groups = append(groups, strings.TrimPrefix(node.PodCgroup(id), "/"))
	}
	return groups
}

// rest removes again what could not be removed, waits until what clients have left is over, checks
// the node, and removes all pods.
func (f *faults) rest() {
	for _, half := range f.half { // a disk that was read-only has half of a container removed
		var err error
		if half.pod != "" {
			_, err = f.RemovePodSandbox(f.within(node.Patience), &runtime.RemovePodSandboxRequest{PodSandboxId: half.pod})
		} else {
			_, err = f.RemoveContainer(f.within(node.Patience), &runtime.RemoveContainerRequest{ContainerId: half.container})
		}
		f.check(err)
	}
	f.half = nil
	var said string
	if !node.Within(node.Patience, func() (sound bool) {
		var err error
		_, said, err = f.Check()
		f.check(err)
		return !finding.MatchString(orphaned.ReplaceAllString(said, ""))
	}) {
		f.t.Errorf("the check says\n%s\nof that, the log has\n%s", said, f.logOf(said))
	}
	f.judgeAll()
	f.check(f.RemovePods(f.within(node.Slow(3 * time.Minute))))
	f.mu.Lock()
	clear(f.pods)
	f.mu.Unlock()
	f.check(f.Sound())
	f.imagesAreSound()
	f.check(space.Empty(f.Logs)) // they are the client's
	// The next start removes those, of writes that failed while the root was read-only.
	left, err := f.Left(durable.Unfinished)
	f.check(err)
	if len(left) > 0 {
		f.t.Errorf("left over:\n%s", strings.Join(left, "\n"))
	}
}

// judgeAll looks at each container once that has ended. Those that go meanwhile are left out.
func (f *faults) judgeAll() {
	ctx, cancel := context.WithTimeout(f.t.Context(), node.Slow(time.Minute))
	defer cancel()
	list, err := f.ListContainers(ctx, &runtime.ListContainersRequest{
		Filter: &runtime.ContainerFilter{State: &runtime.ContainerStateValue{State: runtime.ContainerState_CONTAINER_EXITED}},
	})
	f.check(err)
	for _, c := range list.GetContainers() {
		r, err := f.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: c.GetId()})
		if err != nil || f.judged[c.GetId()] {
			continue
		}
		f.judged[c.GetId()] = true
		f.judge(r.GetStatus())
	}
}

// judge looks at how a container ended: all run until they are stopped or killed, except those that
// write lines. 255 is what nobody saw the end of.
func (f *faults) judge(s *runtime.ContainerStatus) {
	if s.GetState() != runtime.ContainerState_CONTAINER_EXITED || s.GetReason() == "StartError" || s.GetStartedAt() == 0 {
		return
	}
	name, code := s.GetMetadata().GetName(), s.GetExitCode()
	w, writes := writerOf(name)
	if w.lines == flooded { // one is 3 MiB, and the disk small
		defer func() { f.check(os.RemoveAll(s.GetLogPath())) }()
	}
	switch {
	case writes && code == w.code:
		if !slices.ContainsFunc(f.full, func(full [2]int64) bool { return s.GetStartedAt() < full[1] && s.GetFinishedAt() > full[0] }) {
			f.readLines(s, w) // a full disk takes no lines
		}
	case code == 137, code == 143, code == 255, code == 0 && !writes:
	default:
		log, err := os.ReadFile(s.GetLogPath())
		f.t.Errorf("container %s ended with %d, %s: %s\nits log of %d bytes ends (%v):\n%s", name, code, s.GetReason(), s.GetMessage(), len(log), err, log[max(0, len(log)-4096):])
	}
}

// figures are what a daemon at rest holds.
type figures struct{ files, threads, memory int }

func (f figures) String() string {
	return fmt.Sprintf("%d files, %d threads, %d KiB", f.files, f.threads, f.memory)
}

func (f *faults) figures() figures {
	time.Sleep(10 * time.Second) // free memory is given back
	dir := fmt.Sprintf("/proc/%d/", f.DaemonPID())
	files, err := os.ReadDir(dir + "fd")
	f.check(err)
	threads, err := os.ReadDir(dir + "task")
	f.check(err)
	memory, err := measure.Anonymous(f.DaemonPID())
	f.check(err)
	return figures{len(files), len(threads), int(memory >> 10)}
}

// failures are the texts of requests that failed in a way that a kill explains, with their numbers.
func (f *faults) failures() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, text := range slices.Sorted(maps.Keys(f.refusals)) {
		fmt.Fprintf(&b, "%d × %s\n", f.refusals[text], text)
	}
	return b.String()
}
