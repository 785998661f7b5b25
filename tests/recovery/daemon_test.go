package recovery

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/killer"
	"github.com/sunaba-project/sunaba/tests/node"
)

// lives are the RPCs that change something: 50 points in all.
var lives = []lifePoints{
	{life{"RunPodSandbox", prepareRun, callRun, judgeRun}, map[string]int{"runc": 4, "wasm": 4}},
	{life{"PullImage", preparePull, callPull, judgePull}, map[string]int{"runc": 2, "wasm": 3}},
	{life{"CreateContainer", prepareCreate, callCreate, judgeCreate}, map[string]int{"runc": 3, "wasm": 2}},
	{life{"StartContainer", prepareStart, callStart, judgeStart}, map[string]int{"runc": 3, "wasm": 3}},
	{life{"ExecSync", prepareExec, callExec, judgeExec}, map[string]int{"runc": 2, "wasm": 2}},
	{life{"UpdateContainerResources", prepareUpdate, callUpdate, judgeUpdate}, map[string]int{"runc": 3, "wasm": 2}},
	{life{"StopContainer", prepareStop, callStop, judgeStop}, map[string]int{"runc": 3, "wasm": 2}},
	{life{"RemoveContainer", prepareRemove, callRemove, judgeRemove}, map[string]int{"runc": 2, "wasm": 2}},
	{life{"StopPodSandbox", preparePod, callStopPod, judgeStopPod}, map[string]int{"runc": 2, "wasm": 2}},
	{life{"RemovePodSandbox", preparePod, callRemovePod, judgeRemovePod}, map[string]int{"runc": 2, "wasm": 2}},
}

// The daemon is killed in the middle of every RPC that changes something.
func TestKillDaemon(t *testing.T) {
	run(t, daemon(), embedded, lives)
}

func daemon() victim {
	return victim{
		name:  "daemon",
		order: func(s *stage) killer.Order { return killer.Order{PID: s.DaemonPID()} },
		dead:  func(s *stage) { s.kill() },
		after: func(s *stage, dice *rand.Rand) error {
			time.Sleep(time.Duration(dice.IntN(50)) * time.Millisecond) // what runs goes on without a daemon
			return s.restart()
		},
	}
}

// ownLives are the RPCs that have to do with a pod's shim, where each pod has its own: 12 points
// more.
var ownLives = []lifePoints{
	{life{"RunPodSandbox", prepareRun, callRun, judgeRun}, map[string]int{"runc": 2, "wasm": 2}},
	{life{"StartContainer", prepareStart, callStart, judgeStart}, map[string]int{"runc": 1, "wasm": 1}},
	{life{"StopPodSandbox", preparePod, callStopPod, judgeStopPod}, map[string]int{"runc": 2, "wasm": 1}},
	{life{"RemovePodSandbox", preparePod, callRemovePod, judgeRemovePod}, map[string]int{"runc": 2, "wasm": 1}},
}

// The same with pods that share no shim.
func TestKillDaemonWithOwnShims(t *testing.T) { run(t, daemon(), ownShims, ownLives) }

// cniLives are the RPCs that ask CNI plugins for something: 8 points more.
var cniLives = []lifePoints{
	{life{"RunPodSandbox", prepareRun, callRun, judgeRun}, map[string]int{"runc": 4}},
	{life{"StopPodSandbox", preparePod, callStopPod, judgeStopPod}, map[string]int{"wasm": 2}},
	{life{"RemovePodSandbox", preparePod, callRemovePod, judgeRemovePod}, map[string]int{"wasm": 2}},
}

// The same with CNI: what a plugin has given out is given back.
func TestKillDaemonWithCNI(t *testing.T) { run(t, daemon(), cni, cniLives) }

// crunLives are the RPCs in which an OCI runtime has a part, by another one: 12 points more.
var crunLives = []lifePoints{
	{life{"RunPodSandbox", prepareRun, callRun, judgeRun}, map[string]int{"crun": 1}},
	{life{"CreateContainer", prepareCreate, callCreate, judgeCreate}, map[string]int{"crun": 1}},
	{life{"StartContainer", prepareStart, callStart, judgeStart}, map[string]int{"crun": 3}},
	{life{"ExecSync", prepareExec, callExec, judgeExec}, map[string]int{"crun": 1}},
	{life{"UpdateContainerResources", prepareUpdate, callUpdate, judgeUpdate}, map[string]int{"crun": 1}},
	{life{"StopContainer", prepareStop, callStop, judgeStop}, map[string]int{"crun": 2}},
	{life{"RemoveContainer", prepareRemove, callRemove, judgeRemove}, map[string]int{"crun": 1}},
	{life{"StopPodSandbox", preparePod, callStopPod, judgeStopPod}, map[string]int{"crun": 1}},
	{life{"RemovePodSandbox", preparePod, callRemovePod, judgeRemovePod}, map[string]int{"crun": 1}},
}

