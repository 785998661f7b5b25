// Package measure is the client behind `sunaba overhead measure`: it runs pods on this node,
// measures what each costs beyond its containers' own work, and makes a RuntimeClass of it.
package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/classes"
	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/units"
	"github.com/sunaba-project/sunaba/criserver/client"
	"github.com/sunaba-project/sunaba/host/clock"
)

// Options say what to run. All but Load and Args are needed.
type Options struct {
	Handler string // "" is the node's default
	Image   string
	Args    []string // instead of the image's command
	Pods    int
	// Idle is how long a pod settles, and how long it is then watched idle; Work how long it is
	// watched at work.
	Idle, Work time.Duration
	// Load is "PORT" or "PORT/PATH" of an HTTP server in the container, which is asked without
	// pause while the pod is watched at work; "" starts and stops further containers in the pod
	// meanwhile.
	Load  string
	Notes io.Writer // what is being done
}

// Figures are what one pod cost.
type Figures struct {
	Start, Idle, Work int64 // the most memory at once in that phase, in bytes
	// IdleCPU and WorkCPU are the CPU rates of idle and work, in thousandths of a core.
	IdleCPU, WorkCPU float64
}

// Memory is the most that the pod cost at any time.
func (f Figures) Memory() int64 { return max(f.Start, f.Idle, f.Work) }

// CPU is the higher of the pod's rates.
func (f Figures) CPU() float64 { return max(f.IdleCPU, f.WorkCPU) }

const (
	namespace = "sunaba-overhead-measure"
	look      = 50 * time.Millisecond // between two samples of a pod that is at work
	settle    = time.Second           // a start is over after it
	undoTime  = time.Minute
)

// Run runs the pods beside one another, started one after another, and measures each. All are
// removed when it returns. others are the most pods that were on the node meanwhile and were not
// made by this run: they share processes and pages with those that are measured, and take CPU time.
//
// # Errors
//
// ErrInvalidArgument for a handler that the server does not have, ErrFailedPrecondition if a
// container ends before it was measured; else those of the server.
func Run(ctx context.Context, c *dial.Client, o Options) (_ []Figures, others int, err error) {
	r := &run{c: c, o: o}
	if err := checkLoad(o.Load); err != nil {
		return nil, 0, err
	}
	if o.Handler != "" {
		if err := r.checkHandler(); err != nil {
			return nil, 0, err
		}
	}
	lookAround := func() error {
		now, err := r.others(ctx)
		if others == 0 && now > 0 {
			fmt.Fprintln(o.Notes, Disturbed(now))
		}
		others = max(others, now)
		return err
	}
	if err := lookAround(); err != nil {
		return nil, 0, err
	}
	if err := r.pull(ctx); err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, r.remove(ctx)) }()
	var all []Figures
	for i := range o.Pods {
		f, err := r.pod(ctx, i)
		if err != nil {
			return nil, 0, fmt.Errorf("measure pod %d of %d: %w", i+1, o.Pods, err)
		}
		if err := lookAround(); err != nil {
			return nil, 0, err
		}
		fmt.Fprintf(o.Notes, "pod %d of %d: start %s, idle %s, work %s\n", i+1, o.Pods, units.Bytes(f.Start), units.Bytes(f.Idle), units.Bytes(f.Work))
		all = append(all, f)
	}
	return all, others, nil
}

// Disturbed says what other pods do to the figures.
func Disturbed(others int) string {
	pods := "1 other pod"
	if others != 1 {
		pods = fmt.Sprintf("%d other pods", others)
	}
	return "warning: the figures are disturbed by " + pods + " on this node, with which those that are measured share memory, so that their part looks smaller," +
		" and CPU time; measure on a node without pods"
}

