package agent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/pods/agent/admission"
	"github.com/sunaba-project/sunaba/pods/agent/identity"
	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/agent/verdicts"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// Annotations of pods: where they are from, as a kubelet writes it, and the file.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	hashAnnotation   = "kubernetes.io/config.hash"
	seenAnnotation   = "kubernetes.io/config.seen"
	fileAnnotation   = "io.sunaba.file"
)

// planner makes, edits and ends pods as their objects ask for.
type planner struct {
	*loop
	told   map[string]bool        // objects for other nodes that were named in an event
	graces map[manifest.Key]int64 // with which pods were ordered to be deleted
}

// sync compares the pods with the objects that are wanted: it makes new pods, edits those whose
// object changed, ends those whose object is gone, and admits those that may run now.
func (l *planner) sync() {
	if !l.listed || !l.wanted {
		return
	}
	entries := l.o.Desired.Objects()
	changed := l.inputs.changedInputs(entries)
	node := l.admission.node()
	have := map[manifest.Key]*pod{}
	for _, p := range l.pods {
		have[p.key()] = p
	}
	wanted := map[manifest.Key]int{}
	for i := range entries {
		e := &entries[i]
		raw := e.Pod()
		if raw == nil || l.foreign(node, e) || l.withdrawn.Load() {
			continue
		}
		wanted[e.Key] = i
		if p := have[e.Key]; p != nil {
			l.compare(node, p, e)
		} else {
			l.create(e, cmp.Or(raw.UID, identity.UID())) // a manifest's has no effect and is not there
		}
	}
	for key, p := range have {
		if _, found := wanted[key]; !found {
			l.end(p, l.grace(key))
		}
	}
	l.forget(entries)
	l.evictor.history.Forget(func(key manifest.Key) bool { _, found := wanted[key]; return found })
	l.inputs.refresh(changed)
	l.admission.admit(node, wanted)
}

// forget drops what was kept about objects that are gone.
func (l *planner) forget(entries []desired.Entry) {
	here := map[string]bool{}
	for i := range entries {
		here[entries[i].Key.String()], here[version(&entries[i])] = true, true
	}
	maps.DeleteFunc(l.told, func(id string, _ bool) bool { return !here[id] })
	maps.DeleteFunc(l.graces, func(key manifest.Key, _ int64) bool { return !here[key.String()] })
}

// version is an object in one of its versions.
func version(e *desired.Entry) string { return e.Key.String() + e.Source.Hash }

// foreign says whether an object is a pod for another node, and tells once.
func (l *planner) foreign(node admission.Node, e *desired.Entry) bool {
	if !node.Foreign(e.Pod()) {
		return false
	}
	if id := version(e); !l.told[id] {
		l.told[id] = true
		l.event(e.Pod(), "", corev1.EventTypeNormal, verdicts.Ignored, fmt.Sprintf("the pod is for node %q, this is node %q", e.Pod().Spec.NodeName, node.Name))
	}
	return true
}

// create makes the record of a new pod, which waits for admission.
func (l *planner) create(e *desired.Entry, uid types.UID) {
	rec := &records.Record{Manifest: e.Pod()}
	rec.Record = *cycle.New(l.dress(e.Pod(), e), "", e.Source)
	rec.Pod.UID, rec.Pod.Generation, rec.Pod.CreationTimestamp = uid, 1, metav1.NewTime(l.o.now().Truncate(1e9))
	rec.Pending, rec.Evicted = &cycle.Reason{}, l.evictor.history.Take(e.Key, e.Source)
	p := newPod(rec)
	p.fresh = true
	l.pods[p.uid()] = p
}

// dress returns a copy of a pod with the annotations that say where it is from.
func (l *planner) dress(pod *corev1.Pod, e *desired.Entry) *corev1.Pod {
	out := pod.DeepCopy()
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[sourceAnnotation], out.Annotations[hashAnnotation] = e.Source.Kind, e.Source.Hash
	out.Annotations[seenAnnotation] = e.Seen.UTC().Format("2006-01-02T15:04:05.000000000Z07:00")
	if e.Source.File != "" {
		out.Annotations[fileAnnotation] = e.Source.File
	}
	return out
}

// end orders the deletion of a pod, with its own grace period if grace is negative.
func (l *planner) end(p *pod, grace int64) {
	if p.rec.Deletion != nil && grace < 0 {
		return
	}
	p.own()
	p.rec.Delete(seconds(grace), l.o.now())
	p.must = true
	l.steps.step(p)
}

// compare does what an edit of a pod's object asks for.
func (l *planner) compare(node admission.Node, p *pod, e *desired.Entry) {
	if p.rec.Deletion != nil || p.rec.Source == e.Source && !l.revived(node, p) {
		return // a pod that is being deleted is made anew from its object when it is over (TM11)
	}
	edit := desired.Compare(p.rec.Manifest, e.Pod())
	switch {
	case l.revived(node, p), edit.Kind == desired.Replace && p.rec.Pending == nil, p.rec.Final != nil && edit.Spec:
		l.end(p, -1)
		return
	case p.rec.Pending != nil:
		l.rewrite(p, e, edit)
	default:
		l.takeOver(p, e, edit)
	}
	p.rec.Source, p.must = e.Source, true
	l.steps.step(p)
}

// revived says whether a pod failed for a class that is there now (AD12), or was evicted and may be
// made anew (EX8).
func (l *planner) revived(node admission.Node, p *pod) bool {
	if l.evictor.returns(p) {
		return true
	}
	f := p.rec.Final
	return f != nil && (f.Reason == admission.RuntimeClassNotFound || f.Reason == admission.RuntimeHandlerNotFound) &&
		node.Judge(p.rec.Manifest, nil).Final == nil
}

// rewrite takes over a new form of a pod that was not admitted yet, whatever is new in it.
func (l *planner) rewrite(p *pod, e *desired.Entry, edit desired.Edit) {
	old := p.rec.Pod
	p.rec.Manifest, p.rec.Pod = e.Pod(), l.dress(e.Pod(), e)
	p.rec.Pod.UID, p.rec.Pod.Generation, p.rec.Pod.CreationTimestamp = old.UID, old.Generation, old.CreationTimestamp
	if edit.Spec {
		p.rec.Pod.Generation++
	}
}

// takeOver takes over a new form of a pod in place: what its class gave it when it was admitted
// stays (AD14).
func (l *planner) takeOver(p *pod, e *desired.Entry, edit desired.Edit) {
	old := p.rec.Pod
	pod := desired.Update(old, l.dress(e.Pod(), e))
	pod.Spec.NodeSelector, pod.Spec.PreemptionPolicy = old.Spec.NodeSelector, old.Spec.PreemptionPolicy
	for _, t := range old.Spec.Tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool { return o.MatchToleration(&t) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
	if edit.Spec {
		pod.Generation++
	}
	p.resize.Later(p.rec, pod, edit.Resize)
	p.rec.Manifest = e.Pod()
	p.rec.Edit(pod)
	l.inputs.refreshVolumes(p)
}

// grace is the grace period, in seconds, with which a pod whose object is gone was asked to end; -1
// for its own.
func (l *planner) grace(key manifest.Key) int64 {
	grace, found := l.graces[key]
	if !found {
		return -1
	}
	delete(l.graces, key)
	return grace
}
