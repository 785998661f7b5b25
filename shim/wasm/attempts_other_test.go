//go:build !amd64

package wasm

func machineAttempts() []attempt { return nil }
