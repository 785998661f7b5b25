package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// observation is what was seen of one manifest on one side, normalised.
type observation struct {
	facts  map[string]string
	events []string         // each once, in the order of its first time
	delays map[string][]int // before each start of a container but its first, in milliseconds
}

const uidLabel = "io.kubernetes.pod.uid"

func (r *running) uid() string {
	pods, _ := r.w.of(r.key())
	if len(pods) == 0 {
		return ""
	}
	return string(pods[len(pods)-1].UID)
}

func (r *running) sandboxes(ctx context.Context) ([]*runtime.PodSandbox, error) {
	list, err := r.node.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{
		Filter: &runtime.PodSandboxFilter{LabelSelector: map[string]string{uidLabel: r.uid()}}})
	return list.GetItems(), err
}

// containerInfo is what is read of the verbose answer about a container.
type containerInfo struct {
	PID    int `json:"pid"`
	Config any `json:"config"`
}

func (s *side) inspect(ctx context.Context, id string) (containerInfo, error) {
	var info containerInfo
	answer, err := s.node.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err == nil {
		err = json.Unmarshal([]byte(answer.GetInfo()["info"]), &info)
	}
	return info, err
}

func (r *running) pidOf(ctx context.Context, name string) (int, error) {
	made, found := newestMade(r.eventsOf(r.uid()), r.last)[name]
	if !found {
		return 0, fmt.Errorf("container %q was not created", name)
	}
	info, err := r.inspect(ctx, made.status.GetId())
	if err == nil && info.PID == 0 {
		err = fmt.Errorf("container %q does not run", name)
	}
	return info.PID, err
}

// observe notes all that is seen while the pod is there.
func (r *running) observe(ctx context.Context) error {
	n := r.normaliser()
	metadata := map[string]any{"labels": r.lastSeen.Labels, "annotations": r.lastSeen.Annotations, "generation": r.lastSeen.Generation, "name": r.lastSeen.Name}
	for area, value := range map[string]any{"metadata": metadata, "spec": r.lastSeen.Spec, "status": r.lastSeen.Status} {
		if err := n.flatten(r.out.facts, area, value); err != nil {
			return err
		}
	}
	return errors.Join(r.observeSandbox(ctx, n), r.observeContainers(ctx, n), r.keepLogs())
}

func (r *running) observeSandbox(ctx context.Context, n *normaliser) error {
	sandboxes, err := r.sandboxes(ctx)
	if err != nil || len(sandboxes) == 0 {
		r.out.facts["sandbox"] = fmt.Sprintf("%d", len(sandboxes))
		return err
	}
	newest := slices.MaxFunc(sandboxes, func(a, b *runtime.PodSandbox) int {
		return int(a.GetMetadata().GetAttempt()) - int(b.GetMetadata().GetAttempt())
	})
	answer, err := r.node.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: newest.GetId(), Verbose: true})
	if err != nil {
		return err
	}
	var info struct {
		Config any `json:"config"`
	}
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &info); err != nil {
		return err
	}
	r.out.facts["sandbox.state"] = newest.GetState().String()
	return n.flatten(r.out.facts, "sandbox", info.Config)
}

