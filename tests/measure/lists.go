package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// listGoals are the medians to reach with 100 pods of 3 containers, in milliseconds.
var listGoals = map[string]float64{"ListContainers": 5, "ListPodSandboxStats": 100}

// Lists fills a node with pods of a workload, each with several containers, times what kubelets ask
// for again and again, prints the medians beside their goals, and empties the node.
func Lists(ctx context.Context, out io.Writer, n *node.Node, w Workload, pods, each, rounds int) (err error) {
	defer func() { err = errors.Join(err, n.RemovePods(context.WithoutCancel(ctx))) }()
	for range pods {
		l := &life{ctx: ctx, node: n, times: Times{}}
		if err := l.up(w); err != nil {
			return err
		}
		for c := 1; c < each; c++ {
			if err := l.another(w, fmt.Sprint("beside", c)); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(out, "%d pods of handler %s with %d containers each, medians of %d calls\n", pods, w.Handler, each, rounds)
	missed := 0
	for _, c := range listCalls(ctx, n) {
		var took []time.Duration
		before, err := CPUTime(n.DaemonPID())
		if err != nil {
			return err
		}
		for range rounds {
			begun := time.Now()
			if err := c.call(); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			took = append(took, time.Since(begun))
		}
		after, err := CPUTime(n.DaemonPID())
		if err != nil {
			return err
		}
		slices.Sort(took)
		goal, ok := listGoals[c.name]
		median := Milliseconds(took[len(took)/2])
		fmt.Fprintf(out, "%-24s %8.2f ms  %8.2f ms of CPU  %s\n", c.name, median,
			Milliseconds((after-before)/time.Duration(rounds)), against(median, goal, 1, ok, &missed))
	}
	return nil
}

// CPUTime is what a process has used of the processors, all its threads together.
func CPUTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// After the name in parentheses, which may hold anything: user and system time are the 12th and
	// 13th fields, in ticks of a hundredth of a second.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("read the times of process %d: %q", pid, data)
	}
	var sum time.Duration
	for _, f := range fields[11:13] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ticks) * 10 * time.Millisecond
	}
	return sum, nil
}

type listCall struct {
	name string
	call func() error
}

func listCalls(ctx context.Context, n *node.Node) []listCall {
	return []listCall{
		{"ListPodSandbox", func() error {
			_, err := n.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
			return err
		}},
		{"ListContainers", func() error {
			_, err := n.ListContainers(ctx, &runtime.ListContainersRequest{})
			return err
		}},
		{"ListContainerStats", func() error {
			_, err := n.ListContainerStats(ctx, &runtime.ListContainerStatsRequest{})
			return err
		}},
		{"ListPodSandboxStats", func() error {
			_, err := n.ListPodSandboxStats(ctx, &runtime.ListPodSandboxStatsRequest{})
			return err
		}},
		// In parts: the metrics of 1,000 pods are 23 MB, and a kubelet takes 16 in one message.
		{"StreamPodSandboxMetrics", func() error {
			stream, err := n.StreamPodSandboxMetrics(ctx, &runtime.StreamPodSandboxMetricsRequest{})
			for err == nil {
				_, err = stream.Recv()
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}},
	}
}

// another runs one more container in the pod.
func (l *life) another(w Workload, name string) error {
	answer, err := l.node.CreateContainer(l.ctx, &runtime.CreateContainerRequest{PodSandboxId: l.pod, SandboxConfig: l.config, Config: &runtime.ContainerConfig{
		Metadata: &runtime.ContainerMetadata{Name: name}, Image: &runtime.ImageSpec{Image: w.Image},
		Command: w.Command, Args: w.Args, LogPath: name + ".log", Linux: &runtime.LinuxContainerConfig{},
	}})
	if err != nil {
		return fmt.Errorf("CreateContainer: %w", err)
	}
	if _, err := l.node.StartContainer(l.ctx, &runtime.StartContainerRequest{ContainerId: answer.GetContainerId()}); err != nil {
		return fmt.Errorf("StartContainer: %w", err)
	}
	return nil
}
