//go:build !amd64

package engine

func machineAttempts() []attempt { return nil }
