package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	show "github.com/sunaba-project/sunaba/cmd/sunaba/images"
	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
	"github.com/sunaba-project/sunaba/criserver/client"
	"github.com/sunaba-project/sunaba/criserver/client/foreign"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/pods/agent"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// server is the CRI server as the run's agent calls it: it tells what is done, shows the output of
// containers and notes how they ended.
type server struct {
	cri
	*runner
	state string // folder of the server's state, "" if it does not say

	mu         sync.Mutex
	containers []*container                        // that were not removed, in the order of their making
	ends       map[string]*runtime.ContainerStatus // the last end of each, by name
	told       sync.WaitGroup
	lost       error     // why output of a container is not shown, nil if all is
	away       time.Time // since when the server does not answer; zero if it does
}

// cri is a server that an agent drives.
type cri interface {
	agent.CRI
	ContainerStatus(context.Context, *runtime.ContainerStatusRequest) (*runtime.ContainerStatusResponse, error)
}

// criOf are the calls of a server. One that is not ours makes no cgroups of pods; swept is why
// those that killed clients have left there were not removed.
func criOf(ctx context.Context, c *dial.Client) (calls cri, swept, err error) {
	if c.Config().StateDir != "" {
		return client.New(c.Conn), nil, nil
	}
	server, err := foreign.New(ctx, c.Conn)
	if err != nil {
		return nil, nil, err
	}
	return server, server.Sweep(ctx), nil
}

// container is one that was created.
type container struct {
	id, name string
	attempt  uint32
	log      *follower
	started  time.Time
	ended    bool
	attached bool // its streams are the command's
}

func newServer(ctx context.Context, r *runner) (*server, error) {
	c, swept, err := criOf(ctx, r.client)
	if err != nil {
		return nil, err
	}
	if swept != nil {
		r.Logger.Warn("failed to remove cgroups that killed clients have left", "error", swept)
	}
	return &server{runner: r, cri: c, state: r.client.Config().StateDir, ends: map[string]*runtime.ContainerStatus{}}, nil
}

// Events tells the agent what happens.
func (s *server) Events(ctx context.Context, f func(*runtime.ContainerEventResponse)) error {
	err := s.cri.Events(ctx, func(e *runtime.ContainerEventResponse) {
		if e == nil {
			s.setAway(time.Time{})
		}
		s.see(e.GetContainersStatuses())
		f(e)
	})
	if ctx.Err() == nil {
		s.setAway(time.Now())
	}
	return err
}

func (s *server) setAway(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.IsZero() || s.away.IsZero() {
		s.away = now
	}
}

func (s *server) awaySince() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// PodSandboxStatus asks for a sandbox and its containers.
func (s *server) PodSandboxStatus(ctx context.Context, q *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	resp, err := s.cri.PodSandboxStatus(ctx, q)
	s.see(resp.GetContainersStatuses())
	return resp, err
}

// RunPodSandbox makes the pod's sandbox.
func (s *server) RunPodSandbox(ctx context.Context, q *runtime.RunPodSandboxRequest) (*runtime.RunPodSandboxResponse, error) {
	started := time.Now()
	resp, err := s.cri.RunPodSandbox(ctx, q)
	if err != nil {
		return resp, err
	}
	took := time.Since(started)
	where := "in the host's network"
	status, err := s.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: resp.GetPodSandboxId()})
	if ip := status.GetStatus().GetNetwork().GetIp(); ip != "" {
		where = "at " + ip
	}
	if err == nil {
		s.say("pod %s/%s is up %s (handler %s, %s)", s.key.Namespace, s.key.Name, where, cmp.Or(q.GetRuntimeHandler(), s.client.DefaultHandler(), "default"), short(took))
	}
	return resp, nil
}

