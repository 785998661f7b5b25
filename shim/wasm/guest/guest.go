// Package guest is the guest face of the shim binary: the process that locks itself in and then
// runs one WebAssembly module.
package guest

// Main runs the guest face and returns the process's exit code.
func Main() int { return 1 }
