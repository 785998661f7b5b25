package podagent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/pods/agent"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/pods/volumes"
)

// service is what the commands see: pods from the agent, all other objects from the set of what
// is wanted.
type service struct {
	*agent.Agent
	node    *nodeView
	set     *desired.Set
	volumes *volumes.Manager
	// classes are the RuntimeClasses of the node's configuration, handlers the names of its handlers.
	classes  func() []nodev1.RuntimeClass
	handlers func() []string
}

// Next is what is waited for with a pod.
func (s *service) Next(uid types.UID) api.Next {
	text, until := s.Agent.Next(uid)
	return api.Next{Text: text, Until: until}
}

// Objects are those of one kind, or the node, sorted by namespace and name.
func (s *service) Objects(kind string) []metav1.Object {
	if kind == api.KindNode {
		return []metav1.Object{s.node.object()}
	}
	var list []metav1.Object
	for _, e := range s.set.Objects() {
		if e.Kind == kind {
			list = append(list, shown(e))
		}
	}
	if kind == manifest.KindClaim {
		list = append(list, s.released()...)
	}
	if kind == manifest.KindRuntimeClass {
		list = append(list, s.configured()...)
	}
	slices.SortFunc(list, func(a, b metav1.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return list
}

// configured are the classes that no manifest has: those of the node's configuration, and the
// handlers, whose own names are classes too. They have no age.
func (s *service) configured() (list []metav1.Object) {
	have := map[string]bool{}
	for _, c := range s.set.Classes() {
		have[c.Name] = true
	}
	all := s.classes()
	for _, name := range s.handlers() {
		all = append(all, nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: name})
	}
	for i := range all {
		if c := &all[i]; !have[c.Name] {
			have[c.Name] = true
			list = append(list, c.DeepCopy())
		}
	}
	return list
}

// claimReleased is the phase of a claim that is not wanted any more and whose data is still there:
// Kubernetes' word for a volume whose claim was deleted.
const claimReleased corev1.PersistentVolumeClaimPhase = "Released"

// released are the claims whose file was removed and whose data stays until they are deleted (VO17).
func (s *service) released() (list []metav1.Object) {
	for _, c := range s.volumes.ClaimsWithData() {
		if _, wanted := s.set.Claim(c.Namespace, c.Name); !wanted {
			list = append(list, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name},
				Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: c.Name},
				Status:     corev1.PersistentVolumeClaimStatus{Phase: claimReleased},
			})
		}
	}
	return list
}

// shown is an object as an API server shows it: with its age, its file, and the state of a claim.
func shown(e desired.Entry) metav1.Object {
	var out metav1.Object
	switch v := e.Value.(type) {
	case *corev1.ConfigMap:
		out = v.DeepCopy()
	case *corev1.Secret:
		out = v.DeepCopy()
	case *nodev1.RuntimeClass:
		out = v.DeepCopy()
	case *corev1.PersistentVolumeClaim:
		claim := v.DeepCopy()
		claim.Spec.VolumeName = claim.Name // the folder of that name
		claim.Status = corev1.PersistentVolumeClaimStatus{
			Phase: corev1.ClaimBound, AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests,
		}
		out = claim
	default:
		return e.Value
	}
	if created := out.GetCreationTimestamp(); created.IsZero() {
		out.SetCreationTimestamp(metav1.NewTime(e.Seen))
	}
	if e.Source.File != "" {
		annotations := maps.Clone(out.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[api.AnnotationFile] = e.Source.File
		out.SetAnnotations(annotations)
	}
	return out
}

// Manifests are the files that were seen.
func (s *service) Manifests() []api.Manifest {
	states := map[desired.Status]string{desired.Loaded: api.ManifestLoaded, desired.Refused: api.ManifestRefused, desired.Gone: api.ManifestGone}
	list := []api.Manifest{}
	for _, f := range s.set.Files() {
		list = append(list, api.Manifest{File: f.Path, Status: states[f.Status], Objects: f.Objects, Since: f.Since, Message: f.Message, Notes: f.Notes})
	}
	return list
}

// Apply makes or changes objects.
func (s *service) Apply(ctx context.Context, r api.ApplyRequest) (api.ApplyResult, error) {
	if s.Withdrawn() && !r.DryRun {
		return api.ApplyResult{}, fmt.Errorf("apply: all pods were deleted with --manifests, and none is made until the server is started again: %w", errdefs.ErrFailedPrecondition)
	}
	done, notes, err := s.set.Apply(r.File, r.Data, r.Namespace, r.DryRun)
	result := api.ApplyResult{Applied: []api.Applied{}, Notes: notes}
	var pods []manifest.Key
	for _, d := range done {
		result.Applied = append(result.Applied, api.Applied{Key: d.Key, Verb: string(d.Verb)})
		if d.Kind == manifest.KindPod && !r.DryRun {
			pods = append(pods, d.Key)
		}
	}
	s.Applied(ctx, pods)
	return result, err
}

// Delete orders the deletion of an applied object, or of all pods.
func (s *service) Delete(ctx context.Context, r api.DeleteRequest) error {
	grace := int64(-1)
	if r.GraceSeconds != nil {
		grace = *r.GraceSeconds
	}
	switch {
	case r.Manifests:
		return s.DeleteAll(ctx, grace)
	case r.Kind == manifest.KindClaim:
		return s.deleteClaim(r)
	case r.Kind != manifest.KindPod:
		err := s.set.Delete(r.Key)
		own := func(c metav1.Object) bool { return c.GetName() == r.Name }
		if errdefs.IsNotFound(err) && r.Kind == manifest.KindRuntimeClass && slices.ContainsFunc(s.configured(), own) {
			return fmt.Errorf("delete RuntimeClass %q: it is of the node's configuration: change it there: %w", r.Name, errdefs.ErrFailedPrecondition)
		}
		return err
	}
	return s.Agent.Delete(ctx, r.Namespace, r.Name, r.UID, grace)
}

// Debug adds an ephemeral container to a pod, with defaults and checked as a manifest's containers.
func (s *service) Debug(ctx context.Context, r api.DebugRequest) error {
	pod, found := s.Pod(r.Namespace, r.Name)
	if !found {
		return fmt.Errorf("add container %q to pod %q: there is none: %w", r.Container.Name, r.Namespace+"/"+r.Name, errdefs.ErrNotFound)
	}
	container, err := manifest.CheckEphemeral(pod, &r.Container)
	if err != nil {
		return err
	}
	return s.Agent.Debug(ctx, r.Namespace, r.Name, *container)
}

// deleteClaim deletes a claim that no pod uses, and its data, also if only that is left.
func (s *service) deleteClaim(r api.DeleteRequest) error {
	if err := s.volumes.ClaimUnused(r.Namespace, r.Name); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	err := s.set.Delete(r.Key)
	kept := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	if err != nil && !(errdefs.IsNotFound(err) && slices.Contains(s.volumes.ClaimsWithData(), kept)) {
		return err
	}
	if err := s.volumes.RemoveClaim(r.Namespace, r.Name); err != nil {
		return fmt.Errorf("the claim is deleted and its data is not: %w", err)
	}
	s.Signal()
	return nil
}

// Restart orders a restart of a pod's containers.
func (s *service) Restart(ctx context.Context, r api.RestartRequest) error {
	return s.Agent.Restart(ctx, r.Namespace, r.Name, r.Container)
}