// The same with pods that crun runs.
func TestKillDaemonWithCrun(t *testing.T) { run(t, daemon(), withCrun, crunLives) }

// works says so if a new container of the pod does not run as it should.
func (p *pod) works() {
	c, err := p.begin(job(p.handler))
	if err != nil {
		p.m.problem("a new container in the pod: %v", err)
		return
	}
	c.ended(7, "Error")
	c.said(jobText)
}

// refused says so if an error is not of a class.
func (m *machine) refused(what string, err error, want codes.Code) {
	if grpcstatus.Code(err) != want {
		m.problem("%s: %v, want %v", what, err, want)
	}
}

// --- RunPodSandbox: the pod is not there, or it is and can be used or removed
// ----------------------------------

func prepareRun(s *stage) error {
	s.config = s.podConfig("run", shape(s.nth))
	return nil
}

func callRun(s *stage) error {
	_, err := s.run(s.handler, s.config)
	return err
}

func judgeRun(s *stage) {
	found := s.listed(s.config)
	if len(found) > 1 {
		s.problem("%d pods have one name", len(found))
	}
	for _, item := range found {
		_, err := s.run(s.handler, s.config)
		s.refused("run a pod of a name that is listed", err, codes.AlreadyExists)
		p := &pod{m: s.machine, id: item.GetId(), handler: s.handler, config: s.config}
		if item.GetState() == cri.PodSandboxState_SANDBOX_READY {
			p.works()
		}
		if err := p.remove(); err != nil {
			s.problem("remove the pod that was found: %v", err)
		}
	}
	if s.called == nil && len(found) == 0 {
		s.problem("the pod was answered for and is not there")
	}
	p, err := s.run(s.handler, s.config)
	if err != nil {
		s.problem("ask again: %v", err)
		return
	}
	p.works()
}

// --- PullImage: the image is not there, or whole
// -------------------------------------------------------------

func preparePull(s *stage) (err error) {
	s.ref, err = push(s.ctx, s.handler, fmt.Sprintf("pulled-%d", node.Serial()))
	return err
}

func (s *stage) pull() (string, error) {
	answer, err := s.PullImage(s.ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: s.ref}})
	return answer.GetImageRef(), err
}

func callPull(s *stage) error {
	_, err := s.pull()
	if s.idle && err == nil {
		err = s.removeImage()
	}
	return err
}

func (s *stage) removeImage() error {
	_, err := s.RemoveImage(s.ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: s.ref}})
	return err
}

func judgePull(s *stage) {
	id, err := s.pull()
	if err != nil {
		s.problem("ask again: %v", err)
		return
	}
	answer, err := s.ImageStatus(s.ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: s.ref}})
	if err != nil || answer.GetImage().GetId() != id {
		s.problem("status of the image: %v, %v", answer, err)
	}
	p, err := s.run(s.handler, s.podConfig("pulled", shape(s.nth)))
	if err != nil {
		s.problem("%v", err)
		return
	}
	config := job(s.handler)
	config.Image = &cri.ImageSpec{Image: id, UserSpecifiedImage: s.ref}
	c, err := p.begin(config)
	if err != nil {
		s.problem("%v", err)
		return
	}
	c.ended(7, "Error")
	c.said(jobText)
	if err := p.remove(); err != nil {
		s.problem("%v", err)
	}
	if err := s.removeImage(); err != nil {
		s.problem("remove the image: %v", err)
	}
}

// --- CreateContainer: the container is not there, or created
// ---------------------------------------------------

func prepareCreate(s *stage) (err error) {
	if s.pod, err = s.run(s.handler, s.podConfig("create", shape(s.nth))); err != nil {
		return err
	}
	s.c = &container{pod: s.pod, config: job(s.handler)}
	return nil
}

func callCreate(s *stage) error {
	c, err := s.pod.create(s.c.config)
	s.c.log = c.log
	return err
}

