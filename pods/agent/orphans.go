package agent

import (
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent/observe"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// orphans ends the sandboxes with the agent's mark that are of no pod.
type orphans struct {
	*loop
	list   []*runtime.PodSandboxStatusResponse
	ending map[string]int  // how many are being ended, by UID
	broken map[string]bool // UIDs of records that could not be read
}

// endOrphans ends the sandboxes with the agent's mark that are of no pod, with a second of grace.
// If only the record of their pod could not be read, the pod is made of its object again, with its
// UID.
func (l *orphans) endOrphans() {
	for _, s := range l.list {
		labels := s.GetStatus().GetLabels()
		uid := labels[translate.PodUIDLabel]
		if p := l.pods[uid]; p != nil {
			p.seen.Take(s.GetStatus(), s.GetContainersStatuses())
			continue
		}
		if l.rebuild(uid, labels, s) {
			continue
		}
		l.o.Logger.Info("orphaned pod found", "pod", uid, "sandbox", s.GetStatus().GetId())
		l.ending[uid]++
		l.work.Go(func() { l.endOrphan(uid, s) })
	}
	l.list = nil
}

// rebuild makes the record of a pod anew of its object, if the old one could not be read.
func (l *orphans) rebuild(uid string, labels map[string]string, s *runtime.PodSandboxStatusResponse) bool {
	if !l.broken[uid] {
		return false
	}
	key := manifest.Key{Kind: manifest.KindPod, Namespace: labels[translate.PodNamespaceLabel], Name: labels[translate.PodNameLabel]}
	e, found := l.o.Desired.Get(key)
	if !found || e.Pod() == nil {
		return false
	}
	for _, p := range l.pods {
		if p.key() == key {
			return false
		}
	}
	l.plan.create(&e, types.UID(uid))
	l.pods[uid].seen.Take(s.GetStatus(), s.GetContainersStatuses())
	return true
}

// endOrphan stops and removes an orphaned sandbox, for as long as it takes.
func (l *orphans) endOrphan(uid string, s *runtime.PodSandboxStatusResponse) {
	for told := false; ; told = true {
		err := l.tryEndOrphan(s)
		if err == nil {
			l.o.Logger.Info("orphaned pod removed", "sandbox", s.GetStatus().GetId())
			l.post(func() { l.orphanEnded(uid) })
			return
		}
		if !told {
			l.o.Logger.Error("failed to remove orphaned pod", "sandbox", s.GetStatus().GetId(), "error", err)
		}
		if !l.pause(retryOrphan) {
			return
		}
	}
}

const (
	orphanGrace = 1 // s
	retryOrphan = 10 * time.Second
)

func (l *orphans) tryEndOrphan(s *runtime.PodSandboxStatusResponse) error {
	id := s.GetStatus().GetId()
	for _, c := range s.GetContainersStatuses() {
		if observe.StateOf(c.GetState()) == cycle.StateExited {
			continue
		}
		_, err := l.o.CRI.StopContainer(l.ctx, &runtime.StopContainerRequest{ContainerId: c.GetId(), Timeout: orphanGrace})
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	if _, err := l.o.CRI.StopPodSandbox(l.ctx, &runtime.StopPodSandboxRequest{PodSandboxId: id}); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if _, err := l.o.CRI.RemovePodSandbox(l.ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: id}); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}

// orphanEnded lets the files of an orphaned pod be removed.
func (l *orphans) orphanEnded(uid string) {
	if l.ending[uid]--; l.ending[uid] == 0 {
		delete(l.ending, uid)
		l.keeper.SweepSoon()
	}
}
