// Package statuspage reads what the status page shows of a node, from where the commands have it:
// pods as `sunaba get pods`, figures as `sunaba top`, images as `sunaba images list`, events as
// `sunaba events`.
package statuspage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/platforms"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/classes"
	imageview "github.com/sunaba-project/sunaba/cmd/sunaba/images"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/table"
	"github.com/sunaba-project/sunaba/cmd/sunaba/top"
	"github.com/sunaba-project/sunaba/criserver/client"
	"github.com/sunaba-project/sunaba/criserver/errtext"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/pods/page"
	"github.com/sunaba-project/sunaba/version"
)

// CRI is what is asked of the server of this process.
type CRI interface {
	client.Sandboxes
	Status(context.Context, *runtime.StatusRequest) (*runtime.StatusResponse, error)
	ImageFsInfo(context.Context, *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error)
}

// Options are where a Reader reads.
type Options struct {
	// Agent has all pods of the server. Manifests is whether it runs those of manifests.
	Agent     api.Agent
	Manifests bool
	CRI       CRI
	Images    func(context.Context) ([]images.Image, error)
}

// Reader reads states, one after another.
type Reader struct {
	o     Options
	meter *top.Meter
	last  time.Time // when figures were read last
}

// New returns a Reader that has read nothing.
func New(o Options) *Reader { return &Reader{o: o} }

// freshTime is for how long a rate of CPU time is taken of the sample before.
const freshTime = time.Minute

// Read reads the state. What it fails to find out is among the problems of the state.
func (r *Reader) Read(ctx context.Context) page.State {
	var s page.State
	failed := func(err error) {
		if err != nil {
			s.Problems = append(s.Problems, errtext.Of(err))
		}
	}
	failed(r.node(ctx, &s.Node))
	for _, m := range r.o.Agent.Manifests() {
		if m.Status == api.ManifestRefused {
			failed(fmt.Errorf("manifest %s is refused: %s", m.File, m.Message))
		}
	}
	if time.Since(r.last) > freshTime {
		r.meter = top.NewMeter()
	}
	rows, err := top.Read(ctx, r.o.CRI, r.meter)
	failed(err)
	r.last = time.Now()
	s.Pods = pods(r.o.Agent.Pods(), rows, r.handlers(s.Node.Handlers), r.last)
	all, err := r.o.Images(ctx)
	if err != nil {
		failed(fmt.Errorf("list images: %w", err))
	}
	s.Images = variants(imageview.Sorted(all))
	s.Events = events(r.o.Agent.Events())
	return s
}

