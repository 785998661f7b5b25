package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/cycle"
)

// The back-offs that a flapping node must keep to: BO1, BO4, IM9, VO1.
const (
	crashFirst, crashLongest = 10 * time.Second, 300 * time.Second
	pullFirst, pullLongest   = 10 * time.Second, 300 * time.Second
	forgiven                 = 600 * time.Second
)

// flaky is the server of a node on which everything fails at times. It judges what it is asked:
// whether a try comes before its time, and whether an attempt is made twice.
type flaky struct {
	*server
	d *day
}

// wall is the last failure of a kind, and how long the agent has to wait after it.
type wall struct {
	at    time.Time
	delay time.Duration
}

// made is what was on record when a container was made.
type made struct {
	attempt uint32
	box     *box
	backOff cycle.BackOff
	sandbox string
	edit    string // when its pod was edited last
	started bool
}

// lost has the answer of a call that arrived reach nobody, at times.
func (f *flaky) lost(call string) error {
	if f.d.chance(&f.d.sick, 0.1) {
		return fmt.Errorf("the answer of %s was lost: %w", call, errdefs.ErrUnavailable)
	}
	return nil
}

func (f *flaky) RunPodSandbox(ctx context.Context, r *runtime.RunPodSandboxRequest) (*runtime.RunPodSandboxResponse, error) {
	a, err := f.server.RunPodSandbox(ctx, r)
	if err == nil {
		err = f.lost("RunPodSandbox")
	}
	return a, err
}

func (f *flaky) CreateContainer(ctx context.Context, r *runtime.CreateContainerRequest) (*runtime.CreateContainerResponse, error) {
	a, err := f.server.CreateContainer(ctx, r)
	if err != nil {
		return a, err
	}
	f.d.mu.Lock()
	f.d.asked[a.ContainerId] = r
	f.d.mu.Unlock()
	return a, f.lost("CreateContainer")
}

func (f *flaky) StartContainer(ctx context.Context, r *runtime.StartContainerRequest) (*runtime.StartContainerResponse, error) {
	f.d.mu.Lock()
	asked := f.d.asked[r.ContainerId]
	delete(f.d.asked, r.ContainerId)
	f.d.mu.Unlock()
	if asked != nil {
		f.d.make(asked, r.ContainerId)
	}
	a, err := f.server.StartContainer(ctx, r)
	if err != nil {
		return a, err
	}
	f.d.start(r.ContainerId)
	return a, f.lost("StartContainer")
}

func (f *flaky) StopContainer(ctx context.Context, r *runtime.StopContainerRequest) (*runtime.StopContainerResponse, error) {
	a, err := f.server.StopContainer(ctx, r)
	if err == nil {
		err = f.lost("StopContainer")
	}
	return a, err
}

func (f *flaky) RemoveContainer(ctx context.Context, r *runtime.RemoveContainerRequest) (*runtime.RemoveContainerResponse, error) {
	a, err := f.server.RemoveContainer(ctx, r)
	if err == nil {
		err = f.lost("RemoveContainer")
	}
	return a, err
}

func (f *flaky) RemovePodSandbox(ctx context.Context, r *runtime.RemovePodSandboxRequest) (*runtime.RemovePodSandboxResponse, error) {
	a, err := f.server.RemovePodSandbox(ctx, r)
	if err == nil {
		err = f.lost("RemovePodSandbox")
	}
	return a, err
}

// PullImage judges that no try comes before the pause after the failure before it.
func (f *flaky) PullImage(ctx context.Context, r *runtime.PullImageRequest) (*runtime.PullImageResponse, error) {
	key := r.GetSandboxConfig().GetMetadata().GetUid() + " " + r.GetImage().GetImage()
	f.d.try("pull of "+key, f.d.pulls, key)
	a, err := f.server.PullImage(ctx, r)
	if ctx.Err() == nil {
		f.d.tried(f.d.pulls, key, err, pullFirst, pullLongest)
	}
	return a, err
}

// try checks that the wall before a try has fallen.
func (d *day) try(what string, walls map[string]wall, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tries++
	if w, found := walls[key]; found && time.Since(w.at) < w.delay {
		d.t.Errorf("%s: %s after a failure, want a pause of %s", what, time.Since(w.at), w.delay)
	}
}

