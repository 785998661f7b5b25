// Package foreign is a CRI server that is not ours, as one for an agent. Such a server leaves the
// cgroups of pods to its kubelet. Here each sandbox gets one, in which all its containers are, with
// the limits of the pod, and from which the server reads what the pod uses.
package foreign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/client"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/durable"
)

// Server asks a foreign CRI server. Its methods may be called at the same time.
type Server struct {
	client.Client
	cgroups *cgroup.Manager
	making  *sync.Mutex // no cgroup is removed while one is made in the folder above
}

// New returns the server at a connection, which stays the caller's. Cgroups are made with the
// driver that the server names, or with cgroupfs, a kubelet's default, if it names none.
func New(ctx context.Context, conn grpc.ClientConnInterface) (Server, error) {
	driver := string(cgroup.Cgroupfs)
	c, err := runtime.NewRuntimeServiceClient(conn).RuntimeConfig(ctx, &runtime.RuntimeConfigRequest{})
	if err = errgrpc.ToNative(err); err != nil && !errdefs.IsNotImplemented(err) {
		return Server{}, fmt.Errorf("ask for cgroup driver: %w", err)
	}
	if c.GetLinux() != nil && c.GetLinux().GetCgroupDriver() == runtime.CgroupDriver_SYSTEMD {
		driver = string(cgroup.Systemd)
	}
	cgroups, err := cgroup.New(driver)
	if err != nil {
		return Server{}, err
	}
	return Server{Client: client.New(conn), cgroups: cgroups, making: &sync.Mutex{}}, nil
}

// parent is the cgroup of all sandboxes that a pod has in its life.
func (s Server) parent(uid string) (string, error) {
	id := strings.ReplaceAll(uid, "-", "") // which would be slices in slices
	if id == "" || strings.Trim(id, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%.80q is not the UID of a pod: %w", uid, errdefs.ErrInvalidArgument)
	}
	parent, _, err := s.cgroups.Pod(id, "")
	return parent, err
}

func (s Server) limit(parent string, overhead, resources *runtime.LinuxContainerResources) error {
	l := sandbox.Limits(state.Sandbox{Overhead: state.Resources{Value: overhead}, Resources: state.Resources{Value: resources}})
	return cgroup.Refused("resources", s.cgroups.LimitPod(parent, l))
}

// RunPodSandbox makes a sandbox in a cgroup of the pod.
func (s Server) RunPodSandbox(ctx context.Context, q *runtime.RunPodSandboxRequest) (*runtime.RunPodSandboxResponse, error) {
	linux := q.GetConfig().GetLinux()
	if linux == nil || linux.GetCgroupParent() != "" {
		return s.Client.RunPodSandbox(ctx, q)
	}
	parent, err := s.parent(q.GetConfig().GetMetadata().GetUid())
	if err != nil {
		return nil, err
	}
	lock, err := s.create(parent, linux)
	if err != nil {
		return nil, fmt.Errorf("make cgroup of pod: %w", err)
	}
	linux.CgroupParent = s.cgroups.Path(parent)
	resp, err := s.Client.RunPodSandbox(ctx, q)
	_ = lock.Close()
	if err != nil {
		_ = s.remove(parent) // another sandbox of the pod may be in it
	}
	return resp, err
}

