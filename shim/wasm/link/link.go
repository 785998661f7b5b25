// Package link is what the engine in the shim and a guest process say to each other: one
// configuration down, then short messages both ways over an inherited socket pair. Each message is
// one packet, so that an engine that dies leaves no half of one to its successor.
//
// Order: the engine sends Config and the files that belong to it. The guest process locks itself
// in, loads the module and sends Created, or Error and ends. The engine sends Start; the guest
// process opens its listeners and sends Started, or Error and ends, runs the module and sends Exit
// before it ends. In between the engine may send Interrupt and Ceiling. The end of the link tells
// the guest process that its shim has exited and that no supervisor keeps the link for a successor:
// it ends.
package link

import (
	"slices"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// FD is the descriptor a guest process finds its end of the link at.
const FD = 3

// StopCode is the exit code of a guest that was asked to end and cannot hear it: 128 + SIGTERM.
const StopCode = 143

// Bounds in bytes. What comes from a guest process is kept short: a guest that has taken its
// process over must not fill the shim's memory.
const (
	maxConfig = 64 << 20
	maxPacket = 64 << 10 // of which a configuration takes several
	maxText   = 8 << 10
)

// Kind tells messages apart.
type Kind string

// What the engine sends after Config, and what the guest process sends.
const (
	Start     Kind = "start"
	Interrupt Kind = "interrupt" // asks the guest to end
	Ceiling   Kind = "ceiling"   // a new upper bound of linear memory, in Bytes

	Created Kind = "created"
	Started Kind = "started" // EngineCPU is final
	Error   Kind = "error"   // Text and Class say why there will be no guest
	Exit    Kind = "exit"    // Code and Text say how the guest ended
	Heard   Kind = "heard"   // Interrupt has arrived
)

// Class of an Error.
type Class string

// Classes: the module is at fault, the container's configuration or this host is, or a name is
// taken.
const (
	Invalid      Class = "invalid"
	Precondition Class = "precondition"
	Full         Class = "full" // a disk has no space left
	Internal     Class = "internal"
	Stale        Class = "stale" // the compiled entry does not fit this engine and is to be made again
)

// Message is what is said after Config. Which fields count depends on Kind.
type Message struct {
	Kind       Kind          `json:"kind"`
	Bytes      uint64        `json:"bytes,omitempty"`      // Ceiling
	LinearBase uint64        `json:"linearBase,omitempty"` // Created, Started: address of the linear memory's reservation
	LinearSize uint64        `json:"linearSize,omitempty"` // Created, Started: its size in bytes
	EngineCPU  time.Duration `json:"engineCPU,omitempty"`  // Created, Started: CPU time used so far
	Hears      bool          `json:"hears,omitempty"`      // Created: the guest can notice Interrupt
	Shared     bool          `json:"shared,omitempty"`     // Created, Started: the machine code is one mapping for all guests of the module
	Code       uint32        `json:"code,omitempty"`       // Exit
	Full       bool          `json:"full,omitempty"`       // Exit: the guest ended because its memory could not grow
	Class      Class         `json:"class,omitempty"`      // Error
	Text       string        `json:"text,omitempty"`       // Error, Exit
}

// Config is what a guest process is made from. Files is how many open files come after it
// (SendFiles): those of Streams, the tree of the compiled module, the root's tree with Rootfs, and
// one tree for each bind mount of Mounts. Trees are mounts that are attached nowhere, as
// open_tree(2) makes them: a guest process never looks for a path of the host.
type Config struct {
	Files int      `json:"files,omitempty"`
	Args  []string `json:"args"`
	Env   []string `json:"env,omitempty"`
	// Load is how the compiled module is loaded; StartFunction tells that instantiating it runs the
	// module's code already, so that it waits for Start.
	Load          compile.Load `json:"load"`
	StartFunction bool         `json:"startFunction,omitempty"`
	// Streams are those of the standard descriptors that get a file. The others stay what they are.
	Streams []int `json:"streams,omitempty"`

	// Without Rootfs there is an empty read-only tree that only has mount points.
	Rootfs   bool    `json:"rootfs,omitempty"`
	ReadOnly bool    `json:"readOnly,omitempty"`
	Mounts   []Mount `json:"mounts,omitempty"`
	// Join is the inherited descriptor of a mount namespace that is already laid out: a further
	// process of a container. Rootfs, ReadOnly and Mounts are not used then. 0 = none.
	Join int `json:"join,omitempty"`

	Hostname string                `json:"hostname,omitempty"` // "" leaves the UTS namespace alone
	Listen   []annotation.Listener `json:"listen,omitempty"`
	// HTTP is how a component answers requests, on the listeners of Listen.
	HTTP annotation.HTTP `json:"http,omitzero"`
	// Processors is how many processors the container may use, 0 = not known.
	Processors int `json:"processors,omitempty"`

	UID     uint32   `json:"uid"`
	GID     uint32   `json:"gid"`
	Groups  []uint32 `json:"groups,omitempty"`
	Rlimits []Rlimit `json:"rlimits,omitempty"`

	// Memory is the upper bound of linear memory in bytes, the container's limit, 0 = none. Engine
	// is what the process may take beside it where there is one.
	Memory uint64 `json:"memory,omitempty"`
	Engine uint64 `json:"engine,omitempty"`
	// NoStdin tells that the container has no standard input: its end cannot tell the guest to stop.
	NoStdin bool `json:"noStdin,omitempty"`
	// StopWait lets a guest that cannot hear Interrupt run on; without it such a guest ends with
	// StopCode.
	StopWait bool    `json:"stopWait,omitempty"`
	Umask    *uint32 `json:"umask,omitempty"`

	// Refuse, if set, makes the process say why there is nothing to run and end with RefuseCode.
	Refuse     string `json:"refuse,omitempty"`
	RefuseCode uint32 `json:"refuseCode,omitempty"`
	// Further marks an exec: an Error is written to its standard error and ends it with code 126.
	Further bool `json:"further,omitempty"`
}

// Mount is one mount of the container, in the order they are made.
type Mount struct {
	Type        string   `json:"type,omitempty"`
	Destination string   `json:"destination"`
	Options     []string `json:"options,omitempty"`
}

// Bind says whether the mount shows a tree that is mounted already, and whether all that is mounted
// below that with it.
func (m Mount) Bind() (bind, recursive bool) {
	recursive = slices.Contains(m.Options, "rbind")
	return recursive || m.Type == "bind" || slices.Contains(m.Options, "bind"), recursive
}

// Rlimit is a resource limit by the kernel's number.
type Rlimit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// Shorten cuts a text to what a message may carry.
func Shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + " …"
}