func (d *day) tried(walls map[string]wall, key string, err error, first, longest time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := walls[key]
	switch {
	case err == nil:
		delete(walls, key)
		return
	case w.delay == 0 || time.Since(w.at) > forgiven:
		w.delay = first
	default:
		w.delay = min(2*w.delay, longest)
	}
	w.at = time.Now()
	walls[key] = w
	d.failures++
}

// make judges the start of a container, before it: it comes after its back-off, which grows, and
// its attempt never started before. By then the attempt is on record.
func (d *day) make(r *runtime.CreateContainerRequest, id string) {
	uid, name, attempt := r.SandboxConfig.Metadata.Uid, r.Config.Metadata.Name, r.Config.Metadata.Attempt
	data, err := os.ReadFile(filepath.Join(d.dir, "pods", uid, "pod.json"))
	var rec records.Record
	if err == nil {
		err = json.Unmarshal(records.Last(data), &rec)
	}
	if err != nil || rec.Containers[name] == nil {
		d.t.Errorf("container %s was made without a record: %v", name, err)
		return
	}
	d.server.mu.Lock()
	now := &made{attempt: attempt, box: d.server.containers[id], backOff: rec.Containers[name].BackOff, sandbox: r.PodSandboxId, edit: rec.Pod.Annotations[seenAnnotation]}
	d.server.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	key := uid + " " + name
	before := d.made[key]
	d.made[key], d.byID[id] = now, now
	if before == nil {
		return
	}
	if before.started && attempt <= before.attempt {
		d.t.Errorf("container %s: attempt %d is made after attempt %d had started: a restart is not counted", key, attempt, before.attempt)
	}
	d.judgeBackOff(key, before, now)
}

// judgeBackOff looks at a container that crashed by itself in this sandbox and is made again. An
// edit of its pod ended its back-off (BO8).
func (d *day) judgeBackOff(key string, before, now *made) {
	d.server.mu.Lock()
	crashed, code, end := before.box.State == runtime.ContainerState_CONTAINER_EXITED, before.box.ExitCode, time.Unix(0, before.box.FinishedAt)
	d.server.mu.Unlock()
	if !crashed || code == 137 || code == 143 || code == 255 || before.sandbox != now.sandbox || before.edit != now.edit || before.attempt+1 != now.attempt {
		return
	}
	b := before.backOff
	live := b.Delay > 0 && end.Sub(b.Since) <= forgiven
	want := crashFirst
	if live {
		want = min(2*b.Delay, crashLongest)
	}
	if now.backOff.Delay != want {
		d.t.Errorf("container %s, attempt %d: the back-off is %s after %s, want %s", key, now.attempt, now.backOff.Delay, b.Delay, want)
	}
	if waited := time.Since(end); live && waited < b.Delay {
		d.t.Errorf("container %s, attempt %d is made %s after a crash, want a back-off of %s", key, now.attempt, waited, b.Delay)
	}
	d.restarts++
}

func (d *day) start(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.byID[id]; m != nil {
		m.started = true
	}
	delete(d.byID, id)
}

// fails is the weather: what a call fails with before it does anything.
func (d *day) fails(call, _ string) error {
	switch call {
	case "PullImage":
		if d.chance(&d.registry, 1) {
			return fmt.Errorf("the registry does not answer: %w", errdefs.ErrUnavailable)
		}
	case "RunPodSandbox":
		if d.chance(&d.network, 1) {
			return fmt.Errorf("no address: %w", errdefs.ErrUnavailable)
		}
	case "Events", "ListPodSandbox":
		if d.chance(&d.sick, 0.7) {
			return errdefs.ErrUnavailable
		}
	}
	if d.chance(&d.sick, 0.2) {
		return fmt.Errorf("%s failed: %w", call, errdefs.ErrInternal)
	}
	return nil
}

// full is the error of a disk that is full at the moment, nil of one that is not.
func (d *day) full() error {
	if d.chance(&d.disk, 1) {
		d.mu.Lock()
		d.refused++
		d.mu.Unlock()
		return fmt.Errorf("write: %w", syscall.ENOSPC)
	}
	return nil
}
