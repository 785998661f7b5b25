// Package api is how others see and change the pods of a node: HTTP with JSON on a unix socket that
// only its owner may use, the client of that, and a read-only HTTP API for monitoring.
//
// The socket is between the two halves of one version and promises nothing to others; the objects
// in it are as Kubernetes encodes them. What it serves it asks an Agent for.
package api

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

// SocketName is the name of the socket in the folder of the server's state.
const SocketName = "pods.sock"

// AnnotationFile is the annotation of an object that names the file where it stands.
const AnnotationFile = "io.sunaba.file"

// Agent is what runs the pods. Its methods may be called at the same time. What it returns is never
// changed afterwards, by it or by this package.
type Agent interface {
	// Pods are all pods with their computed status, sorted by namespace and name.
	Pods() []*corev1.Pod
	// Next is what the agent waits for with a pod.
	Next(pod types.UID) Next
	// Events are the recorded events, from the oldest to the newest.
	Events() []*corev1.Event
	// Objects are those of one of manifest's kinds except pods, or the node, sorted by namespace and
	// name.
	Objects(kind string) []metav1.Object
	// Manifests are the files that were seen, sorted by name.
	Manifests() []Manifest
	// Apply makes or changes the objects of a manifest, all or none of them.
	Apply(ctx context.Context, r ApplyRequest) (ApplyResult, error)
	// Delete orders the deletion of an applied object and does not wait for its end. It is
	// ErrNotFound if the object does not exist, ErrFailedPrecondition if it stands in a file or its UID
	// differs.
	Delete(ctx context.Context, r DeleteRequest) error
	// Restart orders a restart of a pod's containers and does not wait for it.
	Restart(ctx context.Context, r RestartRequest) error
	// Debug adds an ephemeral container to a pod and does not wait for its start. It is ErrNotFound
	// if there is no such pod, ErrInvalidArgument for a container that may not be one,
	// ErrAlreadyExists for a name that is in use, ErrFailedPrecondition if the pod is over or being
	// stopped.
	Debug(ctx context.Context, r DebugRequest) error
	// Watch is closed when something of all this has changed since Watch was called.
	Watch() <-chan struct{}
	// Health is nil if the agent works within its time and its CRI server answers.
	Health() error
}

// Shutdowner ends the pods when the node shuts down.
type Shutdowner interface {
	// Shutdown ends all pods, and returns when they are over or out of time. It is
	// ErrFailedPrecondition if it is turned off, ErrAborted if it is taken back.
	Shutdown(ctx context.Context) error
	// CancelShutdown takes Shutdown back.
	CancelShutdown(ctx context.Context) error
}

// Next is what is waited for, in words, and until when at the latest. An empty text is nothing, a
// zero time no end.
type Next struct {
	Text  string    `json:"text,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// States of manifest files.
const (
	ManifestLoaded  = "Loaded"
	ManifestRefused = "Refused"
	ManifestGone    = "Gone"
)

// Manifest is what is known of a manifest file.
type Manifest struct {
	metav1.TypeMeta `json:",inline"`
	File            string    `json:"file"`
	Status          string    `json:"status"`
	Objects         int       `json:"objects"`
	Since           time.Time `json:"since"`
	Message         string    `json:"message,omitempty"`
	// Notes are what is ignored of it.
	Notes []string `json:"notes,omitempty"`
}

// ApplyRequest is a manifest to apply.
type ApplyRequest struct {
	// File names the manifest in messages, Data is its text.
	File string `json:"file"`
	Data []byte `json:"data"`
	// Namespace is that of objects that name none; objects that name another are refused. Empty:
	// each is in its own, else in "default".
	Namespace string `json:"namespace,omitempty"`
	// DryRun checks and compares, and changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
}

// Verbs of Applied.
const (
	Created    = "created"
	Configured = "configured"
	Unchanged  = "unchanged"
)

// Applied is what was done with one object.
type Applied struct {
	manifest.Key
	Verb string
}

// ApplyResult is what was done with a manifest's objects, in their order.
type ApplyResult struct {
	Applied []Applied `json:"applied"`
	// Notes are what the manifest says without effect.
	Notes []string `json:"notes,omitempty"`
}

// DeleteRequest names an object to delete.
type DeleteRequest struct {
	manifest.Key
	// UID, if it is set, must be the object's.
	UID types.UID
	// GraceSeconds takes the place of a pod's grace period; nil leaves it.
	GraceSeconds *int64
	// Manifests asks, without a key, for the end of all pods, also of those of files. None is made
	// until the server is started again; files and applied objects stay.
	Manifests bool
}

// RestartRequest names a pod, and one of its containers or none for all.
type RestartRequest struct {
	Namespace, Name, Container string
}

// DebugRequest names a pod, and has the container to add to it.
type DebugRequest struct {
	Namespace string                    `json:"namespace"`
	Name      string                    `json:"name"`
	Container corev1.EphemeralContainer `json:"container"`
}

// ShutdownRequest asks for the end of all pods because the node shuts down, or takes that back.
type ShutdownRequest struct {
	Cancel bool `json:"cancel,omitempty"`
}

// ContainerUsage is what a running container of a pod uses.
type ContainerUsage struct {
	Pod       types.UID `json:"pod"`
	Container string    `json:"container"`
	// NanoCores are billionths of a core, MemoryBytes the working set.
	NanoCores   uint64 `json:"nanoCores"`
	MemoryBytes uint64 `json:"memoryBytes"`
}

// ServerInfo is what the commands need to know of the server.
type ServerInfo struct {
	// CRISocket is the absolute path of its CRI socket, "" if it is not told.
	CRISocket string `json:"criSocket,omitempty"`
	// StreamCertificate is the absolute path of the certificate with which its streams are served,
	// in PEM; "" if they are not encrypted or it is not told.
	StreamCertificate string `json:"streamCertificate,omitempty"`
	// Manifests is whether it runs pods of manifests, not only shows those of others.
	Manifests bool `json:"manifests,omitempty"`
}

// Description is a pod with what is known about it besides.
type Description struct {
	Pod    *corev1.Pod    `json:"pod"`
	Next   Next           `json:"next,omitzero"`
	Events []corev1.Event `json:"events"`
}