// others counts the sandboxes that are ready and that this run has not made.
func (r *run) others(ctx context.Context) (int, error) {
	list, err := r.c.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{Filter: &runtime.PodSandboxFilter{
		State: &runtime.PodSandboxStateValue{State: runtime.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return 0, fmt.Errorf("list pods: %w", dial.Native(err))
	}
	n := 0
	for _, s := range list.GetItems() {
		if !slices.Contains(r.sandboxes, s.GetId()) {
			n++
		}
	}
	return n, nil
}

type run struct {
	c         *dial.Client
	o         Options
	sandboxes []string
}

func checkLoad(load string) error {
	port, _, _ := strings.Cut(load, "/")
	if _, err := strconv.ParseUint(port, 10, 16); load != "" && err != nil {
		return fmt.Errorf("load %q is not PORT or PORT/PATH: %w", load, errdefs.ErrInvalidArgument)
	}
	return nil
}

func (r *run) checkHandler() error {
	if slices.Contains(r.c.Handlers(), r.o.Handler) {
		return nil
	}
	return fmt.Errorf("handler %q is not configured on this node (configured: %q): %w", r.o.Handler, r.c.Handlers()[1:], errdefs.ErrInvalidArgument)
}

// pull fetches the image's variant for the handler unless it is there.
func (r *run) pull(ctx context.Context) error {
	spec := &runtime.ImageSpec{Image: r.o.Image, RuntimeHandler: r.o.Handler}
	status, err := r.c.Images.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: spec})
	if err != nil {
		return fmt.Errorf("ask for image %q: %w", r.o.Image, dial.Native(err))
	}
	if status.GetImage() != nil {
		return nil
	}
	fmt.Fprintf(r.o.Notes, "pulling %s\n", r.o.Image)
	if _, err := r.c.Images.PullImage(ctx, &runtime.PullImageRequest{Image: spec}); err != nil {
		return fmt.Errorf("pull image %q: %w", r.o.Image, dial.Native(err))
	}
	return nil
}

// pod runs one pod and leaves it running for those after it.
func (r *run) pod(ctx context.Context, i int) (Figures, error) {
	var f Figures
	config := &runtime.PodSandboxConfig{
		Metadata: &runtime.PodSandboxMetadata{Name: fmt.Sprintf("pod-%d", i), Namespace: namespace, Uid: fmt.Sprintf("%d-%d", time.Now().UnixNano(), i)},
		Linux:    &runtime.LinuxPodSandboxConfig{},
	}
	sandbox, err := r.c.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: r.o.Handler})
	if err != nil {
		return f, fmt.Errorf("run sandbox: %w", dial.Native(err))
	}
	id := sandbox.GetPodSandboxId()
	r.sandboxes = append(r.sandboxes, id)
	container, err := r.start(ctx, id, config, 0)
	if err != nil {
		return f, err
	}
	if f.Start, _, err = r.watch(ctx, id, settle, look); err != nil {
		return f, err
	}
	if err := clock.Sleep(ctx, settle); err != nil { // a pod that is measured is not idle: left alone, it gives memory back
		return f, err
	}
	if f.Idle, f.IdleCPU, err = r.watch(ctx, id, r.o.Idle, r.o.Idle); err != nil {
		return f, err
	}
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- r.work(working, id, config) }()
	f.Work, f.WorkCPU, err = r.watch(ctx, id, r.o.Work, look)
	stop()
	if err := errors.Join(err, <-worked); err != nil {
		return f, err
	}
	return f, r.checkRuns(ctx, container)
}

// start runs a container of the image.
func (r *run) start(ctx context.Context, sandbox string, config *runtime.PodSandboxConfig, attempt uint32) (string, error) {
	created, err := r.c.CreateContainer(ctx, &runtime.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: config,
		Config: &runtime.ContainerConfig{
			Metadata: &runtime.ContainerMetadata{Name: "measured", Attempt: attempt},
			Image:    &runtime.ImageSpec{Image: r.o.Image}, Command: r.o.Args, Annotations: r.ports(attempt),
		},
	})
	if err != nil {
		return "", fmt.Errorf("create container: %w", dial.Native(err))
	}
	if _, err := r.c.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: created.GetContainerId()}); err != nil {
		return "", fmt.Errorf("start container: %w", dial.Native(err))
	}
	return created.GetContainerId(), nil
}

