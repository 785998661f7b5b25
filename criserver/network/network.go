// Package network gives pods their network: through CNI plugins where the node has a CNI
// configuration, and through an embedded network (a bridge, veth pairs and nftables rules of our
// own) where it has none.
//
// # Life of a pod's network
//
// The caller pins a network namespace (package netns), and calls Setup once for it. Setup returns
// when the pod is reachable and everything that Teardown needs is durable; on error it has undone
// its changes. The caller keeps Result and passes it to Teardown, which is idempotent and does not
// need the namespace. A pod is torn down by the kind of network that set it up, even if the node
// has switched to the other kind since. When the daemon starts, GC removes what a crash left. Close
// keeps the pods' network: it stays while no daemon runs.
package network

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"time"
)

// Pod is what a network needs to know of a pod sandbox.
type Pod struct {
	ID, Name, Namespace, UID string
	// NetNS is the path of the pod's pinned network namespace.
	NetNS string
	// Ports of the node that lead to the pod. Entries without a host port are skipped.
	Ports        []PortMapping
	Annotations  map[string]string
	CgroupParent string
	DNS          DNS
}

// PortMapping leads a port of the node to a port of the pod.
type PortMapping struct {
	Protocol string // TCP, UDP or SCTP in any case; "" = TCP
	// HostIP is the node's address the port is open on: "" = every address, "0.0.0.0" every IPv4
	// address, "::" every IPv6 address. The node's own ::1 is never open (127.0.0.1 is).
	HostIP                  string
	HostPort, ContainerPort int32
}

// DNS is the pod's resolver configuration, for CNI plugins that ask for it.
type DNS struct{ Servers, Searches, Options []string }

// Result is what Setup made.
type Result struct {
	IPs []netip.Addr // the primary address first
	// Raw is what Teardown needs; the caller stores it and passes it back unread.
	Raw       json.RawMessage
	Interface string // the pod's interface
}

// Network connects pods. It is safe for concurrent use; calls for one pod must not overlap.
type Network interface {
	// Setup connects the pod. It undoes what it did when it fails, and is durable before it returns.
	//
	// # Errors
	//
	// ErrInvalidArgument for an invalid port mapping, ErrNotFound without the network
	// namespace, ErrAlreadyExists for a host port that another pod holds, ErrResourceExhausted when
	// no address is left, ErrFailedPrecondition when the kernel lacks what a host port needs,
	// ErrUnavailable when the network is not ready.
	Setup(ctx context.Context, p Pod) (Result, error)
	// Teardown disconnects the pod. It is idempotent and does not need the network namespace. A zero
	// Result is accepted, whether the pod's Setup has completed or not.
	Teardown(ctx context.Context, p Pod, r Result) error
	// Status returns nil when pods can be connected, otherwise what is missing. It repairs what it
	// can.
	Status(ctx context.Context) error
	// GC removes what belongs to pods of ours that are not in keep, the ids of the sandboxes that
	// are alive (those on the node's network may be left out). It continues after an error and
	// returns all of them.
	GC(ctx context.Context, keep []string) error
	// Close leaves the pods' network as it is.
	Close() error
}

// Ranged is a Network that can give pods addresses of the range that the cluster has for this node.
type Ranged interface {
	// UseRange tells the range, at most one prefix of each family; it is remembered. CNI plugins
	// get theirs from their own configuration, and subnets of this network's configuration come
	// before it. Pods keep the addresses they have.
	//
	// # Errors
	//
	// ErrInvalidArgument for an invalid range.
	UseRange(prefixes []string) error
}

// Options configure New.
type Options struct {
	// ConfDir holds CNI configurations (*.conflist, *.conf, *.json); the first by name is used, and
	// looked for anew at every Setup and Status. "" = only the embedded network.
	ConfDir string
	// BinDirs are searched for CNI plugins.
	BinDirs []string
	// CacheDir is libcni's cache of results. "" = /var/lib/cni, which other CNI runtimes use too: a
	// shared one lets each see (and keep at GC) the attachments of the others.
	CacheDir string
	// Use says when the embedded network connects pods where there is no CNI configuration. "" =
	// UseAuto.
	Use Use
	// StateDir keeps durable choices and leases; it is made.
	StateDir string
	// SandboxesDir is where the pods' directories are: for pods that are not kept, GC removes the pins
	// below SandboxesDir/<id>/ns if a network namespace is among them. "" = none.
	SandboxesDir string
	Embedded     EmbeddedOptions
	Logger       *slog.Logger
}

// EmbeddedOptions configure the embedded network.
type EmbeddedOptions struct {
	// Bridge is the name of the bridge, at most 15 bytes; see DefaultBridgeName. "" = sunaba0.
	Bridge string
	// SubnetV4 and SubnetV6 are where pods' addresses come from, in CIDR notation. "" = a free one
	// is chosen at the first start and remembered. SubnetV6 "none" = no IPv6.
	SubnetV4, SubnetV6 string
	// LinkLocal lets pods reach link-local addresses beyond the node: a cloud's metadata service,
	// which gives the node's own credentials to whoever asks.
	LinkLocal bool
	// Quarantine is how long a freed address is not handed out again. 0 = 10 s.
	Quarantine time.Duration
}
