package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/killer"
	"github.com/sunaba-project/sunaba/tests/node"
)

// shimLives are the RPCs that have a shim do something, and the end of a container: 20 points in
// all.
var shimLives = []lifePoints{
	{life{"RunPodSandbox", prepareShared, callRun, judgeShimOfRun}, map[string]int{"runc": 1, "wasm": 1}},
	{life{"StartContainer", preparePod, callStartThird, judgeShim}, map[string]int{"runc": 3, "wasm": 3}},
	{life{"ExecSync", preparePod, callExec, judgeShim}, map[string]int{"runc": 2, "wasm": 1}},
	{life{"UpdateContainerResources", preparePod, callUpdate, judgeShim}, map[string]int{"runc": 1, "wasm": 1}},
	{life{"StopContainer", preparePod, callStop, judgeShim}, map[string]int{"runc": 1, "wasm": 1}},
	{life{"end of a container", prepareEnd, awaitEnd, judgeShim}, map[string]int{"runc": 1, "wasm": 1}},
	{life{"StopPodSandbox", preparePod, callStopPod, judgeShim}, map[string]int{"runc": 2, "wasm": 1}},
}

// A pod's shim is killed in the middle of what it does. The server sees it, or a server that is
// started later does.
func TestKillShim(t *testing.T) {
	run(t, shim(), ownShims, shimLives)
}

func shim() victim {
	return victim{name: "shim", order: shimOrder, dead: (*stage).killShim, after: afterShim}
}

// crunShimLives are those in which the shim has the OCI runtime do something: 7 points more.
var crunShimLives = []lifePoints{
	{life{"StartContainer", preparePod, callStartThird, judgeShim}, map[string]int{"crun": 2}},
	{life{"ExecSync", preparePod, callExec, judgeShim}, map[string]int{"crun": 1}},
	{life{"StopContainer", preparePod, callStop, judgeShim}, map[string]int{"crun": 1}},
	{life{"end of a container", prepareEnd, awaitEnd, judgeShim}, map[string]int{"crun": 1}},
	{life{"StopPodSandbox", preparePod, callStopPod, judgeShim}, map[string]int{"crun": 2}},
}

func TestKillShimWithCrun(t *testing.T) { run(t, shim(), ownCrun, crunShimLives) }

// shims are the files that name the shims of this point's pods.
func (m *machine) shims() []string {
	all, _ := filepath.Glob(filepath.Join(m.State, "sandboxes", "*", "shim.pid")) // the pattern is right
	return slices.DeleteFunc(all, func(file string) bool {
		return slices.ContainsFunc(m.stay, func(c *container) bool { return filepath.Base(filepath.Dir(file)) == c.pod.id })
	})
}

func shimOrder(s *stage) killer.Order {
	if s.pod == nil {
		known := []string{}
		for _, c := range s.stay {
			known = append(known, filepath.Join(s.State, "sandboxes", c.pod.id, "shim.pid"))
		}
		return killer.Order{Await: filepath.Join(s.State, "sandboxes", "*", "shim.pid"), Known: known}
	}
	return killer.Order{PID: pidIn(filepath.Join(s.State, "sandboxes", s.pod.id, "shim.pid"))}
}

func pidIn(file string) int {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}

func (s *stage) killShim() {
	for _, file := range s.shims() {
		if pid := pidIn(file); pid > 1 {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				s.problem("kill the shim: %v", err)
			}
		}
	}
}

// afterShim lets every second point see the death by a server that was not there when it happened.
func afterShim(s *stage, dice *rand.Rand) error {
	s.note()
	if s.nth%2 == 0 {
		return nil
	}
	s.kill()
	time.Sleep(time.Duration(dice.IntN(50)) * time.Millisecond)
	return s.restart()
}

func prepareShared(s *stage) error {
	s.config = s.podConfig("run", shape(0))
	return nil
}

func callStartThird(s *stage) error { return s.e.start() }

// prepareEnd has a container that is about to end.
func prepareEnd(s *stage) error {
	if err := preparePod(s); err != nil {
		return err
	}
	if err := s.e.remove(); err != nil {
		return err
	}
	c, err := s.pod.begin(job(s.handler))
	s.e = c
	return err
}

func awaitEnd(s *stage) error {
	if !node.Within(node.Patience, func() bool { return s.e.state() == cri.ContainerState_CONTAINER_EXITED }) {
		return errors.New("the container does not end")
	}
	return nil
}

