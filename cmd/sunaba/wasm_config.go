package main

import "fmt"

type wasmConfig struct {
	OptimizeGo       bool  `toml:"optimize_go"`
	CompileMemoryMiB int64 `toml:"compile_memory_mib"`
}

func (c wasmConfig) check() error {
	const least, most = 64, 1 << 30
	if c.CompileMemoryMiB != 0 && (c.CompileMemoryMiB < least || c.CompileMemoryMiB > most) {
		return fmt.Errorf("wasm.compile_memory_mib is %d, and 0 or %d to %d is what it may be", c.CompileMemoryMiB, least, most)
	}
	return nil
}
