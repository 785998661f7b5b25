package worker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent/images"
	"github.com/sunaba-project/sunaba/pods/translate"
	"github.com/sunaba-project/sunaba/pods/volumes"
)

// Reasons of containers that wait after a step of their start failed.
const (
	createConfigError = "CreateContainerConfigError"
	createError       = "CreateContainerError"
	runError          = "RunContainerError"
)

// startContainer pulls, creates and starts a container (SO2).
func (w *Worker) startContainer(ctx context.Context, j Job, d *Done) error {
	c, ephemeral := Container(j.Pod, j.Container)
	if c == nil {
		return &stepError{reason: createConfigError, error: fmt.Errorf("start container %q: the pod has none of this name: %w", j.Container, errdefs.ErrNotFound)}
	}
	image, err := w.image(ctx, j)
	if err != nil {
		return err
	}
	w.prefetch(j)
	o := translate.ContainerInput{Attempt: j.attempt(), Image: image, ImageRef: image.GetId(), Ephemeral: ephemeral != nil}
	if ephemeral != nil && ephemeral.TargetContainerName != "" {
		if o.TargetID, err = w.target(ctx, j, ephemeral.TargetContainerName); err != nil {
			return err
		}
	}
	shown, err := w.imageVolumes(ctx, j, c)
	if err != nil {
		return err
	}
	leave, err := w.enter(ctx)
	if err != nil {
		return err
	}
	defer func() { leave() }()
	release, err := w.prepare(&j, c, &o, shown)
	if err != nil {
		return err
	}
	id, err := w.create(ctx, j, c, o)
	if err != nil {
		release()
		return errors.Join(err, w.look(ctx, j.SandboxID, d, nil))
	}
	w.hold(string(j.Pod.UID), id, release)
	d.ID = id
	if leave, err = w.recorded(ctx, j, leave); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	starting, started := whole(ctx)
	defer started()
	if _, err = w.o.CRI.StartContainer(starting, &runtime.StartContainerRequest{ContainerId: id}); err != nil {
		err = &stepError{reason: runError, error: err}
	} else {
		w.o.Tell(j.Pod, c.Name, corev1.EventTypeNormal, "Started", "Container started")
	}
	return errors.Join(err, w.look(starting, j.SandboxID, d, nil))
}

// cutStart is how much longer a start has once nobody waits for it. A service has 90 s for its
// end.
const cutStart = 5 * time.Second

// whole returns a context for a start, which ends some time after ctx: a start that is cut off
// fails the container whatever its program did.
func whole(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(cutStart, cancel) })
	return longer, func() { stop(); cancel() }
}

// recorded waits until the pod's record is written, without the slot that leave gives back: a full
// disk may take long. The slot is taken again after it.
func (w *Worker) recorded(ctx context.Context, j Job, leave func()) (func(), error) {
	if j.Recorded == nil {
		return leave, nil
	}
	select {
	case <-j.Recorded:
		return leave, nil
	default:
	}
	leave()
	select {
	case <-j.Recorded:
	case <-ctx.Done():
		return func() {}, ctx.Err()
	}
	leave, err := w.enter(ctx)
	if err != nil {
		return func() {}, err
	}
	return leave, nil
}

// image gets the image of a container by its pull policy.
func (w *Worker) image(ctx context.Context, j Job) (*runtime.Image, error) {
	c, _ := Container(j.Pod, j.Container)
	if c == nil {
		return nil, &stepError{reason: createConfigError, error: fmt.Errorf("pull image of container %q: the pod has none of this name: %w", j.Container, errdefs.ErrNotFound)}
	}
	return w.pull(ctx, j, c.Name, c.Image, c.ImagePullPolicy)
}

func (w *Worker) pull(ctx context.Context, j Job, container, image string, policy corev1.PullPolicy) (*runtime.Image, error) {
	r, err := w.request(j, container, image, policy)
	if err != nil {
		return nil, err
	}
	return w.o.Images.Ensure(ctx, r)
}

func (w *Worker) request(j Job, container, image string, policy corev1.PullPolicy) (images.Request, error) {
	sandbox, _, err := translate.Sandbox(j.Input)
	return images.Request{
		Pod: j.Pod, Image: image, Handler: j.Handler, Policy: policy, Sandbox: sandbox,
		Tell: func(kind, reason, message string) { w.o.Tell(j.Pod, container, kind, reason, message) },
	}, err
}

// target is the running container whose processes an ephemeral container sees (EP4).
func (w *Worker) target(ctx context.Context, j Job, name string) (string, error) {
	status, err := w.o.CRI.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: j.SandboxID})
	if err != nil {
		return "", fmt.Errorf("ask for sandbox %q: %w", j.SandboxID, err)
	}
	for _, c := range status.GetContainersStatuses() {
		if c.GetMetadata().GetName() == name && c.GetState() == runtime.ContainerState_CONTAINER_RUNNING {
			return c.GetId(), nil
		}
	}
	return "", &stepError{reason: createConfigError, error: fmt.Errorf("unable to find target container %q: it does not run: %w", name, errdefs.ErrFailedPrecondition)}
}