func judgeCreate(s *stage) {
	list, err := s.ListContainers(s.ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: s.pod.id}})
	found := list.GetContainers()
	switch {
	case err != nil || len(found) > 1:
		s.problem("list containers: %v, %v", found, err)
		return
	case len(found) == 1:
		s.c.id = found[0].GetId()
		if found[0].GetState() != cri.ContainerState_CONTAINER_CREATED {
			s.problem("the container is %v", found[0].GetState())
		}
		_, err := s.pod.create(s.c.config)
		s.refused("create a container of a name that is listed", err, codes.AlreadyExists)
	default:
		if s.called == nil {
			s.problem("the container was answered for and is not there")
		}
		c, err := s.pod.create(s.c.config)
		if err != nil {
			s.problem("ask again: %v", err)
			return
		}
		s.c = c
	}
	if err := s.c.start(); err != nil {
		s.problem("start it: %v", err)
	}
	s.c.ended(7, "Error")
	s.c.said(jobText)
}

// --- StartContainer: the container is created, or was started once
// ----------------------------------------------

func prepareStart(s *stage) (err error) {
	if err = prepareCreate(s); err == nil {
		s.c, err = s.pod.create(withPort(s.c.config))
	}
	return err
}

// replaced has another container take the place of one that was created and never started, with the
// same ports, as the kubelet does it.
func (s *stage) replaced() {
	second, err := s.pod.begin(withPort(job(s.handler)))
	if err != nil {
		s.problem("begin another container with the ports of the one that was not started: %v", err)
		return
	}
	second.ended(7, "Error")
}

func callStart(s *stage) error { return s.c.start() }

func judgeStart(s *stage) {
	before := s.c.state()
	if before == cri.ContainerState_CONTAINER_CREATED {
		s.replaced()
	}
	err := s.c.start()
	switch {
	case before == cri.ContainerState_CONTAINER_CREATED:
		if err != nil {
			s.problem("ask again: %v", err)
		}
		if s.called == nil {
			s.problem("the start was answered for and did not happen")
		}
	case before == cri.ContainerState_CONTAINER_RUNNING || before == cri.ContainerState_CONTAINER_EXITED:
		s.refused("start a container that was started", err, codes.FailedPrecondition)
	default:
		s.problem("the container is %v", before)
	}
	s.c.ended(7, "Error")
	s.c.said(jobText)
}

// --- ExecSync: the container does not notice, the command is gone
// -----------------------------------------------

func prepareExec(s *stage) (err error) {
	if s.pod, err = s.run(s.handler, s.podConfig("exec", shape(1))); err != nil { // with processes of its own
		return err
	}
	if s.c, err = s.pod.begin(idles(s.handler)); err != nil {
		return err
	}
	if err = s.c.says(idleText(s.handler)); err == nil {
		var now status
		now, err = s.c.status()
		s.c.pid = now.pid
	}
	// Who has started it was in its cgroup with a thread, which ends at its own time.
	if err == nil && !node.Within(node.Patience, func() bool { return len(s.c.processes()) == 1 }) {
		err = fmt.Errorf("processes %v are in the container, want one", s.c.processes())
	}
	return err
}

func (s *stage) exec(command ...string) (*cri.ExecSyncResponse, error) {
	return s.ExecSync(s.ctx, &cri.ExecSyncRequest{ContainerId: s.c.id, Cmd: command})
}

func callExec(s *stage) error {
	command := []string{"/bin/sh", "-c", "echo begun; sleep 100000"}
	switch {
	case s.handler == "wasm" && s.idle:
		command = []string{"/guest.wasm", "job", "0"}
	case s.handler == "wasm":
		command = []string{"/guest.wasm", "idle"}
	case s.idle:
		command[2] = "echo begun; usleep 100000"
	}
	_, err := s.exec(command...)
	return err
}

// processes are those in the container's cgroup.
func (c *container) processes() []string {
	for _, root := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		path := filepath.Join(root, node.ContainerCgroup(c.pod.id, c.id), "cgroup.procs")
		if data, err := os.ReadFile(path); err == nil {
			return strings.Fields(string(data))
		}
	}
	return nil
}

