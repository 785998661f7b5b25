// Package worker executes the actions that cycle.Next asks for: it makes and removes the sandboxes,
// containers and files of pods, pulls images and runs hooks.
package worker

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/pods/agent/images"
	"github.com/sunaba-project/sunaba/pods/agent/logs"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/translate"
	"github.com/sunaba-project/sunaba/pods/volumes"
)

// soon is when something is retried that another request does at the moment.
const soon = time.Second

// shortage is when something is retried for which there was no room.
const shortage = 10 * time.Second

// CRI are the calls that are needed of a CRI server. Its errors are of errdefs' classes.
type CRI interface {
	images.CRI
	RunPodSandbox(context.Context, *runtime.RunPodSandboxRequest) (*runtime.RunPodSandboxResponse, error)
	StopPodSandbox(context.Context, *runtime.StopPodSandboxRequest) (*runtime.StopPodSandboxResponse, error)
	RemovePodSandbox(context.Context, *runtime.RemovePodSandboxRequest) (*runtime.RemovePodSandboxResponse, error)
	ListPodSandbox(context.Context, *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error)
	// PodSandboxStatus answers with the statuses of all containers of the sandbox too.
	PodSandboxStatus(context.Context, *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error)
	CreateContainer(context.Context, *runtime.CreateContainerRequest) (*runtime.CreateContainerResponse, error)
	StartContainer(context.Context, *runtime.StartContainerRequest) (*runtime.StartContainerResponse, error)
	StopContainer(context.Context, *runtime.StopContainerRequest) (*runtime.StopContainerResponse, error)
	RemoveContainer(context.Context, *runtime.RemoveContainerRequest) (*runtime.RemoveContainerResponse, error)
	UpdateContainerResources(context.Context, *runtime.UpdateContainerResourcesRequest) (*runtime.UpdateContainerResourcesResponse, error)
	UpdatePodSandboxResources(context.Context, *runtime.UpdatePodSandboxResourcesRequest) (*runtime.UpdatePodSandboxResourcesResponse, error)
	PodSandboxStats(context.Context, *runtime.PodSandboxStatsRequest) (*runtime.PodSandboxStatsResponse, error)
	ExecSync(context.Context, *runtime.ExecSyncRequest) (*runtime.ExecSyncResponse, error)
}

// Volumes makes the files of pods: a *volumes.Manager.
type Volumes interface {
	SetUp(context.Context, *corev1.Pod) error
	Mounts(*corev1.Pod, *corev1.Container, volumes.MountInput) (mounts []*runtime.Mount, release func(), err error)
	TerminationLog(uid, container string, attempt uint32) (path string, err error)
	WriteHosts(uid string, content []byte) (path string, err error)
	TearDown(uid string) error
}

// Options configure New.
type Options struct {
	CRI     CRI
	Volumes Volumes
	Images  *images.Manager
	// Logs is the folder of the logs of all pods, Mark the agent's mark.
	Logs, Mark string
	// RecursiveReadOnly says that the node can mount so.
	RecursiveReadOnly bool
	// UserAgent follows "kube-lifecycle/" in the requests of hooks.
	UserAgent string
	// Tell records an event about a pod, or about one of its containers.
	Tell func(pod *corev1.Pod, container, kind, reason, message string)
	// Go runs a function beside the jobs, with a context that ends with the agent.
	Go  func(func(context.Context))
	Now func() time.Time
	// Text is how people read an error of the server; nil is the error's own.
	Text func(error) string
	// Tracer records each job; nil for nobody.
	Tracer trace.Tracer
}

// Job is an action with what a worker needs to know of its pod. Nothing in it changes.
type Job struct {
	cycle.Action
	translate.Input
	// Asked is the turn of what was observed when the job was made.
	Asked uint64
	// Logs are the logs of the containers that RemoveContainer and RemoveSandbox remove, by id.
	Logs map[string]string
	// Ended is closed when the container of a hook ends.
	Ended <-chan struct{}
	// Recorded is closed when the pod's record is written, without which no container is started;
	// nil if it is.
	Recorded <-chan struct{}
	// Lacks is why no sandbox can be made: the pod's user ids are another's, and all are in use.
	Lacks error
}

// attempt is that of the action.
func (j Job) attempt() uint32 { return j.Action.Attempt }

