package wasip1

import (
	"context"
	"errors"

	"github.com/tetratelabs/wazero"
)

// Preopen is a directory that the guest finds open when it starts.
type Preopen struct {
	FD       int    // host directory, opened with O_PATH or O_RDONLY|O_DIRECTORY
	Name     string // the guest's name for it, "/" for instance
	ReadOnly bool   // refuse whatever would change it, beside the kernel's own flag
}

// Listener is a listening TCP socket that the guest finds open when it starts.
type Listener struct {
	FD   int
	Name string
}

// Config is what one guest gets. Host descriptors given here stay owned by the Host: Close closes
// preopens and listeners, but never the standard streams.
type Config struct {
	Args, Env             []string // Env holds "NAME=value"
	Stdin, Stdout, Stderr int      // host descriptors, -1 for absent
	Preopens              []Preopen
	Listeners             []Listener
}

// Host is the WASI of one guest.
type Host struct {
	config Config
}

// New checks config and makes the guest's descriptor table.
func New(config Config) (*Host, error) { return &Host{config: config}, nil }

// Instantiate defines the module wasi_snapshot_preview1 in r.
func (h *Host) Instantiate(ctx context.Context, r wazero.Runtime) error {
	return errors.New("instantiate wasi_snapshot_preview1: not yet")
}

// Interrupt asks the guest to end.
func (h *Host) Interrupt() {}

// Hears tells whether the guest has a listener or a standard input to notice Interrupt by.
func (h *Host) Hears() bool { return len(h.config.Listeners) > 0 || h.config.Stdin >= 0 }

// Close releases every descriptor the guest had.
func (h *Host) Close() error { return nil }
