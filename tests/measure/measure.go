// Package measure times what a pod costs: each CRI call of many pods one after another, and the
// memory of idle ones. The demo and the benchmark print what it finds.
package measure

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// Calls are the CRI calls of one pod's life, in order.
var Calls = []string{
	"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox",
}

// Workload is what runs in a measured pod: an image that is on the node and that sleeps when it is
// run with these.
type Workload struct {
	Handler       string
	Image         string
	Command, Args []string
}

// Times are the times of each call, in the order of the pods.
type Times map[string][]time.Duration

// Quantile is the q-th part of a call's times, 0.5 the median.
func (t Times) Quantile(call string, q float64) time.Duration {
	times := slices.Sorted(slices.Values(t[call]))
	if len(times) == 0 {
		return 0
	}
	return times[min(int(q*float64(len(times))), len(times)-1)]
}

// Pods runs count pods one after another, each with one container, and times the calls. A few pods
// before them warm caches and are not counted. The yardstick, if there is one, is taken after each.
func Pods(ctx context.Context, n *node.Node, w Workload, count int, y *Yardstick) (Times, error) {
	times := Times{}
	for i := -3; i < count; i++ {
		l := &life{ctx: ctx, node: n, times: times, counted: i >= 0}
		if err := l.up(w); err != nil {
			return nil, err
		}
		if err := l.down(); err != nil {
			return nil, err
		}
		if y != nil && l.counted {
			if err := y.Take(); err != nil {
				return nil, err
			}
		}
	}
	return times, nil
}

// Server is a CRI server with a configuration for its pods.
type Server interface {
	runtime.RuntimeServiceClient
	PodConfig(namespace, name string) *runtime.PodSandboxConfig
}

// Cycle runs one pod with one container and ends it, and keeps the calls' times.
func Cycle(ctx context.Context, s Server, w Workload, times Times) error {
	l := &life{ctx: ctx, node: s, times: times, counted: true}
	if err := l.up(w); err != nil {
		return err
	}
	return l.down()
}

// life is one pod from RunPodSandbox to RemovePodSandbox.
type life struct {
	ctx            context.Context
	node           Server
	times          Times
	counted        bool
	pod, container string
	config         *runtime.PodSandboxConfig
}

// timed runs one call and keeps its time.
func (l *life) timed(call string, do func() error) error {
	took, err := timed(do)
	if l.counted {
		l.times[call] = append(l.times[call], took)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return nil
}

func (l *life) up(w Workload) error {
	sandbox := l.node.PodConfig("default", "measure")
	l.config = sandbox
	container := node.ContainerConfig(w.Image)
	container.Command, container.Args = w.Command, w.Args
	log := filepath.Join(sandbox.GetLogDirectory(), container.GetLogPath())
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil { // the kubelet's to make
		return err
	}
	if err := l.timed("RunPodSandbox", func() error {
		answer, err := l.node.RunPodSandbox(l.ctx, &runtime.RunPodSandboxRequest{Config: sandbox, RuntimeHandler: w.Handler})
		l.pod = answer.GetPodSandboxId()
		return err
	}); err != nil {
		return err
	}
	if err := l.timed("CreateContainer", func() error {
		answer, err := l.node.CreateContainer(l.ctx, &runtime.CreateContainerRequest{PodSandboxId: l.pod, Config: container, SandboxConfig: sandbox})
		l.container = answer.GetContainerId()
		return err
	}); err != nil {
		return err
	}
	return l.timed("StartContainer", func() error {
		_, err := l.node.StartContainer(l.ctx, &runtime.StartContainerRequest{ContainerId: l.container})
		return err
	})
}

func (l *life) down() error {
	for _, step := range []struct {
		call string
		do   func() error
	}{
		{"StopContainer", func() error {
			_, err := l.node.StopContainer(l.ctx, &runtime.StopContainerRequest{ContainerId: l.container})
			return err
		}},
		{"RemoveContainer", func() error {
			_, err := l.node.RemoveContainer(l.ctx, &runtime.RemoveContainerRequest{ContainerId: l.container})
			return err
		}},
		{"StopPodSandbox", func() error {
			_, err := l.node.StopPodSandbox(l.ctx, &runtime.StopPodSandboxRequest{PodSandboxId: l.pod})
			return err
		}},
		{"RemovePodSandbox", func() error {
			_, err := l.node.RemovePodSandbox(l.ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: l.pod})
			return err
		}},
	} {
		if err := l.timed(step.call, step.do); err != nil {
			return err
		}
	}
	return nil
}

// Memory is the proportional set size of an idle pod's processes, in bytes: medians over the pods.
type Memory struct {
	Shim     int64 // the shim
	Workload int64 // all that runs below it: the guest process, or the container's own
}

// IdleMemory runs count pods at once, lets them settle, measures and removes them.
func IdleMemory(ctx context.Context, n *node.Node, w Workload, count int) (Memory, error) {
	var lives []*life
	for range count {
		l := &life{ctx: ctx, node: n, times: Times{}}
		if err := l.up(w); err != nil {
			return Memory{}, err
		}
		lives = append(lives, l)
	}
	if err := Wait(ctx, 500*time.Millisecond); err != nil {
		return Memory{}, err
	}
	var shims, workloads []int64
	for _, l := range lives {
		pid, err := ShimPID(n, l.pod)
		if err != nil {
			return Memory{}, err
		}
		shim, err := PSS(pid)
		if err != nil {
			return Memory{}, err
		}
		shims = append(shims, shim)
		below, err := descendants(pid)
		if err != nil {
			return Memory{}, err
		}
		var sum int64
		for _, pid := range below {
			pss, err := PSS(pid)
			if err != nil {
				return Memory{}, err
			}
			sum += pss
		}
		workloads = append(workloads, sum)
	}
	for _, l := range lives {
		if err := l.down(); err != nil {
			return Memory{}, err
		}
	}
	slices.Sort(shims)
	slices.Sort(workloads)
	return Memory{Shim: shims[len(shims)/2], Workload: workloads[len(workloads)/2]}, nil
}

// ShimPID is the process id of a pod's shim.
func ShimPID(n *node.Node, pod string) (int, error) {
	data, err := os.ReadFile(filepath.Join(n.State, "sandboxes", pod, "shim.pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// PSS is a process's proportional set size in bytes: its own memory and its share of what it
// shares.
func PSS(pid int) (int64, error) { return kibibytes(pid, "smaps_rollup", "Pss:") }

// Anonymous is the part of a process's proportional set size that is no file's: what it has made
// itself, without the pages of its program, which come and go.
func Anonymous(pid int) (int64, error) { return kibibytes(pid, "smaps_rollup", "Pss_Anon:") }

// PeakMemory is the most memory that a process has had at once, in bytes.
func PeakMemory(pid int) (int64, error) { return kibibytes(pid, "status", "VmHWM:") }

// kibibytes is a line with an amount of memory in a file that the kernel has of a process, in
// bytes.
func kibibytes(pid int, name, line string) (int64, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if fields := strings.Fields(scanner.Text()); len(fields) == 3 && fields[0] == line {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: no line %q (%v)", pid, line, scanner.Err())
}

// descendants are the children of a process, their children and so on.
func descendants(pid int) ([]int, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	var all []int
	for _, path := range tasks {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the thread ended
		}
		for _, field := range strings.Fields(string(data)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, err
			}
			below, err := descendants(child)
			if err != nil {
				return nil, err
			}
			all = append(append(all, child), below...)
		}
	}
	return all, nil
}