// how a container may have ended whose shim was killed.
var (
	unknown    = end{255, "Unknown"}
	startError = end{128, "StartError"}
	killed     = end{137, "Error"}
	told       = end{143, "Error"}
	byItself   = end{7, "Error"}
)

type end struct {
	code   int32
	reason string
}

// endedAs says so if the container has ended otherwise, or runs.
func (c *container) endedAs(allowed ...end) {
	var s status
	var err error
	if !node.Within(node.Patience, func() bool {
		s, err = c.status()
		return err == nil && s.GetState() == cri.ContainerState_CONTAINER_EXITED
	}) {
		c.pod.m.problem("container without shim: %v, %v", s, err)
		return
	}
	if got := (end{s.GetExitCode(), s.GetReason()}); !slices.Contains(allowed, got) {
		c.pod.m.problem("container without shim ended with %v %q, want one of %v", got, s.GetMessage(), allowed)
	}
}

// judgeShim wants the pod NotReady, what ran in it ended and nothing of it on the machine.
func judgeShim(s *stage) {
	s.lost(s.pod.id)
	stopped := []end{unknown, killed, told}
	s.c.endedAs(stopped...)
	if _, err := s.c.ticks(); err != nil {
		s.problem("%v", err)
	}
	s.d.endedAs(byItself)
	s.d.said(jobText)
	if s.e.state() != cri.ContainerState_CONTAINER_CREATED {
		s.e.endedAs(append(stopped, startError, byItself)...)
	}
	if err := s.e.start(); err == nil {
		s.problem("a container of a pod without shim was started")
	}
	if _, err := s.pod.create(job(s.handler)); err == nil {
		s.problem("a container was created in a pod without shim")
	}
	for _, c := range []*container{s.c, s.d, s.e} {
		if err := c.stop(1); err != nil {
			s.problem("stop a container without shim: %v", err)
		}
	}
	if err := s.d.remove(); err != nil {
		s.problem("remove a container without shim: %v", err)
	}
}

// judgeShimOfRun allows no pod, or one that is not ready.
func judgeShimOfRun(s *stage) {
	for _, item := range s.listed(s.config) {
		s.lost(item.GetId())
		if err := (&pod{m: s.machine, id: item.GetId()}).remove(); err != nil {
			s.problem("remove the pod: %v", err)
		}
	}
	p, err := s.run(s.handler, s.config)
	if err != nil {
		s.problem("ask again: %v", err)
		return
	}
	p.works()
}

// lost wants a pod NotReady, and soon nothing that runs or is mounted in it but its namespaces.
func (s *stage) lost(id string) {
	state := cri.PodSandboxState(-1)
	if !node.Within(node.Patience, func() bool {
		answer, err := s.PodSandboxStatus(s.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
		state = answer.GetStatus().GetState()
		return err == nil && state == cri.PodSandboxState_SANDBOX_NOTREADY
	}) {
		s.problem("pod without shim: %v", state)
	}
	var pids []string
	if !node.Within(node.Patience, func() bool { pids = processesBelow(node.PodCgroup(id)); return len(pids) == 0 }) {
		s.problem("processes %v of the pod run on", pids)
	}
	var mounts []string
	if !node.Within(node.Patience, func() bool { mounts = s.mountsOf(id); return len(mounts) == 0 }) {
		s.problem("mounts of a pod without shim: %q", mounts)
	}
}

// mountsOf are the mounts of a pod but for its namespaces and its shared memory.
func (s *stage) mountsOf(id string) (points []string) {
	mounts, err := os.ReadFile("/proc/thread-self/mounts")
	if err != nil {
		return []string{err.Error()}
	}
	dir := filepath.Join(s.State, "sandboxes", id)
	for line := range strings.Lines(string(mounts)) {
		point := strings.Fields(line)[1]
		if strings.HasPrefix(point, dir) && !strings.HasPrefix(point, dir+"/ns/") && point != dir+"/shm" {
			points = append(points, point)
		}
	}
	return points
}

// processesBelow are the processes in a cgroup and those below it.
func processesBelow(path string) []string {
	var pids []string
	for _, root := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		err := filepath.WalkDir(filepath.Join(root, path), func(file string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "cgroup.procs" {
				data, _ := os.ReadFile(file) // it may be gone
				pids = append(pids, strings.Fields(string(data))...)
			}
			return nil
		})
		if err != nil {
			return append(pids, fmt.Sprint(err))
		}
	}
	return pids
}
