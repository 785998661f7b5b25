// Package sandbox runs pod sandboxes: the namespaces, network, cgroup, files and shim that the
// containers of a pod share.
//
// Run makes a sandbox by one list of steps, each of which can be undone from the sandbox's record
// alone. The first step writes that record as an intent, the last one as ready. If a step fails or
// the server dies, the steps are undone, now or at the next start of the server. Stop undoes all
// except the record and the folders, Remove the rest; both are idempotent. A sandbox whose shim or
// pause process dies becomes NotReady and waits for Stop.
//
// Package shims alone knows whether other sandboxes have the same shim. Bind mounts pin the
// namespaces, so a sandbox needs no process except the shim; if its containers share a PID
// namespace, a pause process holds that.
package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/ociruntime"
	"github.com/sunaba-project/sunaba/criserver/selinux"
	"github.com/sunaba-project/sunaba/criserver/shims"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Options configure New.
type Options struct {
	Handlers *runtimeclass.Table
	Network  network.Network
	Cgroups  *cgroup.Manager
	// Host are facts of the machine for the specification of pause processes.
	Host spec.Host
	// Runtime is what is known of an OCI runtime now.
	Runtime func(binary string) ociruntime.Report
	// Labels are SELinux'.
	Labels *selinux.Labels

	Records string // folder of the durable records
	Files   string // folder of the pods' hosts, hostname and resolv.conf files
	State   string // the pods' folders that a reboot may empty
	Shims   string // folder of those shims that pods share; as State

	Shim      string // shim binary
	WasmCache string
	Debug     bool // shims log at debug level
	// CPU returns how much CPU time a cgroup has used.
	CPU func(cgroup string) (time.Duration, error)
	// BootID tells one start of the machine from another.
	BootID string
	// Follow is told of every change of a record; see state.Follower. It may be nil.
	Follow state.Follower[state.Sandbox]
	// Started is told of each start of a sandbox and whether it failed; it may be nil.
	Started func(handler string, took time.Duration, err error)
	Logger  *slog.Logger
}

// Manager holds all sandboxes.
type Manager struct {
	o       Options
	records *state.Store[state.Sandbox]
	names   *state.Names
	shims   *shims.Set
	turns   chan struct{} // holds a token for each sandbox that is being cleaned up after

	starting atomic.Int64 // sandboxes whose parts are being started

	boxes    sync.Map     // *Sandbox, by id
	oomGroup atomic.Value // memory.oom.group of the last container with a guest, "" = none: a kubelet asks the same for all
}

