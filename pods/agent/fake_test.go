package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/translate"
)

// program is what a container does: it ends by itself after a time with a code, or runs until it is
// stopped if after is negative.
type program struct {
	after time.Duration
	code  int32
	deaf  bool // to the stop signal
}

// server is a CRI server in memory.
type server struct {
	t *testing.T

	mu         sync.Mutex
	serial     int
	sandboxes  map[string]*runtime.PodSandboxStatus
	containers map[string]*box
	images     map[string]bool
	listeners  map[chan *runtime.ContainerEventResponse]chan struct{}
	// programs answers what a container does, by its name and attempt.
	programs func(name string, attempt uint32) program
	// fail answers the error of a call; nil for none.
	fail        func(call, subject string) error
	delay       map[string]time.Duration
	calls       []string
	pulls, most int      // at the moment, and at once at most
	handlers    []string // calls about images of containers, with the handler
	// memory and layers are what containers use, by name, in bytes.
	memory, layers map[string]int64
	// asked checks that the attempt of a sandbox (name "") is on record before it is made, or that
	// of a container before it is started.
	asked func(uid, name string, attempt uint32)
}

// box is a container of the server.
type box struct {
	*runtime.ContainerStatus
	sandbox, uid string
	program      program
	ended        chan struct{}
}

func newServer(t *testing.T) *server {
	return &server{
		t: t, sandboxes: map[string]*runtime.PodSandboxStatus{}, containers: map[string]*box{}, images: map[string]bool{},
		listeners: map[chan *runtime.ContainerEventResponse]chan struct{}{}, delay: map[string]time.Duration{},
		programs: func(string, uint32) program { return program{after: -1} },
	}
}

// enter notes a call and answers the error that was injected. An agent that was killed calls no
// more.
func (s *server) enter(ctx context.Context, call, subject string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	s.calls = append(s.calls, call+" "+subject)
	fail, delay := s.fail, s.delay[call]
	s.mu.Unlock()
	time.Sleep(delay)
	if fail != nil {
		return fail(call, subject)
	}
	return nil
}

// count is how often a call was made.
func (s *server) count(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (s *server) tell(sandbox, id string, kind runtime.ContainerEventType) {
	e := &runtime.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, PodSandboxStatus: s.status(sandbox), ContainersStatuses: s.statuses(sandbox)}
	for l := range s.listeners {
		l <- e
	}
}

func (s *server) status(id string) *runtime.PodSandboxStatus {
	have := s.sandboxes[id]
	return &runtime.PodSandboxStatus{Id: have.Id, Metadata: have.Metadata, State: have.State, CreatedAt: have.CreatedAt,
		Network: have.Network, Linux: have.Linux, Labels: have.Labels, Annotations: have.Annotations}
}

func (s *server) statuses(sandbox string) []*runtime.ContainerStatus {
	var list []*runtime.ContainerStatus
	for _, c := range s.containers {
		if c.sandbox == sandbox {
			h := c.ContainerStatus
			list = append(list, &runtime.ContainerStatus{Id: h.Id, Metadata: h.Metadata, State: h.State, CreatedAt: h.CreatedAt, StartedAt: h.StartedAt,
				FinishedAt: h.FinishedAt, ExitCode: h.ExitCode, Reason: h.Reason, Message: h.Message, Image: h.Image, ImageRef: h.ImageRef, LogPath: h.LogPath, Labels: h.Labels, Annotations: h.Annotations})
		}
	}
	return list
}

func (s *server) Events(ctx context.Context, f func(*runtime.ContainerEventResponse)) error {
	if err := s.enter(ctx, "Events", ""); err != nil {
		return err
	}
	queue, broken := make(chan *runtime.ContainerEventResponse, 4096), make(chan struct{})
	s.mu.Lock()
	s.listeners[queue] = broken
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, queue)
		s.mu.Unlock()
	}()
	f(nil)
	for {
		select {
		case e := <-queue:
			f(e)
		case <-broken:
			return fmt.Errorf("the stream ended: %w", errdefs.ErrUnavailable)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// cut ends all streams of events; what happens before the next subscription is told to nobody.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for queue, broken := range s.listeners {
		close(broken)
		delete(s.listeners, queue)
	}
}

