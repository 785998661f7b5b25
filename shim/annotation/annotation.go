// Package annotation has what a caller tells the shim of a sandbox or a container beside the OCI
// configuration: Facts. They travel in the configuration's annotations, which is all that
// containerd passes on, and which a shim that takes over finds in the bundle. Nobody else reads or
// writes these annotations.
package annotation

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/stdio"
)

// Names of the annotations. The first two are containerd's own, so that bundles of both callers
// read alike; StopSignal is the image's, as containerd's clients pass it on.
const (
	ContainerType = "io.kubernetes.cri.container-type" // sandbox or container
	SandboxID     = "io.kubernetes.cri.sandbox-id"
	StopSignal    = "org.opencontainers.image.stopSignal"
	HandlerType   = "io.sunaba.handler-type"
	Program       = "io.sunaba.program"
	ModulePath    = "io.sunaba.wasm.module"
	ModuleDigest  = "io.sunaba.wasm.digest"
	ModuleName    = "io.sunaba.wasm.name"
	Listen        = "io.sunaba.wasm.listen"
	OptimizeGo    = "io.sunaba.wasm.optimize-go"
	StopWait      = "io.sunaba.stop-wait"
	LogLimits     = "io.sunaba.log-limits"
	OneStep       = "io.sunaba.one-step"
	AwaitAttach   = stdio.AwaitAnnotation
)

// Values of ContainerType.
const (
	sandbox   = "sandbox"
	container = "container"
)

// Values of HandlerType and Program.
const (
	OCI  = "oci"
	Wasm = "wasm"
)

// Facts are what the shim and its engines are told. Their zero values say nothing: what is not told
// is found out, or is as its field says.
type Facts struct {
	Sandbox     bool   // it is a sandbox, not a container
	SandboxID   string // its pod; "" = a pod of its own
	HandlerType string // of the pod's handler: OCI or Wasm; "" = containers of both are run
	Program     string // what the container's program is, OCI or Wasm, if the caller has looked; "" = the engines look

	Module     Module // the guest's, when its image is a lone module
	Listeners  []Listener
	HTTP       HTTP
	OptimizeGo bool   // the functions of Go's guests are rewritten
	StopWait   bool   // a guest that cannot hear a stop waits out the grace period
	StopSignal string // by its name or number, for a guest, beside the usual ones

	LogLimits stdio.Limits
	OneStep   bool // the OCI runtime can make and start it in one step and loses no exit
	// AwaitAttach has the output wait for somebody who attaches, and for that one while it does not
	// read.
	AwaitAttach bool
}

// Module is a WebAssembly module in a file of its own.
type Module struct {
	Path   string // on the host, absolute; "" = none
	Digest string // "" = not known
	Name   string // of the file in its image; "" = not known
}

// Listener is a TCP port that is open before a guest starts. An optional one that is taken by
// somebody else is left out: a pod's ports do not tell which container serves them.
type Listener struct {
	Name     string `json:"name"`
	Address  string `json:"address,omitempty"` // an IP address; "" = every one
	Port     uint16 `json:"port"`
	Optional bool   `json:"optional,omitempty"`
}

// Read reads the facts among a configuration's annotations.
//
// # Errors
//
// ErrInvalidArgument, with the annotation's name, for a value that cannot be read.
func Read(annotations map[string]string) (Facts, error) {
	f := Facts{
		Sandbox:     annotations[ContainerType] == sandbox,
		SandboxID:   annotations[SandboxID],
		HandlerType: annotations[HandlerType],
		Program:     annotations[Program],
		Module:      Module{Path: annotations[ModulePath], Digest: annotations[ModuleDigest], Name: annotations[ModuleName]},
		StopWait:    annotations[StopWait] == "true",
		StopSignal:  annotations[StopSignal],
		OneStep:     annotations[OneStep] == "true",
		AwaitAttach: annotations[AwaitAttach] == "true",
	}
	if f.Module.Path != "" && !filepath.IsAbs(f.Module.Path) {
		return Facts{}, fmt.Errorf("annotation %s: path %q is not absolute: %w", ModulePath, f.Module.Path, errdefs.ErrInvalidArgument)
	}
	if text := annotations[Listen]; text != "" {
		if err := json.Unmarshal([]byte(text), &f.Listeners); err != nil {
			return Facts{}, fmt.Errorf("annotation %s: %w: %w", Listen, err, errdefs.ErrInvalidArgument)
		}
	}
	switch word := annotations[OptimizeGo]; word {
	case "", "false":
	case "true":
		f.OptimizeGo = true
	default:
		return Facts{}, fmt.Errorf("annotation %s: %q is neither true nor false: %w", OptimizeGo, word, errdefs.ErrInvalidArgument)
	}
	var name string
	var err error
	if f.HTTP, name, err = ReadHTTP(func(name string) string { return annotations[name] }); err != nil {
		return Facts{}, fmt.Errorf("annotation %s: %w", name, err)
	}
	if f.LogLimits, err = stdio.ParseLimits(annotations[LogLimits]); err != nil {
		return Facts{}, fmt.Errorf("annotation %s: %w", LogLimits, err)
	}
	return f, nil
}

// ReadOfPod is Read for containerd, which passes the annotations of a pod's author on. What names a
// file of the host or changes how the shim works is for a server to say: it is passed over.
func ReadOfPod(annotations map[string]string) (Facts, error) {
	told := map[string]string{}
	for _, name := range append([]string{ContainerType, SandboxID, StopSignal, Listen, OptimizeGo, StopWait}, HTTPNames()...) {
		told[name] = annotations[name]
	}
	return Read(told)
}

// Annotations are the facts as Read reads them.
func (f Facts) Annotations() map[string]string {
	all := map[string]string{
		ContainerType: container,
		SandboxID:     f.SandboxID,
		HandlerType:   f.HandlerType,
		Program:       f.Program,
		ModulePath:    f.Module.Path,
		ModuleDigest:  f.Module.Digest,
		ModuleName:    f.Module.Name,
		OptimizeGo:    word(f.OptimizeGo),
		StopWait:      word(f.StopWait),
		StopSignal:    f.StopSignal,
		LogLimits:     f.LogLimits.String(),
		OneStep:       word(f.OneStep),
		AwaitAttach:   word(f.AwaitAttach),
	}
	f.HTTP.annotations(all)
	if f.Sandbox {
		all[ContainerType] = sandbox
	}
	if len(f.Listeners) > 0 {
		text, _ := json.Marshal(f.Listeners) // of strings and numbers: it cannot fail
		all[Listen] = string(text)
	}
	for name, value := range all {
		if value == "" {
			delete(all, name)
		}
	}
	return all
}

func word(fact bool) string {
	if fact {
		return "true"
	}
	return ""
}