func judgeExec(s *stage) {
	s.c.running()
	if now, err := s.c.status(); err != nil || now.pid != s.c.pid {
		s.problem("the container was process %d and is %d, %v", s.c.pid, now.pid, err)
	}
	if !node.Within(node.Patience, func() bool { return len(s.c.processes()) == 1 }) {
		s.problem("processes %v are in the container: the command of a request that is gone runs on", s.c.processes())
	}
	command, want := []string{"/bin/sh", "-c", "echo one; echo two; echo three; exit 3"}, jobText
	if s.handler == "wasm" {
		command = []string{"/guest.wasm", "job", "3"}
	}
	answer, err := s.exec(command...)
	if err != nil || answer.GetExitCode() != 3 || string(answer.GetStdout()) != want {
		s.problem("ask again: %v, %v", answer, err)
	}
	if pipes, _ := filepath.Glob(filepath.Join(s.State, "sandboxes", s.pod.id, s.c.id, "*-std*")); len(pipes) > 0 {
		s.problem("pipes of a request that is gone: %q", pipes)
	}
}

// --- UpdateContainerResources: all of it is old, or all is new
// --------------------------------------------------

const oldLimit, newLimit = 64 << 20, 96 << 20

func prepareUpdate(s *stage) (err error) {
	if s.pod, err = s.run(s.handler, s.podConfig("update", shape(s.nth))); err != nil {
		return err
	}
	config := idles(s.handler)
	config.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: oldLimit}
	if s.c, err = s.pod.begin(config); err != nil {
		return err
	}
	s.limits[0] = s.c.limit()
	return nil
}

