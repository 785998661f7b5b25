package wasip2

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
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

// Host is what all instances of a guest share. Its methods may be called from any goroutine.
type Host struct{ config Config }

// New checks config and takes the preopens.
//
// # Errors
//
// ErrInvalidArgument for a string that is not UTF-8. On error the descriptors in config remain the
// caller's.
func New(config Config) (*Host, error) {
	for _, list := range [][]string{config.Args, config.Env} {
		for _, s := range list {
			if !utf8.ValidString(s) {
				return nil, fmt.Errorf("use string %q: it is not UTF-8: %w", s, errdefs.ErrInvalidArgument)
			}
		}
	}
	for _, p := range config.Preopens {
		if p.Name == "" || !utf8.ValidString(p.Name) {
			return nil, fmt.Errorf("take preopen %q: use its name: %w", p.Name, errdefs.ErrInvalidArgument)
		}
	}
	return &Host{config: config}, nil
}

// Close releases the preopens. Every instance must be closed.
func (h *Host) Close() error {
	for _, p := range h.config.Preopens {
		unix.Close(p.FD)
	}
	h.config.Preopens = nil
	return nil
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