// New loads the records of sandboxes. Nothing is touched before Recover.
func New(o Options) (*Manager, error) {
	records, err := state.Open(o.Records, o.Logger, state.CheckSandbox, o.Follow)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{o.Files, o.State} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, fmt.Errorf("create folder of sandboxes: %w", err)
		}
	}
	all, err := shims.New(shims.Options{
		Layout: shims.Layout{Pods: o.State, Shared: o.Shims, Cgroups: o.Cgroups},
		Binary: o.Shim, WasmCache: o.WasmCache, Debug: o.Debug, CPU: o.CPU, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	m := &Manager{o: o, records: records, names: state.NewNames(), shims: all, turns: make(chan struct{}, recoverAtOnce)}
	for _, rec := range records.List() {
		m.add(newSandbox(m, rec))
		o.Labels.Keep(rec.ProcessLabel)
		if rec.Unfinished() {
			continue // torn down by Recover
		}
		if !m.names.Hold(name(rec.Config.Value), rec.ID) {
			o.Logger.Warn("two sandboxes have one name", "sandbox", rec.ID, "name", name(rec.Config.Value))
		}
	}
	return m, nil
}

// name is what no two sandboxes may share.
func name(config *runtime.PodSandboxConfig) string {
	md := config.GetMetadata()
	return fmt.Sprintf("%s_%s_%s_%d", md.GetName(), md.GetNamespace(), md.GetUid(), md.GetAttempt())
}

// Get returns the record of a sandbox, by its id or an unambiguous prefix of it. One that is
// still being made is not there yet.
//
// # Errors
//
// ErrNotFound; ErrInvalidArgument if several ids start so.
func (m *Manager) Get(id string) (state.Sandbox, error) {
	return state.Made(m.records, "sandbox", id, func(rec state.Sandbox) state.Phase { return rec.Phase })
}

// List returns the records of all sandboxes that are not still being made.
func (m *Manager) List() []state.Sandbox {
	return m.records.Select(func(rec *state.Sandbox) bool { return rec.Phase != state.Creating })
}

// FindLive returns the newest ready sandbox with the metadata of config, of whatever attempt.
func (m *Manager) FindLive(config *runtime.PodSandboxConfig) (state.Sandbox, bool) {
	want := config.GetMetadata()
	var found state.Sandbox
	for _, rec := range m.records.Select(func(rec *state.Sandbox) bool {
		md := rec.Config.Value.GetMetadata()
		return rec.Phase == state.Ready && md.GetName() == want.GetName() && md.GetNamespace() == want.GetNamespace() && md.GetUid() == want.GetUid()
	}) {
		if rec.CreatedAt.After(found.CreatedAt) {
			found = rec
		}
	}
	return found, found.ID != ""
}

// created is the time of a new sandbox of a pod.
func (m *Manager) created(uid string) time.Time {
	at := time.Now()
	for _, rec := range m.records.Select(func(rec *state.Sandbox) bool { return rec.Config.Value.GetMetadata().GetUid() == uid }) {
		at = state.After(at, rec.CreatedAt)
	}
	return at
}

// NetNS returns the full id of a ready sandbox and the path of its network namespace, "" if it has
// the host's.
//
// # Errors
//
// ErrNotFound; ErrFailedPrecondition if it is not ready.
func (m *Manager) NetNS(id string) (full, path string, err error) {
	rec, err := m.Get(id)
	if err != nil {
		return "", "", err
	}
	if rec.Phase != state.Ready {
		return "", "", fmt.Errorf("sandbox %q is not ready: %w", rec.Name(), errdefs.ErrFailedPrecondition)
	}
	s, err := m.Sandbox(rec.ID)
	if err != nil {
		return "", "", err
	}
	return rec.ID, s.NetNamespace(rec.Config.Value), nil
}

// Leaf is the cgroup of one container of a sandbox, or (with the sandbox's id) of its shim, as OCI
// cgroupsPath.
func (m *Manager) Leaf(rec state.Sandbox, id string) string {
	return m.o.Cgroups.Leaf(rec.CgroupParent, id)
}

// DrawnLeaves are the cgroups of a sandbox's containers whose ids were drawn ahead; see
// shims.Layout.
func (m *Manager) DrawnLeaves(rec state.Sandbox) (map[string]string, error) {
	return m.shims.Layout().Drawn(rec)
}

// Sandbox returns the living side of a sandbox. id is a full one.
func (m *Manager) Sandbox(id string) (*Sandbox, error) {
	s, ok := m.boxes.Load(id)
	if !ok {
		return nil, fmt.Errorf("sandbox %q: %w", id, errdefs.ErrNotFound)
	}
	return s.(*Sandbox), nil
}

func (m *Manager) add(s *Sandbox) { m.boxes.Store(s.ID, s) }

func (m *Manager) drop(id string) { m.boxes.Delete(id) }

// Close ends the connections to the shims, which continue.
func (m *Manager) Close() {
	for _, s := range m.boxes.Range {
		s.(*Sandbox).shim.detach()
	}
	m.shims.Close()
}

// ShimReports describes the shims that pods share.
func (m *Manager) ShimReports(ctx context.Context) []shims.Report { return m.shims.Reports(ctx) }

// limit is how long cleaning up may take that nobody waits for.
const limit = 10 * time.Second

// Aside returns a context for undoing: it continues for a while when the request has been given up.
func Aside(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}