func (s *server) RunPodSandbox(ctx context.Context, r *runtime.RunPodSandboxRequest) (*runtime.RunPodSandboxResponse, error) {
	m := r.GetConfig().GetMetadata()
	if err := s.enter(ctx, "RunPodSandbox", m.GetName()); err != nil {
		return nil, err
	}
	s.asked(m.Uid, "", m.Attempt)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, have := range s.sandboxes {
		if have.Metadata.Uid == m.Uid && have.Metadata.Attempt == m.Attempt {
			return nil, fmt.Errorf("sandbox is %s: %w", id, errdefs.ErrAlreadyExists)
		}
		if have.Metadata.Name == m.Name && have.Metadata.Namespace == m.Namespace && have.State == runtime.PodSandboxState_SANDBOX_READY {
			s.t.Errorf("two sandboxes of pod %s run: %s and a new one of attempt %d", m.Name, id, m.Attempt)
		}
	}
	s.serial++
	id := fmt.Sprintf("sandbox-%d", s.serial)
	s.sandboxes[id] = &runtime.PodSandboxStatus{
		Id: id, Metadata: m, State: runtime.PodSandboxState_SANDBOX_READY, CreatedAt: time.Now().UnixNano(),
		Network: &runtime.PodSandboxNetworkStatus{Ip: fmt.Sprintf("10.88.0.%d", s.serial)}, Labels: r.Config.Labels, Annotations: r.Config.Annotations,
		Linux: &runtime.LinuxPodSandboxStatus{Namespaces: &runtime.Namespace{Options: r.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
	}
	s.tell(id, id, runtime.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtime.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (s *server) StopPodSandbox(ctx context.Context, r *runtime.StopPodSandboxRequest) (*runtime.StopPodSandboxResponse, error) {
	if err := s.enter(ctx, "StopPodSandbox", r.PodSandboxId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.sandboxes[r.PodSandboxId]; have != nil && have.State == runtime.PodSandboxState_SANDBOX_READY {
		for id, c := range s.containers {
			if c.sandbox == r.PodSandboxId {
				s.end(id, 137)
			}
		}
		have.State = runtime.PodSandboxState_SANDBOX_NOTREADY
		s.tell(r.PodSandboxId, r.PodSandboxId, runtime.ContainerEventType_CONTAINER_STOPPED_EVENT)
		s.mu.Unlock()
		err := s.enter(ctx, "network", "") // it is taken down after the sandbox is not ready
		s.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	return &runtime.StopPodSandboxResponse{}, nil
}

func (s *server) RemovePodSandbox(ctx context.Context, r *runtime.RemovePodSandboxRequest) (*runtime.RemovePodSandboxResponse, error) {
	if err := s.enter(ctx, "RemovePodSandbox", r.PodSandboxId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sandboxes[r.PodSandboxId] == nil {
		return &runtime.RemovePodSandboxResponse{}, nil
	}
	for id, c := range s.containers {
		if c.sandbox == r.PodSandboxId {
			s.end(id, 137)
			delete(s.containers, id)
		}
	}
	s.tell(r.PodSandboxId, r.PodSandboxId, runtime.ContainerEventType_CONTAINER_DELETED_EVENT)
	delete(s.sandboxes, r.PodSandboxId)
	return &runtime.RemovePodSandboxResponse{}, nil
}

func (s *server) ListPodSandbox(ctx context.Context, _ *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	if err := s.enter(ctx, "ListPodSandbox", ""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &runtime.ListPodSandboxResponse{}
	for id, have := range s.sandboxes {
		resp.Items = append(resp.Items, &runtime.PodSandbox{Id: id, Metadata: have.Metadata, State: have.State, Labels: have.Labels, Annotations: have.Annotations})
	}
	return resp, nil
}

func (s *server) PodSandboxStatus(ctx context.Context, r *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	if err := s.enter(ctx, "PodSandboxStatus", r.PodSandboxId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sandboxes[r.PodSandboxId] == nil {
		return nil, fmt.Errorf("sandbox %q: %w", r.PodSandboxId, errdefs.ErrNotFound)
	}
	return &runtime.PodSandboxStatusResponse{Status: s.status(r.PodSandboxId), ContainersStatuses: s.statuses(r.PodSandboxId)}, nil
}

func (s *server) CreateContainer(ctx context.Context, r *runtime.CreateContainerRequest) (*runtime.CreateContainerResponse, error) {
	m := r.GetConfig().GetMetadata()
	if err := s.enter(ctx, "CreateContainer", m.GetName()); err != nil {
		return nil, err
	}
	does := s.programs(m.Name, m.Attempt) // takes the lock of its test: before that of the server
	s.mu.Lock()
	defer s.mu.Unlock()
	sandbox := s.sandboxes[r.PodSandboxId]
	if sandbox == nil || sandbox.State != runtime.PodSandboxState_SANDBOX_READY {
		return nil, fmt.Errorf("sandbox %q is not ready: %w", r.PodSandboxId, errdefs.ErrFailedPrecondition)
	}
	for id, c := range s.containers {
		if c.sandbox == r.PodSandboxId && c.Metadata.Name == m.Name && c.Metadata.Attempt == m.Attempt {
			return nil, fmt.Errorf("container is %s: %w", id, errdefs.ErrAlreadyExists)
		}
	}
	s.serial++
	id := fmt.Sprintf("container-%d", s.serial)
	s.containers[id] = &box{
		ContainerStatus: &runtime.ContainerStatus{
			Id: id, Metadata: m, State: runtime.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano(),
			Image: &runtime.ImageSpec{Image: r.Config.Image.UserSpecifiedImage}, ImageRef: "sha256:" + r.Config.Image.Image,
			LogPath: filepath.Join(r.SandboxConfig.LogDirectory, r.Config.LogPath), Labels: r.Config.Labels, Annotations: r.Config.Annotations,
		},
		sandbox: r.PodSandboxId, uid: sandbox.Metadata.Uid, program: does, ended: make(chan struct{}),
	}
	s.tell(r.PodSandboxId, id, runtime.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtime.CreateContainerResponse{ContainerId: id}, nil
}

func (s *server) StartContainer(ctx context.Context, r *runtime.StartContainerRequest) (*runtime.StartContainerResponse, error) {
	s.mu.Lock()
	c := s.containers[r.ContainerId]
	s.mu.Unlock()
	if c == nil {
		return nil, errdefs.ErrNotFound
	}
	if err := s.enter(ctx, "StartContainer", c.Metadata.Name); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		s.t.Errorf("the start of container %s was cut off", c.Metadata.Name)
	}
	s.asked(c.uid, c.Metadata.Name, c.Metadata.Attempt)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.State != runtime.ContainerState_CONTAINER_CREATED {
		return nil, fmt.Errorf("start container %q: it is not created: %w", c.Id, errdefs.ErrFailedPrecondition)
	}
	for id, other := range s.containers {
		if other.uid == c.uid && other.Metadata.Name == c.Metadata.Name && other.State == runtime.ContainerState_CONTAINER_RUNNING {
			s.t.Errorf("two containers %s run: %s and %s", c.Metadata.Name, id, c.Id)
		}
	}
	if err := os.MkdirAll(filepath.Dir(c.LogPath), 0o755); err != nil {
		return nil, fmt.Errorf("start container %q: make log folder: %w", c.Id, err)
	}
	if err := os.WriteFile(c.LogPath, nil, 0o640); err != nil {
		return nil, fmt.Errorf("start container %q: make log: %w", c.Id, err)
	}
	c.State, c.StartedAt = runtime.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	s.tell(c.sandbox, c.Id, runtime.ContainerEventType_CONTAINER_STARTED_EVENT)
	if c.program.after >= 0 {
		time.AfterFunc(c.program.after, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.end(c.Id, c.program.code)
		})
	}
	return &runtime.StartContainerResponse{}, nil
}

// end ends a container that runs. The caller holds s.mu.
func (s *server) end(id string, code int32) {
	c := s.containers[id]
	if c == nil || c.State != runtime.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.State, c.ExitCode, c.FinishedAt = runtime.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano()
	switch c.Reason = "Error"; code {
	case 0:
		c.Reason = "Completed"
	case 255:
		c.Reason = "Unknown" // nobody saw it
	}
	close(c.ended)
	s.tell(c.sandbox, id, runtime.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

func (s *server) StopContainer(ctx context.Context, r *runtime.StopContainerRequest) (*runtime.StopContainerResponse, error) {
	if err := s.enter(ctx, "StopContainer", r.ContainerId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	c := s.containers[r.ContainerId]
	if c != nil && !c.program.deaf && r.Timeout > 0 {
		s.end(c.Id, 143)
	}
	running := c != nil && c.State == runtime.ContainerState_CONTAINER_RUNNING
	s.mu.Unlock()
	if !running {
		return &runtime.StopContainerResponse{}, nil
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Duration(r.Timeout) * time.Second):
		s.mu.Lock()
		s.end(c.Id, 137)
		s.mu.Unlock()
	}
	return &runtime.StopContainerResponse{}, nil
}

func (s *server) RemoveContainer(ctx context.Context, r *runtime.RemoveContainerRequest) (*runtime.RemoveContainerResponse, error) {
	if err := s.enter(ctx, "RemoveContainer", r.ContainerId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[r.ContainerId]; c != nil {
		if c.State == runtime.ContainerState_CONTAINER_RUNNING {
			s.t.Errorf("container %s of %s is removed while it runs", c.Id, c.Metadata.Name)
		}
		delete(s.containers, r.ContainerId)
		s.tell(c.sandbox, c.Id, runtime.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return &runtime.RemoveContainerResponse{}, nil
}

// running are the names and attempts of the containers that run, sorted: "app#1".
func (s *server) running() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, c := range s.containers {
		if c.State == runtime.ContainerState_CONTAINER_RUNNING {
			list = append(list, fmt.Sprintf("%s#%d", c.Metadata.Name, c.Metadata.Attempt))
		}
	}
	slices.Sort(list)
	return list
}

// empty says whether nothing is left.
func (s *server) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sandboxes) == 0 && len(s.containers) == 0
}

// foreign makes a sandbox of somebody else, or of an agent with a mark, with one running container.
func (s *server) foreign(name, uid, mark string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := "sandbox-of-" + name
	s.sandboxes[id] = &runtime.PodSandboxStatus{
		Id: id, Metadata: &runtime.PodSandboxMetadata{Name: name, Namespace: "default", Uid: uid},
		State:       runtime.PodSandboxState_SANDBOX_READY,
		Labels:      map[string]string{translate.PodUIDLabel: uid, translate.PodNameLabel: name, translate.PodNamespaceLabel: "default"},
		Annotations: map[string]string{translate.MarkAnnotation: mark},
	}
	s.containers["container-of-"+name] = &box{
		ContainerStatus: &runtime.ContainerStatus{Id: "container-of-" + name, Metadata: &runtime.ContainerMetadata{Name: name}, State: runtime.ContainerState_CONTAINER_RUNNING},
		sandbox:         id, uid: uid, program: program{after: -1}, ended: make(chan struct{}),
	}
}