// create makes a pod's cgroup. It is locked until its first sandbox is made: no sweep removes it.
func (s Server) create(parent string, linux *runtime.LinuxPodSandboxConfig) (lock *os.File, err error) {
	for lock == nil {
		if err := s.make(parent); err != nil {
			return nil, err
		}
		if lock, err = s.lock(parent, durable.WaitLock); err != nil {
			return nil, err
		}
	}
	// A sweep may have removed a part of it before it was locked.
	if err = s.make(parent); err == nil {
		err = s.limit(parent, linux.GetOverhead(), linux.GetResources())
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func (s Server) make(parent string) error {
	s.making.Lock()
	defer s.making.Unlock()
	return s.cgroups.MakePod(parent)
}

// lock locks a pod's cgroup with the function for as long as it is open; nil if it is removed.
func (s Server) lock(parent string, with func(*os.File) error) (*os.File, error) {
	// The directory that a removal comes to last.
	for _, dir := range slices.Backward(s.cgroups.Group(parent).Dirs()) {
		f, err := os.Open(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		named := false
		if err = with(f); err == nil {
			named, err = durable.Named(f)
		}
		if !named {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	return nil, nil
}

func (s Server) remove(parent string) error {
	s.making.Lock()
	defer s.making.Unlock()
	return s.cgroups.RemovePod(parent)
}

// UpdatePodSandboxResources limits the cgroup of a pod anew.
func (s Server) UpdatePodSandboxResources(ctx context.Context, q *runtime.UpdatePodSandboxResourcesRequest) (*runtime.UpdatePodSandboxResourcesResponse, error) {
	parent, err := s.parentOf(ctx, q.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if err := s.limit(parent, q.GetOverhead(), q.GetResources()); err != nil {
		return nil, fmt.Errorf("update resources of sandbox %q: %w", q.GetPodSandboxId(), err)
	}
	resp, err := s.Client.UpdatePodSandboxResources(ctx, q)
	if errdefs.IsNotImplemented(err) { // an older server, which had nothing to do with it
		return &runtime.UpdatePodSandboxResourcesResponse{}, nil
	}
	return resp, err
}

// parentOf is the cgroup of a sandbox's pod.
func (s Server) parentOf(ctx context.Context, sandbox string) (string, error) {
	status, err := s.Client.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if err != nil {
		return "", err
	}
	return s.parent(status.GetStatus().GetMetadata().GetUid())
}

// RemovePodSandbox removes a sandbox, and the cgroup with the last sandbox of its pod. The cgroup is
// the first to go: while the sandbox is known, a removal that was interrupted is tried again.
func (s Server) RemovePodSandbox(ctx context.Context, q *runtime.RemovePodSandboxRequest) (*runtime.RemovePodSandboxResponse, error) {
	parent, err := s.parentOf(ctx, q.GetPodSandboxId())
	if errdefs.IsNotFound(err) {
		return s.Client.RemovePodSandbox(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	_, stopped := s.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: q.GetPodSandboxId()})
	last, err := s.last(ctx, q.GetPodSandboxId())
	if err = errors.Join(stopped, err); err == nil && last {
		err = s.remove(parent)
	}
	if err != nil {
		return nil, fmt.Errorf("remove cgroup of pod: %w", err)
	}
	return s.Client.RemovePodSandbox(ctx, q)
}

// last says whether a sandbox's pod has no other.
func (s Server) last(ctx context.Context, id string) (bool, error) {
	list, err := s.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return false, err
	}
	pods := map[string]int{}
	uid := ""
	for _, pod := range list.GetItems() {
		pods[pod.GetMetadata().GetUid()]++
		if pod.GetId() == id {
			uid = pod.GetMetadata().GetUid()
		}
	}
	return pods[uid] <= 1, nil
}

// Sweep removes the cgroups that were made for pods by clients of any server that were killed
// before a sandbox was in them: no sandbox of this server is their pod's, no process is in them,
// and nobody is making a sandbox for them.
func (s Server) Sweep(ctx context.Context) error {
	// As long as a UID; the pods of our own servers have names of 64 digits there.
	const zero = "00000000000000000000000000000000"
	pattern, err := s.parent(zero)
	if err != nil {
		return err
	}
	before, after, _ := strings.Cut(path.Base(s.cgroups.Path(pattern)), zero)
	left := map[string]bool{}
	for _, root := range s.cgroups.Roots() {
		entries, err := os.ReadDir(filepath.Join(root, path.Dir(s.cgroups.Path(pattern))))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("look for cgroups of pods: %w", err)
		}
		for _, e := range entries {
			id := strings.TrimSuffix(strings.TrimPrefix(e.Name(), before), after)
			if parent, err := s.parent(id); err == nil && len(id) == len(zero) && e.Name() == before+id+after {
				left[parent] = true
			}
		}
	}
	var errs []error
	for parent := range left {
		errs = append(errs, s.sweep(ctx, parent))
	}
	return errors.Join(errs...)
}

func (s Server) sweep(ctx context.Context, parent string) error {
	lock, err := s.lock(parent, durable.Lock)
	if lock == nil {
		if errors.Is(err, durable.ErrLocked) {
			return nil
		}
		return err
	}
	defer lock.Close()
	// After the lock, so that what was made before is in it.
	list, err := s.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, pod := range list.GetItems() {
		if of, err := s.parent(pod.GetMetadata().GetUid()); err == nil && of == parent {
			return nil
		}
	}
	if pids, err := s.cgroups.Group(parent).PidsInAny(); err != nil || len(pids) > 0 {
		return err
	}
	return s.remove(parent)
}
