package wasm

import (
	"context"
	"errors"
	"fmt"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/reaper"
)

// Options of the engine.
type Options struct {
	// Self is the binary with the guest and compile faces; "" = this process's own.
	Self string
	// CacheDir holds compiled modules. It is shared by all shims of the node.
	CacheDir string
}

// Engine implements shim.Engine.
type Engine struct {
	options Options
	reaper  *reaper.Reaper
}

var _ shim.Engine = (*Engine)(nil)

// New makes the engine. Every process it starts is started through r.
func New(options Options, r *reaper.Reaper) (*Engine, error) {
	if options.CacheDir == "" {
		return nil, errors.New("wasm engine: no cache directory")
	}
	if options.Self == "" {
		options.Self = "/proc/self/exe"
	}
	return &Engine{options: options, reaper: r}, nil
}

// Name implements shim.Engine.
func (e *Engine) Name() string { return "wasm" }

// Handles implements shim.Engine.
func (e *Engine) Handles(ctx context.Context, b *shim.Bundle) (bool, error) { return false, nil }

// Create implements shim.Engine.
func (e *Engine) Create(ctx context.Context, b *shim.Bundle, io shim.IO, o shim.Options) (shim.Container, error) {
	return nil, fmt.Errorf("create %q", b.ID)
}