// Done is how a job ended, and what is known of the pod afterwards.
type Done struct {
	cycle.Result
	Asked    uint64
	Statuses []*runtime.PodSandboxStatusResponse
	Removed  []string // ids
}

// Worker executes jobs. Its methods may be called at the same time.
type Worker struct {
	o Options
	// slots bounds how many sandboxes and containers are made at once.
	slots chan struct{}

	mu   sync.Mutex
	held map[string]map[string]func() // what mounts hold, by pod and container id
	// fetching ends the pulls ahead of a pod.
	fetching map[string]context.CancelFunc
}

// New returns a worker that has done nothing yet.
func New(o Options) *Worker {
	if o.Text == nil {
		o.Text = error.Error
	}
	return &Worker{o: o, slots: make(chan struct{}, goruntime.GOMAXPROCS(0)), held: map[string]map[string]func(){}, fetching: map[string]context.CancelFunc{}}
}

// Do executes a job and answers how it ended.
func (w *Worker) Do(ctx context.Context, j Job) Done {
	d := Done{Result: cycle.Result{Action: j.Action}, Asked: j.Asked}
	ctx, span := w.startSpan(ctx, j)
	err := w.do(ctx, j, &d)
	span.End(err)
	d.At = w.o.Now()
	w.judge(&d, err)
	return d
}

// startSpan starts the span of a job, with the names of what it is about.
func (w *Worker) startSpan(ctx context.Context, j Job) (context.Context, trace.Span) {
	if w.o.Tracer == nil {
		return ctx, trace.Span{}
	}
	ctx, span := trace.Root(ctx, w.o.Tracer, "pods/"+string(j.Verb), trace.Internal, nil)
	span.Text(trace.PodName, j.Pod.Name)
	span.Text(trace.PodNamespace, j.Pod.Namespace)
	span.Text(trace.PodUID, string(j.Pod.UID))
	span.Text(trace.ContainerName, j.Container)
	span.Text(trace.Handler, j.Handler)
	return ctx, span
}

func (w *Worker) do(ctx context.Context, j Job, d *Done) (err error) {
	switch j.Verb {
	case cycle.SetUpVolumes:
		err = w.setUpVolumes(ctx, j)
	case cycle.RunSandbox:
		err = w.runSandbox(ctx, j, d)
	case cycle.StopSandbox:
		_, err = w.o.CRI.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: j.ID})
		err = w.look(ctx, j.ID, d, err)
	case cycle.RemoveSandbox:
		err = w.removeSandbox(ctx, j, d)
	case cycle.StartContainer:
		err = w.startContainer(ctx, j, d)
	case cycle.PullImage:
		_, err = w.image(ctx, j)
	case cycle.RunPostStart, cycle.RunPreStop:
		err = w.hook(ctx, j)
	case cycle.StopContainer:
		_, err = w.o.CRI.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: j.ID, Timeout: int64((j.Grace + time.Second - 1) / time.Second)})
		err = w.look(ctx, j.SandboxID, d, err)
	case cycle.RemoveContainer:
		err = w.removeContainer(ctx, j, d)
	case cycle.TearDown:
		err = w.tearDown(j)
	default:
		err = fmt.Errorf("execute action %q: it is not known: %w", j.Verb, errdefs.ErrNotImplemented)
	}
	return err
}

// judge puts an error into the words of a result.
func (w *Worker) judge(d *Done, err error) {
	if err == nil {
		return
	}
	var image *images.Error
	var config *translate.ConfigError
	var step *stepError
	d.Reason = cycle.Reason{Reason: "Failed" + string(d.Verb), Message: w.o.Text(err)}
	switch {
	case errors.As(err, &image):
		d.Reason.Reason, d.Message, d.Delay = image.Reason, image.Message, image.Retry
		d.Wait = image.Retry == 0 && image.Reason != images.ErrImageNeverPull // which an import ends
	case errors.As(err, &config):
		d.Reason.Reason, d.Wait = config.Reason, errdefs.IsNotFound(err)
	case errors.As(err, &step):
		d.Reason.Reason, d.Message, d.Delay = step.reason, w.o.Text(step.error), step.delay
	case d.Verb == cycle.RunSandbox && errdefs.IsUnavailable(err):
		d.Reason.Reason = "NetworkNotReady"
	case d.Verb == cycle.SetUpVolumes:
		d.Reason.Reason = "FailedMount"
	}
}

// stepError is the failure of one step of a start, with the reason of the container that waits.
type stepError struct {
	reason string
	delay  time.Duration
	error
}

