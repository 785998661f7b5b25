package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/tests/node"
)

// event is one that happened to a pod.
type event struct{ namespace, name, field, kind, reason, message string }

// side is a manager of pods over a server of its own.
type side struct {
	*ground
	title     string // agent or kubelet
	node      *node.Node
	dir       string // everything of this side is below it
	manifests string
	suffix    string // of the names of pods
	logs      string // the folder of pods' logs
	pods      func(ctx context.Context) ([]corev1.Pod, error)
	events    func(ctx context.Context) ([]event, error)
	end       func(report string) error

	following context.CancelFunc
	mu        sync.Mutex
	stream    []criEvent
}

// newSide starts a server and follows its events.
func newSide(ctx context.Context, g *ground, name, config string) (*side, error) {
	s := &side{ground: g, title: name, dir: filepath.Join(g.work, name), logs: "/var/log/pods"}
	s.manifests = filepath.Join(s.dir, "manifests")
	if err := os.MkdirAll(s.manifests, 0o755); err != nil {
		return nil, err
	}
	n, err := node.Start(ctx, node.Options{Bin: g.bin, Dir: s.dir, Config: fmt.Sprintf("[network]\nconf_dir = %q\n", filepath.Join(s.dir, "cni")) + config})
	if err != nil {
		return nil, err
	}
	s.node = n
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.following = stop
	go s.follow(following)
	return s, nil
}

// startAgent starts sunaba's agent.
func startAgent(ctx context.Context, g *ground) (*side, error) {
	dir := filepath.Join(g.work, "agent")
	s, err := newSide(ctx, g, "agent", fmt.Sprintf(
		"[pods]\nmanifests = [%q]\nnode_name = %q\ncrash_loop_max = %q\ncluster_dns = [%q]\ncluster_domain = %q\n",
		filepath.Join(dir, "manifests"), nodeName, crashLoopMax, clusterDNS, domain))
	if err != nil {
		return nil, err
	}
	client, err := s.node.PodClient(ctx)
	if err != nil {
		return nil, errors.Join(err, s.close(ctx, g.report))
	}
	pods, _ := api.FindResource("pods")
	events, _ := api.FindResource("events")
	everywhere := api.Query{}
	s.pods = func(ctx context.Context) ([]corev1.Pod, error) {
		return api.Objects[corev1.Pod](ctx, client, pods, everywhere)
	}
	s.events = func(ctx context.Context) ([]event, error) {
		all, err := api.Objects[corev1.Event](ctx, client, events, everywhere)
		slices.SortStableFunc(all, func(a, b corev1.Event) int { return strings.Compare(firstTime(a), firstTime(b)) })
		var list []event
		for _, e := range all {
			o := e.InvolvedObject
			list = append(list, event{o.Namespace, o.Name, o.FieldPath, e.Type, e.Reason, e.Message})
		}
		return list, err
	}
	s.end = func(string) error { return client.Close() }
	return s, nil
}

// firstTime is when an event happened first, in nanoseconds as fixed digits: the end of its name.
func firstTime(e corev1.Event) string { return e.Name[strings.LastIndexByte(e.Name, '.')+1:] }

// close ends the manager and takes the server away with its pods; its logs stay in report.
func (s *side) close(ctx context.Context, report string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var ended error
	if s.end != nil {
		ended = s.end(report)
	}
	s.following()
	removed := s.node.RemovePods(ctx)
	kept := os.WriteFile(filepath.Join(report, s.title+"-server.log"), []byte(s.node.DaemonLog()+"\n"), 0o644)
	forced, closed := s.node.Close()
	if len(forced) > 0 {
		closed = errors.Join(closed, fmt.Errorf("left behind: %q", forced))
	}
	return errors.Join(ended, removed, kept, closed)
}

// criEvent is one of the server's events.
type criEvent struct {
	at     time.Time
	uid    string // of the pod
	what   string // "started app/1", "stopped sandbox/0"
	status *runtime.ContainerStatus
	made   *containerInfo // of "created app/1": what it was asked for; a manager may remove it soon
}

// follow notes the server's events until it is told to stop; a server that was killed comes back.
func (s *side) follow(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := s.node.GetContainerEvents(ctx, &runtime.GetEventsRequest{})
		for err == nil {
			var e *runtime.ContainerEventResponse
			if e, err = stream.Recv(); err == nil {
				s.note(ctx, e)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *side) note(ctx context.Context, e *runtime.ContainerEventResponse) {
	verb := map[runtime.ContainerEventType]string{
		runtime.ContainerEventType_CONTAINER_CREATED_EVENT: "created", runtime.ContainerEventType_CONTAINER_STARTED_EVENT: "started",
		runtime.ContainerEventType_CONTAINER_STOPPED_EVENT: "stopped",
	}[e.GetContainerEventType()]
	sandbox := e.GetPodSandboxStatus()
	if verb == "" || sandbox == nil {
		return // what is removed, and when, is no part of a pod's life
	}
	noted := criEvent{at: time.Unix(0, e.GetCreatedAt()), uid: sandbox.GetMetadata().GetUid(), what: verb + " sandbox"}
	for _, c := range e.GetContainersStatuses() {
		if c.GetId() == e.GetContainerId() {
			noted.what, noted.status = fmt.Sprintf("%s %s/%d", verb, c.GetMetadata().GetName(), c.GetMetadata().GetAttempt()), c
		}
	}
	if verb == "created" && noted.status != nil {
		if info, err := s.inspect(ctx, e.GetContainerId()); err == nil {
			noted.made = &info
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = append(s.stream, noted)
}

// eventsOf are the server's events of one pod.
func (s *side) eventsOf(uid string) []criEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []criEvent
	for _, e := range s.stream {
		if e.uid == uid {
			list = append(list, e)
		}
	}
	return list
}
