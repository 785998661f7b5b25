package state

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Phase says how far a sandbox or a container has come.
type Phase string

const (
	// Creating is an intent: parts of it may exist. After a restart of the server it is torn down.
	Creating Phase = "creating"

	// Ready is a sandbox whose network and shim are up.
	Ready Phase = "ready"
	// NotReady is a sandbox that cannot be used any more but may still hold something: its shim or
	// pause process has died, or stopping it did not succeed.
	NotReady Phase = "notready"
	// Stopped is a sandbox that holds nothing any more.
	Stopped Phase = "stopped"

	// Created is a container that was not started yet.
	Created Phase = "created"
	// Running is a container whose process was started.
	Running Phase = "running"
	// Exited is a container whose process has ended or failed to start.
	Exited Phase = "exited"
	// Unknown is a container whose shim does not answer. It is never written to the disk.
	Unknown Phase = "unknown"
)

// Message stores a protobuf message inside a JSON record.
type Message[M any, P interface {
	*M
	proto.Message
}] struct{ Value P }

// PodConfig is a pod's configuration as the CRI client sent it.
type PodConfig = Message[runtime.PodSandboxConfig, *runtime.PodSandboxConfig]

// ContainerConfig is a container's configuration as the CRI client sent it.
type ContainerConfig = Message[runtime.ContainerConfig, *runtime.ContainerConfig]

// Resources are limits as the CRI client sent them.
type Resources = Message[runtime.LinuxContainerResources, *runtime.LinuxContainerResources]

// MarshalJSON implements json.Marshaler.
func (m Message[M, P]) MarshalJSON() ([]byte, error) {
	if m.Value == nil {
		return []byte("null"), nil
	}
	return protojson.Marshal(m.Value)
}

// UnmarshalJSON implements json.Unmarshaler. Unknown fields are ignored: they are of another
// release.
func (m *Message[M, P]) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		m.Value = nil
		return nil
	}
	v := P(new(M))
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, v); err != nil {
		return err
	}
	m.Value = v
	return nil
}

// Network is what the pod network gave to a sandbox.
type Network struct {
	// Up is written as an intent before the network is asked and stays until the teardown
	// succeeded: as long as it is set, a teardown is owed.
	Up        bool            `json:"up,omitempty"`
	IPs       []netip.Addr    `json:"ips,omitempty"`
	Interface string          `json:"interface,omitempty"`
	Raw       json.RawMessage `json:"raw,omitempty"`
}

// Sandbox is the durable record of a pod sandbox.
type Sandbox struct {
	ID        string    `json:"id"`
	Phase     Phase     `json:"phase"`
	CreatedAt time.Time `json:"createdAt"`
	BootID    string    `json:"bootID"`

	Config PodConfig `json:"config"`
	// Handler is what RunPodSandbox asked for, "" for the default; the next three are what it stood
	// for at that time.
	Handler     string `json:"handler"`
	HandlerName string `json:"handlerName"`
	HandlerType string `json:"handlerType"`
	Binary      string `json:"binary,omitempty"`
	// ShimScope is the handler's at that time, runtimeclass.ScopePod without one.
	ShimScope runtimeclass.Scope `json:"shimScope,omitempty"`

	// CgroupParent is the parent of all cgroups of the pod; CgroupOwned says that the server made
	// it and removes it.
	CgroupParent string `json:"cgroupParent"`
	CgroupOwned  bool   `json:"cgroupOwned,omitempty"`

	Network Network `json:"network"`
	// ProcessLabel is the pod's SELinux label, "" without any.
	ProcessLabel string `json:"processLabel,omitempty"`

	// Restoring says that containers from a checkpoint are still being made in it. After a restart
	// of the server it is torn down, as one that is Creating.
	Restoring bool `json:"restoring,omitempty"`

	// Overhead and Resources are the newest of RunPodSandbox and UpdatePodSandboxResources.
	Overhead  Resources `json:"overhead"`
	Resources Resources `json:"resources"`
}

// Unfinished says that the request which makes the sandbox has not ended.
func (r Sandbox) Unfinished() bool { return r.Phase == Creating || r.Restoring }