// CreateContainer creates a container and shows its output from then on.
func (s *server) CreateContainer(ctx context.Context, q *runtime.CreateContainerRequest) (*runtime.CreateContainerResponse, error) {
	started := time.Now()
	attached := s.attached.is(q.GetConfig())
	resp, err := s.cri.CreateContainer(ctx, q)
	if err != nil {
		return resp, err
	}
	meta := q.GetConfig().GetMetadata()
	prefix := ""
	if pod := s.pod; len(pod.Spec.InitContainers)+len(pod.Spec.Containers) > 1 {
		prefix = meta.GetName()
	}
	c := &container{id: resp.GetContainerId(), name: meta.GetName(), attempt: meta.GetAttempt(), started: started, attached: attached}
	log := &rotated{
		path: filepath.Join(q.GetSandboxConfig().GetLogDirectory(), q.GetConfig().GetLogPath()), max: maxLog,
		reopen: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
			defer cancel()
			_, err := s.ReopenContainerLog(ctx, &runtime.ReopenContainerLogRequest{ContainerId: c.id})
			return err
		},
		problem: func(text string) { s.say("container %s: %s", c.name, text) },
	}
	c.log = follow(log, prefix, s.shown(c, s.Stdout), s.shown(c, s.Stderr), s.hangup)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers = append(s.containers, c)
	return resp, nil
}

// shown is where the log of a container is shown: not at all if its streams are the command's.
func (s *server) shown(c *container, to io.Writer) io.Writer {
	if c.attached {
		return io.Discard
	}
	return to
}

// StartContainer starts a container.
func (s *server) StartContainer(ctx context.Context, q *runtime.StartContainerRequest) (*runtime.StartContainerResponse, error) {
	c := s.find(q.GetContainerId())
	var over *streamsEnd
	if c != nil && c.attached {
		over = s.attached.expect(ctx)
	}
	resp, err := s.cri.StartContainer(ctx, q)
	if c != nil && err == nil {
		restart := ""
		if c.attempt > 0 {
			restart = fmt.Sprintf(" (restart %d)", c.attempt)
		}
		s.say("container %s started in %s%s", c.name, short(time.Since(c.started)), restart)
	}
	if c != nil && c.attached {
		s.attached.start(c.id, c.name, over, err)
	}
	return resp, err
}

// StopPodSandbox stops a pod's sandbox, but first lets the command's streams end, unless the pod
// is being deleted: the sandbox's shim has what is left of them.
func (s *server) StopPodSandbox(ctx context.Context, q *runtime.StopPodSandboxRequest) (*runtime.StopPodSandboxResponse, error) {
	s.attached.letEnd(ctx)
	return s.cri.StopPodSandbox(ctx, q)
}

// RemoveContainer removes a container whose output was shown.
func (s *server) RemoveContainer(ctx context.Context, q *runtime.RemoveContainerRequest) (*runtime.RemoveContainerResponse, error) {
	if c := s.find(q.GetContainerId()); c != nil {
		s.finishLog(c)
	}
	resp, err := s.cri.RemoveContainer(ctx, q)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.containers = slices.DeleteFunc(s.containers, func(c *container) bool { return c.id == q.GetContainerId() })
	}
	return resp, err
}

func (s *server) find(id string) *container {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.containers, func(c *container) bool { return c.id == id }); i >= 0 {
		return s.containers[i]
	}
	return nil
}

// see notes containers that have ended. It does not wait for whoever reads their output.
func (s *server) see(statuses []*runtime.ContainerStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		for _, status := range statuses {
			if status.GetId() == c.id && status.GetState() == runtime.ContainerState_CONTAINER_EXITED && !c.ended {
				c.ended, s.ends[c.name] = true, status
				s.told.Go(func() { s.sayEnd(c, status) })
			}
		}
	}
}

func (s *server) sayEnd(c *container, status *runtime.ContainerStatus) {
	if c.attached {
		s.attached.wait()
	}
	s.finishLog(c)
	ran := time.Duration(status.GetFinishedAt() - status.GetStartedAt())
	text := fmt.Sprintf("container %s ended with code %d", c.name, status.GetExitCode())
	if reason := status.GetReason(); reason != "" {
		text += " (" + reason + ")"
	}
	if status.GetStartedAt() > 0 && ran >= 0 {
		text += " after " + short(ran)
	}
	if m := status.GetMessage(); m != "" {
		text += ": " + m
	}
	s.say("%s", text)
}

