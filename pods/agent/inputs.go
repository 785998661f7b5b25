package agent

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/inputs"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// restartOnChange is the annotation of pods whose containers are restarted when a ConfigMap or
// Secret that they use changes.
const restartOnChange = "io.sunaba.restart-on-change"

// refresher brings changed ConfigMaps and Secrets to the pods that use them.
type refresher struct {
	*loop
	hashes map[string]string // of all objects except pods when they were last seen, by key
}

// changedInputs are the keys of the objects other than pods that changed, came or are gone since
// the last call.
func (l *refresher) changedInputs(entries []desired.Entry) map[string]bool {
	now := map[string]string{}
	for _, e := range entries {
		if e.Kind != manifest.KindPod {
			now[e.Key.String()] = e.Source.Hash
		}
	}
	changed := inputs.Changed(l.hashes, now)
	l.hashes = now
	return changed
}

// refresh tells the pods that use changed objects: their volumes are brought up to date, what
// failed is tried again, and containers are restarted if the pod asks for that.
func (l *refresher) refresh(changed map[string]bool) {
	for _, p := range l.ordered() {
		uses := inputs.Of(p.rec.Pod)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(uses)), func(key string) bool { return changed[key] }) {
			continue
		}
		p.changed = true
		l.restartUsers(p, uses)
		l.refreshVolumes(p)
		l.steps.step(p)
	}
}

// noteInputs records the objects that a pod is started with. It may get the annotation later.
func (l *refresher) noteInputs(p *pod) {
	p.rec.Inputs = map[string]string{}
	for key := range inputs.Of(p.rec.Pod) {
		if hash := l.hashes[key]; hash != "" {
			p.rec.Inputs[key] = hash
		}
	}
}

// restartUsers restarts the containers of a pod with the annotation that use an object which
// differs from the one that they were started with. An object that is gone restarts nothing.
func (l *refresher) restartUsers(p *pod, uses map[string][]string) {
	if p.rec.Pending != nil || p.rec.Final != nil || p.rec.Deletion != nil {
		return
	}
	var names []string
	for key, containers := range uses {
		if had, now := p.rec.Inputs[key], l.hashes[key]; had != "" && now != "" && had != now {
			names = append(names, containers...)
		}
	}
	noted := p.rec.Inputs
	l.noteInputs(p)
	p.must = p.must || !maps.Equal(noted, p.rec.Inputs)
	if p.rec.Pod.Annotations[restartOnChange] != "true" {
		return
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		// Init containers run again with the pod; they are not restarted alone.
		if err := p.rec.Restart([]string{name}, cycle.Reason{Reason: "ConfigChanged", Message: "Container " + name + " uses a changed ConfigMap or Secret, will be restarted"}); err != nil {
			l.o.Logger.Debug("container not restarted for a changed object", "pod", p.uid(), "container", name, "reason", err)
		}
	}
}

// refreshVolumes brings the content of a pod's volumes up to date, in a worker. A pod that is being
// stopped keeps what it has, as with a kubelet: its ConfigMap may be removed with it.
func (l *refresher) refreshVolumes(p *pod) {
	if !p.volumes || p.rec.Done || p.rec.Deletion != nil || p.rec.Ended != nil {
		return
	}
	pod := p.rec.Pod
	l.work.Go(func() {
		if _, err := l.o.Volumes.Refresh(l.ctx, pod); err != nil && l.ctx.Err() == nil {
			l.event(pod, "", corev1.EventTypeWarning, "FailedMount", err.Error())
		}
	})
}
