package wasip2

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// Preopen is a directory that the guest finds open when it starts.
type Preopen = wasi.Preopen

// Config is what one guest gets. The descriptors of preopens belong to the Host once New has
// succeeded; those of the standard streams stay the caller's.
type Config struct {
	Args, Env             []string // Env holds "NAME=value"; PWD in it is the initial working directory
	Stdin, Stdout, Stderr int      // host descriptors, -1 for absent: reads end, writes vanish
	Preopens              []Preopen
}

// Host is the WASI of one guest. A guest has one thread; Interrupt and Hears may be called from
// others.
type Host struct {
	config  Config
	system  *wasi.System
	handles table
	stdio   [3]*node
	given   []*descriptor // of each of config.Preopens

	reallocs map[string]api.Function // by the name of the guest's export
	leaving  bool                    // the guest's realloc runs: it must not call imports
	seed     *[2]uint64              // insecure-seed's answer, once it was asked for

	// Scratch space, so that calls make no garbage.
	call    call
	buffers wasi.Buffers
	bytes   []byte
	subs    []wasi.Subscription
}

// New checks config and takes the standard streams and the preopens.
//
// # Errors
//
// ErrInvalidArgument for a descriptor that is not what it is said to be, and for a string that is
// not UTF-8. On error the descriptors in config remain the caller's.
func New(config Config) (*Host, error) {
	h := &Host{config: config, buffers: make(wasi.Buffers, 0, 1), reallocs: map[string]api.Function{}}
	for _, list := range [][]string{config.Args, config.Env} {
		for _, s := range list {
			if !utf8.ValidString(s) {
				return nil, fmt.Errorf("use string %q: it is not UTF-8: %w", s, errdefs.ErrInvalidArgument)
			}
		}
	}
	var err error
	if h.system, err = wasi.New(); err != nil {
		return nil, err
	}
	if err := h.fill(); err != nil {
		h.shut()
		return nil, err
	}
	return h, nil
}

// fill opens everything that New promises.
func (h *Host) fill() error {
	files, _, err := h.system.Stdio(h.config.Stdin, h.config.Stdout, h.config.Stderr)
	if err != nil {
		return err
	}
	for i, f := range files {
		h.stdio[i] = &node{file: f, users: 1}
	}
	for _, p := range h.config.Preopens {
		if p.Name == "" || !utf8.ValidString(p.Name) {
			return fmt.Errorf("take preopen %q: use its name: %w", p.Name, errdefs.ErrInvalidArgument)
		}
		dir, err := h.system.Preopen(p)
		if err != nil {
			return fmt.Errorf("take preopen %q: %w", p.Name, err)
		}
		flags := descriptorRead | descriptorMutate
		if p.ReadOnly {
			flags = descriptorRead
		}
		h.given = append(h.given, &descriptor{node: &node{file: &dir.File, users: 1}, flags: flags})
	}
	return nil
}

// System is what the guest's operations work on.
func (h *Host) System() *wasi.System { return h.system }

// Interrupt asks the guest to end: see wasi.System.Interrupt.
func (h *Host) Interrupt() { h.system.Interrupt() }

// Hears tells whether the guest has a standard input to notice Interrupt by.
func (h *Host) Hears() bool { return h.system.Hears() }

// Close releases every descriptor the guest had, the standard streams excepted. The guest must have
// ended.
func (h *Host) Close() error {
	h.shut()
	for _, p := range h.config.Preopens {
		unix.Close(p.FD)
	}
	h.config.Preopens = nil
	return nil
}

// shut releases what New and the guest opened.
func (h *Host) shut() {
	h.handles.clear()
	for _, d := range h.given {
		d.drop()
	}
	h.given = nil
	for i, n := range h.stdio {
		if n != nil {
			n.release()
		}
		h.stdio[i] = nil
	}
	h.system.Close()
}

// variable is a variable of the guest's environment.
func (h *Host) variable(name string) (string, bool) {
	for _, v := range h.config.Env {
		if key, value, _ := strings.Cut(v, "="); key == name {
			return value, true
		}
	}
	return "", false
}

// failed is the error of an operation on the file, which tells that it was one of a connection.
func (n *node) failed(err error) error {
	if _, no := n.file.AsSocket(); err == nil || err == unix.EPIPE || no != nil {
		return err
	}
	return streamFailure{err}
}

// node is an open file that several resources share.
type node struct {
	file  *wasi.File
	users int
}

// use counts another resource.
func (n *node) use() *node { n.users++; return n }

// release closes the file behind its last resource.
func (n *node) release() {
	if n.users--; n.users == 0 {
		_ = n.file.Close() // drop has no result
	}
}

// realloc is the guest's function of that name.
func (h *Host) realloc(mod api.Module, name string) api.Function {
	f, known := h.reallocs[name]
	if !known {
		f = mod.ExportedFunction(name)
		h.reallocs[name] = f
	}
	return f
}

// scratch is room for n bytes of a read, or for maxRead. It is valid until the next call of it.
func (h *Host) scratch(n uint64) []byte {
	if h.bytes == nil {
		h.bytes = make([]byte, maxRead)
	}
	return h.bytes[:min(n, maxRead)]
}

// enter starts a call of the guest's. A guest has one at a time.
func (h *Host) enter(ctx context.Context, mod api.Module, b *binding) *call {
	h.call = call{host: h, ctx: ctx, mod: mod, mem: mod.Memory(), bound: b}
	return &h.call
}
