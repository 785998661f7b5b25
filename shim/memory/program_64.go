//go:build amd64 || arm64 || riscv64

package memory

import "debug/elf"

type header = elf.Prog64 // of the program: see elf(5)
