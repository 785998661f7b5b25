// Package agent runs the pods that manifests describe: it is the shell around pods/cycle. One
// goroutine owns all state. It learns what happens from the CRI server's events, from the set of
// wanted objects and from its own timers, asks cycle.Next about the pod that is concerned, writes
// the pod's record, and has workers execute the actions. Nothing is polled, except user ids of
// other processes while a pod waits for some.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/pods/agent/identity"
	"github.com/sunaba-project/sunaba/pods/agent/logs"
	"github.com/sunaba-project/sunaba/pods/agent/outside"
	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/agent/shutdown"
	"github.com/sunaba-project/sunaba/pods/agent/usage"
	"github.com/sunaba-project/sunaba/pods/agent/worker"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/imagegc"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// CRI are the calls that the agent needs of a CRI server. Its errors are of errdefs' classes.
type CRI interface {
	worker.CRI
	imagegc.CRI
	usage.CRI
	ReopenContainerLog(context.Context, *runtime.ReopenContainerLogRequest) (*runtime.ReopenContainerLogResponse, error)
	ExecSync(context.Context, *runtime.ExecSyncRequest) (*runtime.ExecSyncResponse, error)
	// Events calls f with nil once it listens, then with each event in its order, until the context
	// or the stream ends. Each event has the sandbox's status and those of its containers.
	Events(ctx context.Context, f func(*runtime.ContainerEventResponse)) error
}

// Desired is the set of objects that are wanted: a *desired.Set.
type Desired interface {
	Run(ctx context.Context, changed func()) error
	Listed() <-chan struct{}
	Verdicts() []desired.Verdict
	Objects() []desired.Entry
	Get(manifest.Key) (desired.Entry, bool)
	Delete(manifest.Key) error
	Classes() []nodev1.RuntimeClass
	translate.Objects
	Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool)
}

// Options configure New.
type Options struct {
	CRI     CRI
	Desired Desired
	Volumes Volumes
	// Root is the folder of the agent's records, ROOT/pods. It is made.
	Root string
	// RunMark marks the sandboxes of a `sunaba run`, with translate.RunAnnotation, which are then
	// the only ones that are touched. Without it the mark is the agent's own, kept in Root.
	RunMark string
	// Write writes the records. Nil is package durable's.
	Write records.Write
	// EventsFile keeps the events until the node is started anew; its folder must exist.
	EventsFile string
	// Logs is the folder of the logs of all pods, mostly /var/log/pods.
	Logs string
	// Node is what is known of the node; the number of pods is part of Node.Allocatable. Labels are
	// the node's.
	Node   translate.Node
	Labels map[string]string
	// Classes are RuntimeClasses beside those of Desired, Handlers the names of the server's
	// runtime handlers. Both are asked at each admission.
	Classes  func() []nodev1.RuntimeClass
	Handlers func() []string
	Settings cycle.Settings
	// BootID is the node's present boot. Before are the events of what was done with the node
	// before the agent starts.
	BootID string
	Before []NodeEvent
	// ParallelPulls is how many images are pulled at once, PullFallback uses an image that is here
	// if policy Always cannot reach the registry; Unreachable says whether an error means that, nil
	// for errors of the network.
	ParallelPulls int
	PullFallback  bool
	Unreachable   func(error) bool
	LogLimits     logs.Limits
	Eviction      Eviction
	// ImageGC says when images are removed, ImageBudget how many bytes they may take together, 0
	// for as many as there are.
	ImageGC     imagegc.Policy
	ImageBudget int64
	// SubUIDs and SubGIDs are the files that name ranges for pods' user namespaces. UserRanges is
	// the folder of their locks, which all agents and runs of the machine share; "" for none.
	SubUIDs, SubGIDs, UserRanges string
	// Users are the ranges for pods' user namespaces instead, unless it is nil.
	Users *identity.Ranges
	// UnsafeSysctls are names of sysctls, or prefixes that end with an asterisk, that pods may set
	// beside the safe ones.
	UnsafeSysctls []string
	// Shutdown says how long the pods have when the node shuts down.
	Shutdown shutdown.Graces
	// AppArmor says that the node enforces profiles.
	AppArmor bool
	// UserAgent follows "kube-probe/" and "kube-lifecycle/" in requests: "sunaba-VERSION".
	UserAgent string
	// Ready, if set, is called once when the first listings are done; Changed, if set, after each
	// change of what runs, with a summary: "6 pods, 5 ready".
	Ready   func()
	Changed func(summary string)
	Logger  *slog.Logger
	// Text is how people read an error of the CRI server in events and statuses: without the words
	// of its class. Nil is the error's own.
	Text func(error) string
	// Stops calls f with the requests of others to the CRI server that stop what runs, until the
	// context ends. Nil: they are not known.
	Stops func(ctx context.Context, f func(outside.Stop))
	// Tracer records what is done with pods; nil for nobody.
	Tracer trace.Tracer

	now func() time.Time
}

// Volumes makes the files of pods: a *volumes.Manager.
type Volumes interface {
	worker.Volumes
	usage.Volumes
	Refresh(context.Context, *corev1.Pod) (changed bool, err error)
	Sweep(known func(types.UID) bool) error
}

// Agent runs pods. Its methods may be called at the same time.
type Agent struct{ l *loop }

// New reads the records of all pods. Nothing is done with them before Run.
//
// # Errors
//
// ErrFailedPrecondition for a record of a newer release; ErrInvalidArgument for options that cannot
// be; else those of the file system.
func New(o Options) (*Agent, error) {
	if o.now == nil {
		o.now = time.Now
	}
	for _, path := range []string{o.Root, o.EventsFile, o.Logs} {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("open pods: path %q is not absolute: %w", path, errdefs.ErrInvalidArgument)
		}
	}
	store, err := records.Open(o.Root, o.Write)
	if err != nil {
		return nil, err
	}
	mark := o.RunMark
	if mark == "" {
		if mark, err = identity.Mark(o.Root); err != nil {
			return nil, err
		}
	}
	ranges := o.Users
	if ranges == nil {
		if ranges, err = identity.OpenRanges(o.SubUIDs, o.SubGIDs); err != nil {
			return nil, err
		}
		ranges.Share(o.UserRanges, o.Root)
	}
	l, err := newLoop(o, store, ranges, mark)
	if err != nil {
		return nil, err
	}
	return &Agent{l}, nil
}

// Run runs the pods until the context ends, which is no error. What runs then keeps running. It
// may be called once.
//
// # Errors
//
// Those of Desired.Run.
func (a *Agent) Run(ctx context.Context) error { return a.l.run(ctx) }
