package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/agent/records"
)

// recorder writes and removes the records of pods.
type recorder struct{ *loop }

// save writes the record of a pod durably, in a worker, and continues when it is written: no action
// is started before that could not be started anew; the start of a container waits for recorded.
// What cannot be written is retried for as long as it takes. Only a pod that is purged from a full
// disk ends before that is on record: nothing else makes room for the record. If the agent is
// killed meanwhile, the pod is found to run, and evicted again.
func (l *recorder) save(p *pod) (recorded <-chan struct{}) {
	written := make(chan struct{})
	p.saving, p.must, p.noteAt, p.notedAt = true, false, time.Time{}, l.o.now()
	data, err := records.Encode(p.rec)
	if err != nil { // a pod that cannot be written as JSON was not read as JSON either
		l.o.Logger.Error("failed to encode pod record", "pod", p.uid(), "error", err)
		return written
	}
	uid, about, purged := p.uid(), p.rec.Pod, p.rec.Purge // the record may be edited meanwhile
	l.work.Go(func() {
		var err error
		for told := false; ; told = true {
			err = l.store.Write(uid, data, true)
			if err == nil || purged && durable.Full(err) {
				break
			}
			if !told {
				l.o.Logger.Error("failed to write pod record", "pod", uid, "error", err)
				l.event(about, "", corev1.EventTypeWarning, "FailedSync", "pod waits until its record can be written: "+err.Error())
				l.post(func() { l.stuck(p) })
			}
			if !l.pause(retryWrite) {
				return
			}
		}
		if err == nil {
			close(written)
		}
		l.post(func() {
			p.saving, p.stuck = false, false
			if p.saveAt = (time.Time{}); err != nil {
				p.must, p.saveAt = true, l.o.now().Add(retryWrite)
			}
			l.steps.saved(p)
		})
	})
	return written
}

// stuck shows the state of a pod whose record cannot be written, though it is not on record.
func (l *recorder) stuck(p *pod) {
	if p.saving && l.pods[p.uid()] == p {
		p.stuck = true
		l.steps.preview(p)
	}
}

// note writes the record of a pod without durability.
func (l *recorder) note(p *pod) {
	p.noteAt, p.notedAt = time.Time{}, l.o.now()
	data, err := records.Encode(p.rec)
	if err == nil {
		err = l.store.Write(p.uid(), data, false)
	}
	if err != nil {
		l.o.Logger.Warn("failed to note state of pod", "pod", p.uid(), "error", err)
	}
}

// remove removes the last traces of a pod that is over, then starts its successor.
func (l *recorder) remove(p *pod) {
	p.saving = true
	l.schedule.Set(p, time.Time{})
	uid := p.uid()
	evicted := func() error { return nil }
	if e := p.rec.Evicted; e != nil {
		evicted = l.evictor.history.Put(p.key(), p.rec.Source, e)
	}
	l.work.Go(func() {
		if err := evicted(); err != nil { // a full disk has no room for it, and must be emptied
			l.o.Logger.Warn("failed to write the eviction of a pod, its back-off starts anew if the server is killed now", "pod", uid, "error", err)
			if l.ctx.Err() != nil {
				return
			}
		}
		for told := false; ; told = true {
			err := l.store.Remove(uid)
			if err == nil {
				break
			}
			if !told {
				l.o.Logger.Error("failed to remove pod record", "pod", uid, "error", err)
			}
			if !l.pause(retryWrite) {
				return
			}
		}
		l.post(func() { l.removed(p) })
	})
}

func (l *recorder) removed(p *pod) {
	delete(l.pods, p.uid())
	l.evictor.removed(p)
	l.users.Leave(p.rec)
	l.images.Forget(p.rec.Pod.UID)
	l.worker.Release(p.uid())
	l.prober.Forget(p.uid())
	l.views.Drop(p.rec.Pod.UID)
	l.o.Logger.Info("pod removed", "pod", p.uid(), "namespace", p.rec.Pod.Namespace, "name", p.rec.Pod.Name)
	l.steps.summarize()
	l.plan.sync() // its successor, and those that wait for room
}