// ports announces the measured container's port, as the kubelet does: a guest is given its
// listener.
func (r *run) ports(attempt uint32) map[string]string {
	port, _, _ := strings.Cut(r.o.Load, "/")
	if port == "" || attempt > 0 {
		return nil
	}
	return map[string]string{"io.kubernetes.container.ports": fmt.Sprintf(`[{"name":"http","containerPort":%s,"protocol":"TCP"}]`, port)}
}

// checkRuns refuses to measure what has ended: its pod costs less than one that works.
func (r *run) checkRuns(ctx context.Context, id string) error {
	status, err := r.c.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return fmt.Errorf("ask for container: %w", dial.Native(err))
	}
	if s := status.GetStatus(); s.GetState() != runtime.ContainerState_CONTAINER_RUNNING {
		return fmt.Errorf("the container ended with %d (%s) before it was measured; choose an image that runs on, as a server does, or give it another command: %w",
			s.GetExitCode(), s.GetReason(), errdefs.ErrFailedPrecondition)
	}
	return nil
}

// watch samples a pod so often: the most memory at once, and the CPU rate.
func (r *run) watch(ctx context.Context, id string, during, every time.Duration) (memory int64, millis float64, err error) {
	started := time.Now()
	var first, last uint64
	for n := 0; ; n++ {
		info, err := classes.Info(ctx, client.New(r.c.Conn), id)
		if err != nil {
			return 0, 0, err
		}
		m := info.Overhead.Measured
		memory, last = max(memory, int64(m.MemoryBytes)), m.CPUNanos
		if n == 0 {
			first, started = last, time.Now()
		}
		if passed := time.Since(started); n > 0 && passed >= during {
			if last < first { // a guest that counted has ended
				first = last
			}
			return memory, float64(last-first) / float64(passed) * 1000, nil
		}
		if err := clock.Sleep(ctx, every); err != nil {
			return 0, 0, err
		}
	}
}

// work keeps a pod busy until ctx ends.
func (r *run) work(ctx context.Context, id string, config *runtime.PodSandboxConfig) error {
	if r.o.Load != "" {
		return r.request(ctx, id)
	}
	for attempt := uint32(1); ctx.Err() == nil; attempt++ {
		whole := context.WithoutCancel(ctx)
		container, err := r.start(whole, id, config, attempt)
		if err != nil {
			return err
		}
		if _, err := r.c.StopContainer(whole, &runtime.StopContainerRequest{ContainerId: container}); err != nil {
			return fmt.Errorf("stop container: %w", dial.Native(err))
		}
		if _, err := r.c.RemoveContainer(whole, &runtime.RemoveContainerRequest{ContainerId: container}); err != nil {
			return fmt.Errorf("remove container: %w", dial.Native(err))
		}
	}
	return nil
}

// request asks the container's server again and again.
func (r *run) request(ctx context.Context, id string) error {
	status, err := r.c.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return fmt.Errorf("ask for the pod's address: %w", dial.Native(err))
	}
	url := loadURL(status.GetStatus().GetNetwork().GetIp(), r.o.Load)
	client := &http.Client{Timeout: 5 * time.Second}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("make request: %w", err)
		}
		resp, err := client.Do(req)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("request %s: %w", url, err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("request %s: %w", url, err)
		}
	}
}

// remove takes all pods away.
func (r *run) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var errs []error
	for _, id := range r.sandboxes {
		if _, err := r.c.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			errs = append(errs, fmt.Errorf("stop pod %q: %w", id, dial.Native(err)))
		}
		if _, err := r.c.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			errs = append(errs, fmt.Errorf("remove pod %q: %w", id, dial.Native(err)))
		}
	}
	return errors.Join(errs...)
}