func (r *running) observeContainers(ctx context.Context, n *normaliser) error {
	for name, e := range newestMade(r.eventsOf(r.uid()), r.last) {
		err := n.flatten(r.out.facts, "container."+name, e.made.Config)
		info, inspected := r.inspect(ctx, e.status.GetId())
		if err == nil && inspected == nil && info.PID != 0 {
			err = readCgroups(r.out.facts, "cgroup."+name, info.PID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newestMade are the creations of the newest containers of each name, by name; last is the newest
// attempt that counts, -1 for all.
func newestMade(stream []criEvent, last int) map[string]criEvent {
	newest := map[string]criEvent{}
	for _, e := range stream {
		if m := e.status.GetMetadata(); e.made != nil && (last < 0 || int(m.GetAttempt()) <= last) {
			newest[m.GetName()] = e
		}
	}
	return newest
}

// observeEnd notes what is known when all has ended: events, logs, exits, and how it went.
func (r *running) observeEnd(ctx context.Context, before []corev1.Pod) error {
	n := r.normaliser()
	stream := r.eventsOf(r.uid())
	n.transitions(r.out.facts, before, pendingUnseen(r.w.unseen(r.key()), before, stream))
	all, err := r.side.events(ctx)
	if err != nil {
		return err
	}
	r.w.noteEvents(all)
	for _, e := range r.w.eventsOf(r.namespace(), r.diffCase.name+r.suffix) {
		text := n.text(strings.Join([]string{e.kind, e.reason, e.field, e.message}, " "))
		if !slices.Contains(r.out.events, text) {
			r.out.events = append(r.out.events, text)
		}
	}
	r.out.delays = delays(stream)
	var starts, end []string
	for _, e := range stream {
		verb, id, _ := strings.Cut(e.what, " ")
		switch {
		case id == "sandbox" && verb == "stopped": // a pod that is over loses it then, or when its file goes
		case verb == "started":
			starts = append(starts, id)
		case verb == "stopped":
			end = append(end, e.what)
		}
		if c := e.status; strings.HasPrefix(e.what, "stopped ") && c != nil {
			r.out.facts["exit "+strings.TrimPrefix(e.what, "stopped ")] = n.text(fmt.Sprintf("%d %s %s", c.GetExitCode(), c.GetReason(), c.GetMessage()))
		}
	}
	slices.Sort(end) // what is stopped at once ends in any order; containers say their order in a file
	r.out.facts["order.starts"], r.out.facts["order.ends"] = strings.Join(starts, ", "), strings.Join(slices.Compact(end), ", ")
	return r.observeHost(n, stream)
}

// kept is the folder of the case's logs, which are removed with the pod where they existed.
func (r *running) kept() string {
	return filepath.Join(filepath.Dir(r.logs), "kept", r.title, r.diffCase.name)
}

// keepLogs links each log to where it stays.
func (r *running) keepLogs() error {
	dir := filepath.Join(r.logs, fmt.Sprintf("%s_%s_%s", r.namespace(), r.diffCase.name+r.suffix, r.uid()))
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	for _, file := range files {
		to := filepath.Join(r.kept(), strings.TrimPrefix(file, dir))
		made := os.MkdirAll(filepath.Dir(to), 0o755)
		if linked := os.Link(file, to); linked != nil && !errors.Is(linked, os.ErrExist) && !errors.Is(linked, os.ErrNotExist) {
			err = errors.Join(err, made, linked)
		}
	}
	return err
}

// observeHost notes the case's folder of the machine and the logs. A line of a log that starts with
// "~ " is there for its time alone: the times between lines with the same text are compared in
// seconds, and so is how long a container ran on after "~ term".
func (r *running) observeHost(n *normaliser, stream []criEvent) error {
	err := filepath.WalkDir(r.host, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		r.out.facts["host."+strings.TrimPrefix(path, r.host+"/")] = n.text(string(data))
		return err
	})
	files, globbed := filepath.Glob(filepath.Join(r.kept(), "*", "*"))
	if err := errors.Join(err, globbed); err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		container := filepath.Base(filepath.Dir(file))
		log := parseLog(string(data))
		r.out.facts["log."+container+"."+filepath.Base(file)] = n.text(strings.Join(log.lines, "\n"))
		for text, times := range log.marks {
			for i, gap := range gaps(times) {
				r.out.facts[fmt.Sprintf("time.%s.%s %s/%d", container, filepath.Base(file), text, i+1)] = gap
			}
		}
		attempt := strings.TrimSuffix(filepath.Base(file), ".log")
		if term := log.marks["term"]; len(term) > 0 {
			for _, e := range stream {
				if e.what == "stopped "+container+"/"+attempt && e.status != nil {
					ran := time.Unix(0, e.status.GetFinishedAt()).Sub(term[0])
					r.out.facts["grace."+container] = fmt.Sprintf("%.0fs", math.Round(ran.Seconds()))
				}
			}
		}
	}
	return nil
}