// Container is the durable record of a container.
type Container struct {
	ID        string    `json:"id"`
	SandboxID string    `json:"sandboxID"`
	Phase     Phase     `json:"phase"`
	CreatedAt time.Time `json:"createdAt"`

	Config    ContainerConfig `json:"config"`
	Resources Resources       `json:"resources"`
	// Wanted are limits that are being set, nil if none are: what the specification and the kernel
	// have may be these or Resources. A server that finds them sets them again.
	Wanted Resources `json:"wanted"`

	// ImageID is the image's id, ImageName a name people know it by, ImageRef its reference by
	// digest (or the id).
	ImageID       string `json:"imageID"`
	ImageName     string `json:"imageName"`
	ImageRef      string `json:"imageRef"`
	ImagePlatform string `json:"imagePlatform"`
	// StopSignal is a signal's name, as an image has it ("SIGTERM", "15").
	StopSignal string `json:"stopSignal"`
	LogPath    string `json:"logPath,omitempty"`
	// RootFS are the mounts of the root filesystem, which the shim makes; none for a WebAssembly
	// artifact. SnapshotKey is the image store's key of it.
	RootFS      []mount.Mount `json:"rootFS,omitempty"`
	SnapshotKey string        `json:"snapshotKey"`
	CgroupsPath string        `json:"cgroupsPath"`
	// ImageVolumes are the images that the container mounts.
	ImageVolumes []ImageVolume `json:"imageVolumes,omitempty"`
	User         User          `json:"user"`
	// FromCheckpoint says that its processes are not run anew: Start takes them up where they were.
	FromCheckpoint bool `json:"fromCheckpoint,omitempty"`
	// Unstartable is why its program cannot be executed, as far as the image tells: its start says so.
	Unstartable string `json:"unstartable,omitempty"`
	// ProcessLabel is the SELinux label of a container that has one of its own, not its pod's.
	ProcessLabel string `json:"processLabel,omitempty"`

	PID              int       `json:"pid,omitempty"`
	StartAttemptedAt time.Time `json:"begunAt,omitzero"` // when a start was attempted: from then on its process may have run
	StartedAt        time.Time `json:"startedAt,omitzero"`
	FinishedAt       time.Time `json:"finishedAt,omitzero"`
	ExitCode         int32     `json:"exitCode"`
	Reason           string    `json:"reason,omitempty"`
	Message          string    `json:"message,omitempty"`

	// StopSent is when the stop signal was sent: a repeated StopContainer, also after a restart of
	// the server, does not send it again.
	StopSent time.Time `json:"stopSent,omitzero"`
}

// ImageVolume is an image that a container mounts.
type ImageVolume struct {
	// Mount is the index of the mount in the container's configuration.
	Mount int `json:"mount"`
	// ImageID is the image's id, ImageRef its reference by digest (or the id).
	ImageID  string `json:"imageID"`
	ImageRef string `json:"imageRef"`
	// SnapshotKey is the image store's key of the view, Mounts what the shim mounts for it.
	SnapshotKey string        `json:"snapshotKey"`
	Mounts      []mount.Mount `json:"mounts,omitempty"`
}

// Name is what people call the container: the name that its client gave it, else its id.
func (c Container) Name() string { return cmp.Or(c.Config.Value.GetMetadata().GetName(), c.ID) }

// Name is what people call the sandbox: its pod's name, else its id.
func (r Sandbox) Name() string { return cmp.Or(r.Config.Value.GetMetadata().GetName(), r.ID) }

// Unfinished says that the request which makes the container has not ended.
func (c Container) Unfinished() bool { return c.Phase == Creating }

// Keys are the image store's keys of what a container has of it.
func (c Container) Keys() []string {
	keys := []string{c.SnapshotKey}
	for _, v := range c.ImageVolumes {
		keys = append(keys, v.SnapshotKey)
	}
	return keys
}

// User is who a container's first process runs as.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// CheckSandbox refuses a record that cannot be worked with; it is given to Open.
func CheckSandbox(id string, r Sandbox) error {
	switch {
	case r.ID != id:
		return fmt.Errorf("record %q names itself %q", id, r.ID)
	case r.Config.Value.GetMetadata() == nil:
		return fmt.Errorf("record %q has no metadata", id)
	case r.Phase != Creating && r.Phase != Ready && r.Phase != NotReady && r.Phase != Stopped:
		return fmt.Errorf("record %q has unknown phase %q", id, r.Phase)
	}
	return nil
}

// CheckContainer refuses a record that cannot be worked with; it is given to Open.
func CheckContainer(id string, r Container) error {
	switch {
	case r.ID != id:
		return fmt.Errorf("record %q names itself %q", id, r.ID)
	case r.SandboxID == "":
		return fmt.Errorf("record %q has no sandbox", id)
	case r.Config.Value.GetMetadata() == nil:
		return fmt.Errorf("record %q has no metadata", id)
	case r.Phase != Creating && r.Phase != Created && r.Phase != Running && r.Phase != Exited:
		return fmt.Errorf("record %q has unknown phase %q", id, r.Phase)
	}
	return nil
}

// After is the time of creation at of something new, or just after that of an older one, if the
// clock was set back: clients tell attempts apart by it. Both are of the wall clock, as in records.
func After(at, older time.Time) time.Time {
	if at = at.Round(0); at.After(older) {
		return at
	}
	return older.Add(1)
}
