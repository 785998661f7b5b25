package wasip1

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// Preopen is a directory that the guest finds open when it starts.
type Preopen = wasi.Preopen

// Listener is a listening stream socket that the guest finds open when it starts, non-blocking.
type Listener struct {
	FD   int
	Name string
}

// Config is what one guest gets. The descriptors of preopens and listeners belong to the Host once
// New has succeeded; those of the standard streams stay the caller's.
type Config struct {
	Args, Env             []string // Env holds "NAME=value"
	Stdin, Stdout, Stderr int      // host descriptors, -1 for absent: reads end, writes vanish
	Preopens              []Preopen
	Listeners             []Listener
}

// Host is the WASI of one guest. A guest has one thread; Interrupt and Hears may be called from
// others.
type Host struct {
	config Config
	system *wasi.System
	table  table

	// Scratch space, so that reading, writing and polling make no garbage.
	buffers wasi.Buffers
	polled  polled
}

// New checks config and makes the guest's descriptor table: the standard streams at 0, 1 and 2,
// then the listeners, then the preopens.
//
// # Errors
//
// ErrInvalidArgument for a descriptor that is not what it is said to be, and for a zero byte in a
// string. On error the descriptors in config remain the caller's.
func New(config Config) (*Host, error) {
	h := &Host{config: config, buffers: make(wasi.Buffers, 0, 8)}
	for _, list := range [][]string{config.Args, config.Env} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return nil, fmt.Errorf("use string %q: it holds a zero byte: %w", s, errdefs.ErrInvalidArgument)
			}
		}
	}
	h.system = wasi.New()
	if err := h.fill(); err != nil {
		for _, d := range h.table.open {
			if d.file.Kind() == wasi.KindListener && d.preopen {
				d.file.Disown()
			}
		}
		h.shut()
		return nil, err
	}
	return h, nil
}

// fill opens everything that New promises.
func (h *Host) fill() error {
	files, access, err := h.system.Stdio(h.config.Stdin, h.config.Stdout, h.config.Stderr)
	if err != nil {
		return err
	}
	for i, f := range files {
		base := able(f)
		if access[i]&wasi.CanRead == 0 {
			base &^= rightFdRead
		}
		if access[i]&wasi.CanWrite == 0 {
			base &^= rightFdWrite
		}
		h.table.append(&descriptor{file: f, base: base})
	}
	for _, l := range h.config.Listeners {
		if err := h.addListener(l); err != nil {
			return err
		}
	}
	for _, p := range h.config.Preopens {
		if err := h.addPreopen(p); err != nil {
			return fmt.Errorf("take preopen %q: %w", p.Name, err)
		}
	}
	return nil
}

// Announce gives the guest further listeners, between those of New and the preopens, and adds env
// to its environment. It is for the time before the guest runs. The descriptors belong to the Host
// from here on.
//
// # Errors
//
// ErrInvalidArgument for a descriptor that does not listen. The guest must not run then.
func (h *Host) Announce(listeners []Listener, env []string) error {
	at := slices.IndexFunc(h.table.open, func(d *descriptor) bool { return d.preopen && d.file.Kind() == wasi.KindDirectory })
	if at < 0 {
		at = len(h.table.open)
	}
	behind := slices.Clone(h.table.open[at:])
	h.table.cut(at)
	var err error
	for i, l := range listeners {
		if err = h.addListener(l); err != nil {
			for _, refused := range listeners[i:] {
				unix.Close(refused.FD)
			}
			break
		}
	}
	for _, d := range behind { // after an error too: Close closes them
		h.table.append(d)
	}
	if err != nil {
		return err
	}
	h.config.Env = append(slices.Clip(h.config.Env), env...)
	return nil
}

func (h *Host) addListener(l Listener) error {
	s, err := h.system.Listener(l.FD)
	if err != nil {
		return fmt.Errorf("take listener %q: %w", l.Name, err)
	}
	h.table.append(&descriptor{file: &s.File, base: rightsListener, inheriting: rightsSocket, preopen: true, name: l.Name})
	return nil
}

func (h *Host) addPreopen(p Preopen) error {
	if p.Name == "" || strings.IndexByte(p.Name, 0) >= 0 {
		return fmt.Errorf("use name %q: %w", p.Name, errdefs.ErrInvalidArgument)
	}
	dir, err := h.system.Preopen(p)
	if err != nil {
		return err
	}
	h.table.append(&descriptor{
		file: &dir.File, base: rightsDirectory, inheriting: rightsDirectory | rightsFile, preopen: true, name: p.Name,
	})
	return nil
}

// System is what the guest's operations work on.
func (h *Host) System() *wasi.System { return h.system }

// Root is the guest's preopen "/", nil if it has none or has closed it.
func (h *Host) Root() *wasi.Dir {
	for _, d := range h.table.open {
		if d != nil && d.preopen && d.name == "/" {
			if dir, err := d.file.AsDir(); err == nil {
				return dir
			}
		}
	}
	return nil
}

// Interrupt asks the guest to end: see wasi.System.Interrupt.
func (h *Host) Interrupt() { h.system.Interrupt() }

// Hears tells whether the guest has a listener or a standard input to notice Interrupt by.
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
	for _, d := range h.table.open {
		if d != nil {
			d.file.Close()
		}
	}
	h.table = table{}
	h.system.Close()
}