// stopAll stops what runs of a pod that is kept, at once on a signal.
func (s *server) stopAll(grace time.Duration) {
	asked, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	s.mu.Lock()
	all := slices.DeleteFunc(slices.Clone(s.containers), func(c *container) bool { return c.ended })
	s.mu.Unlock()
	var stops sync.WaitGroup
	for _, c := range all {
		stops.Go(func() {
			_, err := s.StopContainer(asked, &runtime.StopContainerRequest{ContainerId: c.id, Timeout: int64(grace / time.Second)})
			ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
			defer cancel()
			if asked.Err() != nil {
				s.say("stopping at once")
				_, err = s.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: c.id})
			}
			if err != nil {
				s.Logger.Warn("failed to stop container", "container", c.name, "error", err)
			}
			if resp, err := s.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: c.id}); err == nil {
				s.see([]*runtime.ContainerStatus{resp.GetStatus()})
			}
		})
	}
	stops.Wait()
}

// drain writes what the logs still hold and ends following them.
func (s *server) drain() {
	s.attached.leave()
	s.told.Wait()
	s.mu.Lock()
	all := slices.Clone(s.containers)
	s.mu.Unlock()
	for _, c := range all {
		s.finishLog(c)
	}
}

// finishLog writes what a log still holds. That nobody reads it any more has ended the run; output
// that could not be written has failed it.
func (s *server) finishLog(c *container) {
	err := c.log.finish()
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = fmt.Errorf("write output of container %q: %w", c.name, err)
	}
}

// codes are the exit codes that count, in the order of the containers' ends: those of the last runs
// of the app containers, and of init containers that failed. Sidecars have no end of their own.
func (s *server) codes(pod *corev1.Pod) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ends []*runtime.ContainerStatus
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if end := s.ends[c.Name]; end.GetExitCode() != 0 && !runtimeclass.IsSidecar(c) {
			ends = append(ends, end)
		}
	}
	for _, c := range pod.Spec.Containers {
		if end := s.ends[c.Name]; end != nil {
			ends = append(ends, end)
		}
	}
	slices.SortStableFunc(ends, func(a, b *runtime.ContainerStatus) int { return cmp.Compare(a.GetFinishedAt(), b.GetFinishedAt()) })
	var codes []int
	for _, end := range ends {
		code := int(end.GetExitCode())
		if end.GetReason() == startError {
			code = startCode(end.GetMessage())
		}
		codes = append(codes, code)
	}
	return codes
}

// startError is the reason of a container whose program was not started.
const startError = "StartError"

// startCode is the exit code for a program that was not started, as docker run has it. Nothing but
// the OCI runtime's text, which differs between runtimes, tells why it was not.
func startCode(message string) int {
	message = strings.ToLower(message)
	has := func(text string) bool { return strings.Contains(message, text) }
	switch {
	case has("executable file") && has("not found"), has("exec") && has("no such file or directory"), has("command ") && has("is not in the image"):
		return usage.NotFound
	case has("exec") && (has("permission denied") || has("exec format error")), has("is a directory"):
		return usage.NotExecutable
	}
	return usage.Failed
}

// PullImage pulls an image and shows how far it is. The server's socket for images tells that; a
// server that has none, and a pull with credentials, are without.
func (s *server) PullImage(ctx context.Context, q *runtime.PullImageRequest) (*runtime.PullImageResponse, error) {
	name, started := q.GetImage().GetImage(), time.Now()
	s.say("pulling %s", name)
	resp, err := s.pull(ctx, q)
	if err == nil {
		s.say("pulled %s in %s (%.19s)", name, short(time.Since(started)), resp.GetImageRef())
	}
	return resp, err
}

func (s *server) pull(ctx context.Context, q *runtime.PullImageRequest) (*runtime.PullImageResponse, error) {
	if q.GetAuth() == nil && s.state != "" {
		if store, err := control.Connect(ctx, filepath.Join(s.state, "images.sock")); err == nil {
			defer store.Close()
			progress := show.NewProgress(s.terminal, "sunaba: "+q.GetImage().GetImage())
			img, err := store.Pull(ctx, images.PullRequest{
				Ref: q.GetImage().GetImage(), Handler: q.GetImage().GetRuntimeHandler(),
				Namespace: q.GetSandboxConfig().GetMetadata().GetNamespace(), Progress: progress.Show,
			})
			progress.End()
			return &runtime.PullImageResponse{ImageRef: img.ID}, err
		}
	}
	return s.cri.PullImage(ctx, q)
}