// limit is what the kernel holds the container to.
func (c *container) limit() string {
	below := node.ContainerCgroup(c.pod.id, c.id)
	for _, file := range []string{filepath.Join("/sys/fs/cgroup/memory", below, "memory.limit_in_bytes"), filepath.Join("/sys/fs/cgroup", below, "memory.max")} {
		if data, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	return ""
}

func callUpdate(s *stage) error {
	_, err := s.UpdateContainerResources(s.ctx, &cri.UpdateContainerResourcesRequest{
		ContainerId: s.c.id, Linux: &cri.LinuxContainerResources{MemoryLimitInBytes: newLimit},
	})
	return err
}

// declared is the limit in the container's status.
func (c *container) declared() int64 {
	s, err := c.status()
	if err != nil {
		c.pod.m.problem("status: %v", err)
		return 0
	}
	return s.GetResources().GetLinux().GetMemoryLimitInBytes()
}

func judgeUpdate(s *stage) {
	s.c.running()
	found, held := s.c.declared(), s.c.limit()
	if found != oldLimit && found != newLimit || s.called == nil && found != newLimit {
		s.problem("the limit in the status is %d", found)
	}
	if err := callUpdate(s); err != nil {
		s.problem("ask again: %v", err)
	}
	s.limits[1] = s.c.limit()
	if got := s.c.declared(); got != newLimit || s.limits[0] == s.limits[1] {
		s.problem("after asking again the limit in the status is %d, the kernel's went from %s to %s", got, s.limits[0], s.limits[1])
	}
	if want := map[int64]string{oldLimit: s.limits[0], newLimit: s.limits[1]}[found]; held != want {
		s.problem("the status said %d, and the kernel held it to %s, not %s", found, held, want)
	}
}

// --- StopContainer: it is told once, and killed when its grace is over
// --------------------------------------------

func prepareStop(s *stage) (err error) {
	if s.pod, err = s.run(s.handler, s.podConfig("stop", shape(s.nth))); err != nil {
		return err
	}
	config := containerConfig(s.handler, "trap 'echo told' TERM; echo idle; while :; do usleep 20000; done", "idle")
	config.Annotations = map[string]string{"io.sunaba.stop-wait": "true"}
	if s.c, err = s.pod.begin(config); err != nil {
		return err
	}
	return s.c.says(idleText(s.handler))
}

// callStop gives every second point a grace that nobody waits for; asking again then gives a
// shorter one.
func callStop(s *stage) error {
	if !s.idle && s.nth%2 == 1 {
		return s.c.stop(600)
	}
	return s.c.stop(1)
}

func judgeStop(s *stage) {
	before := s.c.state()
	begun := time.Now()
	if err := s.c.stop(1); err != nil {
		s.problem("ask again: %v", err)
	}
	if took := time.Since(begun); before == cri.ContainerState_CONTAINER_RUNNING && (took < 900*time.Millisecond || took > node.Slow(node.Patience)) {
		s.problem("a grace of 1 s took %v", took)
	}
	s.c.ended(137, "Error")
	if s.handler != "wasm" {
		s.c.said("idle\ntold\n")
	}
	if err := s.c.stop(1); err != nil {
		s.problem("stop what is stopped: %v", err)
	}
}

// --- RemoveContainer: it is there or not
// -----------------------------------------------------------------------

func prepareRemove(s *stage) (err error) {
	if s.pod, err = s.run(s.handler, s.podConfig("remove", shape(s.nth))); err != nil {
		return err
	}
	config := job(s.handler)
	if s.nth%2 == 1 {
		config = counts(s.handler)
	}
	if s.c, err = s.pod.begin(config); err == nil && s.nth%2 == 0 {
		s.c.ended(7, "Error")
	}
	return err
}

func callRemove(s *stage) error { return s.c.remove() }

func judgeRemove(s *stage) {
	_, err := s.c.status()
	if err != nil {
		s.refused("status of a container that was removed", err, codes.NotFound)
	} else if s.called == nil {
		s.problem("the removal was answered for and did not happen")
	}
	if err := s.c.remove(); err != nil {
		s.problem("ask again: %v", err)
	}
	_, err = s.c.status()
	s.refused("status of a removed container", err, codes.NotFound)
	if _, err := os.Stat(s.c.log); err != nil {
		s.problem("the log is the client's: %v", err)
	}
	again, err := s.pod.create(s.c.config)
	if err != nil {
		s.problem("a new container of the same name: %v", err)
		return
	}
	if err := again.remove(); err != nil {
		s.problem("%v", err)
	}
}

// --- StopPodSandbox, RemovePodSandbox
// ---------------------------------------------------------------------------

// preparePod runs a pod with a container that counts, one that has ended and one that was not
// started.
func preparePod(s *stage) (err error) {
	s.config = s.podConfig("end", shape(s.nth))
	if s.pod, err = s.run(s.handler, s.config); err != nil {
		return err
	}
	if s.c, err = s.pod.begin(counts(s.handler)); err != nil {
		return err
	}
	if s.d, err = s.pod.begin(job("runc")); err != nil { // in a wasm pod too
		return err
	}
	if s.e, err = s.pod.create(idles(s.handler)); err != nil {
		return err
	}
	s.d.ended(7, "Error")
	return s.c.says("tick 3")
}

func callStopPod(s *stage) error { return s.pod.stop() }

func judgeStopPod(s *stage) {
	found := s.listed(s.config)
	if len(found) != 1 {
		s.problem("%d pods are listed", len(found))
	} else if s.called == nil && found[0].GetState() != cri.PodSandboxState_SANDBOX_NOTREADY {
		s.problem("the stop was answered for, and the pod is %v", found[0].GetState())
	}
	for range 2 {
		if err := s.pod.stop(); err != nil {
			s.problem("ask again: %v", err)
		}
	}
	if found := s.listed(s.config); len(found) != 1 || found[0].GetState() != cri.PodSandboxState_SANDBOX_NOTREADY {
		s.problem("the stopped pod is %v", found)
	}
	s.c.ended(137, "Error")
	if _, err := s.c.ticks(); err != nil {
		s.problem("%v", err)
	}
	s.d.ended(7, "Error")
	s.d.said(jobText)
	if state := s.e.state(); state != cri.ContainerState_CONTAINER_CREATED && state != cri.ContainerState_CONTAINER_EXITED {
		s.problem("the container that was not started is %v", state)
	}
}

func callRemovePod(s *stage) error { return s.pod.remove() }

func judgeRemovePod(s *stage) {
	if found := s.listed(s.config); len(found) > 0 && s.called == nil {
		s.problem("the removal was answered for, and the pod is %v", found[0].GetState())
	}
	for range 2 {
		if err := s.pod.remove(); err != nil {
			s.problem("ask again: %v", err)
		}
	}
	if found := s.listed(s.config); len(found) != 0 {
		s.problem("the removed pod is listed: %v", found)
	}
	for _, c := range []*container{s.c, s.d, s.e} {
		_, err := c.status()
		s.refused("status of a container of a removed pod", err, codes.NotFound)
	}
	if _, err := s.c.ticks(); err != nil {
		s.problem("%v", err)
	}
	s.d.said(jobText)
	p, err := s.run(s.handler, s.config)
	if err != nil {
		s.problem("a new pod of the same name: %v", err)
		return
	}
	p.works()
}