// node reads the node itself.
func (r *Reader) node(ctx context.Context, n *page.Node) error {
	n.Version, n.Manifests = version.String(), r.o.Manifests
	for _, o := range r.o.Agent.Objects(api.KindNode) {
		n.Name = o.GetName()
		if node, ok := o.(*corev1.Node); ok {
			n.Conditions = conditions(node.Status.Conditions)
		}
	}
	if n.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find name of the node: %w", err)
		}
		n.Name = strings.ToLower(host)
	}
	status, err := r.o.CRI.Status(ctx, &runtime.StatusRequest{Verbose: true})
	if err != nil {
		return fmt.Errorf("ask for the node's status: %w", err)
	}
	for _, c := range status.GetStatus().GetConditions() {
		n.Conditions = append(n.Conditions, page.Condition{Type: c.GetType(), Status: yesNo(c.GetStatus()), Good: c.GetStatus(), Message: c.GetMessage()})
	}
	var told struct{ Handlers map[string]classes.Handler }
	if err := json.Unmarshal([]byte(status.GetInfo()["config"]), &told); err != nil {
		return fmt.Errorf("read what the server tells of its handlers: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(told.Handlers)) {
		h := told.Handlers[name]
		n.Handlers = append(n.Handlers, page.Handler{Name: name, Version: h.Version, Problem: h.Problem, Default: h.Default})
	}
	used, err := r.o.CRI.ImageFsInfo(ctx, &runtime.ImageFsInfoRequest{})
	if err != nil {
		return fmt.Errorf("measure images: %w", err)
	}
	for _, f := range used.GetImageFilesystems() {
		n.ImageBytes += f.GetUsedBytes().GetValue()
	}
	return nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// conditions are a node's, Ready first: it is the only one that should hold.
func conditions(all []corev1.NodeCondition) (list []page.Condition) {
	for _, c := range all {
		status := strings.ToLower(string(c.Status))
		if c.Status != corev1.ConditionUnknown {
			status = yesNo(c.Status == corev1.ConditionTrue)
		}
		out := page.Condition{Type: string(c.Type), Status: status, Good: c.Status == corev1.ConditionFalse}
		ready := c.Type == corev1.NodeReady
		if ready {
			out.Good = c.Status == corev1.ConditionTrue
		}
		if !out.Good {
			out.Message = c.Message
		}
		if ready {
			list = slices.Insert(list, 0, out)
		} else {
			list = append(list, out)
		}
	}
	return list
}

// handlers are the handlers of RuntimeClasses by name, the default one by "".
func (r *Reader) handlers(all []page.Handler) map[string]string {
	of := map[string]string{}
	for _, o := range r.o.Agent.Objects(manifest.KindRuntimeClass) {
		if c, ok := o.(*nodev1.RuntimeClass); ok {
			of[c.Name] = c.Handler
		}
	}
	for _, h := range all {
		if h.Default {
			of[""] = h.Name
		}
	}
	return of
}

// pods are all pods, with the figures of those that run. handlers are those of the others.
func pods(all []*corev1.Pod, rows []top.Row, handlers map[string]string, now time.Time) []page.Pod {
	used := map[string]*top.Row{}
	for i := range rows {
		used[id(rows[i].Namespace, rows[i].Name, rows[i].UID)] = &rows[i]
	}
	var list []page.Pod
	for _, p := range all {
		out := page.Pod{ID: id(p.Namespace, p.Name, string(p.UID)), Namespace: p.Namespace, Name: p.Name, Created: p.CreationTimestamp.UnixMilli()}
		class := ""
		if p.Spec.RuntimeClassName != nil {
			class = *p.Spec.RuntimeClassName
		}
		out.Handler = cmp.Or(handlers[class], class)
		out.Ready, out.Status, out.Restarts = cycle.Columns(p, now)
		out.Tone = tone(p, out.Status)
		if u := used[out.ID]; u != nil {
			out.Handler = u.Handler
			out.Use = &page.Use{
				Cores: u.CPU, MemoryBytes: u.Memory, DeclaredBytes: u.Declared.MemoryBytes, DeclaredMillis: u.Declared.CPUMillis,
				MeasuredBytes: u.Measured, Verdict: string(u.Verdict),
			}
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses) {
			out.Containers = append(out.Containers, page.Container{Name: c.Name, Image: c.Image, State: state(c.State), Restarts: c.RestartCount})
		}
		list = append(list, out)
	}
	return list
}

// id is another one for each pod, also where clients give no UID.
func id(namespace, name, uid string) string { return namespace + "/" + name + "/" + uid }

// tone says how a pod's STATUS is to be taken.
func tone(p *corev1.Pod, status string) string {
	switch {
	case cycle.Ready(p):
		return page.Fine
	case p.Status.Phase == corev1.PodSucceeded:
		return page.Over
	case p.Status.Phase == corev1.PodFailed, strings.HasSuffix(status, "BackOff"), strings.Contains(status, "Err"):
		return page.Failing
	}
	return page.Waiting
}

func state(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "Running"
	case s.Terminated != nil:
		return fmt.Sprintf("%s (exit code %d)", cmp.Or(s.Terminated.Reason, "Terminated"), s.Terminated.ExitCode)
	case s.Waiting != nil:
		return cmp.Or(s.Waiting.Reason, "Waiting")
	}
	return "Waiting"
}

// variants are images by name, which come sorted.
func variants(rows []imageview.Row) []page.Image {
	var list []page.Image
	for _, row := range rows {
		if n := len(list); n == 0 || list[n-1].Name != row.Name {
			list = append(list, page.Image{Name: row.Name})
		}
		last := &list[len(list)-1]
		last.Variants = append(last.Variants, page.Variant{
			Platform: platforms.FormatAll(row.Platform), Handlers: strings.Join(row.Handlers, ", "), Kind: row.Kind.String(), Bytes: row.Size, Pinned: row.Pinned,
		})
	}
	return list
}

// events are the newest first.
func events(all []*corev1.Event) (list []page.Event) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *corev1.Event) int { return table.LastSeen(b).Compare(table.LastSeen(a)) })
	for _, e := range all {
		o := e.InvolvedObject
		object := strings.ToLower(o.Kind) + "/" + o.Name
		if o.Namespace != "" {
			object = o.Namespace + " " + object
		}
		list = append(list, page.Event{
			At: table.LastSeen(e).UnixMilli(), Warning: e.Type == corev1.EventTypeWarning, Reason: e.Reason, Object: object, Message: e.Message, Count: e.Count,
		})
	}
	return list
}
