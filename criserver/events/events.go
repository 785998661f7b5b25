// Package events tells CRI clients what happens to pods and containers, as it happens.
//
// The hub follows the records: it is told of every change once it stands, under the lock of that
// record, and keeps a view of all records. It makes an event from that view under its own lock. So
// the events of one container come in order (CREATED, STARTED, STOPPED, DELETED), and no event
// shows less than an earlier one.
//
// A crash of the server takes back nothing that an event has told: what is not on disk, the next
// server learns from the shims. What was CREATED or DELETED, and how a container STOPPED, is synced
// before the event; a container DELETED with its pod, by the pod's removal. A power cut ends the
// pods too, and may take back when a container STARTED, and that a sandbox STOPPED: it shows the
// one as Exited and the other as NotReady, as a restart of the machine would. A container's end
// that the disk has refused (full, read-only) stands as long as the server lives; the next one may
// only know that it has ended, with code 255.
//
// A sandbox's own events carry its id as the container id. The last one, DELETED, still has its
// status: a kubelet ignores an event without one.
//
// Each subscriber has a queue. One whose queue is full is ended with an error, because it would
// miss events without knowing. Without a subscriber, events are kept for a while, for a kubelet
// that is restarting; the first subscriber gets them.
package events

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
)

const (
	// keepFor is how long an event waits for a first subscriber; maxKept is how many do.
	keepFor = 5 * time.Minute
	maxKept = 1024
	// maxQueued is how many events a subscriber may be behind.
	maxQueued = 1024
)

// Options configure New.
type Options struct {
	// SandboxStatus and ContainerStatus put a record into the words of the CRI.
	SandboxStatus   func(state.Sandbox) *runtime.PodSandboxStatus
	ContainerStatus func(state.Container) *runtime.ContainerStatus
	Logger          *slog.Logger
}

// Hub makes events of changes and hands them out.
type Hub struct {
	o Options

	mu          sync.Mutex
	pods        map[string]*pod
	subscribers map[*Subscription]struct{}
	kept        []*runtime.ContainerEventResponse // oldest first; only without a subscriber
	expiry      *time.Timer                       // of the oldest one kept
	last        int64                             // time of the newest event
	closed      bool
}

// pod is the view of one sandbox and its containers.
type pod struct {
	sandbox    *state.Sandbox // nil if it is not known
	containers map[string]state.Container
}

// New returns a hub that knows of nothing yet.
func New(o Options) *Hub {
	return &Hub{o: o, pods: map[string]*pod{}, subscribers: map[*Subscription]struct{}{}}
}

// Sandbox is the follower of sandbox records.
func (h *Hub) Sandbox(before, after *state.Sandbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	shown := before
	if after != nil {
		shown = after
	}
	p := h.pod(shown.ID)
	p.sandbox = shown
	for _, kind := range sandboxEvents(before, after) {
		h.announce(p, shown.ID, kind)
	}
	if after == nil {
		p.sandbox = nil
		h.drop(shown.ID)
	}
}

