// Package users gives pods with user namespaces their ranges of user ids, and others if theirs are
// another's by now (SE11).
package users

import (
	"log/slog"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent/admission"
	"github.com/sunaba-project/sunaba/pods/agent/identity"
	"github.com/sunaba-project/sunaba/pods/agent/pace"
	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// retry is how often pods that wait for user ids are judged again: nothing tells that another
// process releases its own.
const retry = 10 * time.Second

// Users has the user ids of the pods of an agent. It is for one goroutine.
type Users struct {
	*identity.Ranges
	pace   pace.Pace
	now    func() time.Time
	logger *slog.Logger
	next   time.Time
}

// New returns the users of an agent.
func New(ranges *identity.Ranges, p pace.Pace, now func() time.Time, logger *slog.Logger) *Users {
	return &Users{Ranges: ranges, pace: p, now: now, logger: logger}
}

// Admit reserves the user ids of a pod that is admitted. It answers why the pod has to wait.
func (u *Users) Admit(rec *records.Record, pod *corev1.Pod) *cycle.Reason {
	if rec.UserNamespace != 0 || !translate.OwnUsers(pod) {
		return nil
	}
	first, err := u.Take(rec.UID())
	if err != nil {
		u.next = u.pace.Next(u.now(), retry)
		return &cycle.Reason{Reason: admission.Unschedulable, Message: err.Error()}
	}
	rec.UserNamespace = first
	return nil
}

// Next is when the pods that wait are to be judged again, zero if none waits.
func (u *Users) Next() time.Time { return u.next }

// Due says whether the pods that wait are to be judged now.
func (u *Users) Due(now time.Time) bool {
	due := !u.next.IsZero() && !u.next.After(now)
	if due {
		u.next = time.Time{}
	}
	return due
}

// Restore reserves the user ids that a pod has on record. Its sandbox may run with them, so it is
// no error if they are another's too: Change gives the next one others.
//
// # Errors
//
// ErrAlreadyExists if another pod of the agent has them.
func (u *Users) Restore(rec *records.Record) error {
	if rec.UserNamespace == 0 {
		return nil
	}
	err := u.Keep(rec.UID(), rec.UserNamespace)
	if errdefs.IsAlreadyExists(err) {
		return err
	}
	if err != nil {
		u.logger.Warn("failed to lock user ids of a pod, its next sandbox needs others", "pod", rec.UID(), "error", err)
	}
	return nil
}

// Change gives a pod whose next sandbox is to be made other user ids if its own are another's by
// now. The sandbox must not be made before these are on record.
//
// # Errors
//
// Those of Renew: the sandbox must not be made.
func (u *Users) Change(rec *records.Record, actions []cycle.Action) (changed bool, err error) {
	makes := func(a cycle.Action) bool { return a.Verb == cycle.RunSandbox }
	if rec.UserNamespace == 0 || !slices.ContainsFunc(actions, makes) {
		return false, nil
	}
	first, err := u.Renew(rec.UID(), rec.UserNamespace)
	if err != nil || first == rec.UserNamespace {
		return false, err
	}
	u.logger.Warn("user ids of a pod are another's by now, changed them", "pod", rec.UID(), "were", rec.UserNamespace, "are", first)
	u.Leave(rec)
	rec.UserNamespace = first
	return true, nil
}

// Leave releases the user ids of a pod.
func (u *Users) Leave(rec *records.Record) {
	if err := u.Release(rec.UID(), rec.UserNamespace); err != nil {
		u.logger.Warn("failed to release user ids of a pod", "pod", rec.UID(), "error", err)
	}
}

// Listed takes in the sandboxes of others, before those of the agent.
func (u *Users) Listed(all []*runtime.PodSandboxStatus) {
	u.UnseeAll()
	for _, s := range all {
		u.See(s)
	}
}

// Happened takes in the sandbox of an event.
func (u *Users) Happened(e *runtime.ContainerEventResponse) {
	s := e.GetPodSandboxStatus()
	u.See(s)
	if e.GetContainerId() == s.GetId() && e.GetContainerEventType() == runtime.ContainerEventType_CONTAINER_DELETED_EVENT {
		u.Unsee(s.GetId())
	}
}
