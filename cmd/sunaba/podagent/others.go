package podagent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/pods/agent/views"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/foreign"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// othersTime bounds a look at the pods of others.
const othersTime = 30 * time.Second

// newOthers is a view of the pods that others made.
func newOthers(cri foreign.CRI, nodeName string, classes func() []nodev1.RuntimeClass) *foreign.View {
	return foreign.New(foreign.Options{CRI: cri, NodeName: nodeName, Class: func(handler string) string { return classOf(classes(), handler) }})
}

// classOf is the one RuntimeClass of a handler, or the handler if it has no class or several.
func classOf(all []nodev1.RuntimeClass, handler string) string {
	name, n := handler, 0
	for _, c := range all {
		if c.Handler == handler {
			name = c.Name
			n++
		}
	}
	if n > 1 {
		return handler
	}
	return name
}

// shared are the agent's pods and those of others, which commands see and do not change.
type shared struct {
	*service
	others *foreign.View
	logger *slog.Logger
}

// Pods are all pods of the server.
func (s *shared) Pods() []*corev1.Pod {
	others := lookAt(s.others, s.logger)
	if len(others) == 0 {
		return s.service.Pods()
	}
	all := append(slices.Clone(s.service.Pods()), others...)
	slices.SortStableFunc(all, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Watch is closed at the next change.
func (s *shared) Watch() <-chan struct{} {
	changed := s.service.Watch()
	s.others.OnChange(s.Signal)
	return changed
}

// Delete orders the deletion of an applied object, or of all pods of manifests.
func (s *shared) Delete(ctx context.Context, r api.DeleteRequest) error {
	err := s.service.Delete(ctx, r)
	if errdefs.IsNotFound(err) && r.Kind == manifest.KindPod {
		return explain(err, "delete", s.others, s.logger, r.Namespace, r.Name)
	}
	return err
}

// Restart orders a restart of a pod's containers.
func (s *shared) Restart(ctx context.Context, r api.RestartRequest) error {
	return explain(s.service.Restart(ctx, r), "restart", s.others, s.logger, r.Namespace, r.Name)
}

// Debug adds an ephemeral container to a pod.
func (s *shared) Debug(ctx context.Context, r api.DebugRequest) error {
	return explain(s.service.Debug(ctx, r), "debug", s.others, s.logger, r.Namespace, r.Name)
}

// lookAt are the pods of others, none if they cannot be seen now.
func lookAt(others *foreign.View, logger *slog.Logger) []*corev1.Pod {
	ctx, cancel := context.WithTimeout(context.Background(), othersTime)
	defer cancel()
	pods, err := others.Pods(ctx)
	if err != nil {
		logger.Warn("failed to look at the pods that are not of manifests", "error", err)
	}
	return pods
}

// explain says of a pod that is not the agent's who made it.
func explain(err error, verb string, others *foreign.View, logger *slog.Logger, namespace, name string) error {
	if !errdefs.IsNotFound(err) {
		return err
	}
	for _, p := range lookAt(others, logger) {
		if p.Namespace == namespace && p.Name == name {
			return ownedBy(verb, p)
		}
	}
	return err
}

func ownedBy(verb string, p *corev1.Pod) error {
	return fmt.Errorf("%s pod %q: %s made it, which is to change it; \"sunaba stop\" and \"sunaba rm\" end it: %w",
		verb, p.Namespace+"/"+p.Name, foreign.Made(p.Annotations), errdefs.ErrFailedPrecondition)
}

// watcher serves commands on a server without an agent: they see the pods of others.
type watcher struct {
	views.Views
	others  *foreign.View
	classes func() []nodev1.RuntimeClass
	logger  *slog.Logger
}

// WatchOptions are what a Watcher needs of the daemon.
type WatchOptions struct {
	// State is the folder of the server's state, Socket its CRI socket, StreamCertificate as in
	// Options.
	State, Socket, StreamCertificate string
	CRI                              foreign.CRI
	Classes                          func() []nodev1.RuntimeClass
	Logger                           *slog.Logger
}

// Watcher serves commands about pods on a server that runs none of manifests.
type Watcher struct {
	api   *api.Server
	agent *watcher
}

// All are the pods of others, as the commands see them.
func (w *Watcher) All() api.Agent { return w.agent }

// Watch starts to serve. The caller closes it.
func Watch(o WatchOptions) (*Watcher, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	info, err := Options{Socket: o.Socket, StreamCertificate: o.StreamCertificate}.info()
	if err != nil {
		return nil, err
	}
	w := &watcher{others: newOthers(o.CRI, strings.ToLower(host), o.Classes), classes: o.Classes, logger: o.Logger}
	served, err := api.Listen(filepath.Join(o.State, api.SocketName), api.Options{Agent: w, Server: info, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return &Watcher{served, w}, nil
}

// Close stops to serve.
func (w *Watcher) Close() error {
	w.agent.others.Close()
	return w.api.Close()
}

// Pods are the pods of others.
func (w *watcher) Pods() []*corev1.Pod { return lookAt(w.others, w.logger) }

// Watch is closed at the next change.
func (w *watcher) Watch() <-chan struct{} {
	changed := w.Views.Watch()
	w.others.OnChange(w.Signal)
	return changed
}

// Next is nothing: nobody here waits for anything.
func (w *watcher) Next(types.UID) api.Next { return api.Next{} }

// Events are none: nobody here records any.
func (w *watcher) Events() []*corev1.Event { return nil }

// Objects are the node's RuntimeClasses.
func (w *watcher) Objects(kind string) (list []metav1.Object) {
	if kind != manifest.KindRuntimeClass {
		return nil
	}
	for _, c := range w.classes() {
		list = append(list, c.DeepCopy())
	}
	slices.SortFunc(list, func(a, b metav1.Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return list
}

// Manifests are none.
func (w *watcher) Manifests() []api.Manifest { return nil }

// Health is nil: it is that of the server.
func (w *watcher) Health() error { return nil }

// noManifests is the error of what needs an agent.
func noManifests(what string) error {
	return fmt.Errorf("%s: this server runs no pods of manifests: set [pods] manifests in its configuration: %w", what, errdefs.ErrFailedPrecondition)
}

// Apply is refused.
func (w *watcher) Apply(context.Context, api.ApplyRequest) (api.ApplyResult, error) {
	return api.ApplyResult{}, noManifests("apply")
}

// Delete is refused.
func (w *watcher) Delete(_ context.Context, r api.DeleteRequest) error {
	if r.Kind != manifest.KindPod || r.Manifests {
		return noManifests("delete")
	}
	return w.refuse("delete", r.Namespace, r.Name)
}

// Restart is refused.
func (w *watcher) Restart(_ context.Context, r api.RestartRequest) error {
	return w.refuse("restart", r.Namespace, r.Name)
}

// Debug is refused.
func (w *watcher) Debug(_ context.Context, r api.DebugRequest) error {
	return w.refuse("debug", r.Namespace, r.Name)
}

func (w *watcher) refuse(verb, namespace, name string) error {
	err := fmt.Errorf("%s pod %q: no such pod: %w", verb, namespace+"/"+name, errdefs.ErrNotFound)
	return explain(err, verb, w.others, w.logger, namespace, name)
}