// prepare makes what the configuration of a container names: mounts, the termination log and the
// hosts file. release ends what the mounts hold.
func (w *Worker) prepare(j *Job, c *corev1.Container, o *translate.ContainerInput, shown map[string]*runtime.ImageSpec) (release func(), err error) {
	environment, err := translate.Environment(j.Input, c)
	if err != nil {
		return nil, err
	}
	for _, n := range translate.EnvironmentNotes(j.Input, c) {
		w.o.Tell(j.Pod, c.Name, corev1.EventTypeWarning, n.Reason, n.Message)
	}
	in := volumes.MountInput{
		Environment: translate.Variables(environment), UserNamespace: j.UserNamespace,
		RecursiveReadOnly: w.o.RecursiveReadOnly, Images: shown,
	}
	uid := string(j.Pod.UID)
	if content := translate.HostsFile(j.Input); content != nil {
		if j.Hosts, err = w.o.Volumes.WriteHosts(uid, content); err != nil {
			return nil, &stepError{reason: createConfigError, error: err}
		}
	}
	if c.TerminationMessagePath != "" {
		if o.TerminationLog, err = w.o.Volumes.TerminationLog(uid, c.Name, o.Attempt); err != nil {
			return nil, &stepError{reason: createConfigError, error: err}
		}
	}
	if o.Mounts, release, err = w.o.Volumes.Mounts(j.Pod, c, in); err != nil {
		return nil, &translate.ConfigError{Reason: createConfigError, Err: err}
	}
	return release, nil
}

// imageVolumes gets the images of the volumes that a container mounts (VO14).
func (w *Worker) imageVolumes(ctx context.Context, j Job, c *corev1.Container) (map[string]*runtime.ImageSpec, error) {
	var specs map[string]*runtime.ImageSpec
	for i := range j.Pod.Spec.Volumes {
		v := &j.Pod.Spec.Volumes[i]
		if v.Image == nil || !mounted(c, v.Name) {
			continue
		}
		image, err := w.pull(ctx, j, "", v.Image.Reference, v.Image.PullPolicy)
		if err != nil {
			return nil, err
		}
		if specs == nil {
			specs = map[string]*runtime.ImageSpec{}
		}
		specs[v.Name] = &runtime.ImageSpec{Image: image.GetId(), UserSpecifiedImage: v.Image.Reference, RuntimeHandler: j.Handler}
	}
	return specs, nil
}

func mounted(c *corev1.Container, volume string) bool {
	for _, m := range c.VolumeMounts {
		if m.Name == volume {
			return true
		}
	}
	return false
}

// create creates a container. One of the same attempt that was created by an agent that was killed
// is taken for it.
func (w *Worker) create(ctx context.Context, j Job, c *corev1.Container, o translate.ContainerInput) (id string, err error) {
	config, err := translate.Container(j.Input, c, o)
	if err != nil {
		return "", err
	}
	sandbox, _, err := translate.Sandbox(j.Input)
	if err != nil {
		return "", err
	}
	resp, err := w.o.CRI.CreateContainer(ctx, &runtime.CreateContainerRequest{PodSandboxId: j.SandboxID, Config: config, SandboxConfig: sandbox})
	if errdefs.IsAlreadyExists(err) {
		return "", &stepError{reason: createError, delay: soon, error: err}
	}
	if err != nil {
		return "", &stepError{reason: createError, error: err}
	}
	w.o.Tell(j.Pod, c.Name, corev1.EventTypeNormal, "Created", "Container created")
	return resp.GetContainerId(), nil
}

// hold keeps what a container's mounts need until it ends.
func (w *Worker) hold(uid, id string, release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[uid] == nil {
		w.held[uid] = map[string]func(){}
	}
	w.held[uid][id] = release
}

// Ended ends what mounts hold of the containers of a pod that have ended.
func (w *Worker) Ended(uid string, ended func(container string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, release := range w.held[uid] {
		if ended(id) {
			delete(w.held[uid], id)
			release()
		}
	}
}

// Release ends what mounts hold of all containers of a pod, and pulls ahead of them.
func (w *Worker) Release(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, release := range w.held[uid] {
		release()
	}
	delete(w.held, uid)
	if cancel := w.fetching[uid]; cancel != nil {
		cancel()
	}
}

// Below says whether a path is in a folder.
func Below(dir, path string) bool {
	rest, err := filepath.Rel(dir, path)
	return path != "" && err == nil && rest != ".." && !strings.HasPrefix(rest, "../")
}

// Container finds a container of the pod by its name, in all of its lists.
func Container(pod *corev1.Pod, name string) (c *corev1.Container, ephemeral *corev1.EphemeralContainer) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i], nil
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if e := &pod.Spec.EphemeralContainers[i]; e.Name == name {
			c := corev1.Container(e.EphemeralContainerCommon)
			return &c, e
		}
	}
	return nil, nil
}