// Unwrap is the cause.
func (e *stepError) Unwrap() error { return e.error }

// look adds what is known of a sandbox now. err is that of the call before: a sandbox or container
// that is not there any more is none.
func (w *Worker) look(ctx context.Context, sandbox string, d *Done, err error) error {
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if sandbox == "" {
		return nil
	}
	status, err := w.o.CRI.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if errdefs.IsNotFound(err) {
		d.Removed = append(d.Removed, sandbox)
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for sandbox %q: %w", sandbox, err)
	}
	d.Statuses = append(d.Statuses, status)
	return nil
}

func (w *Worker) setUpVolumes(ctx context.Context, j Job) error {
	if err := w.o.Volumes.SetUp(ctx, j.Pod); err != nil {
		return err
	}
	dir, err := translate.LogDirectory(w.o.Logs, j.Pod)
	if err != nil {
		return err
	}
	return logs.Make(dir, w.o.Mark)
}

// runSandbox makes a sandbox. One of the same attempt that is there was made by an agent that was
// killed.
func (w *Worker) runSandbox(ctx context.Context, j Job, d *Done) error {
	if j.Lacks != nil {
		return &stepError{"FailedRunSandbox", shortage, j.Lacks}
	}
	config, notes, err := translate.Sandbox(j.Input)
	if err != nil {
		return err
	}
	for _, n := range notes {
		w.o.Tell(j.Pod, "", corev1.EventTypeWarning, n.Reason, n.Message)
	}
	leave, err := w.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	resp, err := w.o.CRI.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: j.Handler})
	if errdefs.IsAlreadyExists(err) {
		if d.ID = w.sandboxOf(ctx, j); d.ID == "" {
			return &stepError{"FailedRunSandbox", soon, err}
		}
		return w.look(ctx, d.ID, d, nil)
	}
	if err != nil {
		return err
	}
	d.ID = resp.GetPodSandboxId()
	return w.look(ctx, d.ID, d, nil)
}

// sandboxOf is the sandbox of a job's attempt that is there, "" if it cannot be seen yet.
func (w *Worker) sandboxOf(ctx context.Context, j Job) string {
	list, err := w.o.CRI.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{Filter: &runtime.PodSandboxFilter{
		LabelSelector: map[string]string{translate.PodUIDLabel: string(j.Pod.UID)},
	}})
	if err != nil {
		return ""
	}
	for _, s := range list.GetItems() {
		if s.GetMetadata().GetAttempt() == j.attempt() && j.Marked(s.GetAnnotations()) {
			return s.GetId()
		}
	}
	return ""
}

// removeSandbox removes a sandbox, and before it its containers with their logs.
func (w *Worker) removeSandbox(ctx context.Context, j Job, d *Done) error {
	for id, path := range j.Logs {
		if err := w.removeOne(ctx, id, path, d); err != nil {
			return err
		}
	}
	_, err := w.o.CRI.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: j.ID})
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	d.Removed = append(d.Removed, j.ID)
	return nil
}

func (w *Worker) removeContainer(ctx context.Context, j Job, d *Done) error {
	return w.removeOne(ctx, j.ID, j.Logs[j.ID], d)
}

// removeOne removes a container and its log.
func (w *Worker) removeOne(ctx context.Context, id, path string, d *Done) error {
	if _, err := w.o.CRI.RemoveContainer(ctx, &runtime.RemoveContainerRequest{ContainerId: id}); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	d.Removed = append(d.Removed, id)
	if !Below(w.o.Logs, path) {
		return nil
	}
	return logs.RemoveFile(path)
}

// tearDown removes the files of a pod whose containers and sandboxes were removed. Its cgroup was
// removed with the sandbox.
func (w *Worker) tearDown(j Job) error {
	w.Release(string(j.Pod.UID))
	if err := w.o.Volumes.TearDown(string(j.Pod.UID)); err != nil {
		return err
	}
	dir, err := translate.LogDirectory(w.o.Logs, j.Pod)
	if errdefs.IsInvalidArgument(err) {
		return nil // a pod without a log folder never ran
	}
	if err != nil {
		return err
	}
	return logs.Remove(dir)
}

// enter waits for a slot.
func (w *Worker) enter(ctx context.Context) (leave func(), err error) {
	select {
	case w.slots <- struct{}{}:
		return func() { <-w.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
