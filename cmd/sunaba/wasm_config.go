package main

import (
	"fmt"
	"path/filepath"

	"github.com/sunaba-project/sunaba/criserver/compiler"
)

type wasmConfig struct {
	Cache                string `toml:"cache"`
	OptimizeGo           bool   `toml:"optimize_go"`
	ParallelCompilations int    `toml:"parallel_compilations"`
	CompileMemoryMiB     int64  `toml:"compile_memory_mib"`
}

// cache is where compiled modules are.
func (c wasmConfig) cache(p places) string {
	if c.Cache == "" {
		return filepath.Join(p.root, "wasm")
	}
	return c.Cache
}

func (c wasmConfig) limits() compiler.Limits {
	return compiler.Limits{Parallel: c.ParallelCompilations, Memory: uint64(c.CompileMemoryMiB) << 20}
}

func (c wasmConfig) check() error {
	const least, most = 64, 1 << 30
	switch {
	case c.ParallelCompilations < 0 || c.ParallelCompilations > 1024:
		return fmt.Errorf("wasm.parallel_compilations is %d, and 0 to 1024 is what it may be", c.ParallelCompilations)
	case c.CompileMemoryMiB != 0 && (c.CompileMemoryMiB < least || c.CompileMemoryMiB > most):
		return fmt.Errorf("wasm.compile_memory_mib is %d, and 0 or %d to %d is what it may be", c.CompileMemoryMiB, least, most)
	}
	return nil
}