// sandboxEvents are the events that a change of a sandbox's record makes.
func sandboxEvents(before, after *state.Sandbox) []runtime.ContainerEventType {
	if before == nil {
		return nil // loaded, or not yet to be seen
	}
	var kinds []runtime.ContainerEventType
	if before.Phase == state.Creating {
		if after == nil || after.Phase == state.Creating {
			return nil
		}
		kinds = append(kinds, runtime.ContainerEventType_CONTAINER_CREATED_EVENT)
		if after.Phase == state.Ready {
			return append(kinds, runtime.ContainerEventType_CONTAINER_STARTED_EVENT)
		}
	}
	ran := before.Phase == state.Ready || before.Phase == state.Creating
	if ran && (after == nil || after.Phase != state.Ready) {
		kinds = append(kinds, runtime.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	if after == nil {
		kinds = append(kinds, runtime.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return kinds
}

// Container is the follower of container records.
func (h *Hub) Container(before, after *state.Container) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if after == nil {
		p := h.pod(before.SandboxID)
		delete(p.containers, before.ID)
		if before.Phase != state.Creating {
			h.announce(p, before.ID, runtime.ContainerEventType_CONTAINER_DELETED_EVENT)
		}
		h.drop(before.SandboxID)
		return
	}
	p := h.pod(after.SandboxID)
	p.containers[after.ID] = *after
	if before == nil || before.Phase == after.Phase {
		return
	}
	switch {
	case after.Phase == state.Created:
		h.announce(p, after.ID, runtime.ContainerEventType_CONTAINER_CREATED_EVENT)
	case after.Phase == state.Running && before.Phase == state.Created:
		h.announce(p, after.ID, runtime.ContainerEventType_CONTAINER_STARTED_EVENT)
	case after.Phase == state.Exited:
		h.announce(p, after.ID, runtime.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// pod returns the view of a pod. The caller holds h.mu, as for all below.
func (h *Hub) pod(id string) *pod {
	p, ok := h.pods[id]
	if !ok {
		p = &pod{containers: map[string]state.Container{}}
		h.pods[id] = p
	}
	return p
}

// drop forgets a pod of which nothing is left.
func (h *Hub) drop(id string) {
	if p := h.pods[id]; p.sandbox == nil && len(p.containers) == 0 {
		delete(h.pods, id)
	}
}

// announce makes an event of a pod as it is now and hands it out.
func (h *Hub) announce(p *pod, id string, kind runtime.ContainerEventType) {
	if p.sandbox == nil {
		return // a container that was left behind by its sandbox; there is no status to send
	}
	h.last = max(h.last+1, time.Now().UnixNano())
	event := &runtime.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: h.last, PodSandboxStatus: h.o.SandboxStatus(*p.sandbox),
	}
	for _, c := range p.sorted() {
		event.ContainersStatuses = append(event.ContainersStatuses, h.o.ContainerStatus(c))
	}
	if len(h.subscribers) == 0 {
		h.keep(event)
		return
	}
	for s := range h.subscribers {
		select {
		case s.queue <- event:
		default:
			h.o.Logger.Warn("subscriber of events disconnected: it is too slow", "behind", len(s.queue))
			s.end(fmt.Errorf("%d events are not taken: %w", len(s.queue), errdefs.ErrResourceExhausted))
		}
	}
}

// sorted are the containers that can be seen, oldest first.
func (p *pod) sorted() []state.Container {
	all := slices.SortedFunc(maps.Values(p.containers), func(a, b state.Container) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return slices.DeleteFunc(all, func(c state.Container) bool { return c.Phase == state.Creating })
}

func (h *Hub) keep(event *runtime.ContainerEventResponse) {
	if h.closed {
		return
	}
	if len(h.kept) == maxKept {
		h.kept = slices.Delete(h.kept, 0, 1)
	}
	h.kept = append(h.kept, event)
	if h.expiry == nil {
		h.expiry = time.AfterFunc(keepFor, h.expire)
	}
}

// expire drops events that had no subscriber for too long.
func (h *Hub) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expiry = nil
	now := time.Now()
	h.kept = slices.DeleteFunc(h.kept, func(e *runtime.ContainerEventResponse) bool {
		return now.Sub(time.Unix(0, e.GetCreatedAt())) >= keepFor
	})
	if len(h.kept) == 0 {
		h.kept = nil
		return
	}
	h.expiry = time.AfterFunc(keepFor-now.Sub(time.Unix(0, h.kept[0].GetCreatedAt())), h.expire)
}

// Close ends all subscriptions; there are no new ones.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed, h.kept = true, nil
	if h.expiry != nil {
		h.expiry.Stop()
	}
	for s := range h.subscribers {
		s.end(errStopping)
	}
}

var errStopping = fmt.Errorf("the server stops: %w", errdefs.ErrUnavailable)

// Subscription is one listener's queue.
type Subscription struct {
	hub   *Hub
	queue chan *runtime.ContainerEventResponse
	err   error // why queue is closed; set before
}

// Subscribe returns a subscription; Close ends it.
//
// # Errors
//
// ErrUnavailable if the hub is closed.
func (h *Hub) Subscribe() (*Subscription, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errStopping
	}
	s := &Subscription{hub: h, queue: make(chan *runtime.ContainerEventResponse, maxQueued+len(h.kept))}
	for _, event := range h.kept {
		s.queue <- event
	}
	h.kept = nil
	if h.expiry != nil {
		h.expiry.Stop()
		h.expiry = nil
	}
	h.subscribers[s] = struct{}{}
	return s, nil
}

// Events are the events in their order. They are shared with other subscribers. The channel is
// closed when the subscription ends; Err then says why.
func (s *Subscription) Events() <-chan *runtime.ContainerEventResponse { return s.queue }

// Err says why the subscription has ended: ErrResourceExhausted if its queue was full,
// ErrUnavailable if the hub was closed, nil if it was by Close. It may be called once Events is
// closed.
func (s *Subscription) Err() error { return s.err }

// Close ends the subscription. It may be called again.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.end(nil)
}

func (s *Subscription) end(err error) {
	if _, ok := s.hub.subscribers[s]; !ok {
		return
	}
	delete(s.hub.subscribers, s)
	s.err = err
	close(s.queue)
}
